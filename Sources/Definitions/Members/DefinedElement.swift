public import Bucketing
import Chronology
public import JSON

/// What admins define in a project over the API: an experiment, a flag, a metric or a holdout.
public protocol DefinedElement: Sendable {
    associatedtype Change: ElementChange

    /// The name in responses and errors, such as `flag`.
    static var noun: String { get }
    /// The member of a response that has a list.
    static var list: StaticString { get }
    /// The members of its description that a copy takes over; empty if it cannot be copied.
    static var copiedMembers: [String] { get }

    static func find(_ key: Identifier, in compiled: CompiledDefinitions) -> Self?
    var key: Identifier { get }

    /// What a search looks through besides the key.
    func searchedTexts(_ definitions: ProjectDefinitions) -> [String]

    /// The flag, if the element is one: when it was used is part of what `GET` presents.
    var usedFlag: Flag? { get }

    /// Returns the elements of a list.
    static func all(in compiled: CompiledDefinitions) -> [Self]

    /// Removes the element from the project, or archives it.
    ///
    /// - Throws: 404 if there is none.
    static func remove(_ key: Identifier, from definitions: inout ProjectDefinitions) throws(CoreError)

    /// The element as `GET` presents it.
    ///
    /// - Parameter compiled: those that have the element.
    func description(in compiled: CompiledDefinitions, sdkKey: String) -> JSONValue
}

extension DefinedElement {
    public static var copiedMembers: [String] { [] }
    public var usedFlag: Flag? { nil }

    /// Returns an element as `GET` presents it; `nil` if there is none.
    public static func description(of key: String, in compiled: CompiledDefinitions, sdkKey: String) -> JSONValue? {
        find(Identifier(key), in: compiled).map { $0.description(in: compiled, sdkKey: sdkKey) }
    }

    /// Returns the change that a body asks for: of the members that differ from what `GET` shows.
    ///
    /// - Parameter description: the element as `GET` presents it; `nil` if there is none.
    /// - Returns: `nil` if the body has nothing else than what is shown. That asks for nothing, not even of an archived
    ///   experiment.
    /// - Throws: 400 or 422 if the body is wrong.
    public static func change(
        _ body: JSONValue, key: String, of description: JSONValue?
    ) throws(CoreError) -> Change? {
        let body = Flag.withoutUses(body)
        let shown = description.map { DefinitionChanges(of: $0) }
        if let shown { try shown.checkProject(of: body) }
        let changes = shown?.members(of: body) ?? body
        let change = try Change(changes, key: key)
        return changes.object?.isEmpty == true && body.object?.isEmpty == false ? nil : change
    }

    /// Returns the body of a `PUT` that makes a copy.
    ///
    /// - Parameter body: the members that the copy has otherwise.
    /// - Throws: 404 if there is nothing to copy, 409 if the copy's key is not free.
    public static func copy(
        of source: String, as key: String, _ body: JSONValue, in compiled: CompiledDefinitions?
    ) throws(CoreError) -> JSONValue {
        guard let compiled, let element = find(Identifier(source), in: compiled) else {
            throw unknown(source, in: compiled)
        }
        guard find(Identifier(key), in: compiled) == nil else {
            throw CoreError(.conflict, "a copy must have a new key; '\(key)' exists")
        }
        guard let given = body.object else { return body }
        let shown = element.description(in: compiled, sdkKey: "").object ?? JSONObject()
        var copy = JSONObject()
        copy["status"] = ExperimentStatus.draft.json
        for member in copiedMembers { copy[member] = shown[member] }
        let variations = (shown["variations"]?.array ?? []).compactMap(\.object)
        copy["variations"] = .array(
            variations.map { ["key": $0["key"] ?? .null, "weight": $0["weight"] ?? .null] })
        for member in given { copy[member.key] = member.value }
        return .object(copy)
    }

    /// Describes a key that no element has.
    public static func unknown(_ key: String, in compiled: CompiledDefinitions?) -> CoreError {
        let known = compiled.map { all(in: $0).lazy.map(\.key) }
        let hint = known.map { Spelling.hint(for: Identifier(key), among: $0) } ?? ""
        return .undefined("no \(noun) has the key '\(key)'\(hint)")
    }
}

extension Experiment: DefinedElement {
    public typealias Change = ExperimentChange

    public static var noun: String { "experiment" }
    public static var list: StaticString { "experiments" }
    public static var copiedMembers: [String] { ExperimentView.members.copied }

    public func searchedTexts(_ definitions: ProjectDefinitions) -> [String] { definitions.texts(ofExperiment: key) }
    public static func find(_ key: Identifier, in compiled: CompiledDefinitions) -> Experiment? {
        compiled.datafile.experiment(key: key)
    }
    public static func all(in compiled: CompiledDefinitions) -> [Experiment] {
        compiled.datafile.experimentsBesideRules
    }

    /// Archives the experiment: nobody is enrolled any more, assignments stay in the profiles, results stay readable.
    public static func remove(_ key: Identifier, from definitions: inout ProjectDefinitions) throws(CoreError) {
        guard try definitions.archive(key) else { throw unknown(key.string, in: nil) }
    }
}

extension Flag: DefinedElement {
    public typealias Change = FlagChange

    public static var noun: String { "flag" }
    public static var list: StaticString { "flags" }
    public var usedFlag: Flag? { self }

    public func searchedTexts(_ definitions: ProjectDefinitions) -> [String] { definitions.texts(ofFlag: key) }
    public static func find(_ key: Identifier, in compiled: CompiledDefinitions) -> Flag? {
        compiled.datafile.flag(key: key)
    }
    public static func all(in compiled: CompiledDefinitions) -> [Flag] { compiled.datafile.flags }

    /// Removes the flag and archives its experiments, so that their results stay readable.
    public static func remove(_ key: Identifier, from definitions: inout ProjectDefinitions) throws(CoreError) {
        try definitions.removeFlag(key)
    }
}

extension Holdout: DefinedElement {
    public typealias Change = HoldoutChange

    public static var noun: String { "holdout" }
    public static var list: StaticString { "holdouts" }

    public func searchedTexts(_ definitions: ProjectDefinitions) -> [String] { [] }
    public static func find(_ key: Identifier, in compiled: CompiledDefinitions) -> Holdout? {
        compiled.datafile.holdout(keyOrID: key).flatMap { $0.isOwn && $0.key == key ? $0 : nil }
    }
    public static func all(in compiled: CompiledDefinitions) -> [Holdout] { compiled.datafile.holdouts.filter(\.isOwn) }

    public static func remove(_ key: Identifier, from definitions: inout ProjectDefinitions) throws(CoreError) {
        guard definitions.removeHoldout(key) else { throw unknown(key.string, in: nil) }
    }
}

extension MetricDefinition: DefinedElement {
    public typealias Change = MetricChange

    public static var noun: String { "metric" }
    public static var list: StaticString { "metrics" }

    public func searchedTexts(_ definitions: ProjectDefinitions) -> [String] { [description] + goals.map(\.string) }
    public static func find(_ key: Identifier, in compiled: CompiledDefinitions) -> MetricDefinition? {
        compiled.definitions.metrics[key]
    }
    public static func all(in compiled: CompiledDefinitions) -> [MetricDefinition] {
        Array(compiled.definitions.metrics)
    }

    public static func remove(_ key: Identifier, from definitions: inout ProjectDefinitions) throws(CoreError) {
        try definitions.removeMetric(key)
    }

    public func description(in compiled: CompiledDefinitions, sdkKey: String) -> JSONValue {
        var object = json
        object["experiments"] = .array(compiled.definitions.experiments(measuring: key).map { .string($0.string) })
        object["sdk_key"] = .string(sdkKey)
        object["revision"] = .string(compiled.datafile.revision)
        return .object(object)
    }
}
