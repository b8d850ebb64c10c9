import Bucketing
import Chronology
import HoldfastCore
import JSON
import Storage

/// The content of a delivery: an event in the format of the receiver, for a program, Slack or Teams.
struct WebhookMessage {
    let id: String
    /// The name of the event, such as `experiment.put`.
    let event: String
    let body: [UInt8]

    /// Creates the message of an entry of the audit log.
    ///
    /// - Parameter publicURL: the URL of this server for browsers; `nil` for messages without a link.
    init(_ entry: AuditEntry, _ format: Webhook.Format, publicURL: String?) {
        self.init(
            id: WebhookEvent.id(entry), event: entry.action, format, at: entry.recordedAt,
            sentence: Self.sentence(entry), link: publicURL.map { $0 + Self.path(entry) }
        ) { data in
            data["sdk_key"] = entry.sdkKey.map { .string($0) } ?? .null
            data["target"] = .string(entry.target)
            data["author"] = .string(entry.author.name)
            data["request_id"] = .string(entry.author.requestID)
            data["before"] = Self.detail(entry.before)
            data["after"] = Self.detail(entry.after)
        }
    }

    /// Creates a test message.
    init(testing key: String, _ format: Webhook.Format, publicURL: String?, at now: Instant) {
        self.init(
            id: "evt_test_\(now.milliseconds)", event: WebhookEvent.test, format, at: now,
            sentence: "This is a test of the webhook '\(key)'.", link: publicURL.map { $0 + "/console/" }
        ) { $0["target"] = .string(key) }
    }

    /// - Parameter fill: sets the members of `data` in the standard format.
    private init(
        id: String, event: String, _ format: Webhook.Format, at time: Instant, sentence: String, link: String?,
        _ fill: (inout JSONObject) -> Void
    ) {
        self.id = id
        self.event = event
        let content: JSONValue
        switch format {
        case .standard:
            var data = JSONObject()
            fill(&data)
            data["sentence"] = .string(sentence)
            data["link"] = link.map { .string($0) } ?? .null
            content = ["type": .string(event), "timestamp": .string(time.rfc3339), "data": .object(data)]
        case .slack:
            let text = sentence.replacing("&", with: "&amp;").replacing("<", with: "&lt;").replacing(">", with: "&gt;")
            content = ["text": .string(text + (link.map { " <\($0)|Open the console>" } ?? ""))]
        case .teams:
            var card = JSONObject()
            card["type"] = "AdaptiveCard"
            card["version"] = "1.4"
            card["body"] = [["type": "TextBlock", "text": .string(sentence), "wrap": true]]
            if let link {
                card["actions"] = [["type": "Action.OpenUrl", "title": "Open the console", "url": .string(link)]]
            }
            content = [
                "type": "message",
                "attachments": [
                    ["contentType": "application/vnd.microsoft.card.adaptive", "content": .object(card)]
                ],
            ]
        }
        body = content.encoded()
    }

    // MARK: Texts

    private static func detail(_ json: [UInt8]?) -> JSONValue {
        json.flatMap { try? JSONParser().parse($0) } ?? .null
    }

    /// Returns a sentence about the event.
    private static func sentence(_ entry: AuditEntry) -> String {
        let place = entry.sdkKey.map { " of the project '\($0)'" } ?? ""
        let parts = entry.action.split(separator: ".", maxSplits: 1).map(String.init)
        let noun = parts[0].replacing("_", with: " ")
        let subject = entry.target.isEmpty ? "the \(noun)" : "the \(noun) '\(entry.target)'\(place)"
        let after = detail(entry.after)
        switch AuditAction(rawValue: entry.action) {
        case .experimentVerdict:
            return "The verdict about \(subject) is now '\(after.object?["verdict"]?.string ?? "none")'."
        case .experimentWarning:
            let warnings = (after.object?["warnings"]?.array ?? []).compactMap(\.string)
            return warnings.isEmpty
                ? "Nothing is wrong with \(subject) any longer."
                : "Look at \(subject): \(warnings.joined(separator: ", "))."
        case .proposalPut:
            return
                "\(proposalText(entry, "proposed"))\(place); it waits for approval (proposal '\(entry.target)')."
        case .proposalApprove, .proposalReject:
            return "\(proposalText(entry, verb(parts.last ?? "")))\(place) (proposal '\(entry.target)')."
        case .profileErase: return "\(entry.author.name) erased a user."
        case .webhookPause:
            return
                "The webhook '\(entry.target)' is paused: \(after.object?["reason"]?.string ?? "it does not respond")."
        case .experimentRamp, .experimentSchedule, .experimentBandit:
            let status = after.object?["experiment"]?.object?["status"]?.string.map { "; it is \($0)" } ?? ""
            return "The \(parts.last ?? "") of \(subject) went on\(status)."
        default: return "\(entry.author.name) \(verb(parts.last ?? "")) \(subject)."
        }
    }

    /// Returns who did what to which change: `ann proposed a change of the experiment 'checkout'`.
    private static func proposalText(_ entry: AuditEntry, _ verb: String) -> String {
        let names = (detail(entry.after).object?["experiments"]?.array ?? []).compactMap(\.string).map { "'\($0)'" }
        guard !names.isEmpty else { return "\(entry.author.name) \(verb) a change" }
        let noun = names.count == 1 ? "experiment" : "experiments"
        return "\(entry.author.name) \(verb) a change of the \(noun) \(names.joined(separator: ", "))"
    }

    /// Returns the past tense of an action: `concluded` for `conclude`.
    private static func verb(_ action: String) -> String {
        switch action {
        case "put": "changed"
        case "import": "imported what happened elsewhere into"
        case "reopen": "reopened"
        default: action.hasSuffix("e") ? action + "d" : action + "ed"
        }
    }

    /// Returns the path of the changed object in the console.
    private static func path(_ entry: AuditEntry) -> String {
        let places = ["experiment": "experiments", "flag": "flags", "metric": "metrics", "holdout": "holdouts"]
        let noun = entry.action.split(separator: ".").first.map(String.init) ?? ""
        if noun == "proposal" { return "/console/#/proposals" }
        guard let place = places[noun] else { return "/console/#/audit" }
        let project = entry.sdkKey.map { "?project=\($0.percentEncoded)" } ?? ""
        return "/console/#/\(place)/\(entry.target.percentEncoded)\(project)"
    }
}

/// The signatures of deliveries, according to the specification Standard Webhooks: an HMAC-SHA-256 of the id, the time
/// and the body.
enum WebhookSignature {
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

    private static func base64(_ bytes: [UInt8]) -> String {
        let text = Base64URL.encode(bytes).replacing("-", with: "+").replacing("_", with: "/")
        return text + String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)
    }
}
