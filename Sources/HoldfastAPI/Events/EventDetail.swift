import Bucketing
import JSON

/// What is kept of an event for a warehouse, beyond what results need.
enum EventDetail {
    /// Bytes of the JSON of one member.
    static let limit = 8_192
}

extension JSONWriter {
    /// Writes a member of an event's detail: `null` in place of what is too long, as the event itself must not be lost.
    mutating func detail(_ name: StaticString, _ object: JSONObject) {
        let json = JSONValue.object(object).encoded()
        key(name)
        if json.count <= EventDetail.limit { raw(json) } else { null() }
    }
}
