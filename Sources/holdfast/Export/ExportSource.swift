import Glibc
import JSON

/// The requests of an export to its server, and their responses as lines.
///
/// A request is repeated while the server does not respond or is not ready.
struct ExportSource {
    private let server: ServerClient
    /// Whether requests are repeated without a limit, as for an export that follows the feed.
    private let retriesForever: Bool

    /// The maximum number of lines in a response of the feed.
    static let feedLimit = 10_000
    /// The time for which a request is repeated while the server does not respond, in seconds.
    private static let retrySeconds = 60.0
    /// The first and the longest pause between two attempts, in seconds.
    private static let pauses = 0.1...10.0

    init(_ server: ServerClient, retriesForever: Bool) {
        self.server = server
        self.retriesForever = retriesForever
    }

    // MARK: Feed

    /// A change in the feed.
    struct FeedLine {
        let kind: String
        let object: JSONObject
        /// The bytes of the line after its cursor, which are written to the files unchanged.
        let members: ArraySlice<UInt8>

        /// The users whom the line names. The line of a merge names two users.
        var users: [String] { [object["user_id"]?.string, object["from"]?.string].compactMap(\.self) }
    }

    /// Returns the cursor at the present end of the feed.
    func feedEnd() throws -> String {
        try feed(after: "now", kinds: nil, limit: 0).end
    }

    /// Reads the next lines of the feed.
    ///
    /// - Parameters:
    ///   - kinds: the kinds of lines; `nil` for all.
    ///   - wait: how long the server waits for a line if there is none, in seconds.
    /// - Returns: the lines, and the cursor after them.
    func feed(
        after cursor: String, kinds: [String]?, limit: Int = feedLimit, wait: Int = 0
    ) throws -> (lines: [FeedLine], end: String) {
        var path = "/v1/feed?after=\(cursor)&limit=\(limit)"
        if let kinds { path += "&kinds=\(kinds.joined(separator: ","))" }
        if wait > 0 { path += "&wait=\(wait)" }
        var found = try lines(of: path).map { line in
            let object = try Self.object(line)
            return FeedLine(
                kind: object["kind"]?.string ?? "", object: object, members: try Self.split(line).members)
        }
        guard let last = found.popLast(), last.kind == "end" else {
            throw Failure("the feed must have a last line of the kind end; it has none")
        }
        return (found, last.object["cursor"]?.string ?? "")
    }

    // MARK: Requests

    /// Returns the lines of a response, none of which is empty.
    func lines(of path: String) throws -> [ArraySlice<UInt8>] {
        try get(path, accept: "application/x-ndjson").split(separator: UInt8(ascii: "\n"))
    }

    /// Returns the JSON object of a response.
    func object(of path: String) throws -> JSONObject {
        try Self.object(try get(path, accept: "application/json")[...])
    }

    /// Sends a request, and repeats it while the server does not respond or is not ready, at longer and longer
    /// intervals. A reason is reported once.
    ///
    /// - Throws: ``ServerRefusal`` for status 410, by which the feed says that it has deleted the changes after the
    ///   cursor; ``Failure`` for other refusals, and when the time for repetitions is over.
    private func get(_ path: String, accept: String) throws -> [UInt8] {
        let deadline = systemSeconds() + Self.retrySeconds
        var pause = Self.pauses.lowerBound
        var reportedReason = ""
        while true {
            let reason: String
            do {
                return try server.content("GET", path, accept: accept)
            } catch let refusal as ServerRefusal where refusal.status == 429 || refusal.status >= 500 {
                reason = refusal.description
            } catch let failure as Failure {
                reason = failure.description
            } catch let refusal as ServerRefusal where refusal.status != 410 {
                throw Failure(refusal.description)
            }
            if !retriesForever, systemSeconds() > deadline { throw Failure(reason) }
            if reason != reportedReason { OpenFile.printError("\(reason); trying again\n") }
            reportedReason = reason
            usleep(UInt32(pause * 1e6))
            pause = min(pause * 2, Self.pauses.upperBound)
        }
    }

    // MARK: Lines

    /// Parses a line.
    static func object(_ line: ArraySlice<UInt8>) throws(Failure) -> JSONObject {
        guard let object = (try? JSONParser().parse(Array(line)))?.object else {
            throw Failure("the server must respond with JSON objects; got something else")
        }
        return object
    }

    /// Splits a line into the cursor at its beginning and the rest.
    static func split(_ line: ArraySlice<UInt8>) throws(Failure) -> (cursor: String, members: ArraySlice<UInt8>) {
        let opening = Array(#"{"cursor":"#.utf8)
        guard line.starts(with: opening), let comma = line.firstIndex(of: UInt8(ascii: ",")) else {
            throw Failure("a line of the server must begin with its cursor; got something else")
        }
        let cursor = String(decoding: line[(line.startIndex + opening.count)..<comma], as: UTF8.self)
        return (cursor, line[(comma + 1)...])
    }
}

/// Reads the lines of an exported file one by one.
struct LineReader {
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
