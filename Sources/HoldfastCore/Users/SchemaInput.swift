public import Bucketing
public import Definitions
public import JSON
public import Storage

// Requests that define attributes and segments, and the responses with definitions.

extension AttributeSchema {
    /// The maximum number of attributes.
    public static let attributeLimit = 500
    /// The maximum number of segments.
    public static let segmentLimit = 1_000

    /// - Throws: 409 if no further attribute may be defined.
    public func checkRoom(forAttribute name: Identifier) throws(CoreError) {
        guard attributes.count < Self.attributeLimit || attribute(name) != nil else {
            throw CoreError(.conflict, "at most \(Self.attributeLimit) attributes may be defined")
        }
    }

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
    /// Describes the refusal to change the type of an attribute.
    public init(otherTypeOf stored: AttributeDefinition) {
        let multiple = stored.isMultiple ? " of several values" : ""
        self.init(
            .conflict,
            "the type of '\(stored.name)' must stay \(stored.type)\(multiple), because its values have this type; delete "
                + "the attribute to change it", at: ["type"])
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

    /// Returns the values of a selection.
    ///
    /// - Parameter isMultiple: whether a user may have several of them. A request may then send them as one text with
    ///   semicolons between, so a value must not contain a semicolon.
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
        let object = try body.object("a segment", knowing: ["name", "conditions"], ignoring: Self.counts)
        if let given = try object.optionalText("name"), !given.utf8.elementsEqual(name.string.utf8) {
            throw CoreError(.invalid, "`name` must be the name in the path, '\(name)'; got '\(given)'", at: ["name"])
        }
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
