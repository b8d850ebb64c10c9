import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/definitions`: all definitions of a project as one document. Teams keep such documents in files and apply them
/// like infrastructure as code: a preview shows the plan, and its `basis` is the entity tag with which the plan can be
/// applied.
struct DefinitionSetEndpoints {
    let services: Services
    let store: any StoreSession
    let projects: ProjectView

    private var catalog: ProjectCatalog { services.projects }

    /// A change of a project's definitions.
    typealias Change = (sdkKey: String, make: ProjectEditor.Change<DefinitionSetEdit.Outcome>)

    /// Responds with the document. Only admins see webhooks.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let sdkKey = try projects.sdkKeyToChange(request.sdkKey, for: call.access)
        let catalog = catalog
        // The entity tag depends on webhooks. An edge has none, so its response has no tag.
        guard !services.store.isCopy else {
            return .json(try await catalog.inBackground { _ in catalog.definitionSet(of: sdkKey, nil).json.encoded() })
        }
        let all = try await store.read(.webhooks)
        let view = webhookView(of: all, sdkKey, call)
        let (content, tag) = try await catalog.inBackground { _ in
            (catalog.definitionSet(of: sdkKey, view?.usable).json.encoded(), catalog.entityTag(of: sdkKey, all))
        }
        return .json(content, entityTag: tag)
    }

    /// Applies a document as a whole or not at all. `?prune=true` also removes elements that the document lacks.
    func put(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let query = try request.query(knowing: ["moves", "prune", "max_removals", "share"])
        let webhooks = try await store.read(.webhooks)
        let (change, _) = try await change(request, query, call, webhooks)
        return try await apply(change, request, query, call)
    }

    /// Responds with the effects of `PUT`, including the number of users who would get another variation. Changes
    /// nothing.
    func preview(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let query = try request.query(knowing: ["prune", "max_removals", "share"])
        let catalog = catalog
        // Read before the definitions, so that a concurrent edit makes the tag outdated.
        let webhooks = try await store.read(.webhooks)
        let (change, saysWebhooks) = try await change(request, query, call, webhooks)
        let basis = try await catalog.inBackground { _ in catalog.entityTag(of: change.sdkKey, webhooks) }
        var object = try await preview(change, query, call, basis: basis)
        if saysWebhooks, !call.mayManage {
            object.warn(
                .webhooksNotCompared, "webhooks were not compared, which needs a token of the scope admin")
        }
        return .json(.object(object))
    }

    // MARK: Changes

    /// Makes a change, and responds with its effects. ``HistoryEndpoints`` restores definitions with this method.
    ///
    /// - Parameter query: `moves` and `share` are read.
    func apply(
        _ change: Change, _ request: borrowing Request, _ query: [String: String], _ call: Call
    ) async throws -> Response {
        let sdkKey = change.sdkKey
        let edit = ProjectEditor.Edit(
            sdkKey: sdkKey, author: call.author(request), moves: try Request.movePolicy(query), change: change.make,
            schema: \.schema,
            notes: { draft in
                let notes = draft.outcome.differences.compactMap(\.note)
                return notes.isEmpty ? [AuditNote(.datafilePut, of: sdkKey)] : notes
            })
        let sharing = try Request.sharePolicy(query, call)
        let edited = try await ProjectEditor(catalog, call.approvalPolicy, sharing: sharing).edit(edit)
        let outcome = edited.outcome
        var object = outcome.json
        object["revision"] = .string(edited.project.datafile.revision)
        if !outcome.schema.webhooks.isEmpty { services.webhooks.wake() }
        for change in outcome.schema.webhooks where change.newSecret != nil {
            object.warn(
                .secretMade,
                "the server has made the secret of the webhook '\(change.key)': POST /v1/webhooks/\(change.key)/rotate makes "
                    + "another one and shows it once")
        }
        return .json(.object(object))
    }

    /// Describes the effects of a change, and changes nothing.
    ///
    /// - Parameters:
    ///   - query: `share` is read.
    ///   - basis: the entity tag of the current definitions. A request with this tag as `If-Match` either has exactly
    ///     the described effects, or is refused.
    func preview(
        _ change: Change, _ query: [String: String], _ call: Call, basis: EntityTag?
    ) async throws -> JSONObject {
        let sharing = try Request.sharePolicy(query, call)
        let draft = try await ProjectEditor(catalog, call.approvalPolicy, sharing: sharing).preview(
            change.sdkKey, change.make)
        let counter = PreviewCounter(catalog)
        let moves = try await counter.countMoves(
            from: draft.project, to: draft.compiled, changing: draft.outcome.schema.segments)
        var object = draft.outcome.json
        object["moves"] = moves.json
        let policy: ApprovalPolicy = call.admission.control.needsApproval ? .needed : .notNeeded
        let waiting = try await catalog.inBackground { _ -> [String] in
            do {
                _ = try policy.check(
                    from: draft.project, to: draft.compiled, changing: draft.outcome.schema.segments, [])
                return []
            } catch let held as HeldChange {
                return held.experiments
            }
        }
        object["needs_approval"] = .array(waiting.map { .string($0) })
        object["basis"] = basis.map { .string($0.text) } ?? .null
        return object
    }

    /// Returns the change that a document requests, and whether the document has webhooks.
    ///
    /// - Parameter webhooks: the webhooks of all projects.
    private func change(
        _ request: borrowing Request, _ query: [String: String], _ call: Call, _ webhooks: [Webhook]
    ) async throws -> (Change, saysWebhooks: Bool) {
        let prunes = try Request.flag("prune", query)
        let limit = try Self.removalLimit(query)
        let sdkKey = try projects.sdkKeyToChange(request.sdkKey, for: call.access)
        let content = request.withBody { Array($0) }
        let preconditions = Preconditions(request)
        let author = call.author(request)
        let time = services.store.clock.now()
        let catalog = catalog
        let access = call.access
        let view = webhookView(of: webhooks, sdkKey, call)
        let set = try await catalog.inBackground { _ in try DefinitionSet(JSONInput.parse(content)) }
        let edit = DefinitionSetEdit(
            set, prunes: prunes, removalLimit: limit, by: author, at: time, webhooks: view)
        let change: Change = (
            sdkKey,
            { definitions, project throws(CoreError) in
                if !preconditions.isEmpty {
                    try preconditions.check(catalog.entityTag(of: sdkKey, webhooks))
                }
                let outcome = try edit.apply(to: &definitions, of: project, catalog.snapshot().schema)
                guard access == .all || outcome.schema.isOfProject else {
                    throw CoreError(
                        .forbidden,
                        "attributes and segments are shared by all projects: a token for all projects must define them")
                }
                return outcome
            }
        )
        return (change, set.saysWebhooks)
    }

    /// Returns the maximum number of elements that a change may remove; `nil` for any number.
    private static func removalLimit(_ query: [String: String]) throws(CoreError) -> Int? {
        guard let text = query["max_removals"] else { return nil }
        guard let number = Int(text), number >= 0 else {
            throw CoreError(.invalid, "`max_removals` must be a whole number of at least 0; got '\(text)'")
        }
        return number
    }

    /// Returns the webhooks that the caller may see and change.
    ///
    /// - Returns: `nil` if the caller may not see webhooks, whose URLs may be secrets.
    private func webhookView(of webhooks: [Webhook], _ sdkKey: String, _ call: Call) -> WebhookView? {
        call.mayManage ? WebhookView(webhooks, services.webhookRules(for: call, making: sdkKey)) : nil
    }
}

extension ProjectCatalog {
    /// Returns the definitions of a project as a document.
    ///
    /// - Parameter webhooks: webhooks of any project; those of other projects are left out. `nil` for a document
    ///   without webhooks.
    fileprivate func definitionSet(of sdkKey: String, _ webhooks: [Webhook]?) -> DefinitionSet {
        let snapshot = snapshot()
        return DefinitionSet(
            snapshot.projects[sdkKey]?.definitions, snapshot.schema,
            webhooks: webhooks?.filter { $0.concerns(sdkKey) })
    }

    /// Returns the entity tag of definitions. It does not depend on the caller, so that a caller with more rights can
    /// apply the plan of another one.
    fileprivate func entityTag(of sdkKey: String, _ webhooks: [Webhook]) -> EntityTag {
        definitionSet(of: sdkKey, webhooks).json.encoded().withUnsafeBytes { EntityTag(hashing: $0) }
    }
}

extension JSONObject {
    /// Adds a warning about webhooks.
    fileprivate mutating func warn(_ code: DefinitionWarning.Code, _ reason: String) {
        let warning = DefinitionWarning(code: code, fault: JSONFault(pointer: ["webhooks"], reason: reason))
        self["warnings"] = .array((self["warnings"]?.array ?? []) + [warning.json])
    }
}

extension DefinitionSetEdit.Outcome {
    fileprivate var json: JSONObject {
        var object = JSONObject()
        object["changes"] = .array(differences.map(\.json))
        let all = warnings + notRunning.map { DefinitionWarning(code: .notRunning, fault: $0) }
        object["warnings"] = .array(all.map(\.json))
        return object
    }
}
