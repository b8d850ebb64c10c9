import FoundationEssentials
import Glibc

/// The output of an export: files of each kind, or standard output.
///
/// A file is named `KIND-EXPORT-NUMBER.ndjson`, with the suffix `.partial` while it may grow. The ``ExportState``
/// defines which lines are valid. A commit has three steps: the lines are synchronized, the state is replaced, and
/// complete files are renamed. If the process ends in between, the next start repairs the directory.
final class ExportFiles {
    let kinds: [ExportKind]
    /// The progress, with the lines that are appended since the last commit.
    private(set) var state: ExportState
    /// The path of the file with the ``ExportState``.
    private let statePath: String
    /// `nil` for standard output.
    private let directory: String?
    /// The size in bytes at which a file ends.
    private let maximumBytes: Int
    /// The age in seconds at which a file ends.
    private let maximumAge: Double
    /// The growing files. On standard output there is only one, under the first kind, for the lines of all kinds.
    private var outputs: [ExportKind: Output] = [:]
    /// Whether files were created or renamed since the directory was synchronized.
    private var namesChanged = false
    /// The lock on the directory, which is held as long as this process runs.
    private let lock: OpenFile

    /// A growing file, with the lines that are not written yet.
    private struct Output {
        let file: OpenFile
        var waiting: [UInt8] = []
    }

    private static let ending = ".ndjson"
    private static let partialSuffix = ".partial"
    /// The size of waiting lines at which they are written, in bytes.
    private static let pieceBytes = 1 << 20

    /// Opens the files of a former run, and removes lines that the state does not have.
    ///
    /// - Parameters:
    ///   - directory: the directory of the files; `nil` for standard output.
    ///   - maximumBytes: the size at which a file ends.
    ///   - seconds: the age at which a file ends.
    init(
        _ kinds: [ExportKind], statePath: String, directory: String?, maximumBytes: Int, seconds: Double
    ) throws {
        self.kinds = kinds
        self.statePath = statePath
        self.directory = directory
        self.maximumBytes = maximumBytes
        maximumAge = seconds
        do {
            lock = try OpenFile(appendingTo: statePath + ".lock")
        } catch {
            throw Failure("\(statePath).lock cannot be written: \(error)")
        }
        guard lock.lock() else { throw Failure("\(statePath) must be used by one export; another process has it") }
        state = try ExportState(path: statePath, kinds) ?? ExportState(kinds)
        guard let directory else { return }
        do {
            try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        } catch {
            throw Failure("the directory \(directory) cannot be made: \(error)")
        }
        try renameCompleteFiles()
        try openGrowingFiles()
    }

    // MARK: Names

    /// Returns the final path of a file.
    private func path(_ kind: ExportKind, _ number: Int) -> String {
        func padded(_ number: Int, _ width: Int) -> String {
            String(repeating: "0", count: max(0, width - "\(number)".count)) + "\(number)"
        }
        return "\(directory ?? ".")/\(kind.rawValue)-\(padded(state.export, 4))-\(padded(number, 6))\(Self.ending)"
    }

    /// Returns the paths of the files of a kind that have lines of the snapshot in progress. Nothing of the snapshot is
    /// committed yet, so all these files have the suffix of growing files.
    func paths(of kind: ExportKind) throws -> [String] {
        guard directory != nil, let file = state.files[kind] else { return [] }
        try writeOut(kind)
        let last = file.bytes > 0 ? file.number : file.number - 1
        // `last` may be 0, and a range from 1 to 0 would be invalid.
        return (1...max(1, last)).filter { $0 <= last }.map { path(kind, $0) + Self.partialSuffix }
    }

    // MARK: Repairing

    /// Repairs the names in the directory according to the state: complete files get their final name, and files that
    /// have no valid lines are removed.
    private func renameCompleteFiles() throws {
        let names: [String]
        do {
            names = try FileManager.default.contentsOfDirectory(atPath: directory ?? ".")
        } catch {
            throw Failure("the directory \(directory ?? ".") cannot be read: \(error)")
        }
        // Files with their final name first: if the state does not know one of them, it belongs to another directory,
        // in which nothing must be changed.
        for name in names.sorted(by: { $0.count < $1.count }) {
            let isPartial = name.hasSuffix(Self.partialSuffix)
            let stem = isPartial ? name.dropLast(Self.partialSuffix.count) : name[...]
            let parts = stem.dropLast(Self.ending.count).split(separator: "-")
            guard stem.hasSuffix(Self.ending), parts.count == 3, let kind = ExportKind(rawValue: String(parts[0])),
                let file = state.files[kind], let export = Int(parts[1]), let number = Int(parts[2])
            else { continue }
            let path = "\(directory ?? ".")/\(name)"
            let isComplete = (export, number) < (state.export, file.number)
            let isGrowing = (export, number) == (state.export, file.number) && file.bytes > 0
            guard isPartial else {
                if isComplete { continue }
                throw Failure("\(statePath) must know the files of the directory; it does not know \(path)")
            }
            do {
                if isComplete {
                    try OpenFile.rename(path, to: String(path.dropLast(Self.partialSuffix.count)))
                } else if !isGrowing {
                    try FileManager.default.removeItem(atPath: path)
                }
            } catch {
                throw Failure("\(path) cannot be mended: \(error)")
            }
        }
    }

    /// Opens the growing files, and cuts them to their valid lengths.
    private func openGrowingFiles() throws {
        for (kind, file) in state.files where file.bytes > 0 {
            let path = path(kind, file.number) + Self.partialSuffix
            do {
                let open = try OpenFile(appendingTo: path)
                let length = Int(try open.status().st_size)
                guard length >= file.bytes else {
                    throw Failure("it must have the \(file.bytes) bytes that \(statePath) names; it has \(length)")
                }
                try open.truncate(to: file.bytes)
                outputs[kind] = Output(file: open)
            } catch {
                throw Failure("\(path) cannot be continued: \(error)")
            }
        }
    }

    // MARK: Writing

    /// Begins a new export, in new files. All lines before must be committed.
    func begin() throws {
        try finish()
        state.export += 1
        state.audit = ExportState.Audit()
        state.files = state.files.mapValues { _ in ExportState.File() }
    }

    /// Appends a line to the growing file of a kind, with the number of the line.
    ///
    /// - Parameter members: a line without its first brace: `"kind":"goal",…}`.
    func append(_ members: some Sequence<UInt8>, to kind: ExportKind) throws {
        state.line += 1
        let line = Array("{\"line\":\(state.line),".utf8) + members + [UInt8(ascii: "\n")]
        // On standard output all kinds share one buffer, which keeps the order of lines.
        guard directory != nil else { return try append(line, to: .standardOutput, kinds[0]) }
        var file = state.files[kind] ?? ExportState.File()
        if file.bytes > 0, file.bytes + line.count > maximumBytes {
            try close(kind)
            file = state.files[kind] ?? file
        }
        if file.bytes == 0 { file.begunAt = Double(systemSeconds()) }
        file.bytes += line.count
        state.files[kind] = file
        let output = try outputs[kind]?.file ?? create(kind, file.number)
        try append(line, to: output, kind)
    }

    /// Appends a line to the files of each kind. On standard output the line is written only once.
    func appendToAll(_ members: some Sequence<UInt8>) throws {
        for kind in directory == nil ? kinds.prefix(1) : kinds[...] { try append(members, to: kind) }
    }

    /// Creates a growing file, which must be empty.
    private func create(_ kind: ExportKind, _ number: Int) throws(Failure) -> OpenFile {
        let path = path(kind, number) + Self.partialSuffix
        do {
            let file = try OpenFile(appendingTo: path)
            try file.truncate(to: 0)
            namesChanged = true
            return file
        } catch {
            throw Failure("\(path) cannot be created: \(error)")
        }
    }

    /// Appends a line to the waiting lines, and writes them when they are many.
    private func append(_ line: [UInt8], to file: OpenFile, _ kind: ExportKind) throws(Failure) {
        var output = outputs.removeValue(forKey: kind) ?? Output(file: file)
        output.waiting += line
        let isFull = output.waiting.count >= Self.pieceBytes
        outputs[kind] = output
        if isFull { try writeOut(kind) }
    }

    /// Writes the waiting lines of a kind.
    private func writeOut(_ kind: ExportKind) throws(Failure) {
        guard let output = outputs[kind], !output.waiting.isEmpty else { return }
        do {
            try output.file.write(output.waiting)
        } catch {
            throw Failure("the file of \(kind) cannot be written: \(error)")
        }
        outputs[kind]?.waiting = []
    }

    /// Ends a file. It gets its final name with the next commit.
    private func close(_ kind: ExportKind) throws(Failure) {
        guard directory != nil, let file = state.files[kind], file.bytes > 0 else { return }
        try synchronize(kind)
        outputs[kind] = nil
        state.files[kind] = ExportState.File(number: file.number + 1)
    }

    /// Makes the lines of a kind durable.
    private func synchronize(_ kind: ExportKind) throws(Failure) {
        try writeOut(kind)
        guard directory != nil else { return }
        do {
            try outputs[kind]?.file.synchronize()
        } catch {
            throw Failure("the file of \(kind) cannot be written: \(error)")
        }
    }

    // MARK: Committing

    /// When the next file is due to end, in seconds since 1970; `nil` if no file is growing.
    var nextEnd: Double? {
        directory == nil ? nil : state.files.values.filter { $0.bytes > 0 }.map { $0.begunAt + maximumAge }.min()
    }

    /// Commits the appended lines, together with the places at which the export continues.
    func commit(feed: String, audit: ExportState.Audit) throws {
        state.feed = feed
        state.audit = audit
        let now = systemSeconds()
        for (kind, file) in state.files where file.bytes > 0 && file.begunAt + maximumAge <= now { try close(kind) }
        for kind in kinds { try synchronize(kind) }
        try synchronizeNames()
        try state.write(to: statePath)
        try rename()
    }

    /// Ends the growing files.
    func finish() throws {
        guard state.export > 0 else { return }
        for kind in kinds { try close(kind) }
        try synchronizeNames()
        try state.write(to: statePath)
        try rename()
    }

    /// Gives the complete files their final names.
    private func rename() throws {
        guard directory != nil else { return }
        for (kind, file) in state.files {
            // The search goes backwards, and ends at the first file that an earlier commit has renamed.
            var number = file.number - 1
            while number > 0 {
                let path = path(kind, number)
                guard FileManager.default.fileExists(atPath: path + Self.partialSuffix) else { break }
                do {
                    try OpenFile.rename(path + Self.partialSuffix, to: path)
                } catch {
                    throw Failure("\(path) cannot be named: \(error)")
                }
                namesChanged = true
                number -= 1
            }
        }
        try synchronizeNames()
    }

    /// Makes the names in the directory durable.
    private func synchronizeNames() throws(Failure) {
        guard let directory, namesChanged else { return }
        do {
            try OpenFile(path: directory).synchronize()
        } catch {
            throw Failure("the directory \(directory) cannot be written: \(error)")
        }
        namesChanged = false
    }
}

/// Returns the time in seconds since 1970.
func systemSeconds() -> Double { Date().timeIntervalSince1970 }
