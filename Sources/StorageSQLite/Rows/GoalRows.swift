import Bucketing
import Storage

/// The `goal_events` table.
enum GoalEventRows {
    static func insert(_ event: GoalEvent, in transaction: WriteTransaction) throws(SQLiteError) {
        try transaction.connection.statement(
            """
            INSERT INTO goal_events (user_id, goal, value, happened_at, received_at, sdk_key, sender_id, payload)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
            """
        ).run {
            $0.bind(event.userID.string, at: 1)
            $0.bind(event.goal.string, at: 2)
            $0.bind(event.value, at: 3)
            $0.bind(event.happenedAt, at: 4)
            $0.bind(event.receivedAt, at: 5)
            $0.bind(event.sdkKey, at: 6)
            if let id = event.senderID { $0.bind(id.string, at: 7) }
            $0.bind(String(decoding: event.payload, as: UTF8.self), at: 8)
        }
        transaction.changed()
    }

    /// Whether the user has an event with this id of its sender.
    static func exists(
        _ userID: Identifier, senderID: Identifier, on connection: Connection
    ) throws(SQLiteError) -> Bool {
        try connection.statement("SELECT 1 FROM goal_events WHERE user_id = ?1 AND sender_id = ?2").first {
            $0.bind(userID.string, at: 1)
            $0.bind(senderID.string, at: 2)
        } row: { _ in
            true
        } ?? false
    }

    static func ofUser(
        _ userID: Identifier, since time: Timestamp, on connection: Connection
    ) throws(SQLiteError) -> [UserRecords.GoalValue] {
        try connection.statement(
            "SELECT goal, value, happened_at, sender_id FROM goal_events WHERE user_id = ?1 AND happened_at >= ?2"
        ).all {
            $0.bind(userID.string, at: 1)
            $0.bind(time, at: 2)
        } row: {
            .init(
                goal: Identifier($0.text(0)), value: $0.double(1), happenedAt: $0.integer(2),
                senderID: $0.isNull(3) ? nil : Identifier($0.text(3)))
        }
    }

    /// Moves the events of one user to another, and deletes those with a sender's id that the other user has already.
    static func move(
        from former: Identifier, to userID: Identifier, in transaction: WriteTransaction
    ) throws(SQLiteError) {
        for sql: StaticString in [
            """
            DELETE FROM goal_events WHERE user_id = ?1 AND sender_id IN
            (SELECT sender_id FROM goal_events WHERE user_id = ?2 AND sender_id IS NOT NULL)
            """,
            "UPDATE goal_events SET user_id = ?2 WHERE user_id = ?1",
        ] {
            let count = try transaction.connection.statement(sql).change {
                $0.bind(former.string, at: 1)
                $0.bind(userID.string, at: 2)
            }
            if count > 0 { transaction.changed() }
        }
    }

    /// Deletes the oldest events that were received before a time. The tallies keep counting them.
    ///
    /// - Returns: the number of deleted events.
    static func deleteOldest(
        receivedBefore time: Timestamp, limit: Int, in transaction: WriteTransaction
    ) throws(SQLiteError) -> Int {
        let count = try transaction.connection.statement(
            """
            DELETE FROM goal_events
            WHERE number IN (SELECT number FROM goal_events ORDER BY number LIMIT ?1) AND received_at < ?2
            """
        ).change {
            $0.bind(Int64(limit), at: 1)
            $0.bind(time, at: 2)
        }
        if count > 0 { transaction.changed() }
        return count
    }

    static func page(
        after number: Int64, limit: Int, on connection: Connection
    ) throws(SQLiteError) -> [StoredGoalEvent] {
        try connection.statement(
            """
            SELECT number, user_id, goal, value, happened_at, received_at, sdk_key, sender_id IS NULL, sender_id, payload
            FROM goal_events WHERE number > ?1 ORDER BY number LIMIT ?2
            """
        ).all {
            $0.bind(number, at: 1)
            $0.bind(Int64(limit), at: 2)
        } row: {
            decode($0)
        }
    }

    /// Sorts what the index of users finds: the table may have millions of rows between two of one user.
    static func page(
        of userID: Identifier, before number: Int64, limit: Int, on connection: Connection
    ) throws(SQLiteError) -> [StoredGoalEvent] {
        try connection.statement(
            """
            SELECT number, user_id, goal, value, happened_at, received_at, sdk_key, sender_id IS NULL, sender_id, payload
            FROM goal_events WHERE user_id = ?1 AND +number < ?2 ORDER BY +number DESC LIMIT ?3
            """
        ).all {
            $0.bind(userID.string, at: 1)
            $0.bind(number, at: 2)
            $0.bind(Int64(limit), at: 3)
        } row: {
            decode($0)
        }
    }

    private static func decode(_ row: Statement) -> StoredGoalEvent {
        let event = GoalEvent(
            userID: Identifier(row.text(1)), goal: Identifier(row.text(2)), value: row.double(3),
            happenedAt: row.integer(4), receivedAt: row.integer(5),
            senderID: row.integer(7) == 0 ? Identifier(row.text(8)) : nil, sdkKey: row.text(6),
            payload: Array(row.text(9).utf8))
        return StoredGoalEvent(number: row.integer(0), event: event)
    }
}

/// The `user_goals` table.
enum UserGoalRows {
    static func find(
        _ userID: Identifier, _ experimentID: Identifier, _ goal: Identifier, on connection: Connection
    ) throws(SQLiteError) -> UserGoal? {
        try connection.statement(
            """
            SELECT before_count, before_value, after_count, after_value FROM user_goals
            WHERE user_id = ?1 AND experiment_id = ?2 AND goal = ?3
            """
        ).first {
            $0.bind(userID.string, at: 1)
            $0.bind(experimentID.string, at: 2)
            $0.bind(goal.string, at: 3)
        } row: {
            decode($0)
        }
    }

    static func ofUser(
        _ userID: Identifier, _ experimentID: Identifier, on connection: Connection
    ) throws(SQLiteError) -> [Identifier: UserGoal] {
        var found: [Identifier: UserGoal] = [:]
        try connection.statement(
            """
            SELECT before_count, before_value, after_count, after_value, goal FROM user_goals
            WHERE user_id = ?1 AND experiment_id = ?2
            """
        ).run {
            $0.bind(userID.string, at: 1)
            $0.bind(experimentID.string, at: 2)
        } row: {
            found[Identifier($0.text(4))] = decode($0)
        }
        return found
    }

    private static func decode(_ row: Statement) -> UserGoal {
        UserGoal(
            beforeCount: row.bounded(0), beforeValue: row.double(1), afterCount: row.bounded(2),
            afterValue: row.double(3))
    }

    static func put(
        _ total: UserGoal, _ userID: Identifier, _ key: UserRecords.TotalKey, on connection: Connection
    ) throws(SQLiteError) {
        try connection.statement(
            """
            INSERT OR REPLACE INTO user_goals
            (user_id, experiment_id, goal, before_count, before_value, after_count, after_value)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
            """
        ).run {
            $0.bind(userID.string, at: 1)
            $0.bind(key.experimentID.string, at: 2)
            $0.bind(key.goal.string, at: 3)
            $0.bind(total.beforeCount, at: 4)
            $0.bind(total.beforeValue, at: 5)
            $0.bind(total.afterCount, at: 6)
            $0.bind(total.afterValue, at: 7)
        }
    }

    static func delete(
        _ userID: Identifier, _ experimentID: Identifier, on connection: Connection
    ) throws(SQLiteError) {
        try connection.statement("DELETE FROM user_goals WHERE user_id = ?1 AND experiment_id = ?2").run {
            $0.bind(userID.string, at: 1)
            $0.bind(experimentID.string, at: 2)
        }
    }
}
