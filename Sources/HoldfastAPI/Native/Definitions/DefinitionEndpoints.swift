import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/experiments`, `/v1/flags`, `/v1/metrics` and `/v1/holdouts`: reads and changes the elements of a project of one
/// kind.
///
/// Each change edits the project's definitions and increases its revision, so that all protocols and servers see the
/// same definitions. `X-Optimizely-SDK-Key` names the project; without it the default project is used. The first
/// element on a server creates its project.
struct DefinitionEndpoints<Element: AuditedElement> {
    let services: Services
    let store: any StoreSession
    let projects: ProjectView

    private var catalog: ProjectCatalog { services.projects }

    /// Responds with a page of elements. A list of experiments may have `?id=ID,ID`, a list of flags `?stale=30d`.
    func list(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let isOfExperiments = Element.self == Experiment.self
        let page = try ListPage(
            request, readsStale: Element.self == Flag.self, besides: isOfExperiments ? ["id"] : [])
        let project = try projects.project(named: request.sdkKey, for: call.access)
        let definitions = project.definitions
        var elements = Element.all(in: project.compiled)
        let uses = try await uses(in: project, areRequired: page.staleDays != nil)
        if let uses, let days = page.staleDays {
            let day = services.store.clock.now().day - days
            elements.removeAll { element in element.usedFlag.map { !uses.isStale($0, since: day) } ?? false }
        }
        if let ids = page.query["id"] {
            let wanted = Set(ids.split(separator: ",").map { Identifier(String($0)) })
            elements.removeAll { element in !wanted.contains((element as? Experiment)?.id ?? element.key) }
        }
        let listed = page.select(elements, key: \.key) { $0.searchedTexts(definitions) }
        let looks = try await banditLooks(in: project)
        let waiting = try await WaitingProposals(in: project, store, call)
        return JSONList(Element.list, listed) { element in
            let description = Self.describe(element, element.description(in: project), uses, looks)
            return waiting?.describe(element, description) ?? description
        }.response(entityTag: project.entityTag)
    }

    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let project = try projects.project(named: request.sdkKey, for: call.access)
        let key = try request.key()
        return try Self.response(
            with: key, of: project, uses: try await uses(in: project), looks: try await banditLooks(in: project),
            waiting: try await WaitingProposals(in: project, store, call))
    }

    /// Creates an element, or changes the members that the body has; 201 if it is new. `?from=KEY` copies an
    /// experiment: the new draft has its members, except those in the body.
    func put(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let query = try request.query(knowing: ["moves", "share"] + (Element.copiedMembers.isEmpty ? [] : ["from"]))
        let moves = try Request.movePolicy(query)
        let sharing = try Request.sharePolicy(query, call)
        let input = try PutRequest(request, call, projects, from: query["from"])
        let schema = projects.schema
        let change = try await catalog.inBackground { _ in try Self.change(input, schema) }
        let edit = ProjectEditor.Edit(
            sdkKey: input.sdkKey, author: call.author(request), moves: moves, change: change,
            notes: { draft in
                let after = Element.description(of: input.key, in: draft.compiled, sdkKey: input.sdkKey)
                return [
                    AuditNote(
                        Element.putAction, of: input.key, before: Self.detail(draft.outcome.description),
                        after: Self.detail(after))
                ]
            })
        let edited = try await ProjectEditor(catalog, call.approvalPolicy, sharing: sharing).edit(edit)
        return try await response(to: input, edited, schema)
    }

    /// Returns the response to a request that was performed: the element, and warnings about its definition.
    private func response(
        to input: PutRequest, _ edited: ProjectEditor.Edited<PutOutcome>, _ schema: AttributeSchema
    ) async throws -> Response {
        let project = edited.project
        let outcome = edited.outcome
        let warnings = outcome.change?.warnings(
            schema, project.datafile, changing: outcome.description, at: services.store.clock.now())
        let description = edited.notes.isEmpty ? outcome.description : edited.notes.first?.after.object?[Element.noun]
        return try Self.response(
            outcome.status, with: input.key, of: project, showing: description, warnings: warnings ?? [],
            uses: try await uses(in: project), looks: try await banditLooks(in: project))
    }

    /// Deletes a flag, a metric or a holdout, or archives an experiment.
    func delete(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let key = try request.key()
        let sdkKey = try projects.sdkKeyToChange(request.sdkKey, for: call.access)
        let preconditions = Preconditions(request)
        let moves = try request.movePolicy()
        let note = Self.note(Element.deleteAction, key, sdkKey)
        _ = try await ProjectEditor(catalog, call.approvalPolicy).edit(
            sdkKey, note, by: call.author(request), moves: moves
        ) { definitions, project throws(CoreError) in
            try preconditions.check(Self.entityTag(of: key, project))
            guard let project, Element.find(Identifier(key), in: project.compiled) != nil else {
                throw Element.unknown(key, in: project?.compiled)
            }
            try Element.remove(Identifier(key), from: &definitions)
        }
        return Response(.noContent)
    }

    // MARK: Changes

    /// A request to create or change an element.
    struct PutRequest: Sendable {
        let key: String
        let sdkKey: String
        /// The key of the element to copy.
        fileprivate let source: String?
        /// The body as it was sent.
        fileprivate let content: [UInt8]
        fileprivate let preconditions: Preconditions

        init(
            _ request: borrowing Request, _ call: Call, _ projects: ProjectView, from source: String? = nil
        ) throws(CoreError) {
            key = try request.key()
            self.source = source
            content = request.withBody { Array($0) }
            sdkKey = try projects.sdkKeyToChange(request.sdkKey, for: call.access)
            preconditions = Preconditions(request)
        }
    }

    /// The outcome of a request to create or change an element.
    struct PutOutcome: Sendable {
        let status: Status
        /// The change; `nil` if the element is already as requested.
        let change: Element.Change?
        /// The element as `GET` showed it before; `nil` if it is new.
        let description: JSONValue?
    }

    /// Returns the requested change. Its outcome determines the response.
    ///
    /// - Throws: 400 if the body is not JSON. The change itself throws 400 or 422 if the body is invalid, 412 if a
    ///   condition does not hold, and the errors of ``ElementChange/apply(to:)``.
    static func change(
        _ input: PutRequest, _ schema: AttributeSchema
    ) throws(CoreError) -> ProjectEditor.Change<PutOutcome> {
        let given = input.source != nil && input.content.isEmpty ? [:] : try JSONInput.parse(input.content)
        return { definitions, project throws(CoreError) in
            let body =
                try input.source.map { source throws(CoreError) in
                    try Element.copy(of: source, as: input.key, given, in: project?.compiled)
                } ?? given
            let description = project.flatMap {
                Element.description(of: input.key, in: $0.compiled, sdkKey: input.sdkKey)
            }
            let change = try Element.change(body, key: input.key, of: description, schema)
            try input.preconditions.check(entityTag(of: input.key, project))
            guard let change else { return PutOutcome(status: .ok, change: nil, description: description) }
            let isNew = try change.apply(to: &definitions)
            return PutOutcome(status: isNew ? .created : .ok, change: change, description: description)
        }
    }

    /// Returns the entity tag of an element: the entity tag of its datafile. `nil` if the element does not exist.
    static func entityTag(of key: String, _ project: Project?) -> EntityTag? {
        guard let project, Element.find(Identifier(key), in: project.compiled) != nil else { return nil }
        return project.entityTag
    }

    /// Returns the entry of the audit log for a change of an element.
    static func note(_ action: AuditAction, _ key: String, _ sdkKey: String) -> ProjectEditor.Note {
        ProjectEditor.Note(action, of: key) { detail(Element.description(of: key, in: $0, sdkKey: sdkKey)) }
    }

    /// Returns an element as the audit log shows it.
    private static func detail(_ description: JSONValue?) -> JSONValue {
        description.map { .object(JSONObject(.init(key: Element.noun, value: $0))) } ?? .null
    }

    // MARK: Responses

    /// Reads when the bandits of experiments last looked at their results; `nil` for other elements, or if this cannot
    /// be read. Definitions, which are in memory, are then shown without it.
    private func banditLooks(in project: Project) async throws -> BanditLooks? {
        guard Element.self == Experiment.self else { return nil }
        return try? await BanditLooks(project, store)
    }

    /// Reads when flags were last used; `nil` for other elements.
    ///
    /// - Parameter areRequired: whether a failure to read is an error. If it is none, the result after a failure is
    ///   `nil`, so that definitions, which are in memory, can be shown without their uses.
    private func uses(in project: Project, areRequired: Bool = false) async throws -> FlagUses? {
        guard Element.self == Flag.self else { return nil }
        do {
            let stored = try await store.read(.lastUses(sdkKey: project.sdkKey))
            return FlagUses(services.uses.uses(of: project.sdkKey, stored: stored))
        } catch  where !areRequired {
            return nil
        }
    }

    /// Returns the response with an element.
    ///
    /// - Parameters:
    ///   - description: the element as `GET` shows it, if it is known.
    ///   - warnings: see ``ElementChange/warnings(_:_:changing:at:)``.
    static func response(
        _ status: Status = .ok, with key: String, of project: Project, showing description: JSONValue? = nil,
        warnings: [DefinitionWarning] = [], uses: FlagUses? = nil, looks: BanditLooks? = nil,
        waiting: WaitingProposals? = nil
    ) throws(CoreError) -> Response {
        guard let element = Element.find(Identifier(key), in: project.compiled) else {
            throw Element.unknown(key, in: project.compiled)
        }
        var description = describe(element, description ?? element.description(in: project), uses, looks)
        if let waiting { description = waiting.describe(element, description) }
        if !warnings.isEmpty, var object = description.object {
            object["warnings"] = .array(warnings.map(\.json))
            description = .object(object)
        }
        return .json(description, status, entityTag: project.entityTag)
    }

    /// Adds the looks of a bandit, or the uses of a flag, to the description of an element.
    private static func describe(
        _ element: Element, _ description: JSONValue, _ uses: FlagUses?, _ looks: BanditLooks?
    ) -> JSONValue {
        if let looks, let experiment = element as? Experiment { return looks.describe(experiment, description) }
        guard let uses, let flag = element.usedFlag else { return description }
        return uses.describe(flag, description)
    }
}

extension DefinitionWarning {
    /// The warning as a member of `warnings` in responses.
    var json: JSONValue {
        let message =
            switch code {
            case .conditionNeverMet: "no user with attributes as they are defined: \(fault.reason)"
            case .trafficBelowOne, .notRunning, .secretMade, .webhooksNotCompared, .startInPast, .weightsReset:
                fault.reason
            }
        return [
            "code": .string(code.rawValue), "message": .string(message), "pointer": .string(fault.pointer.string),
        ]
    }
}
