public import Chronology

/// The definition or deletion of a webhook by an admin.
public struct WebhookChange: Sendable {
    public let key: String
    /// The new definition; `nil` to delete the webhook.
    public let definition: Webhook.Definition?
    /// The definition that must be stored, so that no concurrent change is lost; `nil` if there must be none.
    public let former: Webhook.Definition?
    /// The audit entry.
    public let note: AuditNote
    /// Whether events from before the change are no longer delivered.
    public let skips: Bool

    public init(
        _ key: String, _ definition: Webhook.Definition?, replacing former: Webhook.Definition?, skips: Bool = false,
        _ note: AuditNote
    ) {
        self.key = key
        self.definition = definition
        self.former = former
        self.skips = skips
        self.note = note
    }
}

extension SharedRecords {
    /// Whether the stored definition is the one that a change expects.
    func admits(_ change: WebhookChange) -> Bool { webhooks[change.key]?.definition == change.former }

    /// Requests the writes of a change that ``admits(_:)`` accepts.
    mutating func apply(_ change: WebhookChange, by author: Author) {
        if let definition = change.definition {
            var state = webhooks[change.key]?.state ?? Webhook.State(position: lastAuditEntry)
            if change.skips { state.position = lastAuditEntry }
            // Ends the claim, so that no server continues with the former URL or rules.
            state.resume()
            write(.putWebhook(Webhook(key: change.key, definition, state: state)))
        } else {
            write(.deleteWebhook(key: change.key))
        }
        record(change.note, by: author)
    }
}

extension SharedChange<Bool> {
    /// Defines or deletes a webhook, and records the change in the audit log. A new webhook gets the events from now
    /// on. A webhook that was paused or disabled continues with the event at which it stopped, unless the change skips
    /// events. The result is `false` if the stored definition is not the expected one.
    public static func webhook(_ change: WebhookChange, by author: Author) -> Self {
        Self(.webhook(key: change.key)) { records, _ in
            guard records.admits(change) else { return false }
            records.apply(change, by: author)
            return true
        }
    }
}

extension SharedChange<Webhook?> {
    /// Claims a webhook, or renews the claim. Until the claim ends, no other server sends events to the webhook. The
    /// result is the webhook; `nil` if another server holds the claim, if no delivery is due, or if the webhook is
    /// disabled, paused or deleted.
    ///
    /// - Parameters:
    ///   - holder: identifies the server.
    ///   - span: how long the claim lasts.
    public static func claimWebhook(_ key: String, by holder: String, for span: TimeSpan) -> Self {
        Self(.webhook(key: key)) { records, context in
            guard var webhook = records.webhooks[key] else { return nil }
            let isActive = webhook.definition.isEnabled && webhook.state.pause == nil
            let isDue = webhook.state.nextAttempt <= context.now
            let isFree = webhook.state.holder == holder || webhook.state.heldUntil <= context.now
            guard isActive, isDue, isFree else { return nil }
            webhook.state.holder = holder
            webhook.state.heldUntil = context.now + span
            records.write(.updateWebhook(key: key, webhook.state))
            return webhook
        }
    }

    /// Changes the state of a webhook that this holder has claimed, and renews the claim. The result is the webhook;
    /// `nil` if another server holds the claim, or if the webhook was changed or deleted.
    ///
    /// - Parameters:
    ///   - span: how long the renewed claim lasts.
    ///   - note: the audit entry for a change that pauses the webhook; recorded only if the webhook is paused
    ///     afterwards.
    ///   - author: the author of the audit entry.
    ///   - edit: changes the state. It may end the claim.
    public static func advanceWebhook(
        _ key: String, by holder: String, for span: TimeSpan, noting note: AuditNote? = nil,
        author: Author? = nil,
        _ edit: @escaping @Sendable (inout Webhook.State, _ now: Instant) -> Void
    ) -> Self {
        Self(.webhook(key: key)) { records, context in
            guard var webhook = records.webhooks[key], webhook.state.holder == holder else { return nil }
            webhook.state.heldUntil = context.now + span
            edit(&webhook.state, context.now)
            records.write(.updateWebhook(key: key, webhook.state))
            if webhook.state.pause != nil, let note, let author { records.record(note, by: author) }
            return webhook
        }
    }
}
