import Chronology
import JSON

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
    /// Reads entries of the audit log in the order of their ids. No entry can appear later before an entry that was
    /// read. In PostgreSQL the read may wait about a second for open transactions and blocks the session meanwhile, so
    /// the session should have nothing else to do.
    ///
    /// - Parameters:
    ///   - id: only entries with greater ids are read.
    ///   - limit: the maximum number of entries.
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

    /// Reads entries in PostgreSQL after waiting for open transactions, as ``StoreQuery/feed(from:limit:settledTo:)``
    /// does. Transactions overlap, so a transaction with a lower entry id may commit later. All transactions that have
    /// drawn an entry id up to the last one have lower transaction ids than a transaction that begins now.
    private static func settledEntries(after id: Int64, _ limit: Int) -> Reading<[AuditEntry]> {
        var last: Int64 = 0
        return Reading([(SharedRecords.lastAuditEntry, { last = $0.integer(0) })]) {
            guard last > id else { return .value([]) }
            var transaction = ""
            let begin = SQLQuery("audit_transaction", "SELECT pg_current_xact_id()::text")
            return .more(
                Reading([(begin, { transaction = $0.text(0) })]) {
                    .more(entries(after: id, to: last, limit, once: transaction, attempts: settlingAttempts))
                })
        }
    }

    /// The maximum number of checks whether open transactions have ended, 2 ms apart: about one second.
    private static var settlingAttempts: Int { 500 }

    /// Reads the entries up to `last` if all transactions with ids below `transaction` have ended. Otherwise pauses for
    /// 2 ms and tries again. After the last attempt the result is empty.
    private static func entries(
        after id: Int64, to last: Int64, _ limit: Int, once transaction: String, attempts: Int
    ) -> Reading<[AuditEntry]> {
        let isSettled = "pg_snapshot_xmin(pg_current_snapshot()) >= $1::text::xid8"
        var found: [AuditEntry] = []
        var haveEnded = false
        return Reading([
            (
                SQLQuery("audit_settled", "SELECT (\(isSettled))::integer::bigint", .text(transaction)),
                { haveEnded = $0.integer(0) != 0 }
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
            if haveEnded { return .value(found) }
            guard attempts > 0 else { return .value([]) }
            return .more(entries(after: id, to: last, limit, once: transaction, attempts: attempts - 1))
        }
    }
}

extension SharedRecords {
    /// Reads the greatest id of an audit entry; 0 if there is none.
    package static var lastAuditEntry: SQLQuery { SQLQuery("last_audit", "SELECT coalesce(max(id), 0) FROM audit") }

    package static func find(webhook key: String) -> SQLQuery {
        SQLQuery("find_webhook", "SELECT \(StoredTable.webhooks.columnList) FROM webhooks WHERE key = $1", .text(key))
    }

    /// Stores the state of a webhook.
    package static func update(webhook key: String, _ state: Webhook.State) -> SQLQuery {
        SQLQuery(
            "update_webhook", "UPDATE webhooks SET state = $2 WHERE key = $1", .text(key),
            .text(String(decoding: state.json.encoded(), as: UTF8.self)))
    }
}

// MARK: Coding

extension Webhook {
    /// - Parameter row: a row with the columns of ``StoredTable/webhooks``. Damaged JSON reads as an empty object.
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
