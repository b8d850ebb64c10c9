import Bucketing
import Chronology
import Definitions
import JSON
import Storage
import TestSupport

@testable import HoldfastCore

/// A project that bodies of `PUT` change, without a store and without HTTP.
struct DefinitionBench {
    private(set) var project: Project

    init() throws {
        let root = Datafile.empty(projectID: "1")
        project = GoldenProject.project(CompiledDefinitions(try Project.compile(root)), version: 1)
    }

    /// Begins with an uploaded datafile.
    init(_ members: KeyValuePairs<String, JSONValue>) throws {
        var root = Datafile.empty(projectID: "1").object ?? JSONObject()
        for (key, value) in members { root[key] = value }
        project = GoldenProject.project(CompiledDefinitions(try Project.compile(.object(root))), version: 1)
    }

    /// Defines an element.
    ///
    /// - Returns: the element as `GET` shows it.
    @discardableResult
    mutating func put<Element: DefinedElement>(
        _: Element.Type, _ key: String, _ body: JSONValue
    ) throws(CoreError) -> JSONValue {
        project = try GoldenProject.edited(project) { definitions, project throws(CoreError) in
            let shown = project.flatMap { Element.description(of: key, in: $0.compiled, sdkKey: $0.sdkKey) }
            _ = try Element.change(body, key: key, of: shown, GoldenProject.schema)?.apply(to: &definitions)
        }
        return shown(Element.self, key)
    }

    /// Archives an experiment, or removes another element.
    mutating func remove<Element: DefinedElement>(_: Element.Type, _ key: String) throws(CoreError) {
        project = try GoldenProject.edited(project) { definitions, _ throws(CoreError) in
            try Element.remove(Identifier(key), from: &definitions)
        }
    }

    /// Defines an element like another one, as `?from=` does.
    @discardableResult
    mutating func copy<Element: DefinedElement>(
        _: Element.Type, _ source: String, as key: String, _ body: JSONValue = [:]
    ) throws(CoreError) -> JSONValue {
        try put(Element.self, key, try Element.copy(of: source, as: key, body, in: project))
    }

    /// Makes a change that no body asks for, such as the end of an experiment.
    mutating func edit(
        _ change: @escaping @Sendable (inout ProjectDefinitions) throws(CoreError) -> Void
    ) throws(CoreError) {
        project = try GoldenProject.edited(project) { definitions, _ throws(CoreError) in try change(&definitions) }
    }

    /// Concludes an experiment.
    ///
    /// - Returns: the experiment as `GET` shows it.
    @discardableResult
    mutating func conclude(
        _ key: String, winner: Identifier?, at time: Instant = 1_772_000_000_000
    ) throws(CoreError) -> JSONValue {
        try edit { definitions throws(CoreError) in
            let input = ConclusionInput(winner: winner, reason: "Better")
            try definitions.conclude(Identifier(key), as: input, at: time, by: Author(name: "ada"))
        }
        return shown(Experiment.self, key)
    }

    @discardableResult
    mutating func reopen(_ key: String) throws(CoreError) -> JSONValue {
        try edit { definitions throws(CoreError) in try definitions.reopen(Identifier(key)) }
        return shown(Experiment.self, key)
    }

    /// Applies a set of definitions, as `PUT /v1/definitions` does.
    @discardableResult
    mutating func apply(
        _ set: JSONValue, prunes: Bool = false
    ) throws(CoreError) -> DefinitionSetEdit.Outcome {
        let draft = try GoldenProject.apply(try DefinitionSet(set), prunes: prunes, to: project)
        project = GoldenProject.project(draft.compiled, version: project.version + 1)
        return draft.outcome
    }

    /// All definitions in the form of files.
    var files: JSONValue { DefinitionSet(project.definitions, GoldenProject.schema).json }

    /// The element as `GET` shows it; null if there is none.
    func shown<Element: DefinedElement>(_: Element.Type, _ key: String) -> JSONValue {
        Element.description(of: key, in: project.compiled, sdkKey: project.sdkKey) ?? .null
    }

    /// Returns why a body is refused; `nil` if it is not.
    func refused<Element: DefinedElement>(_: Element.Type, _ key: String, _ body: JSONValue) -> CoreError? {
        refused { bench throws(CoreError) in try bench.put(Element.self, key, body) }
    }

    /// Returns why a change is refused; `nil` if it is not.
    func refused(_ change: (inout DefinitionBench) throws(CoreError) -> some Any) -> CoreError? {
        var other = self
        do throws(CoreError) {
            _ = try change(&other)
            return nil
        } catch {
            return error
        }
    }
}

extension CoreError {
    /// Whether it says in the first place that is wrong what is required there, or what was found.
    func says(_ text: String, at place: String) -> Bool {
        places.first == place && (faults.first?.reason ?? detail).contains(text)
    }

    /// The places of all that is wrong.
    var places: [String] { faults.isEmpty ? pointer.map { [$0.string] } ?? [] : faults.map(\.pointer.string) }
}

extension JSONValue {
    /// A member of an object; null if there is none.
    subscript(_ key: String) -> JSONValue { object?[key] ?? .null }

    /// The values that the elements of an array have for a member.
    func all(_ key: String) -> [JSONValue] { (array ?? []).map { $0[key] } }
}
