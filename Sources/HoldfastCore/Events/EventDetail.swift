public import JSON

/// The details of an event that are kept for exports; results do not need them.
public enum EventDetail {
    /// The maximum size of one member, in bytes of JSON.
    static let limit = 8_192

    /// Encodes a member. Several events may share the encoded bytes. An object over the limit is replaced with `null`:
    /// refusing the event would lose it for the results, which do not need the details.
    public static func encode(_ object: JSONObject) -> [UInt8] {
        let json = JSONValue.object(object).encoded()
        return json.count <= limit ? json : Array("null".utf8)
    }
}

extension JSONWriter {
    /// Writes a member of an event's detail; see ``EventDetail/encode(_:)``.
    public mutating func detail(_ name: StaticString, _ object: JSONObject) {
        key(name)
        raw(EventDetail.encode(object))
    }
}
