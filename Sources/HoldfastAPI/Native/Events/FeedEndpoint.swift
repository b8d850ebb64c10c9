import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `GET /v1/feed`: the committed changes of users, in order, one JSON object per line, for programs that copy them to
/// another system. Each line has the cursor with which a later request resumes. `GET /edge/v1/feed` is the same for
/// edges.
struct FeedEndpoint {
    let reader: FeedReader
    let projects: ProjectView
    /// The kinds of lines in the response to a request without `?kinds=`.
    var kinds = Set(FeedKind.allCases)
    /// The session that reads the attributes of users for edges. `nil` for other readers, whose lines have only the
    /// names of changed attributes.
    var records: (any StoreSession)?
    /// Checks the cursors of edges; `nil` for other readers, whose cursors must only be readable.
    var presence: EdgePresence?

    /// The maximum number of lines in a response.
    private static let maximumLines = 10_000
    /// The maximum time for which a response waits for the first line, in seconds. It is less than the time limit of
    /// handlers.
    static let maximumWait = 30

    /// Responds with the changes after a cursor, and with the cursor after them. The query has:
    ///
    /// - `after`: a cursor, `oldest`, or `now`, which is the default.
    /// - `kinds`: the kinds of lines, separated by commas.
    /// - `limit`: the maximum number of lines.
    /// - `wait`: how many seconds the response waits for a line if there is none.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let query = try request.query(knowing: ["after", "kinds", "limit", "wait"])
        let kinds = try query["kinds"].map { text throws(CoreError) in try Self.kinds(text) } ?? kinds
        let limit = try Self.number("limit", query, in: 0...Self.maximumLines, default: 1_000)
        let seconds = try Self.number("wait", query, in: 0...Self.maximumWait, default: 0)
        do {
            let deadline = ContinuousClock.now + .seconds(seconds)
            let cursor = try await cursor(of: query["after"] ?? "now")
            try await presence?.check(cursor: cursor, reader, call)
            var batch = try await reader.read(after: cursor, kinds: kinds, limit: limit)
            while limit > 0, batch.lines.isEmpty, try await waitForChange(after: batch.next, until: deadline, call) {
                batch = try await reader.read(after: batch.next, kinds: kinds, limit: limit)
            }
            var writer = JSONWriter(capacity: 128 + 256 * batch.lines.count)
            try await append(batch, to: &writer)
            return Response(.ok, contentType: MediaType.lines, body: .bytes(writer.finish()))
        } catch let failure as FeedReader.Failure {
            throw Self.problem(failure)
        }
    }

    /// Waits for a change after a cursor.
    ///
    /// - Returns: `false` after the deadline, or if the client has disconnected or is no longer admitted.
    private func waitForChange(
        after cursor: FeedCursor, until deadline: ContinuousClock.Instant, _ call: Call
    ) async throws(FeedReader.Failure) -> Bool {
        do {
            return try await reader.wait(after: cursor, until: deadline) { call.admission.isValid }
        } catch let failure as FeedReader.Failure {
            throw failure
        } catch {
            // The client has disconnected.
            return false
        }
    }

    /// Returns the cursor that the parameter `after` names.
    ///
    /// - Parameter after: a cursor; `now` for the end of the feed, or `oldest` for its start.
    func cursor(of after: String) async throws(FeedReader.Failure) -> FeedCursor {
        switch after {
        case "now": return try await reader.end()
        case "oldest": return try await reader.start()
        default:
            guard let cursor = FeedCursor(after) else { throw .malformed(after) }
            return cursor
        }
    }

    /// Writes the lines of a batch, and the last line with the cursor after them.
    func append(_ batch: FeedReader.Batch, to writer: inout JSONWriter) async throws(StorageError) {
        let schema = projects.schema
        let records = try await attributes(in: batch)
        for line in batch.lines {
            FeedLine.append(
                line.entry, at: line.at, cursor: line.cursor, schema, records: records, to: &writer)
        }
        FeedLine.appendEnd(batch.next, isComplete: self.records == nil ? nil : batch.isAtEnd, to: &writer)
    }

    /// Reads the current attributes of the users for whom a batch has attribute lines. They may be newer than the
    /// lines.
    ///
    /// - Returns: the record of each user, which is `nil` if the user has no attributes. A user with a damaged record
    ///   is left out.
    private func attributes(
        in batch: FeedReader.Batch
    ) async throws(StorageError) -> [Identifier: AttributeRecord?] {
        guard let records else { return [:] }
        let users = Set(batch.lines.lazy.map(\.entry).filter { FeedKind($0.change) == .attributes }.map(\.userID))
        let results = await settled(each: users) { records.attributes(of: $0, $1) }
        var attributes: [Identifier: AttributeRecord?] = [:]
        for (userID, result) in zip(users, results) {
            if case .failure(.damaged) = result { continue }
            // Assigning the optional itself would remove the user if there are no attributes.
            attributes[userID] = .some(try result.get())
        }
        return attributes
    }

    // MARK: Parameters and errors

    /// Parses `kinds`.
    private static func kinds(_ text: String) throws(CoreError) -> Set<FeedKind> {
        var kinds: Set<FeedKind> = []
        for name in text.split(separator: ",", omittingEmptySubsequences: false) {
            guard let kind = FeedKind(rawValue: String(name)) else {
                let known = FeedKind.allCases.map(\.rawValue).joined(separator: ", ")
                throw CoreError(.invalid, "`kinds` must be a list of \(known); got '\(name)'")
            }
            kinds.insert(kind)
        }
        return kinds
    }

    /// Returns a query parameter that is a whole number.
    ///
    /// - Parameter defaultNumber: the number of a query without the parameter.
    /// - Throws: 400 for another text, or a number outside of the range.
    static func number(
        _ name: String, _ query: [String: String], in range: ClosedRange<Int>, default defaultNumber: Int
    ) throws(CoreError) -> Int {
        guard let text = query[name] else { return defaultNumber }
        guard let number = Int(text), range.contains(number) else {
            throw CoreError(
                .invalid,
                "`\(name)` must be a whole number from \(range.lowerBound) to \(range.upperBound); got '\(text)'")
        }
        return number
    }

    /// Returns the error of a request whose cursor cannot be used.
    static func problem(_ failure: FeedReader.Failure) -> Problem {
        switch failure {
        case .off: return Problem(.notFound, "the server must keep a feed; it was started with --feed-retention 0")
        case .gone:
            var problem = Problem(
                .gone,
                "the cursor must be within what the feed keeps; what follows it has been deleted, or it is of another database: take a new cursor from GET /v1/feed?limit=0, then export everything and go on from that cursor"
            )
            problem.members = [("export", "/v1/profiles?detail=true"), ("cursor", "/v1/feed?limit=0")]
            return problem
        case .malformed(let text):
            return Problem(
                .badRequest,
                "`after` must be the `cursor` of a line, 'oldest' or 'now'; got '\(text.shortened(to: CoreError.longestQuote))'"
            )
        case .store(let error): return Problem(error)
        }
    }
}
