import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// What admins define in a project over the API: an experiment, a flag or a metric.
protocol DefinedElement: Sendable {
    associatedtype Change: ElementChange

    /// The name in responses and errors, such as `flag`.
    static var noun: String { get }
    /// The member of a response that has a list.
    static var list: StaticString { get }
    static var putAction: AuditAction { get }
    static var deleteAction: AuditAction { get }

    static func find(_ key: Identifier, in datafile: Datafile) -> Self?
    var key: Identifier { get }
    /// The members of its description that a copy takes over; empty if it cannot be copied.
    static var copiedMembers: [String] { get }

    /// What a search looks through besides the key.
    func searchedTexts(_ definitions: ProjectDefinitions) -> [String]

    /// Returns the elements of a list.
    static func all(in datafile: Datafile) -> [Self]

    /// Removes the element from the project, or archives it.
    ///
    /// - Throws: 404 if there is none.
    static func remove(_ key: Identifier, from definitions: inout ProjectDefinitions) throws(CoreError)

    /// The element as `GET` presents it.
    ///
    /// - Parameters:
    ///   - datafile: the one that has the element.
    ///   - definitions: what the datafile defines.
    func description(in datafile: Datafile, _ definitions: ProjectDefinitions, sdkKey: String) -> JSONValue
}

/// The body of a `PUT`: what an admin defines of an element.
protocol ElementChange: Sendable {
    init(_ value: JSONValue, key: String) throws(CoreError)

    /// - Throws: 422 with every segment that is not defined.
    func checkSegments(_ schema: AttributeSchema) throws(CoreError)

    /// The conditions that no user can meet whose attributes are as they are defined.
    func warnings(_ schema: AttributeSchema, _ datafile: Datafile) -> [JSONFault]

    /// - Returns: whether the element is new.
    func apply(to definitions: inout ProjectDefinitions) throws(CoreError) -> Bool
}

/// `/v1/experiments`, `/v1/flags` and `/v1/metrics`. Each change edits the project and raises its revision, so that all
/// protocols and servers see the same. `X-Optimizely-SDK-Key` names the project, by default the default one. The first
/// element of all makes its project.
struct DefinitionEndpoints<Element: DefinedElement> {
    let catalog: ProjectCatalog
    let projects: ProjectView

    func list(_ request: borrowing Request, _ call: Call) throws(CoreError) -> Response {
        let page = try ListPage(request)
        let project = try projects.project(named: request.sdkKey)
        let definitions = project.definitions
        let listed = page.select(Element.all(in: project.datafile), key: \.key) { $0.searchedTexts(definitions) }
        return JSONList(Element.list, listed) { Self.describe($0, project) }.response(entityTag: project.entityTag)
    }

    func get(_ request: borrowing Request, _ call: Call) throws(CoreError) -> Response {
        let project = try projects.project(named: request.sdkKey)
        return try Self.response(with: request.key(), of: project)
    }

    /// Creates an element, or changes what the body names; 201 if it is new. `?from=KEY` makes a copy of an experiment: a
    /// draft with the members that the body does not have.
    func put(_ request: borrowing Request, _ call: Call) async throws -> Response {
        try call.requireUpToDate()
        let query = try request.query(knowing: Element.copiedMembers.isEmpty ? ["moves"] : ["moves", "from"])
        let moves = try Request.movePolicy(query)
        let input = try PutRequest(request, projects, from: query["from"])
        let schema = projects.schema
        let change = try await catalog.inBackground { _ in try Self.change(input, schema) }
        let note = Self.note(Element.putAction, input.key, input.sdkKey)
        let (project, outcome) = try await ProjectEditor(catalog)
            .edit(input.sdkKey, note, by: call.author(request), moves: moves, change)
        let warnings = outcome.change?.warnings(schema, project.datafile) ?? []
        return try Self.response(outcome.status, with: input.key, of: project, warnings: warnings)
    }

    func delete(_ request: borrowing Request, _ call: Call) async throws -> Response {
        try call.requireUpToDate()
        let key = try request.key()
        let sdkKey = try projects.sdkKeyToChange(request.sdkKey)
        let preconditions = Preconditions(request)
        let moves = try request.movePolicy()
        let note = Self.note(Element.deleteAction, key, sdkKey)
        _ = try await ProjectEditor(catalog).edit(sdkKey, note, by: call.author(request), moves: moves) {
            definitions, project throws(CoreError) in
            try preconditions.check(Self.entityTag(of: key, project))
            guard let project, Element.find(Identifier(key), in: project.datafile) != nil else {
                throw Self.unknown(key, in: project?.datafile)
            }
            try Element.remove(Identifier(key), from: &definitions)
        }
        return Response(.noContent)
    }

    /// A request to create or change an element.
    struct PutRequest: Sendable {
        let key: String
        let sdkKey: String
        /// The key of the element to copy.
        fileprivate let source: String?
        fileprivate let content: [UInt8]
        fileprivate let preconditions: Preconditions

        init(_ request: borrowing Request, _ projects: ProjectView, from source: String? = nil) throws(CoreError) {
            key = try request.key()
            self.source = source
            content = request.withBody { Array($0) }
            sdkKey = try projects.sdkKeyToChange(request.sdkKey)
            preconditions = Preconditions(request)
        }
    }

    struct PutOutcome: Sendable {
        let status: Status
        /// `nil` if the request asks for nothing new.
        let change: Element.Change?
    }

    /// Returns the change that a request asks for. Its outcome is what the response tells.
    ///
    /// - Throws: 400 if the body is not JSON. The change itself throws 400 or 422 if the body is wrong, 412 if a
    ///   condition does not hold, and what ``ElementChange/apply(to:)`` throws.
    static func change(
        _ input: PutRequest, _ schema: AttributeSchema
    ) throws(CoreError) -> ProjectEditor.Change<PutOutcome> {
        let given = input.source != nil && input.content.isEmpty ? [:] : try JSONInput.parse(input.content)
        return { definitions, project throws(CoreError) in
            let body =
                try input.source.map { source throws(CoreError) in
                    try copy(of: source, as: input.key, given, project)
                } ?? given
            let shown = project.flatMap { project in
                Element.find(Identifier(input.key), in: project.datafile)
                    .map { DefinitionChanges(of: describe($0, project)) }
            }
            if let shown { try shown.checkProject(of: body) }
            let changes = shown?.members(of: body) ?? body
            let change = try Element.Change(changes, key: input.key)
            try change.checkSegments(schema)
            try input.preconditions.check(entityTag(of: input.key, project))
            // A body of what `GET` shows asks for nothing, not even of an archived experiment.
            if changes.object?.isEmpty == true, body.object?.isEmpty == false {
                return PutOutcome(status: .ok, change: nil)
            }
            let isNew = try change.apply(to: &definitions)
            return PutOutcome(status: isNew ? .created : .ok, change: change)
        }
    }

    /// Returns the body of a `PUT` that makes a copy.
    ///
    /// - Throws: 404 if there is nothing to copy, 409 if the copy's key is not free.
    private static func copy(
        of source: String, as key: String, _ body: JSONValue, _ project: Project?
    ) throws(CoreError) -> JSONValue {
        guard let project, let element = Element.find(Identifier(source), in: project.datafile) else {
            throw unknown(source, in: project?.datafile)
        }
        guard Element.find(Identifier(key), in: project.datafile) == nil else {
            throw CoreError(.conflict, "a copy must have a new key; '\(key)' exists")
        }
        guard let given = body.object else { return body }
        let shown = describe(element, project).object ?? JSONObject()
        var copy = JSONObject()
        copy["status"] = ExperimentStatus.draft.json
        for member in Element.copiedMembers { copy[member] = shown[member] }
        let variations = (shown["variations"]?.array ?? []).compactMap(\.object)
        copy["variations"] = .array(
            variations.map { ["key": $0["key"] ?? .null, "weight": $0["weight"] ?? .null] })
        for member in given { copy[member.key] = member.value }
        return .object(copy)
    }

    /// The tag of an element is that of its datafile; `nil` if there is no such element.
    static func entityTag(of key: String, _ project: Project?) -> EntityTag? {
        guard let project, Element.find(Identifier(key), in: project.datafile) != nil else { return nil }
        return project.entityTag
    }

    static func note(_ action: AuditAction, _ key: String, _ sdkKey: String) -> ProjectEditor.Note {
        ProjectEditor.Note(action, of: key) { datafile, definitions in
            guard let element = Element.find(Identifier(key), in: datafile) else { return .null }
            var object = JSONObject()
            object[Element.noun] = element.description(in: datafile, definitions, sdkKey: sdkKey)
            return .object(object)
        }
    }

    /// - Parameter warnings: see ``ElementChange/warnings(_:_:)``.
    static func response(
        _ status: Status = .ok, with key: String, of project: Project, warnings: [JSONFault] = []
    ) throws(CoreError) -> Response {
        guard let element = Element.find(Identifier(key), in: project.datafile) else {
            throw unknown(key, in: project.datafile)
        }
        var description = describe(element, project)
        if !warnings.isEmpty, var object = description.object {
            object["warnings"] = .array(warnings.map(\.warning))
            description = .object(object)
        }
        return .json(description, status, entityTag: project.entityTag)
    }

    static func unknown(_ key: String, in datafile: Datafile?) -> CoreError {
        let known = datafile.map { Element.all(in: $0).lazy.map(\.key) }
        let hint = known.map { Spelling.hint(for: Identifier(key), among: $0) } ?? ""
        return .undefined("no \(Element.noun) has the key '\(key)'\(hint)")
    }

    private static func describe(_ element: Element, _ project: Project) -> JSONValue {
        element.description(in: project.datafile, project.definitions, sdkKey: project.sdkKey)
    }
}

extension JSONFault {
    /// A condition that nobody meets, as a warning of a response.
    var warning: JSONValue {
        [
            "code": "condition_never_met", "message": .string("no user with attributes as they are defined: \(reason)"),
            "pointer": .string(pointer.string),
        ]
    }
}

extension ExperimentChange: ElementChange {}
extension FlagChange: ElementChange {}

extension MetricChange: ElementChange {
    func checkSegments(_ schema: AttributeSchema) {}
    func warnings(_ schema: AttributeSchema, _ datafile: Datafile) -> [JSONFault] { [] }
}

extension Experiment: DefinedElement {
    typealias Change = ExperimentChange

    static var noun: String { "experiment" }
    static var list: StaticString { "experiments" }
    static var copiedMembers: [String] {
        ["traffic", "audience", "name", "description", "hypothesis", "owner", "tags", "metrics", "plan"]
    }
    static var putAction: AuditAction { .experimentPut }
    static var deleteAction: AuditAction { .experimentArchive }

    func searchedTexts(_ definitions: ProjectDefinitions) -> [String] { definitions.texts(ofExperiment: key) }
    static func find(_ key: Identifier, in datafile: Datafile) -> Experiment? { datafile.experiment(key: key) }
    static func all(in datafile: Datafile) -> [Experiment] { datafile.experimentsBesideRules }

    /// Archives the experiment: nobody is enrolled any more, assignments stay in the profiles, results stay readable.
    static func remove(_ key: Identifier, from definitions: inout ProjectDefinitions) throws(CoreError) {
        guard try definitions.archive(key) else {
            throw DefinitionEndpoints<Experiment>.unknown(key.string, in: nil)
        }
    }
}

extension Flag: DefinedElement {
    typealias Change = FlagChange

    static var noun: String { "flag" }
    static var list: StaticString { "flags" }
    static var copiedMembers: [String] { [] }
    static var putAction: AuditAction { .flagPut }
    static var deleteAction: AuditAction { .flagDelete }

    func searchedTexts(_ definitions: ProjectDefinitions) -> [String] { definitions.texts(ofFlag: key) }
    static func find(_ key: Identifier, in datafile: Datafile) -> Flag? { datafile.flag(key: key) }
    static func all(in datafile: Datafile) -> [Flag] { datafile.flags }

    /// Removes the flag and archives its experiments, so that their results stay readable.
    static func remove(_ key: Identifier, from definitions: inout ProjectDefinitions) throws(CoreError) {
        try definitions.removeFlag(key)
    }
}

extension MetricDefinition: DefinedElement {
    typealias Change = MetricChange

    static var noun: String { "metric" }
    static var list: StaticString { "metrics" }
    static var copiedMembers: [String] { [] }
    static var putAction: AuditAction { .metricPut }
    static var deleteAction: AuditAction { .metricDelete }

    func searchedTexts(_ definitions: ProjectDefinitions) -> [String] { [description] + goals.map(\.string) }
    static func find(_ key: Identifier, in datafile: Datafile) -> MetricDefinition? { datafile.metric(key: key) }
    static func all(in datafile: Datafile) -> [MetricDefinition] { datafile.metrics }

    static func remove(_ key: Identifier, from definitions: inout ProjectDefinitions) throws(CoreError) {
        try definitions.removeMetric(key)
    }

    func description(in datafile: Datafile, _ definitions: ProjectDefinitions, sdkKey: String) -> JSONValue {
        var object = json
        object["experiments"] = .array(definitions.experiments(measuring: key).map { .string($0.string) })
        object["sdk_key"] = .string(sdkKey)
        object["revision"] = .string(datafile.revision)
        return .object(object)
    }
}
