public import Bucketing
import Chronology
public import JSON

/// An element that admins define over the API: an experiment, a flag, a metric or a holdout.
///
/// The endpoints are generic over this protocol: list, `GET`, `PUT`, copy and `DELETE`. Experiments, flags and holdouts
/// are represented by their types in the compiled datafile. ``Change`` is the parsed body of a `PUT`.
public protocol DefinedElement: Sendable {
    associatedtype Change: ElementChange

    /// The name in responses and errors, such as `flag`.
    static var noun: String { get }
    /// The member of a list response that has the elements, such as `flags`.
    static var list: StaticString { get }
    /// The members that `PUT …?from=KEY` copies; empty if elements of this kind cannot be copied.
    static var copiedMembers: [String] { get }

    var key: Identifier { get }

    /// The texts that a search looks through in addition to the key.
    func searchedTexts(_ definitions: ProjectDefinitions) -> [String]

    /// The element itself if it is a flag, otherwise `nil`. Only flags show when they were last used.
    var usedFlag: Flag? { get }

    /// Returns the element with a key; `nil` if there is none.
    static func find(_ key: Identifier, in compiled: CompiledDefinitions) -> Self?

    /// Returns all elements of this kind that the API lists.
    static func all(in compiled: CompiledDefinitions) -> [Self]

    /// Removes the element from the project, or archives it.
    ///
    /// - Throws: 404 if there is none.
    static func remove(_ key: Identifier, from definitions: inout ProjectDefinitions) throws(CoreError)

    /// Returns the element as `GET` shows it.
    ///
    /// - Parameter compiled: the definitions that contain the element.
    func description(in compiled: CompiledDefinitions, sdkKey: String) -> JSONValue
}

extension DefinedElement {
    public static var copiedMembers: [String] { [] }
    public var usedFlag: Flag? { nil }

    /// Returns the element with a key as `GET` shows it; `nil` if there is none.
    public static func description(of key: String, in compiled: CompiledDefinitions, sdkKey: String) -> JSONValue? {
        find(Identifier(key), in: compiled).map { $0.description(in: compiled, sdkKey: sdkKey) }
    }

    /// Parses the body of a `PUT` into a change of those members that differ from what `GET` shows.
    ///
    /// - Parameter description: the element as `GET` shows it; `nil` if there is none.
    /// - Returns: `nil` if the body only repeats what `GET` shows. Such a request changes nothing, so it is accepted
    ///   even for an archived experiment, whose changes are refused.
    /// - Throws: 400 or 422 if the body is wrong.
    public static func change(
        _ body: JSONValue, key: String, of description: JSONValue?
    ) throws(CoreError) -> Change? {
        let body = Flag.withoutUses(body)
        let shown = description.map { DefinitionChanges(of: $0) }
        if let shown { try shown.checkProject(of: body) }
        let changes = shown?.members(of: body) ?? body
        let change = try Change(changes, key: key)
        let repeatsWhatIsShown = changes.object?.isEmpty == true && body.object?.isEmpty == false
        return repeatsWhatIsShown ? nil : change
    }

    /// Returns the body of the `PUT` that creates a copy: a draft with the ``copiedMembers`` and the variations of the
    /// source. The variations get new ids, because assignments refer to ids.
    ///
    /// - Parameter body: the body of the request. Its members replace the copied ones.
    /// - Throws: 404 if the source does not exist, 409 if the key of the copy is taken.
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
        copy["variations"] = .array(
            shown.objects("variations").map { ["key": $0["key"] ?? .null, "weight": $0["weight"] ?? .null] })
        for member in given { copy[member.key] = member.value }
        return .object(copy)
    }

    /// Describes a key that no element has, with the key that was probably meant.
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
