public import JSON

/// A response as an HTTP client reads it.
public struct TestResponse: Sendable {
    public let status: Int
    /// The header fields in the order of the response; names in lower case.
    public let fields: [(name: String, value: String)]
    public let body: [UInt8]

    public init(status: Int, fields: [(name: String, value: String)], body: [UInt8] = []) {
        self.status = status
        self.fields = fields
        self.body = body
    }

    /// Returns the first value of a header field, by its name in lower case.
    public func field(_ name: String) -> String? {
        fields.first { $0.name == name }?.value
    }

    /// The body as text; of JSON without the line feed at its end.
    public var text: String {
        let isLine = field("content-type") == "application/json" && body.last == UInt8(ascii: "\n")
        return String(decoding: isLine ? body.dropLast() : body[...], as: UTF8.self)
    }

    /// The body as JSON; `null` if it is not JSON.
    public var json: JSONValue {
        (try? JSONParser().parse(body)) ?? .null
    }

    /// A member of the body; `null` if the body has no member of this name.
    public subscript(_ key: String) -> JSONValue {
        json.object?[key] ?? .null
    }
}

extension JSONValue {
    /// A member of an object; `null` if the object has no member of this name.
    public subscript(_ key: String) -> JSONValue {
        object?[key] ?? .null
    }
}
