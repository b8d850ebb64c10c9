import JSON

/// The signatures of deliveries, according to the specification Standard Webhooks: an HMAC-SHA-256 of the id, the time
/// and the body.
enum WebhookSignature {
    /// The start of every secret.
    private static let prefix = "whsec_"
    /// The length in bytes of keys that the server generates.
    private static let keyBytes = 32
    /// The allowed length in bytes of keys in files.
    private static let allowedKeyBytes = 24...64

    /// Returns a new random secret.
    static func makeSecret() -> String {
        prefix + base64((0..<keyBytes).map { _ in UInt8.random(in: 0...255) })
    }

    /// Returns the key of a secret; `nil` if it is not `whsec_` and 24 to 64 bytes in base64.
    static func key(_ secret: String) -> [UInt8]? {
        guard secret.hasPrefix(prefix) else { return nil }
        var text = String(secret.dropFirst(prefix.count)).replacing("+", with: "-").replacing("/", with: "_")
        while text.hasSuffix("=") { text.removeLast() }
        return Base64URL.decode(text.utf8).flatMap { allowedKeyBytes.contains($0.count) ? $0 : nil }
    }

    /// Returns the header fields of a message, with a signature by each key.
    ///
    /// - Parameter seconds: the time of the attempt, in seconds since 1970.
    static func fields(_ message: WebhookMessage, at seconds: Int64, keys: [[UInt8]]) -> [String] {
        let content = Array("\(message.id).\(seconds).".utf8) + message.body
        let signatures = keys.map { "v1," + base64(HMACSHA256.code(of: content, key: $0)) }
        return [
            "Content-Type: application/json", "webhook-id: \(message.id)", "webhook-timestamp: \(seconds)",
            "webhook-signature: \(signatures.joined(separator: " "))",
        ]
    }

    /// Encodes bytes in base64 with padding.
    private static func base64(_ bytes: [UInt8]) -> String {
        let text = Base64URL.encode(bytes).replacing("-", with: "+").replacing("_", with: "/")
        return text + String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)
    }
}
