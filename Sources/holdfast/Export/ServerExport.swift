import Chronology
import Glibc
import JSON
import Storage

/// Exports all records of a server as lines, and then the changes in its feed.
///
/// The records are read page by page while the server changes them. So the export remembers the feed's cursor from
/// before it, and appends the changes since then: a consumer that applies all lines in their order has the current
/// state. The audit log is not in the feed, and is read on its own.
struct ServerExport {
    private let server: ServerClient
    private let files: ExportFiles
    /// Whether the export waits for further changes.
    private let follows: Bool
    /// The goals that were committed during the export, which are in the files and are repeated by the feed.
    private var repeats = RepeatedGoals()
    /// The file of metrics; `nil` if none is requested.
    private var metrics: ExportMetrics?

    /// The maximum number of elements of a page.
    private static let pageLimit = 1_000
    /// The maximum number of lines in a response of the feed.
    private static let feedLimit = 10_000
    /// The time for which the feed is asked to wait for changes, in seconds.
    private static let waitSeconds = 30.0
    /// The interval at which the audit log is read, in seconds.
    private static let auditSeconds = 5.0
    /// The minimum time between two commits of few lines, in seconds.
    private static let commitSeconds = 1.0
    /// The time for which a request is repeated while the server does not respond, in seconds.
    private static let retrySeconds = 60.0

    init(_ server: ServerClient, into files: ExportFiles, follows: Bool, metrics: ExportMetrics?) {
        self.server = server
        self.metrics = metrics
        self.files = files
        self.follows = follows
    }

    private var kinds: [ExportKind] { files.kinds }

    /// Continues where the last run ended.
    mutating func run() throws {
        if files.state.export == 0 { try exportAll() }
        // Without `--follow` the export ends at the present end of the feed.
        let end = follows ? nil : try feedEnd()
        while true {
            let started = systemSeconds()
            let lines = try advance()
            if let end, Self.has(files.state.feed, reached: end) { return try files.finish() }
            let rest = started + Self.commitSeconds - systemSeconds()
            if lines < Self.feedLimit / 10, rest > 0 { usleep(UInt32(min(rest, Self.commitSeconds) * 1e6)) }
        }
    }

    /// Writes the next changes of the feed, and then the new entries of the audit log. If the feed has deleted the next
    /// changes, begins another export.
    ///
    /// - Returns: the number of lines of the feed.
    private mutating func advance() throws -> Int {
        var seconds = 0.0
        if follows {
            seconds = kinds.contains(.audit) ? Self.auditSeconds : Self.waitSeconds
            if let end = files.nextEnd { seconds = max(0, min(seconds, end - systemSeconds())) }
        }
        do {
            let asked = systemSeconds()
            let end = metrics == nil ? nil : try feedEnd()
            let page = try feed(after: files.state.feed, kinds: feedKinds, wait: Int(seconds.rounded(.up)))
            for line in page.lines { try append(line) }
            try appendAuditAndCommit(after: page.end)
            if let end, Self.has(files.state.feed, reached: end) { metrics?.write(completeTo: asked) }
            return page.lines.count
        } catch let refusal as ServerRefusal where refusal.status == 410 {
            OpenFile.printError("the feed has deleted what comes next: another export begins, in new files\n")
            try exportAll()
            return 0
        }
    }

    // MARK: Export

    /// Exports all records, and the changes that were committed meanwhile. The lines become valid only at the end.
    private mutating func exportAll() throws {
        let start = try feedEnd()
        try files.begin()
        try appendMark("export_begin")
        if kinds.contains(.assignments) { try exportAssignments() }
        if kinds.contains(.exposures) { try exportLines("/v1/exposures", as: "exposure", .exposures) }
        if kinds.contains(.events) { try exportLines("/v1/events", as: "goal", .events) }
        let end = try feedEnd()
        if kinds.contains(.events) { try findRepeats(from: start, to: end) }
        var cursor = start
        while !Self.has(cursor, reached: end) {
            let page = try feed(after: cursor, kinds: feedKinds, wait: 1)
            for line in page.lines { try append(line) }
            cursor = page.end
        }
        repeats = RepeatedGoals()
        try appendAuditAndCommit(after: cursor, isExport: true)
    }

    /// Appends a line that begins or ends an export of all records.
    private func appendMark(_ kind: String) throws {
        let at = systemWallClock().rfc3339
        try files.appendToAll(
            Array(#""kind":"\#(kind)","export":\#(files.state.export),"at":"\#(at)"}"#.utf8))
    }

    /// Exports the assignments of all profiles.
    private func exportAssignments() throws {
        var after = ""
        while true {
            let path = "/v1/profiles?detail=true&limit=\(Self.pageLimit)" + (after.isEmpty ? "" : "&after=\(after)")
            let lines = try lines(of: path)
            for line in lines {
                let profile = try object(line)
                for assignment in Self.assignments(of: profile) {
                    try files.append(JSONValue.object(assignment).encoded().dropFirst(), to: .assignments)
                }
                after = (profile["user_id"]?.string ?? "").percentEncoded
            }
            if lines.count < Self.pageLimit { return }
        }
    }

    /// Returns a line for each assignment of a profile; for a profile without assignments, one without an experiment.
    private static func assignments(of profile: JSONObject) -> [JSONObject] {
        let none = JSONObject.Member(key: "", value: ["variation_id": .null])
        let map = profile["experiment_bucket_map"]?.object ?? JSONObject()
        return (map.isEmpty ? [none] : map.members).map { member in
            var line = JSONObject()
            line["kind"] = "assignment"
            line["user_id"] = profile["user_id"] ?? .null
            line["experiment_id"] = member.key.isEmpty ? .null : .string(member.key)
            for detail in member.value.object ?? JSONObject() { line[detail.key] = detail.value }
            return line
        }
    }

    /// Exports all lines of a path.
    ///
    /// - Parameter kind: the kind of these lines in the feed.
    private func exportLines(_ path: String, as kind: String, _ files: ExportKind) throws {
        var after = "0"
        while true {
            let lines = try lines(of: "\(path)?after=\(after)&limit=\(Self.pageLimit)")
            for line in lines {
                let (cursor, members) = try Self.split(line)
                after = cursor
                try self.files.append(Array("\"kind\":\"\(kind)\",".utf8) + members, to: files)
            }
            if lines.count < Self.pageLimit { return }
        }
    }

    /// Appends new entries of the audit log, oldest first, and commits.
    ///
    /// A consumer that reads a tombstone (the line of an erasure or a merge) clears the user's entries before it.
    /// Entries are therefore written after all tombstones that were committed before them, and are read again if one of
    /// their users is erased or merged meanwhile.
    ///
    /// - Parameter isExport: whether this commit ends an export of all records.
    private mutating func appendAuditAndCommit(after cursor: String, isExport: Bool = false) throws {
        var cursor = cursor
        var audit = files.state.audit
        var entries = try newAuditEntries()
        while !entries.isEmpty {
            let page = try feed(after: cursor, kinds: feedKinds)
            for line in page.lines { try append(line) }
            cursor = page.end
            let tombstones = page.lines.filter { ["merge", "erasure"].contains($0.kind) }
            let changedUsers = Set(
                tombstones.flatMap { line in
                    [line.object["user_id"]?.string, line.object["from"]?.string].compactMap(\.self)
                })
            if entries.allSatisfy({ changedUsers.isDisjoint(with: Self.users(of: $0)) }) { break }
            entries = try newAuditEntries()
        }
        for entry in entries {
            let members = JSONValue.object(entry).encoded().dropFirst()
            try files.append(Array(#""kind":"audit","#.utf8) + members, to: .audit)
        }
        audit.take(entries.compactMap { $0["id"]?.integer })
        if isExport { try appendMark("export_end") }
        try files.commit(feed: cursor, audit: audit)
    }

    /// Returns the users whom an audit entry names; for a merge both.
    private static func users(of entry: JSONObject) -> [String] {
        [entry["user_id"]?.string, entry["after"]?.object?["from"]?.string].compactMap(\.self)
    }

    /// Reads the entries that are not written yet, page by page from the newest one.
    ///
    /// - Returns: the entries, oldest first.
    private func newAuditEntries() throws -> [JSONObject] {
        guard kinds.contains(.audit) else { return [] }
        let audit = files.state.audit
        var entries: [JSONObject] = []
        var after: Int64?
        repeat {
            let path = "/v1/audit?limit=\(Self.pageLimit)" + (after.map { "&after=\($0)" } ?? "")
            let page = try object(try get(path, accept: "application/json")[...])
            let found = (page["entries"]?.array ?? []).compactMap(\.object)
            entries += found.filter { !audit.has($0["id"]?.integer ?? 0) }
            after = (found.last?["id"]?.integer ?? 0) > audit.next ? page["next"]?.integer : nil
        } while after != nil
        return entries.reversed()
    }

    // MARK: Feed

    private struct FeedLine {
        let kind: String
        let object: JSONObject
        /// The bytes of the line after its cursor, which are written to the files unchanged.
        let members: ArraySlice<UInt8>
    }

    /// The kinds of lines that the files need.
    private var feedKinds: [String] { kinds.compactMap(\.feedKind) + ["merge", "erasure"] }

    /// Returns the cursor at the present end of the feed.
    private func feedEnd() throws -> String {
        try feed(after: "now", kinds: nil, limit: 0).end
    }

    /// Reads the next lines of the feed.
    ///
    /// - Parameters:
    ///   - kinds: the kinds of lines; `nil` for all.
    ///   - wait: how long the server waits for a line if there is none, in seconds.
    /// - Returns: the lines, and the cursor after them.
    private func feed(
        after cursor: String, kinds: [String]?, limit: Int = feedLimit, wait: Int = 0
    ) throws -> (lines: [FeedLine], end: String) {
        var path = "/v1/feed?after=\(cursor)&limit=\(limit)"
        if let kinds { path += "&kinds=\(kinds.joined(separator: ","))" }
        if wait > 0 { path += "&wait=\(wait)" }
        var found = try lines(of: path).map { line in
            let object = try object(line)
            return FeedLine(
                kind: object["kind"]?.string ?? "", object: object, members: try Self.split(line).members)
        }
        guard let last = found.popLast(), last.kind == "end" else {
            throw Failure("the feed must have a last line of the kind end; it has none")
        }
        return (found, last.object["cursor"]?.string ?? "")
    }

    /// Appends a line to the files of its kind. Those that remove or merge a user go to all files.
    private mutating func append(_ line: FeedLine) throws {
        switch line.kind {
        case "assignment": try files.append(line.members, to: .assignments)
        case "exposure": try files.append(line.members, to: .exposures)
        case "goal": if !repeats.has(line.object) { try files.append(line.members, to: .events) }
        case "erasure":
            repeats.erase(line.object)
            try files.appendToAll(line.members)
        case "merge": try files.appendToAll(line.members)
        // Lines of a newer release are ignored.
        default: break
        }
    }

    /// Whether a cursor is at another one or after it.
    private static func has(_ cursor: String, reached end: String) -> Bool {
        guard let cursor = FeedCursor(cursor), let end = FeedCursor(end) else { return true }
        return (cursor.number, cursor.lines) >= (end.number, end.lines)
    }

    /// Finds the goals between two cursors of the feed that the files already have.
    private mutating func findRepeats(from start: String, to end: String) throws {
        var cursor = start
        while !Self.has(cursor, reached: end) {
            let page = try feed(after: cursor, kinds: ["goal", "merge"], wait: 1)
            for line in page.lines { repeats.expect(line.object) }
            cursor = page.end
        }
        guard !repeats.isEmpty else { return }
        for path in try files.paths(of: .events) {
            var reader = LineReader(try OpenFile(path: path))
            while let line = try reader.next() { repeats.find(try object(line)) }
        }
    }

    // MARK: Requests

    /// Returns the lines of a response, none of which is empty.
    private func lines(of path: String) throws -> [ArraySlice<UInt8>] {
        try get(path, accept: "application/x-ndjson").split(separator: UInt8(ascii: "\n"))
    }

    /// Sends a request, and repeats it while the server does not respond or is not ready: for a minute, or without a
    /// limit if the export follows the feed.
    private func get(_ path: String, accept: String) throws -> [UInt8] {
        let deadline = systemSeconds() + Self.retrySeconds
        var pause = 0.1
        var reportedReason = ""
        while true {
            let reason: String
            do {
                return try server.content("GET", path, accept: accept)
            } catch let refusal as ServerRefusal where refusal.status == 429 || refusal.status >= 500 {
                reason = refusal.description
                if !follows, systemSeconds() > deadline { throw Failure(reason) }
            } catch let failure as Failure {
                reason = failure.description
                if !follows, systemSeconds() > deadline { throw failure }
            } catch let refusal as ServerRefusal where refusal.status != 410 {
                throw Failure(refusal.description)
            }
            if reason != reportedReason { OpenFile.printError("\(reason); trying again\n") }
            reportedReason = reason
            usleep(UInt32(pause * 1e6))
            pause = min(pause * 2, 10)
        }
    }

    private func object(_ line: ArraySlice<UInt8>) throws(Failure) -> JSONObject {
        guard let object = (try? JSONParser().parse(Array(line)))?.object else {
            throw Failure("the server must respond with JSON objects; got something else")
        }
        return object
    }

    /// Splits a line into the cursor at its beginning and the rest.
    private static func split(_ line: ArraySlice<UInt8>) throws(Failure) -> (cursor: String, members: ArraySlice<UInt8>)
    {
        let opening = Array(#"{"cursor":"#.utf8)
        guard line.starts(with: opening), let comma = line.firstIndex(of: UInt8(ascii: ",")) else {
            throw Failure("a line of the server must begin with its cursor; got something else")
        }
        let cursor = String(decoding: line[(line.startIndex + opening.count)..<comma], as: UTF8.self)
        return (cursor, line[(comma + 1)...])
    }
}

/// Reads the lines of a file one by one.
private struct LineReader {
    private let file: OpenFile
    /// The complete lines that are read and not returned yet, the last one first.
    private var waiting: [ArraySlice<UInt8>] = []
    /// The beginning of a line whose end is not read yet.
    private var rest: [UInt8] = []
    private static let pieceBytes = 1 << 20

    init(_ file: OpenFile) {
        self.file = file
    }

    /// Returns the next line; `nil` at the end of the file.
    mutating func next() throws -> ArraySlice<UInt8>? {
        while waiting.isEmpty {
            let piece = try file.read(upToCount: Self.pieceBytes)
            if piece.isEmpty { return nil }
            rest += piece
            waiting = rest.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).reversed()
            rest = Array(waiting.removeFirst())
        }
        return waiting.popLast()
    }
}
