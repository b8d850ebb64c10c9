import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/segments`: users who meet conditions on their stored attributes. An experiment names a segment as its audience
/// with `{"segment":"…"}`.
struct SegmentEndpoints {
    let services: Services
    let store: any AttributeStore
    let projects: ProjectView

    /// The members that only `?size=true` shows.
    private static let counts = ["size", "examined"]
    /// Segments that may be defined.
    private static let limit = 1_000

    func list(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let page = try ListPage(request, limit: Self.limit)
        JSONList("segments", page.select(projects.schema.segments.values) { $0.name }) { .object($0.json) }
            .respond(call)
    }

    /// The definition; `?size=true` counts the users, which scans all users who have attributes.
    func get(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let segment = try segment(request)
        guard try Request.flag("size", try request.query(knowing: ["size"])) else {
            return call.respond(json: JSONValue.object(segment.json).encoded())
        }
        let services = services
        store.scan(SegmentMatcher(segment, schema: projects.schema), .size) { result in
            switch result {
            case .success(let page):
                services.attributeMetrics.countScan(of: page.examined)
                var response = segment.json
                response["size"] = .integer(Int64(page.matches))
                response["examined"] = .integer(Int64(page.examined))
                call.respond(json: JSONValue.object(response).encoded())
            case .failure(let error):
                call.fail(error)
            }
        }
    }

    /// Defines a segment, or gives it other conditions; 201 if it is new.
    func put(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        try call.requireUpToDate()
        let name = try request.definedName()
        let content = request.withBody { Array($0) }
        let moves = try request.movePolicy()
        let author = call.author(request)
        services.projects.inBackground { [catalog = services.projects] _ in
            call.attempt {
                let snapshot = catalog.snapshot()
                let schema = snapshot.schema
                let body = try JSONInput.parse(content)
                if let stored = schema.segments[name]?.json,
                    let changes = DefinitionChanges(of: .object(stored)).members(of: body).object,
                    changes.allSatisfy({ Self.counts.contains($0.key) }), body.object?["conditions"] != nil
                {
                    return call.respond(json: JSONValue.object(stored).encoded())
                }
                let segment = try Self.segment(name, body, schema)
                guard schema.segments.count < Self.limit || schema.segments[name] != nil else {
                    throw CoreError(.conflict, "at most \(Self.limit) segments may be defined")
                }
                Self.check(segment, Array(snapshot.projects.values)[...], moves, catalog, call) {
                    Self.put(segment, author, catalog, call)
                }
            }
        }
    }

    /// Refuses other conditions that can move users of a project, one project after the other.
    private static func check(
        _ segment: Segment, _ projects: ArraySlice<Project>, _ moves: ProjectEditor.MovePolicy,
        _ catalog: ProjectCatalog, _ call: Call, _ completion: @escaping @Sendable () -> Void
    ) {
        guard let project = projects.first else { return completion() }
        PreviewCounter(catalog).check(project, to: project.datafile, changing: segment, moves) { result in
            call.attempt {
                try result.get()
                check(segment, projects.dropFirst(), moves, catalog, call, completion)
            }
        }
    }

    private static func put(_ segment: Segment, _ author: Author, _ catalog: ProjectCatalog, _ call: Call) {
        catalog.inBackground { session in
            session.putSegment(segment, by: author) { result in
                switch result {
                case .success(let isNew): catalog.respond(call, isNew ? .created : .ok, .object(segment.json))
                case .failure(let error): call.fail(error)
                }
            }
        }
    }

    /// `{"conditions":[…]}`
    private static func segment(
        _ name: Identifier, _ body: JSONValue, _ schema: AttributeSchema
    ) throws(CoreError) -> Segment {
        let object = try body.object("a segment", knowing: ["name", "conditions"], ignoring: counts)
        if let given = try object.optionalText("name"), !given.utf8.elementsEqual(name.string.utf8) {
            throw CoreError(.invalid, "`name` must be the name in the path, '\(name)'; got '\(given)'", at: ["name"])
        }
        guard let conditions = object["conditions"] else {
            throw CoreError(.invalid, "`conditions` is required", at: ["conditions"])
        }
        let faults = SegmentRules.faults(in: conditions, at: ["conditions"], schema: schema)
        if let error = CoreError(faults: faults, "nothing was stored") { throw error }
        return Segment(name: name, conditions: conditions)
    }

    func delete(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        try call.requireUpToDate()
        let name = try request.definedName()
        let author = call.author(request)
        services.projects.inBackground { [services] session in
            call.attempt { try Self.delete(name, author, services, session, call) }
        }
    }

    private static func delete(
        _ name: Identifier, _ author: Author, _ services: Services, _ session: any StoreSession, _ call: Call
    ) throws(CoreError) {
        let catalog = services.projects
        for project in catalog.snapshot().projects.values {
            let users = project.datafile.keys(usingSegment: name)
            guard users.isEmpty else {
                let list = users.map { "'\($0)'" }.joined(separator: ", ")
                throw CoreError(
                    .conflict,
                    "the segment '\(name)' is an audience in the project '\(project.sdkKey)'; change it first in \(list)"
                )
            }
        }
        session.removeSegment(name, by: author) { result in
            switch result {
            case .success(true): catalog.respond(call, .noContent, nil)
            case .success(false): call.fail(CoreError.undefined(catalog.snapshot().schema.unknownSegment(name)))
            case .failure(let error): call.fail(error)
            }
        }
    }

    /// The users in the byte order of their ids, one per line. `?after=USER_ID` resumes after a user, `?limit=N` ends
    /// after N.
    func users(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let segment = try segment(request)
        let query = try request.query(knowing: ["after", "limit"])
        var after: Identifier?
        if let text = query["after"] { after = try ProfileInput.checkUserID(text, at: nil) }
        let stream = SegmentUsers(
            services: services, store: store, matcher: SegmentMatcher(segment, schema: projects.schema), after: after,
            limit: try Request.limit(query))
        call.respond(MediaType.lines, stream: stream)
    }

    private func segment(_ request: borrowing Request) throws(CoreError) -> Segment {
        let name = try request.definedName()
        let schema = projects.schema
        guard let segment = schema.segments[name] else { throw .undefined(schema.unknownSegment(name)) }
        return segment
    }
}

/// The users of a segment as lines, found while they are sent. Only one piece is in memory.
final class SegmentUsers: ResponseStream {
    private let services: Services
    private let store: any AttributeStore
    private let matcher: SegmentMatcher
    private var after: Identifier?
    private var remaining: Int
    private var hasEnded = false

    init(services: Services, store: any AttributeStore, matcher: SegmentMatcher, after: Identifier?, limit: Int) {
        self.services = services
        self.store = store
        self.matcher = matcher
        self.after = after
        remaining = limit
    }

    func produce(_ writer: StreamWriter) {
        guard remaining > 0, !hasEnded else { return writer.finish() }
        store.scan(matcher, .users(after: after)) { [self] result in
            switch result {
            case .success(let page): send(page, to: writer)
            case .failure(let error): writer.fail(Problem(error).response)
            }
        }
    }

    private func send(_ page: SegmentPage, to writer: StreamWriter) {
        services.attributeMetrics.countScan(of: page.examined)
        let users = page.userIDs.prefix(remaining)
        remaining -= users.count
        after = page.last
        hasEnded = page.last == nil
        guard !users.isEmpty else { return writer.finish() }
        var lines = JSONWriter(capacity: users.count * 64)
        for userID in users {
            lines.beginObject()
            lines.member("user_id", userID.string)
            lines.endObject()
            lines.endLine()
        }
        writer.write(lines.finish())
    }
}
