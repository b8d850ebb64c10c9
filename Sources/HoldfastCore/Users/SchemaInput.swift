public import Bucketing
public import Definitions
public import JSON
public import Storage

// Parses requests that define attributes and segments, and writes the responses with definitions.

extension AttributeSchema {
    /// The maximum number of attributes.
    public static let attributeLimit = 500
    /// The maximum number of segments.
    public static let segmentLimit = 1_000

    /// Checks that an attribute may be defined. An attribute that is defined already may always be changed.
    ///
    /// - Throws: 409 if no further attribute may be defined.
    public func checkRoom(forAttribute name: Identifier) throws(CoreError) {
        guard attributes.count < Self.attributeLimit || attribute(name) != nil else {
            throw CoreError(.conflict, "at most \(Self.attributeLimit) attributes may be defined")
        }
    }

    /// Checks that a segment may be defined. A segment that is defined already may always be changed.
    ///
    /// - Throws: 409 if no further segment may be defined.
    public func checkRoom(forSegment name: Identifier) throws(CoreError) {
        guard segments.count < Self.segmentLimit || segments[name] != nil else {
            throw CoreError(.conflict, "at most \(Self.segmentLimit) segments may be defined")
        }
    }

    /// Returns the text of an error for an unknown attribute, with the name that was probably meant.
    public func unknownAttribute(_ name: Identifier) -> String {
        "no attribute has the name '\(name)'" + Spelling.hint(for: name, among: attributes.lazy.map(\.name))
    }

    /// Returns the text of an error for an unknown segment, with the name that was probably meant.
    public func unknownSegment(_ name: Identifier) -> String {
        "no segment has the name '\(name)'" + Spelling.hint(for: name, among: segments.keys.sorted())
    }
}

extension CoreError {
    /// The refusal to change the type of an attribute.
    ///
    /// - Parameter stored: the attribute as it is defined.
    public init(otherTypeOf stored: AttributeDefinition) {
        let multiple = stored.isMultiple ? " of several values" : ""
        self.init(
            .conflict,
            "the type of '\(stored.name)' must stay \(stored.type)\(multiple), because its values have this type; "
                + "delete the attribute to change it", at: ["type"])
    }
}

extension AttributeDefinition {
    /// Parses `{"type":"number"}`, or `{"type":"selection","values":["One","Two"],"multiple":true}`.
    ///
    /// - Throws: 400 with a pointer to the member that is wrong.
    public init(_ body: JSONValue, name: Identifier) throws(CoreError) {
        let object = try body.object("an attribute", knowing: ["name", "type", "values", "multiple"])
        try object.checkName(name)
        let type = try Self.attributeType(in: object)
        // The number 0 stands for none, because the store gives a new attribute its number.
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

    /// Returns the `type` of an attribute.
    ///
    /// - Throws: 400 if there is no such type.
    private static func attributeType(in object: JSONObject) throws(CoreError) -> AttributeType {
        let given = try object.text("type")
        guard let type = AttributeType(rawValue: given) else {
            let types = AttributeType.allCases.map(\.rawValue)
            throw CoreError(
                .invalid,
                "`type` must be one of \(types.joined(separator: ", ")); got '\(given)'"
                    + Spelling.hint(for: given, among: types), at: ["type"])
        }
        return type
    }

    /// Returns the values of a selection.
    ///
    /// - Parameter isMultiple: whether a user may have several values. A request may then send them as one text such as
    ///   `"One; Two"`, so a value must not contain a semicolon or begin or end with a blank.
    /// - Throws: 400 with a pointer to the value that is wrong.
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
            let isAmbiguousInList = text.utf8.contains(UInt8(ascii: ";")) || hasBlankEnd
            guard !(isMultiple && isAmbiguousInList) else {
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

    /// The response of `GET /v1/attributes/{name}`.
    public var json: JSONValue {
        var object = JSONObject()
        object["name"] = .string(name.string)
        for member in document.object ?? JSONObject() { object[member.key] = member.value }
        return .object(object)
    }
}

extension Segment {
    /// The members that only `GET /v1/segments/{name}?size=true` shows.
    public static let counts = ["size", "examined"]

    /// Reads `{"conditions":[…]}`.
    ///
    /// - Throws: 400 if the body is not such an object, 422 with every condition that cannot be evaluated.
    public init(_ body: JSONValue, name: Identifier, schema: AttributeSchema) throws(CoreError) {
        // A client may send a segment back as it was read, with the counts.
        let object = try body.object("a segment", knowing: ["name", "conditions"], ignoring: Self.counts)
        try object.checkName(name)
        guard let conditions = object["conditions"] else {
            throw CoreError(.invalid, "`conditions` is required", at: ["conditions"])
        }
        let faults = SegmentRules.faults(in: conditions, at: ["conditions"], schema: schema)
        if let error = CoreError(faults: faults, "nothing was stored") { throw error }
        self.init(name: name, conditions: conditions)
    }

    /// The response of `GET /v1/segments/{name}`.
    public var json: JSONObject {
        var object = JSONObject()
        object["name"] = .string(name.string)
        object["conditions"] = conditions
        return object
    }
}

extension JSONObject {
    /// Checks the `name` of a definition: it must be the name in the path, or absent.
    ///
    /// - Throws: 400 if the names differ.
    fileprivate func checkName(_ pathName: Identifier) throws(CoreError) {
        guard let given = try optionalText("name"), !given.utf8.elementsEqual(pathName.string.utf8) else { return }
        throw CoreError(.invalid, "`name` must be the name in the path, '\(pathName)'; got '\(given)'", at: ["name"])
    }
}
