import Chronology
public import Definitions
public import JSON
public import Storage

extension Webhook.Definition {
    /// The members of a webhook. To add one, add a line here, and a property to ``Webhook/Definition``.
    public static let members = MemberTable<Webhook.Definition>(
        "a webhook",
        blank: Webhook.Definition(
            url: "", events: ["*"], sdkKey: nil, format: .standard, isEnabled: true, secrets: [], secretFile: nil),
        showing: ["state"],
        [
            Member("url", \.url, .url, "Begins with `https://`."),
            Member(
                "events", \.events, Form<[String]>.events.omitted(if: ["*"]),
                "Names of events, and patterns such as `experiment.*`; `*` (the default) for all.",
                .init(isClearedByNull: true)),
            Member(
                "sdk_key", \.sdkKey, Form<String>.line.optional(), "Only events of this project; null for all.",
                .init(isClearedByNull: true)),
            Member(
                "format", \.format, Form<Webhook.Format>.choice().omitted(if: .standard),
                "How it is sent; `standard` by default.", .init(isClearedByNull: true)),
            Member("enabled", \.isEnabled, .bool, "`false` sends nothing, until it is `true` again."),
            Member(
                "secret_file", \.secretFile, Form<String>.secretFile.optional(),
                "The name of a file in the directory of `--webhook-secrets` that has the secret; null: the server makes it.",
                .init(isClearedByNull: true)),
        ])

    /// Returns scheme, host and port of a URL. The rest may be a secret, so the audit log and plans do not show it.
    static func origin(of url: String) -> String {
        url.split(separator: "/", maxSplits: 3, omittingEmptySubsequences: false).prefix(3).joined(separator: "/")
    }

    /// The definition as the audit log shows it: without secrets, and with the origin instead of the URL.
    public var audited: JSONValue {
        var object = JSONObject()
        Self.members.show(self, in: &object)
        object["url"] = nil
        object["origin"] = .string(Self.origin(of: url))
        return .object(object)
    }
}

// MARK: - Forms

/// The maximum length of a webhook's URL, in bytes.
private let longestURL = 2_048

extension Form where Value == String {
    /// An absolute URL with the scheme `https` or `http`. ``WebhookRules`` refuses `http` unless an option allows it.
    fileprivate static var url: Self {
        Form(
            schema: ["type": "string", "maxLength": .integer(Int64(longestURL))],
            read: { given, faults in
                guard let url = faults.text(given) else { return nil }
                guard url.utf8.count <= longestURL, url.isWebURL else {
                    // The error does not quote the URL, because a URL of Slack or Teams is a secret.
                    faults.add(
                        "`url` must be an https URL of at most 2048 bytes without a user and a fragment; got something else",
                        at: given.place)
                    return nil
                }
                return url
            }, write: { .string($0) })
    }

    /// Any text. ``WebhookRules`` checks that it is the SDK key of a project.
    fileprivate static var line: Self {
        Form(
            schema: ["type": "string"],
            read: { given, faults in faults.text(given) }, write: { .string($0) })
    }

    /// The name of a file, without a path, so that only files in the directory of secrets can be named.
    fileprivate static var secretFile: Self {
        Form(
            schema: ["type": "string", "minLength": 1, "maxLength": 255],
            read: { given, faults in
                guard let name = faults.text(given) else { return nil }
                if !(1...255).contains(name.utf8.count) || name.hasPrefix(".") || !name.isPlain(or: "-_.") {
                    faults.add(
                        "`secret_file` must be the name of a file in the directory of --webhook-secrets: letters, digits, '-', '_' and '.'; got '\(name.shortened(to: CoreError.longestQuote))'",
                        at: given.place)
                }
                return name
            }, write: { .string($0) })
    }
}

extension Form where Value == [String] {
    /// Names of events, or patterns of them.
    fileprivate static var events: Self {
        Form(
            schema: ["type": "array", "minItems": 1, "items": ["type": "string"]],
            read: { given, faults in
                guard let events = faults.texts(given) else { return nil }
                for (index, event) in events.enumerated() where !WebhookEvent.isKnown(event) {
                    let hint = Spelling.hint(for: event, among: WebhookEvent.names)
                    faults.add(
                        "`events` must have names of events, or patterns such as experiment.* and *; got '\(event.shortened(to: CoreError.longestQuote))'\(hint)",
                        at: given.place.appending(index))
                }
                return events
            }, write: { .array($0.map { .string($0) }) })
    }
}

extension String {
    /// Whether the text begins with `http://` or `https://` and a host, consists of printable ASCII characters without
    /// spaces and backslashes, and has neither a user nor a fragment.
    fileprivate var isWebURL: Bool {
        guard let scheme = ["https://", "http://"].first(where: { hasPrefix($0) }) else { return false }
        let authority = dropFirst(scheme.count).prefix { !"/?".contains($0) }
        let isPrintable = utf8.allSatisfy { $0 > UInt8(ascii: " ") && $0 <= UInt8(ascii: "~") }
        return isPrintable && !contains("\\") && !contains("#") && !authority.isEmpty && !authority.contains("@")
    }

    /// Whether the text consists of ASCII letters, ASCII digits and `others` only.
    func isPlain(or others: String) -> Bool {
        utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"),
                UInt8(ascii: "A")...UInt8(ascii: "Z"):
                true
            default: others.utf8.contains(byte)
            }
        }
    }
}

// MARK: - Changes

extension WebhookChange {
    /// Creates a change with its entry in the audit log.
    ///
    /// - Parameters:
    ///   - definition: the new definition; `nil` to delete the webhook.
    ///   - former: the definition that must be stored when the change is made; `nil` if there must be none.
    ///   - skips: whether events that have happened but were not delivered are skipped.
    public init(
        _ key: String, _ definition: Webhook.Definition?, replacing former: Webhook.Definition?, skips: Bool = false
    ) {
        self.init(
            key, definition, replacing: former, skips: skips,
            AuditNote(
                definition == nil ? .webhookDelete : .webhookPut, of: key, before: former?.audited ?? .null,
                after: definition?.audited ?? .null, in: (definition ?? former)?.sdkKey))
    }

    /// The secret that the server has generated for this change; `nil` if it has generated none.
    public var newSecret: String? {
        guard let secret = definition?.secrets.first, secret != former?.secrets.first else { return nil }
        return secret.text
    }
}

// MARK: - Events

/// The events that webhooks send: entries of the audit log, except those about one user or about this server alone. No
/// event names a user.
public enum WebhookEvent {
    /// The actions that are not sent.
    private static let unsentActions: Set<AuditAction> = [
        .overrideSet, .assignmentRemove, .profileMerge, .forcedVariationSet, .forcedVariationRemove, .stickyDelete,
        .tokensReload, .databaseMigrate,
    ]

    /// The names of all events.
    public static let names = AuditAction.allCases.filter { !unsentActions.contains($0) }.map(\.rawValue)

    /// The event of a test delivery, which an admin requests.
    public static let test = "webhook.test"

    /// Whether a name or a pattern, such as `experiment.*` or `*`, includes an event.
    public static func matches(_ pattern: String, _ name: String) -> Bool {
        guard pattern.hasSuffix("*") else { return pattern == name }
        return name.hasPrefix(pattern.dropLast())
    }

    /// Whether a name or a pattern is valid and includes any event.
    static func isKnown(_ pattern: String) -> Bool {
        let isPattern = pattern == "*" || pattern.hasSuffix(".*") && pattern.dropLast().allSatisfy { $0 != "*" }
        return (isPattern || !pattern.contains("*")) && names.contains { matches(pattern, $0) }
    }

    /// Returns the id of an event, which is the same in each attempt to deliver it.
    public static func id(_ entry: AuditEntry) -> String { "evt_\(entry.id)_\(entry.recordedAt.milliseconds)" }
}
