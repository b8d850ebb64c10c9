public import Definitions
public import JSON
public import Storage

/// The rules for webhooks that depend on the server's options and on the caller's token.
public struct WebhookRules: Sendable {
    /// The projects that the token of the caller is bound to.
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

    /// Checks that the caller may see and change a webhook.
    ///
    /// - Throws: 403 otherwise.
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
            // The file has the secret, so the store keeps none.
            definition.secrets = []
        } else if definition.secrets.isEmpty {
            definition.secrets = [Webhook.Secret(makeSecret())]
        }
        return definition
    }

    /// Checks the project of a webhook.
    ///
    /// - Parameter former: the former SDK key, which may stay although its project has been deleted.
    /// - Throws: 403 if the token may not use the project, 422 if there is no such project.
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

extension CoreError {
    /// Describes that the server has the maximum number of webhooks.
    ///
    /// - Parameter count: the number of webhooks that the server has.
    public init(webhooks count: Int) {
        self.init(.conflict, "a server must have at most \(Webhook.limit) webhooks; it has \(count)")
    }
}
