import Chronology
import Glibc
import JSON
import Storage

/// Exports a server as lines: first a snapshot of all records, and then the changes in its feed.
///
/// The records are read page by page while the server changes them. A snapshot therefore remembers the cursor of the
/// feed before the first page, and appends the changes since that cursor after the last page. A consumer that applies
/// all lines in their order has the current state. The audit log is not in the feed, and is read separately.
///
/// ``ExportSource`` sends the requests, and ``ExportFiles`` writes the lines.
struct ServerExport {
    private let source: ExportSource
    private let files: ExportFiles
    /// Whether the export waits for further changes.
    private let follows: Bool
    /// The goals that are in the files already and will be repeated by the feed, because they were committed during the
    /// snapshot.
    private var repeats = RepeatedGoals()
    /// The file of metrics; `nil` if none is requested.
    private var metrics: ExportMetrics?

    /// The maximum number of elements of a page.
    private static let pageLimit = 1_000
    /// The time for which the feed is asked to wait for changes, in seconds.
    private static let waitSeconds = 30.0
    /// The interval at which the audit log is read, in seconds. It is not in the feed, so it must be polled.
    private static let auditSeconds = 5.0
    /// The minimum time between two commits of few lines, in seconds, because each commit synchronizes files.
    private static let commitSeconds = 1.0
    /// The number of lines from which a commit is not delayed.
    private static let manyLines = ExportSource.feedLimit / 10

    init(_ server: ServerClient, into files: ExportFiles, follows: Bool, metrics: ExportMetrics?) {
        source = ExportSource(server, retriesForever: follows)
        self.metrics = metrics
        self.files = files
        self.follows = follows
    }

    private var kinds: [ExportKind] { files.kinds }

    /// Continues where the last run ended.
    mutating func run() throws {
        if files.state.export == 0 { try exportAll() }
        // Without `--follow` the export ends at the present end of the feed.
        let end = follows ? nil : try source.feedEnd()
        while true {
            let startedAt = systemSeconds()
            let lines = try advance()
            if let end, try Self.has(files.state.feed, reached: end) { return try files.finish() }
            let rest = startedAt + Self.commitSeconds - systemSeconds()
            if lines < Self.manyLines, rest > 0 { usleep(UInt32(min(rest, Self.commitSeconds) * 1e6)) }
        }
    }

    /// Writes the next changes of the feed, and then the new entries of the audit log. If the feed has deleted the next
    /// changes, writes another snapshot.
    ///
    /// - Returns: the number of lines of the feed.
    private mutating func advance() throws -> Int {
        do {
            let askedAt = systemSeconds()
            // The end at this time shows whether everything before it is in the files.
            let end = metrics == nil ? nil : try source.feedEnd()
            let page = try source.feed(after: files.state.feed, kinds: feedKinds, wait: secondsToWait)
            for line in page.lines { try append(line) }
            try appendAuditAndCommit(after: page.end)
            if let end, try Self.has(files.state.feed, reached: end) { metrics?.write(completeTo: askedAt) }
            return page.lines.count
        } catch let refusal as ServerRefusal where refusal.status == 410 {
            OpenFile.printError("the feed has deleted what comes next: another export begins, in new files\n")
            try exportAll()
            return 0
        }
    }

    /// How long the feed is asked to wait for changes, in whole seconds: until the audit log must be polled, or until a
    /// file is due to end, whichever is first. It is 0 if the export does not follow the feed.
    private var secondsToWait: Int {
        guard follows else { return 0 }
        var seconds = kinds.contains(.audit) ? Self.auditSeconds : Self.waitSeconds
        if let end = files.nextEnd { seconds = max(0, min(seconds, end - systemSeconds())) }
        return Int(seconds.rounded(.up))
    }

    // MARK: Snapshot

    /// Writes a snapshot: all records, and the changes that were committed meanwhile. The lines become valid only at
    /// the end.
    private mutating func exportAll() throws {
        let start = try source.feedEnd()
        try files.begin()
        try appendMark("export_begin")
        if kinds.contains(.assignments) { try exportAssignments() }
        if kinds.contains(.exposures) { try exportLines("/v1/exposures", as: "exposure", .exposures) }
        if kinds.contains(.events) { try exportLines("/v1/events", as: "goal", .events) }
        let end = try source.feedEnd()
        if kinds.contains(.events) { try findRepeats(from: start, to: end) }
        var cursor = start
        while try !Self.has(cursor, reached: end) {
            let page = try source.feed(after: cursor, kinds: feedKinds, wait: 1)
            for line in page.lines { try append(line) }
            cursor = page.end
        }
        repeats = RepeatedGoals()
        try appendAuditAndCommit(after: cursor, endsSnapshot: true)
    }

    /// Appends a line that begins or ends a snapshot.
    private func appendMark(_ kind: String) throws {
        let at = systemWallClock().rfc3339
        try files.appendToAll(
            Array(#""kind":"\#(kind)","export":\#(files.state.export),"at":"\#(at)"}"#.utf8))
    }

    /// Appends the assignments of all profiles.
    private func exportAssignments() throws {
        var after = ""
        while true {
            let path = "/v1/profiles?detail=true&limit=\(Self.pageLimit)" + (after.isEmpty ? "" : "&after=\(after)")
            let lines = try source.lines(of: path)
            for line in lines {
                let profile = try ExportSource.object(line)
                for assignment in Self.assignments(of: profile) {
                    try files.append(JSONValue.object(assignment).encoded().dropFirst(), to: .assignments)
                }
                after = (profile["user_id"]?.string ?? "").percentEncoded
            }
            if lines.count < Self.pageLimit { return }
        }
    }

    /// Returns a line for each assignment of a profile. A profile without assignments has one line, without an
    /// experiment, so that the user is in the snapshot.
    private static func assignments(of profile: JSONObject) -> [JSONObject] {
        // Stands for the absent assignments. The empty key becomes a null `experiment_id`.
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

    /// Appends all lines of a path.
    ///
    /// - Parameters:
    ///   - kind: the kind of these lines in the feed.
    ///   - fileKind: the kind of the files.
    private func exportLines(_ path: String, as kind: String, _ fileKind: ExportKind) throws {
        // The first page follows the cursor 0, which is before all lines.
        var after = "0"
        while true {
            let lines = try source.lines(of: "\(path)?after=\(after)&limit=\(Self.pageLimit)")
            for line in lines {
                let (cursor, members) = try ExportSource.split(line)
                after = cursor
                try files.append(Array("\"kind\":\"\(kind)\",".utf8) + members, to: fileKind)
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
    /// - Parameter endsSnapshot: whether this commit ends a snapshot.
    private mutating func appendAuditAndCommit(after cursor: String, endsSnapshot: Bool = false) throws {
        var cursor = cursor
        var entries = try newAuditEntries()
        while !entries.isEmpty {
            let page = try source.feed(after: cursor, kinds: feedKinds)
            for line in page.lines { try append(line) }
            cursor = page.end
            let tombstones = page.lines.filter { ["merge", "erasure"].contains($0.kind) }
            let changedUsers = Set(tombstones.flatMap(\.users))
            if entries.allSatisfy({ changedUsers.isDisjoint(with: Self.users(of: $0)) }) { break }
            entries = try newAuditEntries()
        }
        for entry in entries {
            let members = JSONValue.object(entry).encoded().dropFirst()
            try files.append(Array(#""kind":"audit","#.utf8) + members, to: .audit)
        }
        var audit = files.state.audit
        audit.take(entries.compactMap { $0["id"]?.integer })
        if endsSnapshot { try appendMark("export_end") }
        try files.commit(feed: cursor, audit: audit)
    }

    /// Returns the users whom an audit entry names. The entry of a merge names two users.
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
            let page = try source.object(of: path)
            let found = (page["entries"]?.array ?? []).compactMap(\.object)
            entries += found.filter { !audit.has($0["id"]?.integer ?? 0) }
            // The pages go back in time. Entries before `audit.next` are all written, so no further page is needed.
            after = (found.last?["id"]?.integer ?? 0) > audit.next ? page["next"]?.integer : nil
        } while after != nil
        return entries.reversed()
    }

    // MARK: Feed

    /// The kinds of lines that the files need.
    private var feedKinds: [String] { kinds.compactMap(\.feedKind) + ["merge", "erasure"] }

    /// Appends a line to the files of its kind. A line that erases or merges a user goes to all files.
    private mutating func append(_ line: ExportSource.FeedLine) throws {
        switch line.kind {
        case "assignment": try files.append(line.members, to: .assignments)
        case "exposure": try files.append(line.members, to: .exposures)
        case "goal": if !repeats.takeRepeated(line.object) { try files.append(line.members, to: .events) }
        case "erasure":
            repeats.erase(line.object)
            try files.appendToAll(line.members)
        case "merge": try files.appendToAll(line.members)
        // Lines of a newer release are ignored.
        default: break
        }
    }

    /// Whether a cursor is at another one or after it.
    ///
    /// - Throws: ``Failure`` if one of them is no cursor.
    private static func has(_ cursor: String, reached end: String) throws -> Bool {
        func read(_ text: String) throws -> FeedCursor {
            guard let cursor = FeedCursor(text) else { throw Failure("'\(text)' must be a cursor of the feed") }
            return cursor
        }
        let place = try read(cursor)
        let target = try read(end)
        return (place.number, place.lines) >= (target.number, target.lines)
    }

    /// Finds the goals between two cursors of the feed that the files have already.
    private mutating func findRepeats(from start: String, to end: String) throws {
        var cursor = start
        while try !Self.has(cursor, reached: end) {
            let page = try source.feed(after: cursor, kinds: ["goal", "merge"], wait: 1)
            for line in page.lines { repeats.expect(line.object) }
            cursor = page.end
        }
        guard !repeats.isEmpty else { return }
        for path in try files.paths(of: .events) {
            var reader = LineReader(try OpenFile(path: path))
            while let line = try reader.next() { repeats.find(try ExportSource.object(line)) }
        }
    }
}
