import Bucketing
import Storage

/// The `events` table.
enum EventRows {
    static func insert(_ event: EventRecord, in transaction: WriteTransaction) throws(SQLiteError) {
        try transaction.connection.statement(
            "INSERT INTO events (kind, sdk_key, user_id, received_at, payload) VALUES (?1, ?2, ?3, ?4, ?5)"
        ).run {
            $0.bind(event.kind.rawValue, at: 1)
            $0.bind(event.sdkKey, at: 2)
            $0.bind(event.userID.string, at: 3)
            $0.bind(event.receivedAt, at: 4)
            $0.bind(String(decoding: event.payload, as: UTF8.self), at: 5)
        }
        transaction.changed()
    }

    static func erase(_ userID: Identifier, in transaction: WriteTransaction) throws(SQLiteError) {
        try transaction.connection.statement("DELETE FROM events WHERE user_id = ?1 RETURNING 1").run {
            $0.bind(userID.string, at: 1)
        } row: { _ in
            transaction.changed()
        }
    }
}
