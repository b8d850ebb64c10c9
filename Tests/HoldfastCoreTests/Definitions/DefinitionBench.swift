import Bucketing
import Definitions
import JSON

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

    /// The element as `GET` shows it; null if there is none.
    func shown<Element: DefinedElement>(_: Element.Type, _ key: String) -> JSONValue {
        Element.description(of: key, in: project.compiled, sdkKey: project.sdkKey) ?? .null
    }

    /// Returns why a body is refused, and checks that nothing has changed; `nil` if it is not refused.
    func refused<Element: DefinedElement>(_: Element.Type, _ key: String, _ body: JSONValue) -> CoreError? {
        var other = self
        do throws(CoreError) {
            try other.put(Element.self, key, body)
            return nil
        } catch {
            return error
        }
    }
}

extension CoreError {
    /// The places of all that is wrong.
    var places: [String] { faults.isEmpty ? pointer.map { [$0.string] } ?? [] : faults.map(\.pointer.string) }
}

extension JSONValue {
    /// A member of an object; null if there is none.
    subscript(_ key: String) -> JSONValue { object?[key] ?? .null }

    /// The values that the elements of an array have for a member.
    func all(_ key: String) -> [JSONValue] { (array ?? []).map { $0[key] } }
}
