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

extension SharedRecords {
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
