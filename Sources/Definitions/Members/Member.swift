public import JSON

/// The way from an element to one of its values.
public typealias MemberPath<Element, Value> = any WritableKeyPath<Element, Value> & Sendable

/// A member of an element, said once: how it is read, merged, stored, shown and described comes from it.
public final class Member<Element: Sendable>: Sendable {
    /// What of a member differs from the usual.
    public struct Traits: Sendable {
        /// Whether null gives the member the value of a new element; otherwise null is as if it were absent.
        var isClearedByNull = false
        /// Whether a file and `GET` leave it out while it has the value of a new element; otherwise only what a form does not
        /// write.
        var isShownIfSet = false
        /// Whether the datafile has it among the members named `holdfast`.
        var isStored = false
        /// Whether `?from=` copies it.
        var isCopied = false
        /// What it is in a file that leaves it out; `nil` for what it was before.
        var fileDefault: JSONValue?
        /// Whether null is read like any other value, and not as if the member were absent.
        var readsNull = false
        /// Whether what has the element says it instead: the flag of an experiment that is one of its rules, the experiment
        /// of a flag that serves it.
        var isOwned = false
        /// What an error says after "`name` is required", of a member that a new element must have and that null does not
        /// clear; `nil` for any other.
        var requirement: String?

        public init(
            isClearedByNull: Bool = false, isShownIfSet: Bool = false, isStored: Bool = false, isCopied: Bool = false,
            readsNull: Bool = false, isOwned: Bool = false, fileDefault: JSONValue? = nil
        ) {
            self.isClearedByNull = isClearedByNull
            self.isShownIfSet = isShownIfSet
            self.isStored = isStored
            self.isCopied = isCopied
            self.readsNull = readsNull
            self.isOwned = isOwned
            self.fileDefault = fileDefault ?? (isClearedByNull ? .some(.null) : nil)
        }

        /// Of what is stored, and shown, copied and kept in files if it is set. Null clears it.
        public static var cleared: Self {
            Self(isClearedByNull: true, isShownIfSet: true, isStored: true, isCopied: true)
        }
        /// What a new element must have.
        static func required(_ rule: String = "") -> Self {
            var traits = Self()
            traits.requirement = rule
            return traits
        }
        /// The same of what a copy does not take over.
        public static var own: Self { Self(isClearedByNull: true, isShownIfSet: true, isStored: true) }
    }

    public let name: String
    /// As OpenAPI describes the member of a request; null if nothing but `openapi.json` has it.
    public let schema: JSONValue
    /// As OpenAPI describes the member of a response; null if nothing but `openapi.json` has it.
    public let shownSchema: JSONValue
    let traits: Traits

    /// Reads the member of a body into a draft, and returns which names are given: none, that of the member, or those of its
    /// own members after it and a dot.
    let read: @Sendable (JSONObject, JSONPointer, inout Element, inout FaultCollector) -> Set<String>
    /// Gives an element the value of a draft.
    let copy: @Sendable (Given<Element>, inout Element) -> Void
    let write: @Sendable (Element) -> JSONValue?
    let file: @Sendable (Element) -> JSONValue?
    let readStored: @Sendable (JSONValue, inout Element) -> Void
    /// Whether two elements have the same value.
    let areSame: @Sendable (Element, Element) -> Bool

    /// - Parameter replace: returns the value that takes the place of the second one; `nil` for the first one as it is.
    public init<Value: Equatable & Sendable>(
        _ name: String, _ path: MemberPath<Element, Value>, _ form: Form<Value>, _ description: String = "",
        _ traits: Traits = Traits(), replacing replace: (@Sendable (Value, Value) -> Value)? = nil
    ) {
        self.name = name
        self.traits = traits
        let takesNull = traits.requirement == nil && !traits.readsNull
        schema = Self.schema(form.schema, description, traits, isShown: false, isNullable: takesNull)
        shownSchema = Self.schema(form.shownSchema, description, traits, isShown: true, isNullable: form.isNullable)
        read = { object, place, draft, faults in
            guard let value = object[name] else { return [] }
            if value.isNull, !traits.readsNull { return traits.isClearedByNull ? [name] : [] }
            let given = GivenMember(object: object, name: name, value: value, owner: place)
            if let value = form.read(given, &faults) { draft[keyPath: path] = value }
            return [name]
        }
        copy = { given, element in
            let value = given.draft[keyPath: path]
            element[keyPath: path] = replace.map { $0(value, element[keyPath: path]) } ?? value
        }
        write = { form.write($0[keyPath: path]) }
        file = { form.file($0[keyPath: path]) }
        readStored = { value, element in
            if let value = form.stored(value) { element[keyPath: path] = value }
        }
        areSame = { $0[keyPath: path] == $1[keyPath: path] }
    }

    /// A member with members of its own, each of which keeps its value if it is left out. Null clears all.
    ///
    /// - Parameter form: how it is stored and kept in files.
    public init<Value: Equatable & Sendable>(
        _ name: String, _ path: MemberPath<Element, Value>, of table: MemberTable<Value>, _ form: Form<Value>,
        _ description: String, _ traits: Traits
    ) {
        self.name = name
        self.traits = traits
        schema = Self.schema(table.schema, description, traits, isShown: false, isNullable: true)
        shownSchema = .null
        read = { object, place, draft, faults in
            guard let value = object[name] else { return [] }
            guard !value.isNull else { return Set([name] + table.names.map { "\(name).\($0)" }) }
            let place = place.appending(name)
            guard let object = table.object(value, at: place, &faults) else { return [name] }
            let given = table.read(object, at: place, &faults)
            draft[keyPath: path] = given.draft
            return Set([name] + given.names.map { "\(name).\($0)" })
        }
        copy = { given, element in
            let names = Set(table.names.filter { given.names.contains("\(name).\($0)") })
            table.apply(Given(draft: given.draft[keyPath: path], names: names), to: &element[keyPath: path])
        }
        write = { form.write($0[keyPath: path]) }
        file = { form.file($0[keyPath: path]) }
        readStored = { value, element in
            if let value = form.stored(value) { element[keyPath: path] = value }
        }
        areSame = { $0[keyPath: path] == $1[keyPath: path] }
    }

    /// - Parameter isShown: whether it is that of a response.
    private static func schema(
        _ form: JSONValue, _ description: String, _ traits: Traits, isShown: Bool, isNullable: Bool
    ) -> JSONValue {
        guard var schema = form.object, schema["$ref"] == nil else { return form }
        if isNullable, !(isShown && traits.isShownIfSet) {
            if let type = schema["type"] { schema["type"] = .array((type.array ?? [type]) + ["null"]) }
            if let choices = schema["enum"]?.array { schema["enum"] = .array(choices + [.null]) }
            if let choices = schema["oneOf"]?.array { schema["oneOf"] = .array(choices + [["type": "null"]]) }
        }
        var sentences = description.isEmpty ? [] : [description]
        if traits.isShownIfSet {
            if isShown { sentences.append("Absent if none was given.") }
            if !isShown, traits.isClearedByNull { sentences.append("Null removes it.") }
        }
        if !sentences.isEmpty { schema["description"] = .string(sentences.joined(separator: " ")) }
        return .object(schema)
    }
}

/// The members of a body: a draft with their values, and which of them the body has.
public struct Given<Element: Sendable>: Sendable {
    public var draft: Element
    /// The names of the members.
    var names: Set<String>

    public init(draft: Element, names: Set<String> = []) {
        self.draft = draft
        self.names = names
    }

    public func has(_ name: String) -> Bool { names.contains(name) }

    /// Gives a member a value, as if the body had it.
    public mutating func set<Value>(_ name: String, _ path: WritableKeyPath<Element, Value>, to value: Value) {
        draft[keyPath: path] = value
        names.insert(name)
    }

    /// Returns a value of the draft, if the body has the member.
    public func value<Value>(_ name: String, _ path: KeyPath<Element, Value>) -> Value? {
        names.contains(name) ? draft[keyPath: path] : nil
    }
}

extension Given: Equatable where Element: Equatable {}
