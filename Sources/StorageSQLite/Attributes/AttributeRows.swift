import Bucketing
import Storage

/// The `user_attributes` table.
enum AttributeRows {
    /// The stored record of a user.
    static func find(_ userID: Identifier, on connection: Connection) throws(SQLiteError) -> [UInt8]? {
        var record: [UInt8]?
        try connection.statement("SELECT record FROM user_attributes WHERE user_id = ?1").run {
            $0.bind(userID.string, at: 1)
        } row: {
            record = $0.bytes(0)
        }
        return record
    }

    /// - Returns: the numbers of the attributes that changed; nothing was written if there are none.
    static func apply(
        _ change: AttributeChange, in transaction: WriteTransaction
    ) throws -> AttributeChangeResult {
        try transaction.expectNotErased(change.userID)
        guard let bytes = try find(change.userID, on: transaction.connection) else {
            return try update(change, former: .empty, in: transaction)
        }
        if case .removeAll = change.operation {
            try put(.empty, for: change.userID, in: transaction)
            // What cannot be read can still be removed.
            return .applied(changed: AttributeRecord(checking: bytes)?.numbers ?? [])
        }
        return try update(change, former: try decode(bytes, of: change.userID), in: transaction)
    }

    private static func update(
        _ change: AttributeChange, former: AttributeRecord, in transaction: WriteTransaction
    ) throws(SQLiteError) -> AttributeChangeResult {
        guard case .update(let updates) = change.operation else { return .applied(changed: []) }
        var changed: [UInt32] = []
        let record = former.applying(updates) { changed.append($0) }
        for number in changed where updates[number] != .remove {
            guard try AttributeSchemaRows.isDefined(number, on: transaction.connection) else { return .schemaHasChanged }
        }
        if !changed.isEmpty { try put(record, for: change.userID, in: transaction) }
        return .applied(changed: changed)
    }

    /// Stores a record; an empty one is no row.
    static func put(
        _ record: AttributeRecord, for userID: Identifier, in transaction: WriteTransaction
    ) throws(SQLiteError) {
        guard !record.isEmpty else { return try erase(userID, in: transaction) }
        try transaction.connection.statement(
            """
            INSERT INTO user_attributes (user_id, record) VALUES (?1, ?2)
            ON CONFLICT (user_id) DO UPDATE SET record = excluded.record
            """
        ).run {
            $0.bind(userID.string, at: 1)
            $0.bind(record.bytes, at: 2)
        }
        transaction.changedAttributes(of: userID)
    }

    static func erase(_ userID: Identifier, in transaction: WriteTransaction) throws(SQLiteError) {
        let count = try transaction.connection.statement("DELETE FROM user_attributes WHERE user_id = ?1")
            .change { $0.bind(userID.string, at: 1) }
        if count > 0 { transaction.changedAttributes(of: userID) }
    }

    /// - Throws: ``StorageError/unavailable(reason:)`` when the row is damaged, which concerns this user alone.
    static func decode(_ bytes: [UInt8], of userID: Identifier) throws(StorageError) -> AttributeRecord {
        guard let record = AttributeRecord(checking: bytes) else {
            throw .damaged(reason: "the stored attributes of '\(userID)' are damaged")
        }
        return record
    }
}
