import Bucketing

/// An HTTP answer as a client reads it.
struct Answer {
    let status: Int
    /// In the order of the answer; names in lower case.
    let fields: [(name: String, value: String)]
    let body: [UInt8]

    func field(_ name: String) -> String? {
        fields.first { $0.name == name }?.value
    }

    var text: String {
        String(decoding: body, as: UTF8.self)
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
