public import Bucketing
public import Definitions
public import JSON
public import Storage

/// The changes of a user's attributes that a client requests, checked against the schema as a whole.
public struct AttributeInput: Sendable {
    /// The updates, by the attribute's number.
    public private(set) var updates: [UInt32: AttributeUpdate] = [:]
    private var faults: [JSONFault] = []
    /// Whether a name or a value is refused because it is not defined.
    private var mayBeStale = false
    private let schema: AttributeSchema
    /// Whether errors suggest names. Errors of an import do not, because comparing each name of many lines with all
    /// attributes would take too long.
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

    /// Parses a line of an import: `{"user_id":"u","attributes":{…},"remove":["a"]}`; the latter two are optional.
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
        mayBeStale = true
        refuse(
            pointer,
            suggestsNames ? schema.unknownAttribute(Identifier(name)) : "no attribute has the name '\(name)'")
        return nil
    }

    private mutating func refuse(_ pointer: JSONPointer, _ reason: String) {
        faults.append(JSONFault(pointer: pointer, reason: reason))
    }

    private func check() throws(CoreError) {
        guard var error = CoreError(faults: faults, "nothing was stored") else { return }
        error.mayBeStale = mayBeStale
        throw error
    }
}

extension AttributeSchema {
    /// Returns the text of an error for an unknown attribute, with the name that was probably meant.
    public func unknownAttribute(_ name: Identifier) -> String {
        "no attribute has the name '\(name)'" + Spelling.hint(for: name, among: attributes.lazy.map(\.name))
    }

    /// Returns the text of an error for an unknown segment, with the name that was probably meant.
    public func unknownSegment(_ name: Identifier) -> String {
        "no segment has the name '\(name)'" + Spelling.hint(for: name, among: segments.keys.sorted())
    }
}

extension AttributeDefinition {
    /// Parses `{"type":"number"}`, or `{"type":"selection","values":["One","Two"],"multiple":true}`.
    ///
    /// - Throws: 400 with a pointer to the member that is wrong.
    public init(_ body: JSONValue, name: Identifier) throws(CoreError) {
        let object = try body.object("an attribute", knowing: ["name", "type", "values", "multiple"])
        if let given = try object.optionalText("name"), !given.utf8.elementsEqual(name.string.utf8) {
            throw CoreError(.invalid, "`name` must be the name in the path, '\(name)'; got '\(given)'", at: ["name"])
        }
        let given = try object.text("type")
        guard let type = AttributeType(rawValue: given) else {
            let types = AttributeType.allCases.map(\.rawValue)
            throw CoreError(
                .invalid,
                "`type` must be one of \(types.joined(separator: ", ")); got '\(given)'"
                    + Spelling.hint(for: given, among: types), at: ["type"])
        }
        guard type == .selection else {
            for key in ["values", "multiple"] where object[key] != nil {
                throw CoreError(
                    .invalid, "`\(key)` requires the type selection; got \(type)", at: JSONPointer().appending(key))
            }
            self.init(name: name, number: 0, type: type)
            return
        }
        let multiple = object["multiple"] ?? false
        guard let isMultiple = multiple.bool else {
            throw CoreError(.invalid, "`multiple` must be true or false; got \(multiple.kind)", at: ["multiple"])
        }
        let values = try Self.allowedValues(object["values"], isMultiple)
        self.init(name: name, number: 0, type: type, allowedValues: values, isMultiple: isMultiple)
    }

    private static func allowedValues(_ value: JSONValue?, _ isMultiple: Bool) throws(CoreError) -> [Identifier] {
        let place: JSONPointer = ["values"]
        guard let list = value?.array, (1...mostValues).contains(list.count) else {
            let found = value?.array.map { "\($0.count) elements" } ?? value?.kind ?? "nothing"
            throw CoreError(
                .invalid, "`values` must be an array of 1 to \(mostValues) strings; got \(found)", at: place)
        }
        var values: [Identifier] = []
        var seen: Set<Identifier> = []
        for (index, element) in list.enumerated() {
            guard let text = element.string, (1...255).contains(text.utf8.count) else {
                let found = element.string.map { "\($0.utf8.count) bytes" } ?? element.kind
                throw CoreError(
                    .invalid, "an allowed value must be a string of 1 to 255 bytes; got \(found)",
                    at: place.appending(index))
            }
            let hasBlankEnd = text.first?.isWhitespace == true || text.last?.isWhitespace == true
            guard !isMultiple || !text.utf8.contains(UInt8(ascii: ";")) && !hasBlankEnd else {
                throw CoreError(
                    .invalid,
                    "with `multiple`, a value must not contain a semicolon or begin or end with a blank; got '\(text)'",
                    at: place.appending(index))
            }
            guard seen.insert(Identifier(text)).inserted else {
                throw CoreError(.invalid, "the values must differ; got '\(text)' twice", at: place.appending(index))
            }
            values.append(Identifier(text))
        }
        return values
    }
}
