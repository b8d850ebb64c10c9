public import Bucketing
public import JSON

extension JSONValue {
    /// Returns the value as an object with known members only: a misspelt optional member must not be mistaken for an
    /// absent one.
    ///
    /// - Parameters:
    ///   - name: the name of the object in an error.
    ///   - known: the members that the object may have.
    ///   - shown: further members that responses have. Requests may repeat them, and they are ignored.
    /// - Throws: 400 if the value is not an object or has other members.
    public func object(
        _ name: String, knowing known: [String], ignoring shown: [String] = [], at place: JSONPointer = []
    ) throws(CoreError) -> JSONObject {
        guard let object else {
            throw CoreError(.invalid, "\(name) must be an object; got \(kind)", at: place)
        }
        for member in object where !known.contains(member.key) && !shown.contains(member.key) {
            let hint = Spelling.nearest(to: member.key, among: known).map { "; did you mean `\($0)`?" } ?? ""
            let list = known.map { "`\($0)`" }.joined(separator: ", ")
            let found = member.key.shortened(to: CoreError.longestQuote)
            throw CoreError(
                .invalid, "\(name) must have no members but \(list); got `\(found)`\(hint)",
                at: place.appending(member.key))
        }
        return object
    }
}

extension JSONObject {
    /// Returns a required string member.
    public func text(_ name: String, in place: JSONPointer = []) throws(CoreError) -> String {
        guard let text = try optionalText(name, in: place) else {
            throw CoreError(.invalid, "`\(name)` is required", at: place.appending(name))
        }
        return text
    }

    /// Returns a string member; `nil` if it is absent or null.
    public func optionalText(_ name: String, in place: JSONPointer = []) throws(CoreError) -> String? {
        guard let value = self[name], !value.isNull else { return nil }
        guard let text = value.string else {
            throw CoreError(.invalid, "`\(name)` must be a string; got \(value.kind)", at: place.appending(name))
        }
        return text
    }

    /// Returns a member that is an array of at least one string; `nil` if it is absent or null.
    public func optionalTexts(_ name: String, in place: JSONPointer = []) throws(CoreError) -> [String]? {
        guard let value = self[name], !value.isNull else { return nil }
        guard let elements = value.array, !elements.isEmpty else {
            let found = value.array == nil ? value.kind : "an empty one"
            throw CoreError(
                .invalid, "`\(name)` must be an array of at least one string; got \(found)", at: place.appending(name))
        }
        var texts: [String] = []
        for (index, element) in elements.enumerated() {
            guard let text = element.string else {
                throw CoreError(
                    .invalid, "`\(name)` must be an array of strings; got \(element.kind)",
                    at: place.appending(name).appending(index))
            }
            texts.append(text)
        }
        return texts
    }

    /// Returns a member that is a number in a range; `nil` if it is absent or null.
    public func optionalNumber(
        _ name: String, _ range: ClosedRange<Double>, in place: JSONPointer = []
    ) throws(CoreError) -> Double? {
        guard let value = self[name], !value.isNull else { return nil }
        guard let number = value.double, range.contains(number) else {
            let found = value.double.map { "\($0)" } ?? value.kind
            let bounds = "\(Int(range.lowerBound)) to \(Int(range.upperBound))"
            throw CoreError(
                .invalid, "`\(name)` must be a number from \(bounds); got \(found)", at: place.appending(name))
        }
        return number
    }
}

extension JSONObject {
    /// Returns an object with only the named members.
    ///
    /// - Parameter evenNull: whether to keep members that are null.
    public func keeping(_ names: [String], evenNull: Bool = false) -> JSONObject {
        var object = JSONObject()
        for member in self where names.contains(member.key) && (evenNull || !member.value.isNull) {
            object[member.key] = member.value
        }
        return object
    }
}

// MARK: - Identifiers and objects

// These read datafiles and stored JSON, which were checked before: values of a wrong type count as absent.

extension JSONObject {
    /// Returns a string member as an identifier; `nil` if the member is absent or not a string.
    public func identifier(_ key: String) -> Identifier? { self[key]?.string.map { Identifier($0) } }

    /// Returns the objects in an array member, without elements of other types.
    public func objects(_ key: String) -> [JSONObject] { (self[key]?.array ?? []).compactMap(\.object) }

    /// Returns the strings in an array member as identifiers, without elements of other types.
    public func identifiers(_ key: String) -> [Identifier] {
        (self[key]?.array ?? []).compactMap { $0.string.map { Identifier($0) } }
    }
}

extension JSONValue {
    public init(_ identifier: Identifier) { self = .string(identifier.string) }

    public init(_ identifiers: [Identifier]) { self = .array(identifiers.map { .string($0.string) }) }
}
