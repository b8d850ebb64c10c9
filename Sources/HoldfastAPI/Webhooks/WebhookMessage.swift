import Bucketing
import Chronology
import HoldfastCore
import JSON
import Storage

/// The content of a delivery: an event in the format of the receiver, for a program, Slack or Teams.
struct WebhookMessage {
    /// The id of the event, by which a receiver recognizes a repeated delivery.
    let id: String
    /// The name of the event, such as `experiment.put`.
    let event: String
    /// The JSON body in the format of the receiver.
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
        case .slack: content = Self.slackMessage(sentence, link)
        case .teams: content = Self.teamsMessage(sentence, link)
        }
        body = content.encoded()
    }

    /// Returns a message for an incoming webhook of Slack.
    private static func slackMessage(_ sentence: String, _ link: String?) -> JSONValue {
        let text = sentence.replacing("&", with: "&amp;").replacing("<", with: "&lt;").replacing(">", with: "&gt;")
        return ["text": .string(text + (link.map { " <\($0)|Open the console>" } ?? ""))]
    }

    /// Returns a message with an Adaptive Card for Microsoft Teams.
    private static func teamsMessage(_ sentence: String, _ link: String?) -> JSONValue {
        var card = JSONObject()
        card["type"] = "AdaptiveCard"
        card["version"] = "1.4"
        card["body"] = [["type": "TextBlock", "text": .string(sentence), "wrap": true]]
        if let link {
            card["actions"] = [["type": "Action.OpenUrl", "title": "Open the console", "url": .string(link)]]
        }
        return [
            "type": "message",
            "attachments": [
                ["contentType": "application/vnd.microsoft.card.adaptive", "content": .object(card)]
            ],
        ]
    }

    // MARK: Texts

    /// Parses the state of a definition before or after the change; `null` if the entry has none.
    private static func detail(_ json: [UInt8]?) -> JSONValue {
        json.flatMap { try? JSONParser().parse($0) } ?? .null
    }

    /// Returns a sentence about the event for people, such as `ann changed the flag 'banner' of the project 'shop'.`
    private static func sentence(_ entry: AuditEntry) -> String {
        let project = entry.sdkKey.map { " of the project '\($0)'" } ?? ""
        let parts = entry.action.split(separator: ".", maxSplits: 1).map(String.init)
        let noun = parts[0].replacing("_", with: " ")
        let subject = entry.target.isEmpty ? "the \(noun)" : "the \(noun) '\(entry.target)'\(project)"
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
                "\(proposalText(entry, "proposed"))\(project); it waits for approval (proposal '\(entry.target)')."
        case .proposalApprove, .proposalReject:
            return "\(proposalText(entry, verb(parts.last ?? "")))\(project) (proposal '\(entry.target)')."
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

    /// Returns the beginning of a sentence about a proposal, such as `ann proposed a change of the experiment
    /// 'checkout'`.
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
        let screens = ["experiment": "experiments", "flag": "flags", "metric": "metrics", "holdout": "holdouts"]
        let noun = entry.action.split(separator: ".").first.map(String.init) ?? ""
        if noun == "proposal" { return "/console/#/proposals" }
        guard let screen = screens[noun] else { return "/console/#/audit" }
        let project = entry.sdkKey.map { "?project=\($0.percentEncoded)" } ?? ""
        return "/console/#/\(screen)/\(entry.target.percentEncoded)\(project)"
    }
}
