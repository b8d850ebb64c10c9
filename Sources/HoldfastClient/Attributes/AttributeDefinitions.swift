import Foundation

/// The definitions of attributes on the server, against which updates are checked during development.
final class AttributeDefinitions: Sendable {
    private let core: ClientCore
    /// The definitions; `nil` until they were fetched.
    private let definitions = Locked<[Key: DefinedAttribute]?>(nil)
    /// Whether problems are logged. Reset when the server refuses to return the definitions.
    private let logsProblems: SharedFlag

    init(core: ClientCore) {
        self.core = core
        logsProblems = SharedFlag(core.configuration.checksAttributes && core.configuration.logger != nil)
    }

    /// Forgets the definitions, so that the next comparison fetches them again.
    func reset() {
        definitions.withLock { $0 = nil }
    }

    /// Compares attributes with their definitions.
    ///
    /// - Returns: the problems, by the name of the attribute.
    /// - Throws: ``HoldfastError`` if the definitions cannot be fetched.
    func problems(of attributes: [String: UserAttributeValue]) async throws(HoldfastError) -> [String: String] {
        let definitions = try await fetchedDefinitions()
        var problems: [String: String] = [:]
        for (name, value) in attributes {
            guard let definition = definitions[Key(name)] else {
                problems[name] = "the server has no such attribute"
                continue
            }
            problems[name] = definition.problem(of: value)
        }
        return problems
    }

    /// Returns the definitions, which are fetched at the first call.
    private func fetchedDefinitions() async throws(HoldfastError) -> [Key: DefinedAttribute] {
        if let known = definitions.withLock({ $0 }) { return known }
        let response = try await core.server.request("GET", "v1/attributes")
        let list = try HoldfastServer.decode(DefinedAttribute.List.self, response.body).attributes
        let fetched = Dictionary(list.map { (Key($0.name), $0) }) { _, last in last }
        definitions.withLock { $0 = fetched }
        return fetched
    }

    /// Logs the problems of attributes, in the background.
    func logProblems(of attributes: [String: UserAttributeValue]) {
        guard logsProblems.isSet else { return }
        Task { [weak self] in
            do throws(HoldfastError) {
                for (name, problem) in try await self?.problems(of: attributes) ?? [:] {
                    self?.core.log(.error, "attribute cannot be stored", ["name": name, "problem": problem])
                }
            } catch {
                if case .unauthorized = error {
                    // The token of an app may never read the definitions, so this is not tried again.
                    guard self?.logsProblems.exchange(false) == true else { return }
                }
                self?.core.log(
                    .debug, "attributes are not compared with definitions", ["error": error.localizedDescription])
            }
        }
    }
}

/// The definition of an attribute on the server.
struct DefinedAttribute: Decodable, Sendable {
    struct List: Decodable {
        var attributes: [DefinedAttribute]
    }

    var name: String
    var type: String
    /// The options of a selection.
    var values: [String]?
    /// Whether a user may have several options of a selection.
    var multiple: Bool?

    /// Returns why the server would refuse a value; `nil` if the client knows no reason.
    func problem(of value: UserAttributeValue) -> String? {
        switch (type, value) {
        case ("boolean", .bool), ("number", .integer), ("number", .number), ("string", .string): nil
        case ("country", .string(let text)):
            text.utf8.count == 2 && text.utf8.allSatisfy { (0x61...0x7A).contains($0) }
                ? nil : "a country must be two lower-case letters; got '\(text)'"
        case ("date", .string(let text)):
            Self.matches(text, "0000-00-00") ? nil : "a date must be yyyy-mm-dd; got '\(text)'"
        case ("time", .string(let text)):
            Self.matches(text, "00:00") ? nil : "a time must be HH:MM; got '\(text)'"
        case ("timestamp", .string(let text)):
            Self.matches(String(text.prefix(10)), "0000-00-00") && text.contains("T")
                ? nil : "a timestamp must be as in RFC 3339; got '\(text)'"
        case ("selection", .string(let text)):
            problem(ofChoices: multiple == true ? Self.separated(text) : [text])
        case ("selection", .list(let texts)):
            multiple == true ? problem(ofChoices: texts) : "a user has one of the values; got a list"
        case ("boolean", _), ("number", _), ("string", _), ("country", _), ("date", _), ("time", _), ("timestamp", _),
            ("selection", _):
            "the value must be of type \(type); got \(value.typeName)"
        // A type of a later release.
        default: nil
        }
    }

    /// Returns the problem of an option that the selection does not have.
    private func problem(ofChoices texts: [String]) -> String? {
        guard let wrong = texts.first(where: { text in values?.contains { $0.hasSameBytes(as: text) } == false }) else {
            return nil
        }
        return "the value must be one of \((values ?? []).joined(separator: ", ")); got '\(wrong)'"
    }

    /// Splits `One; Two` as the server does.
    private static func separated(_ text: String) -> [String] {
        text.split(separator: ";").map { $0.trimmingCharacters(in: CharacterSet(charactersIn: " \t")) }
            .filter { !$0.isEmpty }
    }

    /// Whether a text has the pattern's length, with a digit for each `0` and all else equal.
    private static func matches(_ text: String, _ pattern: String) -> Bool {
        text.utf8.count == pattern.utf8.count
            && zip(text.utf8, pattern.utf8).allSatisfy { $1 == 0x30 ? (0x30...0x39).contains($0) : $0 == $1 }
    }
}

extension UserAttributeValue {
    fileprivate var typeName: String {
        switch self {
        case .string: "a string"
        case .integer, .number: "a number"
        case .bool: "a boolean"
        case .list: "a list"
        }
    }
}
