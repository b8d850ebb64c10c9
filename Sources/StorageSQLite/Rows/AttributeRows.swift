import Bucketing
import Storage

/// The `user_attributes` table.
enum AttributeRows {
    /// Returns the stored record of a user; `nil` if there is none.
    static func find(_ userID: Identifier, on connection: Connection) throws(SQLiteError) -> [UInt8]? {
        try connection.statement("SELECT record FROM user_attributes WHERE user_id = ?1").first {
            $0.bind(userID.string, at: 1)
        } row: {
            $0.bytes(0)
        }
    }

    /// Stores the record of a user; deletes the row if the record is empty.
    static func put(
        _ record: AttributeRecord, for userID: Identifier, in transaction: WriteTransaction
    ) throws(SQLiteError) {
        guard !record.isEmpty else { return try erase(userID, in: transaction) }
        try transaction.connection.change(
            """
            INSERT INTO user_attributes (user_id, record) VALUES (?1, ?2)
            ON CONFLICT (user_id) DO UPDATE SET record = excluded.record
            """, .text(userID), .bytes(record.bytes))
        transaction.changedAttributes(of: userID)
    }

    /// Deletes the record of a user.
    static func erase(_ userID: Identifier, in transaction: WriteTransaction) throws(SQLiteError) {
        let count = try transaction.connection.change("DELETE FROM user_attributes WHERE user_id = ?1", .text(userID))
        if count > 0 { transaction.changedAttributes(of: userID) }
    }
}
