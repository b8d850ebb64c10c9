import Bucketing
import Storage

/// The statements about exposures, goal events and forced variations of several users at once, given by their ids.
enum EventRows {
    static let exposures = ofUsers(.exposures)
    static let forcedVariations = ofUsers(.forcedVariations)
    static let totals = ofUsers(.userGoals)

    private static func ofUsers(_ table: StoredTable) -> Statement {
        Statement("\(table)_of_users", "SELECT \(table.columnList) FROM \(table.rawValue) WHERE user_id = ANY($1)")
    }

    /// Events since a time, which differs for each user.
    static let goalEvents = Statement(
        "goal_events",
        """
        SELECT goal_events.user_id, goal, value, happened_at, sender_id
        FROM unnest($1::text[], $2::bigint[]) AS asked (user_id, since)
        JOIN goal_events ON goal_events.user_id = asked.user_id AND happened_at >= asked.since
        WHERE goal_events.user_id = ANY($1)
        ORDER BY number
        """)
    static let knownSenders = Statement(
        "known_goal_events",
        """
        SELECT goal_events.user_id, goal_events.sender_id
        FROM unnest($1::text[], $2::text[]) AS asked (user_id, sender_id)
        JOIN goal_events ON goal_events.user_id = asked.user_id AND goal_events.sender_id = asked.sender_id
        WHERE goal_events.user_id = ANY($1)
        """)
    /// Copies the events of one user to another, except events with a sender's id that the other user has already. They
    /// keep their numbers. Rows are copied, not updated: on Citus a row of another user may be on another node.
    static let copyGoalEvents = Statement(
        "copy_goal_events",
        """
        INSERT INTO goal_events (\(StoredTable.goalEvents.columnList))
        SELECT number, $2, goal, value, happened_at, received_at, sdk_key, sender_id, payload FROM goal_events
        WHERE user_id = $1
        ON CONFLICT DO NOTHING
        """)
    static let goalEventCounts = Statement(
        "goal_event_counts",
        "SELECT user_id, count(*), max(number) FROM goal_events WHERE user_id = ANY($1) GROUP BY user_id")
    /// Deletes the oldest events; the tallies keep counting them.
    static let deleteOldestGoalEvents = Statement(
        "delete_oldest_goal_events",
        """
        DELETE FROM goal_events WHERE received_at < $1
            AND number IN (SELECT number FROM goal_events ORDER BY number LIMIT $2)
        RETURNING number
        """)
    /// Single totals, of a goal in an experiment. A plain join that was planned for a small table would read all totals of
    /// the users.
    static let someTotals = Statement(
        "some_user_goals",
        """
        SELECT found.* FROM unnest($1::text[], $2::text[], $3::text[]) AS asked (user_id, experiment_id, goal)
        CROSS JOIN LATERAL (
            SELECT \(StoredTable.userGoals.columnList) FROM user_goals
            WHERE user_id = asked.user_id AND experiment_id = asked.experiment_id AND goal = asked.goal OFFSET 0
        ) AS found
        """)
    /// The same for Citus, which plans each time.
    static let someTotalsDistributed = Statement(
        "some_distributed_user_goals",
        """
        SELECT \(StoredTable.userGoals.columnNames.map { "user_goals.\($0)" }.joined(separator: ", "))
        FROM unnest($1::text[], $2::text[], $3::text[]) AS asked (user_id, experiment_id, goal)
        JOIN user_goals ON user_goals.user_id = asked.user_id AND user_goals.experiment_id = asked.experiment_id
            AND user_goals.goal = asked.goal
        WHERE user_goals.user_id = ANY($1)
        """)
    /// The goals of one experiment, which differs for each user.
    static let deleteTotals = Statement(
        "delete_experiment_goals",
        """
        DELETE FROM user_goals USING unnest($1::text[], $2::text[]) AS old (user_id, experiment_id)
        WHERE user_goals.user_id = old.user_id AND user_goals.experiment_id = old.experiment_id
            AND user_goals.user_id = ANY($1)
        """)
    private static let deleteForcedVariations = Statement(
        "delete_forced_variation",
        """
        DELETE FROM forced_variations USING unnest($1::text[], $2::text[], $3::text[])
            AS old (user_id, sdk_key, experiment_key)
        WHERE forced_variations.user_id = old.user_id AND forced_variations.sdk_key = old.sdk_key
            AND forced_variations.experiment_key = old.experiment_key
        """)

    static func delete(_ variations: [ForcedVariation]) -> Query {
        deleteForcedVariations(
            .texts(variations.map(\.userID.string)), .texts(variations.map(\.sdkKey)),
            .texts(variations.map(\.experimentKey.string)))
    }

    /// Deletes all rows of users.
    static func erase(_ table: StoredTable) -> Statement {
        Statement("erase_\(table)", "DELETE FROM \(table.rawValue) WHERE user_id = ANY($1)")
    }
}
