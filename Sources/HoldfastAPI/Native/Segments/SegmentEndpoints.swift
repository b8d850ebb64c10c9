import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/segments`: users who meet conditions on their stored attributes. An experiment names a segment as its audience
/// with `{"segment":"…"}`.
struct SegmentEndpoints {
    let services: Services
    let store: any StoreSession
    let projects: ProjectView

    private var catalog: ProjectCatalog { services.projects }

    /// Responds with the definitions of segments. Without `limit` there are no pages.
    func list(_ request: borrowing Request, _ call: Call) throws(CoreError) -> Response {
        let page = try ListPage(request, limit: AttributeSchema.segmentLimit)
        return JSONList("segments", page.select(projects.schema.segments.values) { $0.name }) { .object($0.json) }
            .response()
    }

    /// Responds with the definition. `?size=true` also counts the users, which scans all users who have attributes.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let segment = try segment(request)
        var response = segment.json
        if try Request.flag("size", try request.query(knowing: ["size"])) {
            let page = try await store.read(.users(SegmentMatcher(segment, schema: projects.schema), .size))
            services.attributeMetrics.countScan(of: page.examined)
            response["size"] = .integer(Int64(page.matches))
            response["examined"] = .integer(Int64(page.examined))
        }
        return .json(.object(response))
    }

    /// Defines a segment, or changes its conditions; 201 if it is new. Experiments of any project may use the segment
    /// as their audience, so the effects on all projects are checked first.
    func put(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let name = try request.definedName()
        let content = request.withBody { Array($0) }
        let moves = try request.movePolicy()
        let author = call.author(request)
        let snapshot = catalog.snapshot()
        let stored = snapshot.schema.segments[name]
        guard let segment = try await requestedSegment(name, content, replacing: stored, in: snapshot.schema) else {
            return .json(.object(stored?.json ?? JSONObject()))
        }
        try snapshot.schema.checkRoom(forSegment: name)
        let policy = call.approvalPolicy
        let approved = policy.approval.flatMap { snapshot.projects[$0.proposal.sdkKey] }
        try await policy.expectUnchanged(approved, store)
        for project in snapshot.projects.values {
            try await PreviewCounter(catalog).check(project, to: project.compiled, changing: segment, moves)
        }
        let isNew = try await catalog.inBackground { session in
            try policy.check(segment, replacing: stored?.conditions, in: Array(snapshot.projects.values))
            guard let approval = policy.approval else {
                return try await session.write(.putSegment(segment, by: author))
            }
            try await Self.write(segment, by: author, with: approval, session)
            return stored == nil
        }
        try await catalog.refresh()
        return .json(.object(segment.json), isNew ? .created : .ok)
    }

    /// Parses the body of a `PUT`.
    ///
    /// - Returns: the segment; `nil` if the body requests no change, because it is what `GET` shows, with or without
    ///   the counts of users.
    private func requestedSegment(
        _ name: Identifier, _ content: [UInt8], replacing stored: Segment?, in schema: AttributeSchema
    ) async throws -> Segment? {
        try await catalog.inBackground { _ in
            let body = try JSONInput.parse(content)
            if let stored, body.object?["conditions"] != nil,
                let changes = DefinitionChanges(of: .object(stored.json)).members(of: body).object,
                changes.allSatisfy({ Segment.counts.contains($0.key) })
            {
                return Segment?.none
            }
            return try Segment(body, name: name, schema: schema)
        }
    }

    /// Stores a segment by the approval of a proposal, which is settled in the same transaction.
    private static func write(
        _ segment: Segment, by author: Author, with approval: Approval, _ session: any StoreSession
    ) async throws {
        var change = SchemaChange()
        change.segments = [segment]
        guard try await session.write(.putSchema(change, approval: approval, by: author)) else {
            throw CoreError(.conflict, "the proposal '\(approval.proposal.id)' must be pending; it is not")
        }
    }

    /// Deletes a segment that no definition uses.
    func delete(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let name = try request.definedName()
        let author = call.author(request)
        let catalog = catalog
        let existed = try await catalog.inBackground { session in
            try catalog.snapshot().requireNone({ $0.keys(usingSegment: name) }) { sdkKey, list in
                "the segment '\(name)' is an audience in the project '\(sdkKey)'; change it first in \(list)"
            }
            return try await session.write(.removeSegment(name, by: author))
        }
        guard existed else { throw CoreError.undefined(catalog.snapshot().schema.unknownSegment(name)) }
        try await catalog.refresh()
        return Response(.noContent)
    }

    /// Responds with the users in the byte order of their ids, one per line. `?after=USER_ID` resumes after a user,
    /// `?limit=N` ends after N users.
    func users(_ request: borrowing Request, _ call: Call) throws(CoreError) -> Response {
        let segment = try segment(request)
        let query = try request.query(knowing: ["after", "limit"])
        var after: Identifier?
        if let text = query["after"] { after = try ProfileInput.checkUserID(text, at: nil) }
        let stream = SegmentUsers(
            services: services, store: store, matcher: SegmentMatcher(segment, schema: projects.schema), after: after,
            limit: try Request.limit(query))
        return call.response(MediaType.lines, stream: stream)
    }

    /// Returns the segment in the path.
    private func segment(_ request: borrowing Request) throws(CoreError) -> Segment {
        let name = try request.definedName()
        let schema = projects.schema
        guard let segment = schema.segments[name] else { throw .undefined(schema.unknownSegment(name)) }
        return segment
    }
}

/// The users of a segment, one per line. They are searched while they are sent, so that only one piece is in memory.
final class SegmentUsers: StoredStream {
    private let services: Services
    private let store: any StoreSession
    private let matcher: SegmentMatcher
    /// The user after whom the search continues; `nil` for the first user.
    private var after: Identifier?
    /// The number of users up to the limit of the request.
    private var remaining: Int
    private var hasEnded = false

    init(services: Services, store: any StoreSession, matcher: SegmentMatcher, after: Identifier?, limit: Int) {
        self.services = services
        self.store = store
        self.matcher = matcher
        self.after = after
        remaining = limit
    }

    func next() async throws -> [UInt8]? {
        guard remaining > 0, !hasEnded else { return nil }
        let page = try await store.read(.users(matcher, .users(after: after)))
        services.attributeMetrics.countScan(of: page.examined)
        let users = page.userIDs.prefix(remaining)
        remaining -= users.count
        after = page.last
        hasEnded = page.last == nil
        guard !users.isEmpty else { return nil }
        var lines = JSONWriter(capacity: users.count * 64)
        for userID in users {
            lines.beginObject()
            lines.member("user_id", userID.string)
            lines.endObject()
            lines.endLine()
        }
        return lines.finish()
    }
}

extension ProjectCatalog.Snapshot {
    /// Checks that no definition depends on an attribute or a segment that is about to be deleted.
    ///
    /// - Parameters:
    ///   - users: returns the keys of the definitions in a datafile that depend on the attribute or segment.
    ///   - detail: returns the detail of the error for the SDK key of a project and a list of such keys.
    /// - Throws: 409 for the first project with dependent definitions.
    func requireNone(
        _ users: (Datafile) -> [Identifier], _ detail: (_ sdkKey: String, _ list: String) -> String
    ) throws(CoreError) {
        for project in projects.values {
            let keys = users(project.datafile)
            guard keys.isEmpty else {
                let list = keys.map { "'\($0)'" }.joined(separator: ", ")
                throw CoreError(.conflict, detail(project.sdkKey, list))
            }
        }
    }
}
