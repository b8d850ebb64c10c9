import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/webhooks`: the receivers of events. The server sends entries of the audit log to them, signed with a secret.
struct WebhookEndpoints {
    let services: Services
    let store: any StoreSession

    /// The time after a rotation in which deliveries are also signed with the former secret.
    private static let rotationPeriod = TimeSpan.days(1)

    /// Responds with the webhooks that the caller may use.
    func list(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let rules = services.webhookRules(for: call)
        let all = try await store.read(.webhooks).filter(rules.mayUse)
        return .json(["webhooks": .array(all.map { describe($0) })])
    }

    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        .json(describe(try await find(request, call)))
    }

    /// Defines a webhook. Members that the body lacks keep their values. 201 with the secret if it is new. With
    /// `?from=now` events from before the change are skipped.
    func put(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let key = try Self.key(request)
        let query = try request.query(knowing: ["from"])
        if let from = query["from"], from != "now" {
            throw CoreError(.invalid, "`from` must be 'now'; got '\(from)'")
        }
        let content = request.withBody { Array($0) }
        let author = call.author(request)
        let webhooks = try await store.read(.webhooks)
        let former = webhooks.first { $0.key == key }
        let rules = services.webhookRules(for: call)
        if let former { try rules.check(former) }
        guard former != nil || webhooks.count < Webhook.limit else { throw CoreError(webhooks: webhooks.count) }
        let definition = try rules.definition(JSONInput.parse(content), key: key, replacing: former?.definition)
        // A request that changes nothing in the definition may still end a pause, or skip events with `from`.
        if let former, former.definition == definition, former.state.pause == nil, query["from"] == nil {
            return .json(describe(former))
        }
        let change = WebhookChange(key, definition, replacing: former?.definition, skips: query["from"] != nil)
        try await write(change, by: author)
        var description = try await description(of: key)
        if let secret = change.newSecret { description["secret"] = .string(secret) }
        return .json(.object(description), former == nil ? .created : .ok)
    }

    /// Deletes a webhook.
    func delete(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let author = call.author(request)
        let webhook = try await find(request, call)
        try await write(WebhookChange(webhook.key, nil, replacing: webhook.definition), by: author)
        return Response(.noContent)
    }

    /// Generates a new secret. For a day, deliveries are also signed with the former one, so that the receiver has time
    /// to change.
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
        // After several rotations within a day only the last two secrets sign.
        definition.secrets =
            [Webhook.Secret(secret)] + definition.secrets.prefix(1).map { Webhook.Secret($0.text, until: until) }
        let note = AuditNote(.webhookRotate, of: webhook.key, in: webhook.sdkKey)
        try await write(WebhookChange(webhook.key, definition, replacing: webhook.definition, note), by: author)
        return .json(["secret": .string(secret), "former_until": .string(until.rfc3339)])
    }

    /// Sends a test event now, and responds with the outcome.
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

    /// Returns the key in the path.
    private static func key(_ request: borrowing Request) throws(CoreError) -> String {
        let key = request.parameter(0) ?? ""
        try WebhookRules.check(key: key)
        return key
    }

    /// Returns the webhook in the path.
    ///
    /// - Throws: 404 if there is none, 403 if the caller may not use it.
    private func find(_ request: borrowing Request, _ call: Call) async throws -> Webhook {
        let key = try Self.key(request)
        guard let webhook = try await store.read(.webhooks).first(where: { $0.key == key }) else {
            throw CoreError(.notFound, "no webhook has the key '\(key)'")
        }
        try services.webhookRules(for: call).check(webhook)
        return webhook
    }

    private func description(of key: String) async throws -> JSONObject {
        try await store.read(.webhooks).first { $0.key == key }.flatMap { describe($0).object } ?? JSONObject()
    }

    /// Stores a change, and wakes the sender.
    ///
    /// - Throws: 409 if somebody else has changed the webhook meanwhile.
    private func write(_ change: WebhookChange, by author: Author) async throws {
        guard try await store.write(.webhook(change, by: author)) else {
            throw CoreError(
                .conflict, "somebody else has changed the webhook '\(change.key)' meanwhile; read it and try again")
        }
        services.webhooks.wake()
    }

    // MARK: Describing

    /// Returns a webhook as responses show it: its definition without secrets, and the state of its deliveries.
    private func describe(_ webhook: Webhook) -> JSONValue {
        let definition = webhook.definition
        let state = webhook.state
        func time(_ moment: Instant?) -> JSONValue { moment.map { .string($0.rfc3339) } ?? .null }
        var object = JSONObject()
        object["key"] = .string(webhook.key)
        Webhook.Definition.members.show(definition, in: &object)
        object["state"] = [
            "status": .string(Self.status(of: webhook)), "reason": state.pause.map { .string($0) } ?? .null,
            "failures": .integer(state.failures), "failing_since": time(state.failingSince),
            "next_attempt_at": state.failures > 0 && state.pause == nil ? time(state.nextAttempt) : .null,
            "oldest_waiting_at": time(state.pendingSince),
            "deliveries": .array(state.deliveries.map(\.description)),
        ]
        return .object(object)
    }

    private static func status(of webhook: Webhook) -> String {
        if !webhook.definition.isEnabled { return "disabled" }
        if webhook.state.pause != nil { return "paused" }
        return webhook.state.failures > 0 ? "failing" : "active"
    }
}

extension Services {
    /// Returns the rules that a caller's webhooks must meet.
    ///
    /// - Parameter sdkKey: the key of a project that need not exist yet, because the same request makes it.
    func webhookRules(for call: Call, making sdkKey: String? = nil) -> WebhookRules {
        let projects = projects
        return WebhookRules(
            for: call.access, allowsPlainHTTP: options.webhooks.allowsPrivateAddresses,
            hasSecretFiles: options.webhooks.readSecrets != nil,
            isProject: { $0 == sdkKey || projects.snapshot().projects[$0] != nil },
            makeSecret: { WebhookSignature.makeSecret() })
    }
}

extension Webhook.Delivery {
    /// The outcome of an attempt to send an event, as responses show it.
    var description: JSONValue {
        [
            "id": .string(eventID), "type": .string(event), "attempted_at": .string(attemptedAt.rfc3339),
            "status": status == 0 ? .null : .integer(Int64(status)), "failure": failure.map { .string($0) } ?? .null,
        ]
    }
}
