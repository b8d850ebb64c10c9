import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/experiments/{key}/history`, and the same for flags, metrics and holdouts: shows the former states of a
/// definition, and restores one of them. The states are read from the former datafiles that the store keeps.
struct HistoryEndpoints<Element: AuditedElement> {
    private let kind: DefinitionSet.Kind
    private let definitions: DefinitionSetEndpoints
    private let proposal: ProposalEndpoints

    private var catalog: ProjectCatalog { definitions.services.projects }
    /// The number of versions in a response, by default and at most.
    private static var defaultLimit: Int { 20 }
    private static var maximumLimit: Int { 100 }

    init(_ kind: DefinitionSet.Kind, _ loop: LoopServices) {
        self.kind = kind
        definitions = DefinitionSetEndpoints(services: loop.services, store: loop.session, projects: loop.projects)
        proposal = ProposalEndpoints(loop)
    }

    var routes: [APIRoute] {
        let path = "/v1/\(kind.rawValue)/{key}/history"
        return [
            APIRoute(
                .get, path, scope: .token(.read, or: .definitions), respondsLater: true, readsQuery: true, list),
            APIRoute(
                .post, "\(path)/{version}/preview", scope: .token(.admin, or: .definitions), isConditional: true,
                readsQuery: true, preview
            ).withNewestDefinitions,
            APIRoute(
                .post, "\(path)/{version}/restore", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(restore)
            ).withNewestDefinitions,
        ]
    }

    /// Responds with the versions of the datafile in which the definition changed, newest first.
    func list(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let query = try request.query(knowing: ["limit", "after"])
        let limit = query["limit"] == nil ? Self.defaultLimit : try Request.pageLimit(query, max: Self.maximumLimit)
        let after = try query["after"].map { text throws(CoreError) in try Request.datafileVersion(text, "`after`") }
        let key = Identifier(try request.key())
        let project = try definitions.projects.project(named: request.sdkKey, for: call.access)
        let record = definitions.projects.record(of: project)
        let kind = kind
        let (entries, next) = try await catalog.inBackground { session in
            try await ElementHistory(of: kind, key, in: project, record, session)
                .entries(before: after, limit: limit, session)
        }
        guard !entries.isEmpty || after != nil || next != nil else {
            throw Element.unknown(key.string, in: project.compiled)
        }
        return .json([
            "sdk_key": .string(project.sdkKey), "key": JSONValue(key), "history": .array(entries.map(\.json)),
            "next": next.map { .integer($0) } ?? .null,
        ])
    }

    /// Restores a definition as it was in a version, as `PUT /v1/definitions` with that one element would.
    func restore(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let query = try request.query(knowing: ["moves", "share"])
        let restoration = try await restoration(request, call)
        return try await definitions.apply(restoration, request, query, call)
    }

    /// Responds with the effects of ``restore(_:_:)``, and changes nothing.
    func preview(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let query = try request.query(knowing: ["share"])
        let key = try request.key()
        let projects = definitions.projects
        let sdkKey = try projects.sdkKeyToChange(request.sdkKey, for: call.access)
        let restoration = try await restoration(request, call)
        let tag = DefinitionEndpoints<Element>.entityTag(of: key, projects.project(sdkKey))
        return .json(.object(try await definitions.preview(restoration, query, call, basis: tag)))
    }

    /// Returns the change that restores the definition in the path as it was in the version in the path.
    private func restoration(
        _ request: borrowing Request, _ call: Call
    ) async throws -> DefinitionSetEndpoints.Change {
        try request.withBody { body throws(CoreError) in
            guard body.isEmpty else {
                throw CoreError(.invalid, "the body must be empty, because the path says everything", at: [])
            }
        }
        let key = Identifier(try request.key())
        let version = try Request.datafileVersion(request.parameter(1), "the version in the path")
        let project = try definitions.projects.project(named: request.sdkKey, for: call.access)
        let preconditions = Preconditions(request)
        let author = call.author(request)
        let time = definitions.services.store.clock.now()
        let catalog = catalog
        let kind = kind
        let state = try await catalog.inBackground { session in
            let history = try await ElementHistory(of: kind, key, in: project, nil, session)
            return try await history.restorableState(in: version, noun: Element.noun, session)
        }
        return (
            project.sdkKey,
            { definitions, project throws(CoreError) in
                try preconditions.check(DefinitionEndpoints<Element>.entityTag(of: key.string, project))
                let edit = DefinitionSetEdit(restoring: state, of: kind, key, in: definitions, by: author, at: time)
                return try edit.apply(to: &definitions, of: project, catalog.snapshot().schema)
            }
        )
    }
}

extension ElementHistory.Entry {
    fileprivate var json: JSONValue {
        [
            "version": .integer(datafile.version), "revision": .string(datafile.revision),
            "stored_at": .string(datafile.storedAt.rfc3339), "author": .string(datafile.author),
            "action": .string(action.rawValue), "changes": difference?.changedMembers ?? [],
            "definition": state.map { .object($0.object) } ?? .null,
            "restorable": .bool(state.map { !$0.isOfDatafile } ?? false),
        ]
    }
}
