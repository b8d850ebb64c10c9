import FoundationEssentials
import JSON

/// The kinds of files that an export from a server writes.
enum ExportKind: String, CaseIterable {
    case assignments, exposures, events, audit

    /// The kind of the feed's lines for these files; `nil` for the audit log, which is not in the feed.
    var feedKind: String? {
        switch self {
        case .assignments: "assignment"
        case .exposures: "exposure"
        case .events: "goal"
        case .audit: nil
        }
    }
}

/// The progress of an export, which the file of `--after` stores. Lines in files beyond it are not valid.
struct ExportState {
    /// The file that is being written, of one kind.
    struct File: Equatable {
        /// The number of the file, counted from 1 for each kind and export. Files with lower numbers are complete.
        var number = 1
        /// The length of the valid part in bytes.
        var bytes = 0
        /// When the first line was written, in seconds since 1970.
        var begunAt: Double = 0
    }

    /// The entries of the audit log that are written.
    struct Audit: Equatable {
        /// The highest id.
        var last: Int64 = 0
        /// Lower ids that did not exist when they were read: on PostgreSQL a transaction may commit after one with a
        /// higher id.
        var missing: Set<Int64> = []
        /// The maximum distance of a missing id from the highest one. A lower id is no longer expected, and counts as
        /// written.
        static let window: Int64 = 100

        /// The lowest id that may not have been written yet.
        var next: Int64 { missing.min() ?? last + 1 }

        /// Whether an entry is written.
        func has(_ id: Int64) -> Bool { id <= last && !missing.contains(id) }

        /// Adds entries that are now written.
        mutating func take(_ ids: [Int64]) {
            guard let newest = ids.max(), newest > 0 else { return }
            let new = Set(ids)
            let highest = max(last, newest)
            let window = max(1, highest - Self.window)...highest
            missing = Set(window.filter { !has($0) && !new.contains($0) })
            last = highest
        }
    }

    /// The number of the export, from 1; 0 before the first one. If the feed has deleted the changes after the cursor,
    /// another export begins.
    var export = 0
    /// The number of the last line, over all files of all exports.
    var line = 0
    /// The cursor of the feed.
    var feed = ""
    /// The progress in the audit log, which is not in the feed.
    var audit = Audit()
    /// The file of each kind that is being written.
    var files: [ExportKind: File]

    init(_ kinds: [ExportKind]) {
        files = Dictionary(uniqueKeysWithValues: kinds.map { ($0, File()) })
    }
}

extension ExportState {
    /// Reads the state from its file.
    ///
    /// - Returns: `nil` if there is no file.
    /// - Throws: ``Failure`` if the file is not a state, or if it belongs to an export of other kinds.
    init?(path: String, _ kinds: [ExportKind]) throws {
        guard FileManager.default.fileExists(atPath: path) else { return nil }
        let text: [UInt8]
        do {
            text = try OpenFile.content(of: path)
        } catch {
            throw Failure("\(path) cannot be read: \(error)")
        }
        guard let value = (try? JSONParser().parse(text))?.object, value["version"]?.integer == 1 else {
            throw Failure("\(path) must be written by an export of this release; it has something else")
        }
        let files = value["files"]?.object ?? JSONObject()
        let found = files.compactMap { ExportKind(rawValue: $0.key) }
        guard Set(found) == Set(kinds) else {
            let names = found.map(\.rawValue).sorted().joined(separator: ", ")
            throw Failure("\(path) must be of an export of the same kinds; it has \(names)")
        }
        self.init(kinds)
        export = Int(value["export"]?.integer ?? 0)
        line = Int(value["line"]?.integer ?? 0)
        feed = value["feed"]?.string ?? ""
        audit.last = value["audit"]?.object?["last"]?.integer ?? 0
        audit.missing = Set((value["audit"]?.object?["missing"]?.array ?? []).compactMap(\.integer))
        for kind in kinds {
            let file = files[kind.rawValue]?.object
            self.files[kind] = File(
                number: Int(file?["number"]?.integer ?? 1), bytes: Int(file?["bytes"]?.integer ?? 0),
                begunAt: file?["begun_at"]?.double ?? 0)
        }
    }

    /// The state as JSON, as its file has it.
    var json: JSONValue {
        var files = JSONObject()
        for (kind, file) in self.files.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
            files[kind.rawValue] = [
                "number": .integer(Int64(file.number)), "bytes": .integer(Int64(file.bytes)),
                "begun_at": .number(file.begunAt),
            ]
        }
        return [
            "version": 1, "export": .integer(Int64(export)), "line": .integer(Int64(line)), "feed": .string(feed),
            "audit": ["last": .integer(audit.last), "missing": .array(audit.missing.sorted().map { .integer($0) })],
            "files": .object(files),
        ]
    }

    /// Replaces the file durably: it has the old or the new state after a power failure.
    func write(to path: String) throws {
        do {
            let new = path + ".new"
            let file = try OpenFile(appendingTo: new)
            try file.truncate(to: 0)
            try file.write(json.encoded() + Array("\n".utf8))
            try file.synchronize()
            try OpenFile.rename(new, to: path)
            try OpenFile(path: OpenFile.directory(of: path)).synchronize()
        } catch {
            throw Failure("\(path) cannot be written: \(error)")
        }
    }
}
