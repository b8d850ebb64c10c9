import Storage

/// The `goal_events` table.
enum EventRows {
    /// Copies the events of one user to another. Events keep their numbers. Does not copy events with a sender's id
    /// that the other user has already. Rows are copied, not updated, because with Citus the other user's rows may be
    /// on another node.
    static let copyGoalEvents = Statement(
        "copy_goal_events",
        """
        INSERT INTO goal_events (\(StoredTable.goalEvents.columnList))
        SELECT number, $2, goal, value, happened_at, received_at, sdk_key, sender_id, payload FROM goal_events
        WHERE user_id = $1
        ON CONFLICT DO NOTHING
        """)
    /// Deletes the oldest events; the tallies keep counting them.
    static let deleteOldestGoalEvents = Statement(
        "delete_oldest_goal_events",
        """
        DELETE FROM goal_events WHERE received_at < $1
            AND number IN (SELECT number FROM goal_events ORDER BY number LIMIT $2)
        RETURNING number
        """)
}
