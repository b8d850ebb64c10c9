public import Chronology
public import JSON

/// A receiver of events: its URL, the events that it gets, and the state of the delivery.
public struct Webhook: Sendable, Equatable {
    public enum Format: String, Sendable, CaseIterable {
        case standard, slack, teams
    }

    /// A secret that the server has generated.
    public struct Secret: Sendable, Equatable {
        /// `whsec_` and the key in base64.
        public var text: String
        /// When the secret ends; `nil` for the current one.
        public var until: Instant?

        public init(_ text: String, until: Instant? = nil) {
            self.text = text
            self.until = until
        }
    }

    /// The part that admins define.
    public struct Definition: Sendable, Equatable {
        public var url: String
        /// Names of events, and patterns such as `experiment.*`.
        public var events: [String]
        /// The project whose events are sent; `nil` for the events of all projects and those of none.
        public var sdkKey: String?
        public var format: Format
        public var isEnabled: Bool
        /// The secrets, newest first; empty with ``secretFile``.
        public var secrets: [Secret]
        /// The name of the file that has the secret.
        public var secretFile: String?

        public init(
            url: String, events: [String], sdkKey: String?, format: Format, isEnabled: Bool, secrets: [Secret],
            secretFile: String?
        ) {
            self.url = url
            self.events = events
            self.sdkKey = sdkKey
            self.format = format
            self.isEnabled = isEnabled
            self.secrets = secrets
            self.secretFile = secretFile
        }
    }

    /// The outcome of an attempt to deliver an event.
    public struct Delivery: Sendable, Equatable {
        public var eventID: String
        public var event: String
        public var attemptedAt: Instant
        /// The status of the response; 0 if there was none.
        public var status: Int
        /// Why the attempt failed; `nil` if the event was accepted.
        public var failure: String?

        public init(eventID: String, event: String, attemptedAt: Instant, status: Int, failure: String?) {
            self.eventID = eventID
            self.event = event
            self.attemptedAt = attemptedAt
            self.status = status
            self.failure = failure
        }
    }

    /// The state of the delivery. The server that sends holds a claim for some time, and renews it with each step.
    public struct State: Sendable, Equatable {
        /// The id of the last audit entry that was delivered, or that is not an event for this webhook.
        public var position: Int64
        /// The server that holds the claim; `nil` if none does.
        public var holder: String?
        public var heldUntil = Instant.epoch
        /// The number of failed attempts for the event after ``position``.
        public var failures: Int64 = 0
        public var failingSince: Instant?
        public var nextAttempt = Instant.epoch
        /// When the event that is to be delivered next happened; `nil` if there is none.
        public var pendingSince: Instant?
        /// Why the webhook is paused until an admin enables it again; `nil` if it is not.
        public var pause: String?
        /// The last outcomes, newest first.
        public var deliveries: [Delivery] = []

        public init(position: Int64) {
            self.position = position
        }

        /// Ends a pause, and the claim. The delivery continues with the event that failed.
        mutating func resume() {
            (failures, failingSince, nextAttempt, pause) = (0, nil, .epoch, nil)
            (holder, heldUntil) = (nil, .epoch)
        }

        /// Adds an outcome, and removes the oldest beyond ``Webhook/deliveryLimit``.
        public mutating func add(_ delivery: Delivery) {
            deliveries.insert(delivery, at: 0)
            if deliveries.count > Webhook.deliveryLimit { deliveries.removeLast() }
        }
    }

    public var key: String
    public var definition: Definition
    public var state: State

    public var sdkKey: String? { definition.sdkKey }

    /// Whether the webhook gets the events of a project.
    public func concerns(_ project: String) -> Bool { sdkKey == nil || sdkKey == project }

    public init(key: String, _ definition: Definition, state: State = State(position: 0)) {
        self.key = key
        self.definition = definition
        self.state = state
    }

    /// The maximum number of webhooks.
    public static let limit = 100
    /// The maximum number of outcomes that are kept.
    public static let deliveryLimit = 20
}

// MARK: Changes

/// A webhook to define or delete.
public struct WebhookChange: Sendable {
    public let key: String
    /// The new definition; `nil` to delete the webhook.
    public let definition: Webhook.Definition?
    /// The definition that must be stored; `nil` if there must be none.
    public let former: Webhook.Definition?
    public let note: AuditNote
    /// Whether events from before the change are skipped.
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
    /// Defines or deletes a webhook. A new one gets the events from now on; one that was paused or disabled continues
    /// with the event at which it stopped. The result is `false` if the stored definition is not the expected one.
    public static func webhook(_ change: WebhookChange, by author: Author) -> Self {
        Self(.webhook(key: change.key)) { records, _ in
            guard records.admits(change) else { return false }
            records.apply(change, by: author)
            return true
        }
    }
}

extension SharedChange<Webhook?> {
    /// Claims a webhook, or renews the claim. Until the claim ends, no other server sends. The result is `nil` if
    /// another server holds the claim, if no delivery is due, or if the webhook is not enabled.
    public static func claimWebhook(_ key: String, by holder: String, for span: TimeSpan) -> Self {
        Self(.webhook(key: key)) { records, context in
            guard var webhook = records.webhooks[key], webhook.definition.isEnabled, webhook.state.pause == nil,
                webhook.state.nextAttempt <= context.now,
                webhook.state.holder == holder || webhook.state.heldUntil <= context.now
            else { return nil }
            webhook.state.holder = holder
            webhook.state.heldUntil = context.now + span
            records.write(.updateWebhook(key: key, webhook.state))
            return webhook
        }
    }

    /// Changes the state of a webhook that this holder has claimed, and renews the claim. The result is `nil` if
    /// another server holds the claim, or if the webhook was changed or deleted.
    ///
    /// - Parameters:
    ///   - edit: changes the state; it may end the claim.
    ///   - note: the audit entry for a change that pauses the webhook.
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

// MARK: Reading

extension StoreQuery<[Webhook]> {
    /// Reads all webhooks, in the order of their keys.
    public static var webhooks: Self {
        Self(.webhooks) { _ in
            let sql = "SELECT \(StoredTable.webhooks.columnList) FROM webhooks ORDER BY key"
            return .all(SQLQuery("webhooks", sql)) { Webhook($0) }
        }
    }
}

extension StoreQuery<[AuditEntry]> {
    /// Reads entries of the audit log after one of them, in the order of their ids. No entry will appear before those
    /// that were read. PostgreSQL may wait for open transactions, so the session should have nothing else to do.
    public static func auditTail(after id: Int64, limit: Int) -> Self {
        Self(.auditTail(after: id, limit: limit)) { context in
            switch context.dialect {
            case .sqlite:
                let sql =
                    "SELECT \(StoredTable.audit.columnList) FROM audit WHERE id > $1 ORDER BY id LIMIT $2"
                return .all(SQLQuery("audit_tail", sql, .integer(id), .integer(limit))) { AuditEntry($0) }
            case .postgreSQL: return settledEntries(after: id, limit)
            }
        }
    }

    /// Waits for open transactions as ``StoreQuery/feed(from:limit:settledTo:)`` does: transactions overlap, and one
    /// with a lower number may commit later. All transactions that have drawn a number up to the last one have lower
    /// transaction ids than one that begins now.
    private static func settledEntries(after id: Int64, _ limit: Int) -> Reading<[AuditEntry]> {
        var last: Int64 = 0
        return Reading([(SharedRecords.lastAuditEntry, { last = $0.integer(0) })]) {
            guard last > id else { return .value([]) }
            var transaction = ""
            let begin = SQLQuery("audit_transaction", "SELECT pg_current_xact_id()::text")
            return .more(
                Reading([(begin, { transaction = $0.text(0) })]) {
                    .more(entries(after: id, to: last, limit, once: transaction, attempts: 500))
                })
        }
    }

    private static func entries(
        after id: Int64, to last: Int64, _ limit: Int, once transaction: String, attempts: Int
    ) -> Reading<[AuditEntry]> {
        let isSettled = "pg_snapshot_xmin(pg_current_snapshot()) >= $1::text::xid8"
        var found: [AuditEntry] = []
        var mayRead = false
        return Reading([
            (
                SQLQuery("audit_settled", "SELECT (\(isSettled))::integer::bigint", .text(transaction)),
                { mayRead = $0.integer(0) != 0 }
            ),
            (
                SQLQuery(
                    "audit_tail",
                    """
                    SELECT \(StoredTable.audit.columnList) FROM audit WHERE \(isSettled) AND id > $2 AND id <= $3
                    ORDER BY id LIMIT $4
                    """, .text(transaction), .integer(id), .integer(last), .integer(limit)),
                { found.append(AuditEntry($0)) }
            ),
            (
                SQLQuery(
                    "audit_pause", "SELECT pg_sleep(CASE WHEN \(isSettled) THEN 0 ELSE 0.002 END)", .text(transaction)),
                { _ in }
            ),
        ]) {
            guard !mayRead, attempts > 0 else { return .value(mayRead ? found : []) }
            return .more(entries(after: id, to: last, limit, once: transaction, attempts: attempts - 1))
        }
    }
}

extension SharedRecords {
    package static var lastAuditEntry: SQLQuery { SQLQuery("last_audit", "SELECT coalesce(max(id), 0) FROM audit") }

    package static func find(webhook key: String) -> SQLQuery {
        SQLQuery("find_webhook", "SELECT \(StoredTable.webhooks.columnList) FROM webhooks WHERE key = $1", .text(key))
    }

    package static func update(webhook key: String, _ state: Webhook.State) -> SQLQuery {
        SQLQuery(
            "update_webhook", "UPDATE webhooks SET state = $2 WHERE key = $1", .text(key),
            .text(String(decoding: state.json.encoded(), as: UTF8.self)))
    }
}

// MARK: Coding

extension Webhook {
    package init(_ row: any Row) {
        func object(_ column: Int32) -> JSONObject {
            (try? JSONParser().parse(row.text(column)))?.object ?? JSONObject()
        }
        self.init(
            key: row.text(0), Definition(object(2), sdkKey: row.optionalText(1)), state: State(object(3)))
    }

    package var values: [SQLValue] {
        [
            .text(key), .text(sdkKey), .text(String(decoding: definition.json.encoded(), as: UTF8.self)),
            .text(String(decoding: state.json.encoded(), as: UTF8.self)),
        ]
    }
}

extension Webhook.Definition {
    fileprivate init(_ object: JSONObject, sdkKey: String?) {
        self.init(
            url: object["url"]?.string ?? "", events: (object["events"]?.array ?? []).compactMap(\.string),
            sdkKey: sdkKey, format: object["format"]?.string.flatMap { Webhook.Format(rawValue: $0) } ?? .standard,
            isEnabled: object["enabled"] == true,
            secrets: (object["secrets"]?.array ?? []).compactMap { secret in
                secret.object?["text"]?.string.map { Webhook.Secret($0, until: secret.object?["until"]?.instant) }
            }, secretFile: object["secret_file"]?.string)
    }

    fileprivate var json: JSONValue {
        var object = JSONObject()
        object["url"] = .string(url)
        object["events"] = .array(events.map { .string($0) })
        object["format"] = .string(format.rawValue)
        object["enabled"] = .bool(isEnabled)
        if !secrets.isEmpty {
            object["secrets"] = .array(
                secrets.map { ["text": .string($0.text), "until": $0.until.map { .instant($0) } ?? .null] })
        }
        if let secretFile { object["secret_file"] = .string(secretFile) }
        return .object(object)
    }
}

extension Webhook.State {
    fileprivate init(_ object: JSONObject) {
        self.init(position: object["position"]?.integer ?? 0)
        holder = object["holder"]?.string
        heldUntil = object["held_until"]?.instant ?? .epoch
        failures = object["failures"]?.integer ?? 0
        failingSince = object["failing_since"]?.instant
        nextAttempt = object["next_attempt"]?.instant ?? .epoch
        pendingSince = object["pending_since"]?.instant
        pause = object["pause"]?.string
        deliveries = (object["deliveries"]?.array ?? []).compactMap { Webhook.Delivery($0.object ?? JSONObject()) }
    }

    fileprivate var json: JSONValue {
        var object = JSONObject()
        object["position"] = .integer(position)
        if let holder { object["holder"] = .string(holder) }
        object["held_until"] = .instant(heldUntil)
        object["failures"] = .integer(failures)
        if let failingSince { object["failing_since"] = .instant(failingSince) }
        object["next_attempt"] = .instant(nextAttempt)
        if let pendingSince { object["pending_since"] = .instant(pendingSince) }
        if let pause { object["pause"] = .string(pause) }
        object["deliveries"] = .array(deliveries.map(\.json))
        return .object(object)
    }
}

extension Webhook.Delivery {
    fileprivate init?(_ object: JSONObject) {
        guard let id = object["id"]?.string, let event = object["event"]?.string, let time = object["at"]?.instant
        else {
            return nil
        }
        self.init(
            eventID: id, event: event, attemptedAt: time, status: Int(clamping: object["status"]?.integer ?? 0),
            failure: object["failure"]?.string)
    }

    fileprivate var json: JSONValue {
        [
            "id": .string(eventID), "event": .string(event), "at": .instant(attemptedAt),
            "status": .integer(Int64(status)), "failure": failure.map { .string($0) } ?? .null,
        ]
    }
}
