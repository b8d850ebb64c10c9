import Bucketing
import Storage

/// The `goal_events` table.
enum GoalEventRows {
    /// - Returns: whether the event was stored; otherwise the user has one of this sender's id.
    static func insert(_ event: GoalEvent, in transaction: WriteTransaction) throws(SQLiteError) -> Bool {
        let isNew = try transaction.connection.statement(
            """
            INSERT INTO goal_events (user_id, goal, value, happened_at, received_at, sdk_key, sender_id, payload)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING
            """
        ).change {
            $0.bind(event.userID.string, at: 1)
            $0.bind(event.goal.string, at: 2)
            $0.bind(event.value, at: 3)
            $0.bind(event.happenedAt, at: 4)
            $0.bind(event.receivedAt, at: 5)
            $0.bind(event.sdkKey, at: 6)
            if let id = event.senderID { $0.bind(id.string, at: 7) }
            $0.bind(String(decoding: event.payload, as: UTF8.self), at: 8)
        } > 0
        if isNew { transaction.changed() }
        return isNew
    }

    /// What a user did for each goal around a moment.
    static func totals(
        ofUser userID: Identifier, around moment: Timestamp, on connection: Connection
    ) throws(SQLiteError) -> [Identifier: UserGoal] {
        var totals: [Identifier: UserGoal] = [:]
        try connection.statement(
            "SELECT goal, value, happened_at FROM goal_events WHERE user_id = ?1 AND happened_at >= ?2"
        ).run {
            $0.bind(userID.string, at: 1)
            $0.bind(moment - EventRules.lookBack, at: 2)
        } row: {
            totals[Identifier($0.text(0)), default: UserGoal()].add($0.double(1), isAfter: $0.integer(2) >= moment)
        }
        return totals
    }

    static func erase(_ userID: Identifier, in transaction: WriteTransaction) throws(SQLiteError) {
        let count = try transaction.connection.statement("DELETE FROM goal_events WHERE user_id = ?1")
            .change { $0.bind(userID.string, at: 1) }
        if count > 0 { transaction.changed() }
    }

    /// Deletes the oldest events if they were received before a moment; what was counted of them stays counted.
    ///
    /// - Returns: how many were deleted.
    static func deleteOldest(
        receivedBefore moment: Timestamp, limit: Int, in transaction: WriteTransaction
    ) throws(SQLiteError) -> Int {
        let count = try transaction.connection.statement(
            """
            DELETE FROM goal_events
            WHERE number IN (SELECT number FROM goal_events ORDER BY number LIMIT ?1) AND received_at < ?2
            """
        ).change {
            $0.bind(Int64(limit), at: 1)
            $0.bind(moment, at: 2)
        }
        if count > 0 { transaction.changed() }
        return count
    }

    static func page(
        after number: Int64, limit: Int, on connection: Connection
    ) throws(SQLiteError) -> [StoredGoalEvent] {
        var found: [StoredGoalEvent] = []
        try connection.statement(
            """
            SELECT number, user_id, goal, value, happened_at, received_at, sdk_key, sender_id IS NULL, sender_id, payload
            FROM goal_events WHERE number > ?1 ORDER BY number LIMIT ?2
            """
        ).run {
            $0.bind(number, at: 1)
            $0.bind(Int64(limit), at: 2)
        } row: { row in
            let event = GoalEvent(
                userID: Identifier(row.text(1)), goal: Identifier(row.text(2)), value: row.double(3),
                happenedAt: row.integer(4), receivedAt: row.integer(5),
                senderID: row.integer(7) == 0 ? Identifier(row.text(8)) : nil, sdkKey: row.text(6),
                payload: Array(row.text(9).utf8))
            found.append(StoredGoalEvent(number: row.integer(0), event: event))
        }
        return found
    }
}
