public import JSON

/// The way from an element to one of its values.
public typealias MemberPath<Element, Value> = any WritableKeyPath<Element, Value> & Sendable

/// A member of an element, said once: how it is read, merged, stored, shown and described comes from it.
public final class Member<Element: Sendable>: Sendable {
    /// What of a member differs from the usual.
    struct Traits {
        /// Whether null gives the member the value of a new element; otherwise null is as if it were absent.
        var isClearedByNull = false
        /// Whether a file and `GET` leave it out while it has the value of a new element; otherwise only what a form does not
        /// write.
        var isShownIfSet = false
        /// Whether the datafile has it among the members named `holdfast`.
        var isStored = false
        /// Whether `?from=` copies it.
        var isCopied = false
    }

    public let name: String
    /// As OpenAPI describes the member of a request.
    public let schema: JSONValue
    let traits: Traits

    /// Reads the member of a body into a draft, and says whether it is given.
    let read: @Sendable (JSONObject, JSONPointer, inout Element, inout FaultCollector) -> Bool
    /// Copies the value from the first element to the second.
    let copy: @Sendable (Element, inout Element) -> Void
    let write: @Sendable (Element) -> JSONValue?
    let file: @Sendable (Element) -> JSONValue?
    let readStored: @Sendable (JSONValue, inout Element) -> Void
    /// Whether two elements have the same value.
    let areSame: @Sendable (Element, Element) -> Bool

    init<Value: Equatable & Sendable>(
        _ name: String, _ path: MemberPath<Element, Value>, _ form: Form<Value>, _ description: String = "",
        _ traits: Traits = Traits()
    ) {
        self.name = name
        self.traits = traits
        schema = Self.schema(form.schema, description)
        read = { object, place, draft, faults in
            guard let value = object[name] else { return false }
            if value.isNull { return traits.isClearedByNull }
            let given = GivenMember(object: object, name: name, value: value, owner: place)
            if let value = form.read(given, &faults) { draft[keyPath: path] = value }
            return true
        }
        copy = { $1[keyPath: path] = $0[keyPath: path] }
        write = { form.write($0[keyPath: path]) }
        file = { form.file($0[keyPath: path]) }
        readStored = { value, element in
            if let value = form.stored(value) { element[keyPath: path] = value }
        }
        areSame = { $0[keyPath: path] == $1[keyPath: path] }
    }

    /// Returns the schema of a member of a request, which may be null.
    private static func schema(_ form: JSONValue, _ description: String) -> JSONValue {
        guard var schema = form.object, schema["$ref"] == nil else { return form }
        schema["type"] = .array((schema["type"]?.array ?? [schema["type"] ?? .null]) + ["null"])
        if let choices = schema["enum"]?.array { schema["enum"] = .array(choices + [.null]) }
        if !description.isEmpty { schema["description"] = .string(description) }
        return .object(schema)
    }
}

/// The members of a body: a draft with their values, and which of them the body has.
public struct Given<Element: Sendable>: Sendable {
    public var draft: Element
    /// The names of the members.
    var names: Set<String> = []

    public func has(_ name: String) -> Bool { names.contains(name) }

    /// Returns a value of the draft, if the body has the member.
    public func value<Value>(_ name: String, _ path: KeyPath<Element, Value>) -> Value? {
        names.contains(name) ? draft[keyPath: path] : nil
    }
}
