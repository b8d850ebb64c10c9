import Bucketing
public import Definitions
public import JSON
public import Storage

/// The changes of a user's attributes that a client requests, checked against the schema. If there are faults, all of
/// them are reported at once, and nothing is changed.
public struct AttributeInput: Sendable {
    /// The updates, by the attribute's number.
    public private(set) var updates: [UInt32: AttributeUpdate] = [:]
    private var faults: [JSONFault] = []
    /// Whether a name or a value is refused because it is not defined. Another process may have defined it, so the
    /// caller then reads the schema again and repeats the check.
    private var mayBeStale = false
    private let schema: AttributeSchema
    /// Whether the error for an unknown name suggests a similar name. Errors of an import do not, because comparing
    /// each name of many lines with all attributes would take too long.
    private let suggestsNames: Bool

    private init(_ schema: AttributeSchema, suggestsNames: Bool = true) {
        self.schema = schema
        self.suggestsNames = suggestsNames
    }

    /// Parses `{"country":"de","age":30}`.
    ///
    /// - Throws: 422 with every wrong member as `errors`.
    public init(values: JSONValue, schema: AttributeSchema) throws(CoreError) {
        self.init(schema)
        set(values, at: [])
        try check()
    }

    /// Parses a line of an import: `{"user_id":"u","attributes":{…},"remove":["a"]}`. The members `attributes` and
    /// `remove` are optional.
    ///
    /// - Throws: 422 with every wrong member as `errors`.
    public init(line: JSONObject, schema: AttributeSchema) throws(CoreError) {
        self.init(schema, suggestsNames: false)
        if let values = line["attributes"] { set(values, at: ["attributes"]) }
        if let names = line["remove"] { remove(names, at: ["remove"]) }
        try check()
    }

    /// Removes attributes by name.
    ///
    /// - Throws: 422 if a name is unknown.
    public init(removing names: [String], schema: AttributeSchema) throws(CoreError) {
        self.init(schema)
        for name in names {
            guard let definition = schema.attribute(Identifier(name)) else {
                throw CoreError(
                    .unprocessable, schema.unknownAttribute(Identifier(name)), mayBeStale: true)
            }
            updates[definition.number] = .remove
        }
    }

    /// Adds an update for each member of an object.
    private mutating func set(_ values: JSONValue, at place: JSONPointer) {
        guard let object = values.object else {
            return refuse(place, "attributes must be an object; got \(values.kind)")
        }
        guard check(count: object.count, at: place) else { return }
        for member in object {
            let pointer = place.appending(member.key)
            guard let definition = definition(member.key, pointer) else { continue }
            if member.value.isNull {
                refuse(pointer, "`\(member.key)` must have a value; got null (DELETE removes an attribute)")
                continue
            }
            do throws(AttributeRefusal) {
                updates[definition.number] = .set(try definition.value(member.value))
            } catch {
                mayBeStale = true
                refuse(pointer, error.description)
            }
        }
    }

    /// Adds a removal for each name of an array.
    private mutating func remove(_ names: JSONValue, at place: JSONPointer) {
        guard let list = names.array else { return refuse(place, "`remove` must be an array; got \(names.kind)") }
        guard check(count: list.count, at: place) else { return }
        for (index, name) in list.enumerated() {
            let pointer = place.appending(index)
            guard let text = name.string else {
                refuse(pointer, "a name must be a string; got \(name.kind)")
                continue
            }
            guard let definition = definition(text, pointer) else { continue }
            if updates.updateValue(.remove, forKey: definition.number) != nil {
                refuse(pointer, "an attribute must be named once; got '\(definition.name)' twice")
            }
        }
    }

    /// Returns whether a number of attributes is within the limit, and adds a fault if it is not.
    private mutating func check(count: Int, at place: JSONPointer) -> Bool {
        let isWithinLimit = count <= ProfileInput.attributeLimit
        if !isWithinLimit { refuse(place, "attributes must be at most \(ProfileInput.attributeLimit); got \(count)") }
        return isWithinLimit
    }

    /// Returns the attribute with a name; `nil` and a fault if there is none.
    private mutating func definition(_ name: String, _ pointer: JSONPointer) -> AttributeDefinition? {
        if let definition = schema.attribute(Identifier(name)) { return definition }
        mayBeStale = true
        refuse(
            pointer,
            suggestsNames ? schema.unknownAttribute(Identifier(name)) : "no attribute has the name '\(name)'")
        return nil
    }

    /// Adds a fault.
    private mutating func refuse(_ pointer: JSONPointer, _ reason: String) {
        faults.append(JSONFault(pointer: pointer, reason: reason))
    }

    /// - Throws: 422 with all faults, if there are any.
    private func check() throws(CoreError) {
        guard var error = CoreError(faults: faults, "nothing was stored") else { return }
        error.mayBeStale = mayBeStale
        throw error
    }
}
