package import Bucketing
package import Chronology
package import Definitions
package import JSON
import TestSupport

/// Definitions that bodies of `PUT` change, without a store and without HTTP.
package struct DefinitionBench: Sendable {
    package static let sdkKey = "default"

    package var compiled: CompiledDefinitions

    package init() throws { try self.init([:]) }

    /// Begins with an uploaded datafile.
    package init(_ members: KeyValuePairs<String, JSONValue>) throws {
        var root = Datafile.empty(projectID: "1").object ?? JSONObject()
        for (key, value) in members { root[key] = value }
        compiled = CompiledDefinitions(try Datafile.usable(.object(root)))
    }

    /// Defines an element.
    ///
    /// - Returns: the element as `GET` shows it.
    @discardableResult
    package mutating func put<Element: DefinedElement>(
        _: Element.Type, _ key: String, _ body: JSONValue
    ) throws(CoreError) -> JSONValue {
        let shown = Element.description(of: key, in: compiled, sdkKey: Self.sdkKey)
        try edit { definitions throws(CoreError) in
            _ = try Element.change(body, key: key, of: shown)?.apply(to: &definitions)
        }
        return self.shown(Element.self, key)
    }

    /// Archives an experiment, or removes another element.
    package mutating func remove<Element: DefinedElement>(_: Element.Type, _ key: String) throws(CoreError) {
        try edit { definitions throws(CoreError) in try Element.remove(Identifier(key), from: &definitions) }
    }

    /// Defines an element like another one, as `?from=` does.
    @discardableResult
    package mutating func copy<Element: DefinedElement>(
        _: Element.Type, _ source: String, as key: String, _ body: JSONValue = [:]
    ) throws(CoreError) -> JSONValue {
        try put(Element.self, key, try Element.copy(of: source, as: key, body, in: compiled))
    }

    /// Makes a change that no body asks for, such as the end of an experiment.
    package mutating func edit(
        _ change: (inout ProjectDefinitions) throws(CoreError) -> Void
    ) throws(CoreError) {
        compiled = try CompiledDefinitions.edited(compiled, sdkKey: Self.sdkKey, change).compiled
    }

    /// Concludes an experiment.
    ///
    /// - Returns: the experiment as `GET` shows it.
    @discardableResult
    package mutating func conclude(
        _ key: String, winner: Identifier?, at time: Instant = 1_772_000_000_000
    ) throws(CoreError) -> JSONValue {
        try edit { definitions throws(CoreError) in
            let input = ConclusionInput(winner: winner, reason: "Better")
            try definitions.conclude(Identifier(key), as: input, at: time, by: "ada")
        }
        return shown(Experiment.self, key)
    }

    @discardableResult
    package mutating func reopen(_ key: String) throws(CoreError) -> JSONValue {
        try edit { definitions throws(CoreError) in try definitions.reopen(Identifier(key)) }
        return shown(Experiment.self, key)
    }

    /// The element as `GET` shows it; null if there is none.
    package func shown<Element: DefinedElement>(_: Element.Type, _ key: String) -> JSONValue {
        Element.description(of: key, in: compiled, sdkKey: Self.sdkKey) ?? .null
    }

    /// Returns why a body is refused; `nil` if it is not.
    package func refused<Element: DefinedElement>(_: Element.Type, _ key: String, _ body: JSONValue) -> CoreError? {
        refused { bench throws(CoreError) in try bench.put(Element.self, key, body) }
    }

    /// Returns why a change is refused; `nil` if it is not.
    package func refused(_ change: (inout DefinitionBench) throws(CoreError) -> some Any) -> CoreError? {
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
    package func says(_ text: String, at place: String) -> Bool {
        places.first == place && (faults.first?.reason ?? detail).contains(text)
    }

    /// The places of all that is wrong.
    package var places: [String] { faults.isEmpty ? pointer.map { [$0.string] } ?? [] : faults.map(\.pointer.string) }
}

extension JSONValue {
    /// A member of an object; null if there is none.
    package subscript(_ key: String) -> JSONValue { object?[key] ?? .null }

    /// The values that the elements of an array have for a member.
    package func all(_ key: String) -> [JSONValue] { (array ?? []).map { $0[key] } }
}
