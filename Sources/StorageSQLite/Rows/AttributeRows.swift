import Bucketing
import JSON
import Storage

/// The `user_attributes` table.
enum AttributeRows {
    /// Returns the stored record of a user.
    static func find(_ userID: Identifier, on connection: Connection) throws(SQLiteError) -> [UInt8]? {
        try connection.statement("SELECT record FROM user_attributes WHERE user_id = ?1").first {
            $0.bind(userID.string, at: 1)
        } row: {
            $0.bytes(0)
        }
    }

    static func apply(_ change: AttributeChange, in transaction: WriteTransaction) throws -> AttributeChangeResult {
        try transaction.expectNotErased(change.userID)
        let stored = try AttributeRules.stored(find(change.userID, on: transaction.connection), for: change)
        let outcome = try AttributeRules.apply(change, to: stored) { number throws(SQLiteError) in
            try AttributeSchemaRows.isDefined(number, on: transaction.connection)
        }
        switch outcome.effect {
        case .none: break
        case .put(let record): try put(record, for: change.userID, in: transaction)
        case .delete: try erase(change.userID, in: transaction)
        }
        return outcome.result
    }

    /// Stores a record; deletes the row of an empty one.
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
}

/// The `segments` table.
enum SegmentRows {
    static func all(on connection: Connection) throws(SQLiteError) -> [Segment] {
        try connection.statement("SELECT name, conditions FROM segments").all { row in
            let conditions = Segment.conditions(stored: row.text(1))
            return conditions.isNull ? nil : Segment(name: Identifier(row.text(0)), conditions: conditions)
        }
    }

    /// Returns the conditions of a segment.
    static func find(_ name: Identifier, on connection: Connection) throws(SQLiteError) -> JSONValue? {
        try connection.statement("SELECT conditions FROM segments WHERE name = ?1").first {
            $0.bind(name.string, at: 1)
        } row: {
            Segment.conditions(stored: $0.text(0))
        }
    }

    static func put(_ segment: Segment, in transaction: WriteTransaction) throws(SQLiteError) {
        try transaction.connection.statement("INSERT OR REPLACE INTO segments (name, conditions) VALUES (?1, ?2)").run {
            $0.bind(segment.name.string, at: 1)
            $0.bind(segment.storedConditions, at: 2)
        }
        try transaction.changedProjects()
    }

    static func remove(_ name: Identifier, in transaction: WriteTransaction) throws(SQLiteError) {
        try transaction.connection.statement("DELETE FROM segments WHERE name = ?1").run { $0.bind(name.string, at: 1) }
        try transaction.changedProjects()
    }
}
