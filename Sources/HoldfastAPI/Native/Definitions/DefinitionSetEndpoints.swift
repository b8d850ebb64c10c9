import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/definitions`: everything that a project defines, as one document that programs keep in files.
struct DefinitionSetEndpoints {
    let catalog: ProjectCatalog
    let projects: ProjectView
    let clock: StoreClock

    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let (sdkKey, catalog) = (try projects.sdkKeyToChange(request.sdkKey, for: call.access), catalog)
        let content = try await catalog.inBackground { _ in catalog.definitionSet(of: sdkKey).json.encoded() }
        return .json(content, entityTag: Self.entityTag(content))
    }

    /// Applies a document as a whole, or nothing of it. `?prune=true` also removes what it lacks.
    func put(_ request: borrowing Request, _ call: Call) async throws -> Response {
        try call.requireUpToDate()
        let query = try request.query(knowing: ["moves", "prune", "max_removals", "share"])
        let (sdkKey, change) = try await change(request, query, call)
        let edit = ProjectEditor.Edit(
            sdkKey: sdkKey, author: call.author(request), moves: try Request.movePolicy(query), change: change,
            schema: \.schema,
            notes: { draft in
                let notes = draft.outcome.differences.compactMap(\.note)
                return notes.isEmpty ? [AuditNote(.datafilePut, of: sdkKey)] : notes
            })
        let sharing = try Request.sharePolicy(query, call)
        let (project, outcome) = try await ProjectEditor(catalog, call.approvalPolicy, sharing: sharing).edit(edit)
        var object = outcome.json
        object["revision"] = .string(project.datafile.revision)
        return .json(.object(object))
    }

    /// Tells what `PUT` would do, and who would move.
    func preview(_ request: borrowing Request, _ call: Call) async throws -> Response {
        try call.requireUpToDate()
        let query = try request.query(knowing: ["prune", "max_removals", "share"])
        let (sdkKey, change) = try await change(request, query, call)
        // Read first: what is edited meanwhile makes the tag outdated.
        let catalog = catalog
        let basis = try await catalog.inBackground { _ in
            Self.entityTag(catalog.definitionSet(of: sdkKey).json.encoded())
        }
        let sharing = try Request.sharePolicy(query, call)
        let draft = try await ProjectEditor(catalog, call.approvalPolicy, sharing: sharing).preview(sdkKey, change)
        let counter = PreviewCounter(catalog)
        let moves = try await counter.countMoves(
            from: draft.project, to: draft.datafile, changing: draft.outcome.schema.segments)
        var object = draft.outcome.json
        object["moves"] = moves.json
        let policy: ApprovalPolicy = call.admission.control.needsApproval ? .needed : .notNeeded
        let waiting = try await catalog.inBackground { _ -> [String] in
            do {
                _ = try policy.check(
                    from: draft.project, to: draft.datafile, changing: draft.outcome.schema.segments, [])
                return []
            } catch let held as HeldChange {
                return held.experiments
            }
        }
        object["needs_approval"] = .array(waiting.map { .string($0) })
        object["basis"] = .string(basis.text)
        return .json(.object(object))
    }

    private func change(
        _ request: borrowing Request, _ query: [String: String], _ call: Call
    ) async throws -> (sdkKey: String, ProjectEditor.Change<DefinitionSetEdit.Outcome>) {
        let prunes = try Request.flag("prune", query)
        let limit = try query["max_removals"].map { text throws(CoreError) in
            guard let number = Int(text), number >= 0 else {
                throw CoreError(.invalid, "`max_removals` must be a whole number of at least 0; got '\(text)'")
            }
            return number
        }
        let sdkKey = try projects.sdkKeyToChange(request.sdkKey, for: call.access)
        let content = request.withBody { Array($0) }
        let preconditions = Preconditions(request)
        let (author, time, catalog, access) = (call.author(request), clock.now(), catalog, call.access)
        let edit = try await catalog.inBackground { _ in
            DefinitionSetEdit(
                try DefinitionSet(JSONInput.parse(content)), prunes: prunes, removalLimit: limit, by: author, at: time)
        }
        return (
            sdkKey,
            { definitions, project throws(CoreError) in
                if !preconditions.isEmpty {
                    let content = catalog.definitionSet(of: sdkKey).json.encoded()
                    try preconditions.check(Self.entityTag(content))
                }
                let outcome = try edit.apply(to: &definitions, of: project, catalog.snapshot().schema)
                guard access == .all || outcome.schema.isEmpty else {
                    throw CoreError(
                        .forbidden,
                        "attributes and segments are shared by all projects: a token for all projects must define them")
                }
                return outcome
            }
        )
    }

    private static func entityTag(_ content: [UInt8]) -> EntityTag {
        content.withUnsafeBytes { EntityTag(hashing: $0) }
    }
}

extension ProjectCatalog {
    fileprivate func definitionSet(of sdkKey: String) -> DefinitionSet {
        let snapshot = snapshot()
        return DefinitionSet(snapshot.projects[sdkKey]?.definitions, snapshot.schema)
    }
}

extension DefinitionSetEdit.Outcome {
    fileprivate var json: JSONObject {
        var object = JSONObject()
        object["changes"] = .array(differences.map(\.json))
        let stopped = notRunning.map { fault -> JSONValue in
            ["code": "not_running", "message": .string(fault.reason), "pointer": .string(fault.pointer.string)]
        }
        object["warnings"] = .array(warnings.map(\.warning) + stopped)
        return object
    }
}
