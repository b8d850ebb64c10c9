import Bucketing
public import JSON
public import Storage

/// What becomes of a user's attributes, as a client asks for it, checked against the schema as a whole.
public struct AttributeInput: Sendable {
    /// By the number of the attribute.
    public private(set) var updates: [UInt32: AttributeUpdate] = [:]
    private var faults: [JSONFault] = []
    private let schema: AttributeSchema

    private init(_ schema: AttributeSchema) {
        self.schema = schema
    }

    /// `{"country":"de","age":30}`
    ///
    /// - Throws: 422 with every member that is wrong as `errors`.
    public init(values: JSONValue, schema: AttributeSchema) throws(HoldfastError) {
        self.init(schema)
        set(values, at: [])
        try check()
    }

    /// A line of an import: `{"user_id":"u","attributes":{…},"remove":["a"]}`; the latter two may be absent.
    ///
    /// - Throws: as ``init(values:schema:)``
    public init(line: JSONObject, schema: AttributeSchema) throws(HoldfastError) {
        self.init(schema)
        if let values = line["attributes"] { set(values, at: ["attributes"]) }
        if let names = line["remove"] { remove(names, at: ["remove"]) }
        try check()
    }

    /// Removes attributes by their names.
    ///
    /// - Throws: 422 when there is no attribute of a name.
    public init(removing names: [String], schema: AttributeSchema) throws(HoldfastError) {
        self.init(schema)
        for name in names {
            guard let definition = schema.attribute(Identifier(name)) else {
                throw HoldfastError(.unprocessable, "no attribute has the name '\(name)'")
            }
            updates[definition.number] = .remove
        }
    }

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
                refuse(pointer, error.description)
            }
        }
    }

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

    private mutating func check(count: Int, at place: JSONPointer) -> Bool {
        let isWithinLimit = count <= ProfileInput.attributeLimit
        if !isWithinLimit { refuse(place, "attributes must be at most \(ProfileInput.attributeLimit); got \(count)") }
        return isWithinLimit
    }

    private mutating func definition(_ name: String, _ pointer: JSONPointer) -> AttributeDefinition? {
        if let definition = schema.attribute(Identifier(name)) { return definition }
        refuse(pointer, "no attribute has the name '\(name)'")
        return nil
    }

    private mutating func refuse(_ pointer: JSONPointer, _ reason: String) {
        faults.append(JSONFault(pointer: pointer, reason: reason))
    }

    private func check() throws(HoldfastError) {
        if let error = HoldfastError(faults: faults, "nothing was stored") { throw error }
    }
}
