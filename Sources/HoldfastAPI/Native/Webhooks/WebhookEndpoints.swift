import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/webhooks`: where to send what happens.
struct WebhookEndpoints {
    let services: Services
    let store: any StoreSession
    let projects: ProjectView

    private static let members = ["url", "events", "sdk_key", "format", "enabled", "secret_file"]
    /// How long a former secret signs, too.
    private static let rotationPeriod: Timestamp = 86_400_000

    func list(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let all = try await store.read(.webhooks).filter { Self.mayUse($0, call) }
        return .json(["webhooks": .array(all.map { describe($0) })])
    }

    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        .json(describe(try await find(request, call)))
    }

    /// Defines a webhook. Members that the body lacks stay as they are. 201 with the secret if it is new.
    func put(_ request: borrowing Request, _ call: Call) async throws -> Response {
        try call.requireUpToDate()
        let key = try Self.key(request)
        let query = try request.query(knowing: ["from"])
        if let from = query["from"], from != "now" {
            throw CoreError(.invalid, "`from` must be 'now'; got '\(from)'")
        }
        let body = try request.withBody { bytes throws(CoreError) in
            try JSONInput.parse(bytes).object("the body", knowing: Self.members, ignoring: ["key", "state"])
        }
        let author = call.author(request)
        let all = try await store.read(.webhooks)
        let former = all.first { $0.key == key }
        if let former { try Self.check(former, call) }
        guard former != nil || all.count < Webhook.limit else {
            throw CoreError(.conflict, "a server must have at most \(Webhook.limit) webhooks; it has \(all.count)")
        }
        let definition = try definition(body, former?.definition, call)
        if let former, former.definition == definition, former.state.pause == nil, query["from"] == nil {
            return .json(describe(former))
        }
        let note = AuditNote(
            .webhookPut, of: key, before: Self.audited(former?.definition), after: Self.audited(definition),
            in: definition.sdkKey)
        guard
            try await store.write(
                .putWebhook(
                    key, definition, replacing: former?.definition, skips: query["from"] != nil, note, by: author))
        else { throw Self.changed(key) }
        services.webhooks.wake()
        var description = try await description(of: key)
        if former?.definition.secrets.first != definition.secrets.first, let secret = definition.secrets.first {
            description["secret"] = .string(secret.text)
        }
        return .json(.object(description), former == nil ? .created : .ok)
    }

    func delete(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let author = call.author(request)
        let webhook = try await find(request, call)
        let note = AuditNote(
            .webhookDelete, of: webhook.key, before: Self.audited(webhook.definition), in: webhook.sdkKey)
        guard try await store.write(.removeWebhook(webhook.key, note, by: author)) else {
            throw Self.changed(webhook.key)
        }
        services.webhooks.wake()
        return Response(.noContent)
    }

    /// Makes another secret. For a day the former one signs, too.
    func rotate(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let author = call.author(request)
        let webhook = try await find(request, call)
        var definition = webhook.definition
        if let file = definition.secretFile {
            throw CoreError(
                .conflict, "the secret of the webhook '\(webhook.key)' is in the file '\(file)': replace it there")
        }
        let until = services.store.clock.now() + Self.rotationPeriod
        let secret = WebhookSignature.makeSecret()
        // Of several rotations within a day only the last two secrets sign.
        definition.secrets =
            [Webhook.Secret(secret)] + definition.secrets.prefix(1).map { Webhook.Secret($0.text, until: until) }
        let note = AuditNote(.webhookRotate, of: webhook.key, in: webhook.sdkKey)
        guard
            try await store.write(
                .putWebhook(
                    webhook.key, definition, replacing: webhook.definition, skips: false, note, by: author))
        else { throw Self.changed(webhook.key) }
        services.webhooks.wake()
        return .json(["secret": .string(secret), "former_until": .string(until.rfc3339)])
    }

    /// Sends an event now and tells what came of it.
    func test(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let webhook = try await find(request, call)
        let now = services.store.clock.now()
        let message = WebhookMessage(
            testing: webhook.key, webhook.definition.format, publicURL: services.options.webhooks.publicURL, at: now)
        let response = await services.webhooks.send(message, to: webhook.definition)
        return .json(
            Webhook.Delivery(
                eventID: message.id, event: message.event, attemptedAt: now, status: response.status,
                failure: response.failure
            ).description)
    }

    // MARK: Reading

    private static func key(_ request: borrowing Request) throws(CoreError) -> String {
        let key = request.parameter(0) ?? ""
        guard (1...64).contains(key.utf8.count),
            isPlain(key, or: "-_")
        else {
            throw CoreError(
                .invalid,
                "the key of a webhook must be 1 to 64 letters, digits, '-' and '_'; got '\(key.shortened(to: CoreError.longestQuote))'"
            )
        }
        return key
    }

    /// Whether a name has nothing but letters and digits of ASCII, and some others.
    private static func isPlain(_ name: String, or others: String) -> Bool {
        name.utf8.allSatisfy { byte in
            (0x30...0x39).contains(byte) || (0x61...0x7A).contains(byte) || (0x41...0x5A).contains(byte)
                || others.utf8.contains(byte)
        }
    }

    /// A token that is bound to projects sees what belongs to these only.
    private static func mayUse(_ webhook: Webhook, _ call: Call) -> Bool {
        webhook.sdkKey.map { call.access.allows($0) } ?? (call.access == .all)
    }

    private static func check(_ webhook: Webhook, _ call: Call) throws(CoreError) {
        guard !mayUse(webhook, call) else { return }
        let list = call.access.sdkKeys?.joined(separator: ", ") ?? ""
        throw CoreError(
            .forbidden, "the token is bound to the projects \(list); it may not use the webhook '\(webhook.key)'")
    }

    private func find(_ request: borrowing Request, _ call: Call) async throws -> Webhook {
        let key = try Self.key(request)
        guard let webhook = try await store.read(.webhooks).first(where: { $0.key == key }) else {
            throw CoreError(.notFound, "no webhook has the key '\(key)'")
        }
        try Self.check(webhook, call)
        return webhook
    }

    private func description(of key: String) async throws -> JSONObject {
        try await store.read(.webhooks).first { $0.key == key }.flatMap { describe($0).object } ?? JSONObject()
    }

    private static func changed(_ key: String) -> CoreError {
        CoreError(.conflict, "somebody else has changed the webhook '\(key)' meanwhile; read it and try again")
    }

    private func definition(
        _ body: JSONObject, _ former: Webhook.Definition?, _ call: Call
    ) throws(CoreError) -> Webhook.Definition {
        let url = if let former, body["url"] == nil { former.url } else { try body.text("url") }
        try checkURL(url)
        let events =
            if let former, body["events"] == nil { former.events } else {
                try body.optionalTexts("events") ?? ["*"]
            }
        for (index, event) in events.enumerated() where !WebhookEvent.isKnown(event) {
            let hint = Spelling.nearest(to: event, among: WebhookEvent.names).map { "; did you mean '\($0)'?" } ?? ""
            throw CoreError(
                .unprocessable,
                "`events` must have names of events, or patterns such as experiment.* and *; got '\(event.shortened(to: CoreError.longestQuote))'\(hint)",
                at: (["events"] as JSONPointer).appending(index))
        }
        var format = body["format"] == nil ? former?.format ?? .standard : .standard
        if let name = try body.optionalText("format") {
            guard let known = Webhook.Format(rawValue: name) else {
                let list = Webhook.Format.allCases.map(\.rawValue).joined(separator: ", ")
                throw CoreError(.unprocessable, "`format` must be one of \(list); got '\(name)'", at: ["format"])
            }
            format = known
        }
        var isEnabled = former?.isEnabled ?? true
        if let given = body["enabled"] {
            guard let flag = given.bool else {
                throw CoreError(.invalid, "`enabled` must be true or false; got \(given.kind)", at: ["enabled"])
            }
            isEnabled = flag
        }
        var definition = Webhook.Definition(
            url: url, events: events, sdkKey: try project(body, former, call), format: format, isEnabled: isEnabled,
            secrets: former?.secrets ?? [], secretFile: former?.secretFile)
        if body["secret_file"] != nil { definition.secretFile = try body.optionalText("secret_file") }
        if let file = definition.secretFile {
            try checkSecretFile(file)
            definition.secrets = []
        } else if definition.secrets.isEmpty {
            definition.secrets = [Webhook.Secret(WebhookSignature.makeSecret())]
        }
        return definition
    }

    private func project(
        _ body: JSONObject, _ former: Webhook.Definition?, _ call: Call
    ) throws(CoreError) -> String? {
        var sdkKey = former?.sdkKey
        if body["sdk_key"] != nil {
            sdkKey = try body.optionalText("sdk_key")
        } else if former == nil, let bound = call.access.sdkKeys, bound.count == 1 {
            sdkKey = bound[0]
        }
        guard let sdkKey else {
            guard call.access == .all else {
                throw CoreError(
                    .forbidden, "`sdk_key` must be a project of the token; without it the webhook is for all projects",
                    at: ["sdk_key"])
            }
            return nil
        }
        try call.access.check(sdkKey)
        guard sdkKey == former?.sdkKey || services.projects.snapshot().projects[sdkKey] != nil else {
            throw CoreError(
                .unprocessable,
                "`sdk_key` must be the SDK key of a project; got '\(sdkKey.shortened(to: CoreError.longestQuote))'",
                at: ["sdk_key"])
        }
        return sdkKey
    }

    private func checkURL(_ url: String) throws(CoreError) {
        let allowsPlain = services.options.webhooks.allowsPrivateAddresses
        let scheme = url.hasPrefix("https://") ? "https://" : url.hasPrefix("http://") ? "http://" : nil
        let authority = scheme.map { url.dropFirst($0.count).prefix { !"/?".contains($0) } } ?? ""
        guard let scheme, url.utf8.count <= 2_048, url.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != 0x5C }),
            !authority.isEmpty, !authority.contains("@"), !url.contains("#")
        else {
            // A URL of Slack or Teams is a secret.
            throw CoreError(
                .unprocessable,
                "`url` must be an https URL of at most 2048 bytes without a user and a fragment; got something else",
                at: ["url"])
        }
        guard scheme == "https://" || allowsPlain else {
            throw CoreError(
                .unprocessable, "`url` must begin with https://; http:// needs the option --webhook-private-addresses",
                at: ["url"])
        }
    }

    private func checkSecretFile(_ name: String) throws(CoreError) {
        guard (1...255).contains(name.utf8.count), !name.hasPrefix("."),
            Self.isPlain(name, or: "-_.")
        else {
            throw CoreError(
                .unprocessable,
                "`secret_file` must be the name of a file in the directory of --webhook-secrets: letters, digits, '-', '_' and '.'; got '\(name.shortened(to: CoreError.longestQuote))'",
                at: ["secret_file"])
        }
        guard services.options.webhooks.readSecrets != nil else {
            throw CoreError(.unprocessable, "`secret_file` needs the option --webhook-secrets", at: ["secret_file"])
        }
    }

    // MARK: Describing

    /// A URL may be a secret: the audit log has where it leads only.
    private static func audited(_ definition: Webhook.Definition?) -> JSONValue {
        guard let definition else { return .null }
        let parts = definition.url.split(separator: "/", maxSplits: 3, omittingEmptySubsequences: false)
        var object = JSONObject()
        object["origin"] = .string(parts.prefix(3).joined(separator: "/"))
        add(definition, to: &object)
        return .object(object)
    }

    /// Adds what is no secret.
    private static func add(_ definition: Webhook.Definition, to object: inout JSONObject) {
        object["events"] = .array(definition.events.map { .string($0) })
        object["sdk_key"] = definition.sdkKey.map { .string($0) } ?? .null
        object["format"] = .string(definition.format.rawValue)
        object["enabled"] = .bool(definition.isEnabled)
        object["secret_file"] = definition.secretFile.map { .string($0) } ?? .null
    }

    private func describe(_ webhook: Webhook) -> JSONValue {
        let (definition, state) = (webhook.definition, webhook.state)
        func time(_ moment: Timestamp?) -> JSONValue { moment.map { .string($0.rfc3339) } ?? .null }
        let status =
            !definition.isEnabled
            ? "disabled" : state.pause != nil ? "paused" : state.failures > 0 ? "failing" : "active"
        var object = JSONObject()
        object["key"] = .string(webhook.key)
        object["url"] = .string(definition.url)
        Self.add(definition, to: &object)
        object["state"] = [
            "status": .string(status), "reason": state.pause.map { .string($0) } ?? .null,
            "failures": .integer(state.failures), "failing_since": time(state.failingSince),
            "next_attempt_at": state.failures > 0 && state.pause == nil ? time(state.nextAttempt) : .null,
            "oldest_waiting_at": time(state.pendingSince),
            "deliveries": .array(state.deliveries.map(\.description)),
        ]
        return .object(object)
    }
}

extension Webhook.Delivery {
    var description: JSONValue {
        [
            "id": .string(eventID), "type": .string(event), "attempted_at": .string(attemptedAt.rfc3339),
            "status": status == 0 ? .null : .integer(Int64(status)), "failure": failure.map { .string($0) } ?? .null,
        ]
    }
}
