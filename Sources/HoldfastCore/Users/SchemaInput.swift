public import Bucketing
public import Definitions
public import JSON
public import Storage

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
