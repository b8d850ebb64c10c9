import CCrypto
import Chronology
import HTTPServer
import JSON

/// A token that permits exactly the change that a preview has shown. It consists of the request that makes the change,
/// a condition on the version to change, the name of the caller, and an expiry.
///
/// As text, a token is the payload and its code (HMAC-SHA-256), `BASE64URL.BASE64URL`. The key of the code is the
/// caller's own secret, so every process that admits the caller accepts the token, and no other caller can use it.
struct ChangeToken {
    /// The percent-encoded path of the request that makes the change, a `PUT`.
    let path: String
    let query: [(name: String, value: String)]
    /// The SDK key of the project; `nil` for the default project.
    let project: String?
    /// The JSON body of the change.
    let body: [UInt8]
    /// The header field `If-Match` or `If-None-Match` of the change.
    let condition: (name: String, value: String)?
    /// The name of the caller who asked for the preview.
    let author: String
    /// The expiry in whole seconds.
    let expiry: Instant

    /// The time from the preview to the expiry.
    static let lifetime = TimeSpan.minutes(10)

    init(
        path: String, query: [(name: String, value: String)], project: String?, body: [UInt8],
        condition: (name: String, value: String)?, author: String, expiry: Instant
    ) {
        self.path = path
        self.query = query
        self.project = project
        self.body = body
        self.condition = condition
        self.author = author
        self.expiry = expiry
    }

    /// Returns the token as text, with a code that the key authenticates.
    func text(key: [UInt8]) -> String {
        let query = query.map { JSONValue.array([.string($0.name), .string($0.value)]) }
        let condition = condition.map { JSONValue.array([.string($0.name), .string($0.value)]) }
        let content: JSONValue = [
            "path": .string(path), "query": .array(query), "project": project.map { .string($0) } ?? .null,
            "body": .string(String(decoding: body, as: UTF8.self)), "condition": condition ?? .null,
            "author": .string(author), "expiry": .integer(expiry.secondsSince1970),
        ]
        let payload = content.encoded()
        return "\(Base64URL.encode(payload)).\(Base64URL.encode(Self.code(of: payload, key)))"
    }

    /// Parses a token.
    ///
    /// - Returns: `nil` unless the text was made with the key.
    init?(_ text: String, key: [UInt8]) {
        let parts = text.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 2, let payload = Base64URL.decode(parts[0]), let given = Base64URL.decode(parts[1]) else {
            return nil
        }
        guard ConstantTime.areEqual(given, Self.code(of: payload, key)),
            let content = try? JSONParser().parse(payload).object, let path = content["path"]?.string,
            let body = content["body"]?.string, let author = content["author"]?.string,
            let expiry = content["expiry"]?.integer
        else { return nil }
        self.init(
            path: path, query: (content["query"]?.array ?? []).compactMap(Self.pair),
            project: content["project"]?.string, body: Array(body.utf8), condition: Self.pair(content["condition"]),
            author: author, expiry: Instant(secondsSince1970: expiry))
    }

    /// Parses `[NAME, VALUE]`.
    private static func pair(_ value: JSONValue?) -> (name: String, value: String)? {
        guard let texts = value?.array?.compactMap(\.string), texts.count == 2 else { return nil }
        return (texts[0], texts[1])
    }

    /// Returns the authentication code of a payload. The prefix keeps a code of another purpose from being valid here.
    private static func code(of payload: [UInt8], _ key: [UInt8]) -> [UInt8] {
        HMACSHA256.code(of: Array("change of a preview ".utf8) + payload, key: key)
    }
}
