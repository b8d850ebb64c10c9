public import JSON

/// A key path from an element to one of its values.
public typealias MemberPath<Element, Value> = any WritableKeyPath<Element, Value> & Sendable

/// One member of the JSON of an element. It is the only definition of how the member is read, merged, stored, shown and
/// described.
///
/// A member combines a name, the property that holds the value, the ``Form`` of the value, a description for OpenAPI,
/// and ``Traits``. An edit reads the members of a body into a draft, a blank element; then ``copy`` sets the values
/// that the body has in the element that is edited.
public final class Member<Element: Sendable>: Sendable {
    /// The ways in which a member differs from the default.
    public struct Traits: Sendable {
        /// Whether null resets the member to the value of a new element. Otherwise null counts as absent.
        var isClearedByNull = false
        /// Whether files and `GET` leave the member out while it has the value of a new element. Otherwise they leave
        /// it out only if its form writes nothing.
        var isShownIfSet = false
        /// Whether the member is stored in the datafile in the object `holdfast`.
        var isStored = false
        /// Whether `?from=`, which creates an element as a copy of another one, copies the member.
        var isCopied = false
        /// The value if a file leaves the member out; `nil` if the member then keeps its former value.
        var fileDefault: JSONValue?
        /// Whether the form reads null like any other value. Otherwise null resets the member or counts as absent.
        var readsNull = false
        /// Whether the owner of the element determines the value, if the element has one: the flag of an experiment
        /// that is one of its rules, or the experiment of a flag that serves it.
        var isOwned = false
        /// Set for a member that a new element must have and that null does not clear: the end of the error message
        /// that begins with "`name` is required". `nil` for an optional member.
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

        /// The traits of a member that is stored, copied, and shown and written to files if it is set. Null clears it.
        public static var cleared: Self {
            Self(isClearedByNull: true, isShownIfSet: true, isStored: true, isCopied: true)
        }
        /// The traits of a member that a new element must have.
        static func required(_ rule: String = "") -> Self {
            var traits = Self()
            traits.requirement = rule
            return traits
        }
        /// Like ``cleared``, for a member that `?from=` does not copy.
        public static var own: Self { Self(isClearedByNull: true, isShownIfSet: true, isStored: true) }
    }

    public let name: String
    /// The OpenAPI schema of the member in requests; null if it is written in `openapi.json` only.
    public let schema: JSONValue
    /// The OpenAPI schema of the member in responses; null if it is written in `openapi.json` only.
    public let shownSchema: JSONValue
    let traits: Traits

    /// Reads the member of a body into a draft, and returns the names that the body has: none, the name of the member,
    /// or in addition the names of its own members, as in `member.name`.
    let read: @Sendable (JSONObject, JSONPointer, inout Element, inout FaultCollector) -> Set<String>
    /// Copies the value from the draft to an element.
    let copy: @Sendable (Given<Element>, inout Element) -> Void
    /// Returns the JSON that `GET` shows and that is stored; `nil` to leave the member out.
    let write: @Sendable (Element) -> JSONValue?
    /// Returns the JSON for a file of definitions; `nil` to leave the member out.
    let file: @Sendable (Element) -> JSONValue?
    /// Sets the value from stored JSON, if that has the right type.
    let readStored: @Sendable (JSONValue, inout Element) -> Void
    /// Whether two elements have the same value.
    let areSame: @Sendable (Element, Element) -> Bool

    /// - Parameter replace: returns the value to set, from the new value and the former one, for example to keep the
    ///   state of a ramp; `nil` to set the new value.
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

    /// Creates a member that is an object with members of its own. Each of them keeps its value if a request leaves it
    /// out; null in place of the object resets all of them.
    ///
    /// - Parameter form: how the object is stored, shown and written to files.
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

    /// Returns the schema of a form with the description, and with null as a further type if the member may be null.
    ///
    /// - Parameter isShown: whether to return the schema of responses, or that of requests.
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

/// The members of a body: a draft with their values, and the names of those that the body has.
public struct Given<Element: Sendable>: Sendable {
    public var draft: Element
    /// The names of the members that the body has.
    var names: Set<String>

    public init(draft: Element, names: Set<String> = []) {
        self.draft = draft
        self.names = names
    }

    public func has(_ name: String) -> Bool { names.contains(name) }

    /// Sets the value of a member as if it were in the body.
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
