import Chronology
public import Definitions
public import JSON
public import Storage

/// The events that webhooks send: entries of the audit log, except those about one user or about this server alone. No
/// event names a user.
public enum WebhookEvent {
    /// The actions that are not sent.
    private static let kept: Set<AuditAction> = [
        .overrideSet, .assignmentRemove, .profileMerge, .forcedVariationSet, .forcedVariationRemove, .stickyDelete,
        .tokensReload, .databaseMigrate,
    ]

    /// The names of all events.
    public static let names = AuditAction.allCases.filter { !kept.contains($0) }.map(\.rawValue)

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

extension Webhook.Definition {
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

extension Form where Value == String {
    fileprivate static var url: Self {
        Form(
            schema: ["type": "string", "maxLength": 2_048],
            read: { given, faults in
                guard let url = faults.text(given) else { return nil }
                let scheme = url.hasPrefix("https://") ? "https://" : url.hasPrefix("http://") ? "http://" : nil
                let authority = scheme.map { url.dropFirst($0.count).prefix { !"/?".contains($0) } } ?? ""
                guard scheme != nil, url.utf8.count <= 2_048,
                    url.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != 0x5C }), !authority.isEmpty,
                    !authority.contains("@"), !url.contains("#")
                else {
                    // The error does not quote the URL, because a URL of Slack or Teams is a secret.
                    faults.add(
                        "`url` must be an https URL of at most 2048 bytes without a user and a fragment; got something else",
                        at: given.place)
                    return nil
                }
                return url
            }, write: { .string($0) })
    }

    fileprivate static var line: Self {
        Form(
            schema: ["type": "string"],
            read: { given, faults in faults.text(given) }, write: { .string($0) })
    }

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
    /// Whether the text consists of ASCII letters, ASCII digits and `others` only.
    fileprivate func isPlain(or others: String) -> Bool {
        utf8.allSatisfy { byte in
            (0x30...0x39).contains(byte) || (0x61...0x7A).contains(byte) || (0x41...0x5A).contains(byte)
                || others.utf8.contains(byte)
        }
    }
}

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

extension CoreError {
    /// Describes that the server has the maximum number of webhooks.
    ///
    /// - Parameter count: the number of webhooks that the server has.
    public init(webhooks count: Int) {
        self.init(.conflict, "a server must have at most \(Webhook.limit) webhooks; it has \(count)")
    }
}

/// The webhooks of a server, and which of them the caller may use. Used to apply definitions from files.
public struct WebhookView: Sendable {
    /// All webhooks of the server, of any project.
    let all: [Webhook]
    let rules: WebhookRules

    public init(_ all: [Webhook], _ rules: WebhookRules) {
        self.all = all
        self.rules = rules
    }

    /// The webhooks that the caller may use.
    public var usable: [Webhook] { all.filter { rules.mayUse($0) } }
}

/// The rules for webhooks: those of the server's options and of the caller's token.
public struct WebhookRules: Sendable {
    private let access: ProjectAccess
    private let allowsPlainHTTP: Bool
    private let hasSecretFiles: Bool
    private let isProject: @Sendable (String) -> Bool
    private let makeSecret: @Sendable () -> String

    /// - Parameters:
    ///   - allowsPlainHTTP: whether a URL may begin with `http://`.
    ///   - hasSecretFiles: whether the server has a directory of secrets (`--webhook-secrets`).
    ///   - isProject: returns whether an SDK key belongs to a project.
    ///   - makeSecret: generates the secret of a webhook that has no `secret_file`.
    public init(
        for access: ProjectAccess, allowsPlainHTTP: Bool, hasSecretFiles: Bool,
        isProject: @escaping @Sendable (String) -> Bool, makeSecret: @escaping @Sendable () -> String
    ) {
        self.access = access
        self.allowsPlainHTTP = allowsPlainHTTP
        self.hasSecretFiles = hasSecretFiles
        self.isProject = isProject
        self.makeSecret = makeSecret
    }

    /// The rules for checking files without a server: nothing that depends on a server is refused.
    static let ofFiles = WebhookRules(
        for: .all, allowsPlainHTTP: true, hasSecretFiles: true, isProject: { _ in true }, makeSecret: { "" })

    /// Checks the key of a webhook: 1 to 64 ASCII letters, digits, `-` and `_`.
    ///
    /// - Throws: 400 for any other key.
    public static func check(key: String) throws(CoreError) {
        guard (1...64).contains(key.utf8.count), key.isPlain(or: "-_") else {
            throw CoreError(
                .invalid,
                "the key of a webhook must be 1 to 64 letters, digits, '-' and '_'; got '\(key.shortened(to: CoreError.longestQuote))'"
            )
        }
    }

    /// Whether the caller may see and change a webhook. A token that is bound to projects may use the webhooks of these
    /// projects only.
    public func mayUse(_ webhook: Webhook) -> Bool { webhook.sdkKey.map { access.allows($0) } ?? (access == .all) }

    /// - Throws: 403 unless the caller may use the webhook.
    public func check(_ webhook: Webhook) throws(CoreError) {
        guard !mayUse(webhook) else { return }
        let list = access.sdkKeys?.joined(separator: ", ") ?? ""
        throw CoreError(
            .forbidden, "the token is bound to the projects \(list); it may not use the webhook '\(webhook.key)'")
    }

    /// Applies the body of a request to a definition. Members that the body lacks keep their value.
    ///
    /// - Parameter former: the definition to change; `nil` for a new webhook.
    /// - Throws: 403 if the token may not use the project; 422 with everything else that is wrong.
    public func definition(
        _ body: JSONValue, key: String, replacing former: Webhook.Definition?
    ) throws(CoreError) -> Webhook.Definition {
        let given = try Webhook.Definition.members.read(body, key: key)
        guard former != nil || given.has("url") else {
            throw CoreError(.unprocessable, "a new webhook must have a `url`", at: ["url"])
        }
        var definition = former ?? Webhook.Definition.members.blank
        Webhook.Definition.members.apply(given, to: &definition)
        guard allowsPlainHTTP || definition.url.hasPrefix("https://") else {
            throw CoreError(
                .unprocessable, "`url` must begin with https://; http:// needs the option --webhook-private-addresses",
                at: ["url"])
        }
        if former == nil, !given.has("sdk_key"), let only = access.onlyProject { definition.sdkKey = only }
        try check(project: definition.sdkKey, former?.sdkKey)
        if definition.secretFile != nil {
            guard hasSecretFiles else {
                throw CoreError(
                    .unprocessable, "`secret_file` needs the option --webhook-secrets", at: ["secret_file"])
            }
            definition.secrets = []
        } else if definition.secrets.isEmpty {
            definition.secrets = [Webhook.Secret(makeSecret())]
        }
        return definition
    }

    /// - Parameter former: the former SDK key, which may stay although its project has been deleted.
    /// - Throws: 403, 422
    private func check(project sdkKey: String?, _ former: String?) throws(CoreError) {
        guard let sdkKey else {
            guard access == .all else {
                throw CoreError(
                    .forbidden, "`sdk_key` must be a project of the token; without it the webhook is for all projects",
                    at: ["sdk_key"])
            }
            return
        }
        try access.check(sdkKey)
        guard sdkKey == former || isProject(sdkKey) else {
            throw CoreError(
                .unprocessable,
                "`sdk_key` must be the SDK key of a project; got '\(sdkKey.shortened(to: CoreError.longestQuote))'",
                at: ["sdk_key"])
        }
    }
}
