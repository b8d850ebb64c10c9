import Bucketing
import JSON

/// An HTTP answer as a client reads it.
struct Answer {
    let status: Int
    /// In the order of the answer; names in lower case.
    let fields: [(name: String, value: String)]
    let body: [UInt8]

    func field(_ name: String) -> String? {
        fields.first { $0.name == name }?.value
    }

    /// The body; of JSON without the line feed at its end.
    var text: String {
        let isLine = field("content-type") == "application/json" && body.last == UInt8(ascii: "\n")
        return String(decoding: isLine ? body.dropLast() : body[...], as: UTF8.self)
    }

    /// The body as JSON; `null` when it is none.
    var json: JSONValue {
        (try? JSONParser().parse(body)) ?? .null
    }

    /// A member of the body; `null` when it has none of this name.
    subscript(_ key: String) -> JSONValue {
        json.object?[key] ?? .null
    }
}

extension JSONValue {
    /// A member of an object; `null` when it has none of this name.
    subscript(_ key: String) -> JSONValue {
        object?[key] ?? .null
    }
}
