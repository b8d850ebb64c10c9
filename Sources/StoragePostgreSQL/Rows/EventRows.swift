import Bucketing
import Storage

/// The `exposures` table.
enum ExposureRows {
    private static let columns = """
        user_id, experiment_id, number, experiment_key, variation_id, happened_at, flags, sdk_key, payload,
        period
        """
    private static let (crossed, forced): (Int64, Int64) = (1, 2)

    static let ofUsers = Statement("exposures", "SELECT \(columns) FROM exposures WHERE user_id = ANY($1)")
    static let page = Statement(
        "exposure_page", "SELECT \(columns) FROM exposures WHERE number > $1 ORDER BY number LIMIT $2")
    static let pageOfUser = Statement(
        "exposures_of_user",
        "SELECT \(columns) FROM exposures WHERE user_id = $1 AND number < $2 ORDER BY number DESC LIMIT $3")
    static let delete = Statement("delete_exposures", "DELETE FROM exposures WHERE user_id = ANY($1)")
    private static let putAll = Statement(
        "put_exposures",
        """
        INSERT INTO exposures (\(columns))
        SELECT user_id, experiment_id, nextval('event_numbers'), experiment_key, variation_id, happened_at, flags, sdk_key,
            payload, period
        FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[],
            $9::bigint[]) WITH ORDINALITY AS new
            (user_id, experiment_id, experiment_key, variation_id, happened_at, flags, sdk_key, payload, period, place)
        ORDER BY place
        ON CONFLICT (user_id, experiment_id) DO UPDATE SET
            number = excluded.number, experiment_key = excluded.experiment_key, variation_id = excluded.variation_id,
            happened_at = excluded.happened_at, flags = excluded.flags, sdk_key = excluded.sdk_key,
            payload = excluded.payload, period = excluded.period
        """)

    /// Stores exposures under new numbers, in place of the users' former ones to the experiments.
    static func put(_ exposures: [StoredExposure]) -> Query {
        putAll(
            .texts(exposures.map(\.exposure.userID.string)), .texts(exposures.map(\.exposure.experimentID.string)),
            .texts(exposures.map(\.exposure.experimentKey.string)),
            .texts(exposures.map(\.exposure.variationID.string)), .integers(exposures.map(\.exposure.happenedAt)),
            .integers(exposures.map { ($0.isCrossed ? crossed : 0) | ($0.exposure.isForced ? forced : 0) }),
            .texts(exposures.map(\.exposure.sdkKey)),
            .texts(exposures.map { String(decoding: $0.exposure.payload, as: UTF8.self) }),
            .integers(exposures.map(\.period)))
    }

    static func decode(_ rows: Rows, _ row: Int) -> StoredExposure {
        let flags = rows.integer(row, 6)
        let exposure = Exposure(
            userID: rows.identifier(row, 0), experimentID: rows.identifier(row, 1),
            experimentKey: rows.identifier(row, 3), variationID: rows.identifier(row, 4),
            happenedAt: rows.bounded(row, 5), isForced: flags & forced != 0, sdkKey: rows.text(row, 7),
            payload: rows.bytes(row, 8))
        return StoredExposure(
            number: rows.integer(row, 2), exposure: exposure, isCrossed: flags & crossed != 0,
            period: rows.integer(row, 9))
    }
}

/// The `goal_events` table.
enum GoalEventRows {
    private static let columns = """
        number, user_id, goal, value, happened_at, received_at, sdk_key, sender_id, payload
        """
    /// Events since a time, which differs for each user.
    static let ofUsers = Statement(
        "goal_events",
        """
        SELECT goal_events.user_id, goal, value, happened_at, sender_id
        FROM unnest($1::text[], $2::bigint[]) AS asked (user_id, since)
        JOIN goal_events ON goal_events.user_id = asked.user_id AND happened_at >= asked.since
        WHERE goal_events.user_id = ANY($1)
        ORDER BY number
        """)
    static let known = Statement(
        "known_goal_events",
        """
        SELECT goal_events.user_id, goal_events.sender_id
        FROM unnest($1::text[], $2::text[]) AS asked (user_id, sender_id)
        JOIN goal_events ON goal_events.user_id = asked.user_id AND goal_events.sender_id = asked.sender_id
        WHERE goal_events.user_id = ANY($1)
        """)
    static let page = Statement(
        "goal_event_page", "SELECT \(columns) FROM goal_events WHERE number > $1 ORDER BY number LIMIT $2")
    static let pageOfUser = Statement(
        "goal_events_of_user",
        "SELECT \(columns) FROM goal_events WHERE user_id = $1 AND number < $2 ORDER BY number DESC LIMIT $3")
    /// Copies the events of one user to another, except events with a sender's id that the other user has already. They
    /// keep their numbers. Rows are copied, not updated: on Citus a row of another user may be on another node.
    static let copy = Statement(
        "copy_goal_events",
        """
        INSERT INTO goal_events (\(columns))
        SELECT number, $2, goal, value, happened_at, received_at, sdk_key, sender_id, payload FROM goal_events
        WHERE user_id = $1
        ON CONFLICT DO NOTHING
        """)
    static let counts = Statement(
        "goal_event_counts",
        "SELECT user_id, count(*), max(number) FROM goal_events WHERE user_id = ANY($1) GROUP BY user_id")
    static let delete = Statement("delete_goal_events", "DELETE FROM goal_events WHERE user_id = ANY($1)")
    /// Deletes the oldest events; the tallies keep counting them.
    static let deleteOldest = Statement(
        "delete_oldest_goal_events",
        """
        DELETE FROM goal_events WHERE received_at < $1
            AND number IN (SELECT number FROM goal_events ORDER BY number LIMIT $2)
        RETURNING number
        """)
    private static let insertAll = Statement(
        "insert_goal_events",
        """
        INSERT INTO goal_events (\(columns))
        SELECT nextval('event_numbers'), user_id, goal, value, happened_at, received_at, sdk_key, sender_id, payload
        FROM unnest($1::text[], $2::text[], $3::float8[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::text[])
            WITH ORDINALITY AS new
            (user_id, goal, value, happened_at, received_at, sdk_key, sender_id, payload, place)
        ORDER BY place
        """)

    static func insert(_ events: [GoalEvent]) -> Query {
        insertAll(
            .texts(events.map(\.userID.string)), .texts(events.map(\.goal.string)), .doubles(events.map(\.value)),
            .integers(events.map(\.happenedAt)), .integers(events.map(\.receivedAt)), .texts(events.map(\.sdkKey)),
            .texts(events.map { $0.senderID?.string }),
            .texts(events.map { String(decoding: $0.payload, as: UTF8.self) }))
    }

    static func decode(_ rows: Rows, _ row: Int) -> StoredGoalEvent {
        let event = GoalEvent(
            userID: rows.identifier(row, 1), goal: rows.identifier(row, 2), value: rows.double(row, 3),
            happenedAt: rows.integer(row, 4), receivedAt: rows.integer(row, 5),
            senderID: rows.optionalText(row, 7).map { Identifier($0) }, sdkKey: rows.text(row, 6),
            payload: rows.bytes(row, 8))
        return StoredGoalEvent(number: rows.integer(row, 0), event: event)
    }
}

/// The `user_goals` table.
enum UserGoalRows {
    private static let columns = """
        user_id, experiment_id, goal, before_count, before_value, after_count, after_value
        """
    static let ofUsers = Statement("user_goals", "SELECT \(columns) FROM user_goals WHERE user_id = ANY($1)")
    /// Single totals, of a goal in an experiment. A plain join that was planned for a small table would read all totals of
    /// the users.
    static let some = Statement(
        "some_user_goals",
        """
        SELECT found.* FROM unnest($1::text[], $2::text[], $3::text[]) AS asked (user_id, experiment_id, goal)
        CROSS JOIN LATERAL (
            SELECT \(columns) FROM user_goals
            WHERE user_id = asked.user_id AND experiment_id = asked.experiment_id AND goal = asked.goal OFFSET 0
        ) AS found
        """)
    /// The same for Citus, which plans each time.
    static let someDistributed = Statement(
        "some_distributed_user_goals",
        """
        SELECT \(columns.split(separator: ", ").map { "user_goals.\($0)" }.joined(separator: ", "))
        FROM unnest($1::text[], $2::text[], $3::text[]) AS asked (user_id, experiment_id, goal)
        JOIN user_goals ON user_goals.user_id = asked.user_id AND user_goals.experiment_id = asked.experiment_id
            AND user_goals.goal = asked.goal
        WHERE user_goals.user_id = ANY($1)
        """)
    static let deleteAll = Statement("delete_user_goals", "DELETE FROM user_goals WHERE user_id = ANY($1)")
    /// The goals of one experiment, which differs for each user.
    static let delete = Statement(
        "delete_experiment_goals",
        """
        DELETE FROM user_goals USING unnest($1::text[], $2::text[]) AS old (user_id, experiment_id)
        WHERE user_goals.user_id = old.user_id AND user_goals.experiment_id = old.experiment_id
            AND user_goals.user_id = ANY($1)
        """)
    private static let putAll = Statement(
        "put_user_goals",
        """
        INSERT INTO user_goals (\(columns))
        SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::float8[], $6::bigint[], $7::float8[])
        ON CONFLICT (user_id, experiment_id, goal) DO UPDATE SET
            before_count = excluded.before_count, before_value = excluded.before_value,
            after_count = excluded.after_count, after_value = excluded.after_value
        """)

    typealias Total = (userID: Identifier, key: UserRecords.TotalKey, total: UserGoal)

    static func put(_ totals: [Total]) -> Query {
        putAll(
            .texts(totals.map(\.userID.string)), .texts(totals.map(\.key.experimentID.string)),
            .texts(totals.map(\.key.goal.string)), .integers(totals.map(\.total.beforeCount)),
            .doubles(totals.map(\.total.beforeValue)), .integers(totals.map(\.total.afterCount)),
            .doubles(totals.map(\.total.afterValue)))
    }

    static func decode(_ rows: Rows, _ row: Int) -> (UserRecords.TotalKey, UserGoal) {
        let key = UserRecords.TotalKey(experimentID: rows.identifier(row, 1), goal: rows.identifier(row, 2))
        let total = UserGoal(
            beforeCount: rows.bounded(row, 3), beforeValue: rows.double(row, 4), afterCount: rows.bounded(row, 5),
            afterValue: rows.double(row, 6))
        return (key, total)
    }
}

/// The `forced_variations` table.
enum ForcedVariationRows {
    private static let columns = "user_id, sdk_key, experiment_key, variation_key"
    static let all = Statement("all_forced_variations", "SELECT \(columns) FROM forced_variations")
    static let ofUsers = Statement(
        "forced_variations", "SELECT \(columns) FROM forced_variations WHERE user_id = ANY($1)")
    static let deleteAll = Statement(
        "delete_forced_variations", "DELETE FROM forced_variations WHERE user_id = ANY($1)")
    private static let deleteSome = Statement(
        "delete_forced_variation",
        """
        DELETE FROM forced_variations USING unnest($1::text[], $2::text[], $3::text[])
            AS old (user_id, sdk_key, experiment_key)
        WHERE forced_variations.user_id = old.user_id AND forced_variations.sdk_key = old.sdk_key
            AND forced_variations.experiment_key = old.experiment_key
        """)
    private static let putSome = Statement(
        "put_forced_variations",
        """
        INSERT INTO forced_variations (\(columns)) SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
        ON CONFLICT (user_id, sdk_key, experiment_key) DO UPDATE SET variation_key = excluded.variation_key
        """)

    static func put(_ variations: [ForcedVariation]) -> Query {
        putSome(
            .texts(variations.map(\.userID.string)), .texts(variations.map(\.sdkKey)),
            .texts(variations.map(\.experimentKey.string)), .texts(variations.map(\.variationKey.string)))
    }

    static func delete(_ variations: [ForcedVariation]) -> Query {
        deleteSome(
            .texts(variations.map(\.userID.string)), .texts(variations.map(\.sdkKey)),
            .texts(variations.map(\.experimentKey.string)))
    }

    static func decode(_ rows: Rows, _ row: Int) -> ForcedVariation {
        ForcedVariation(
            sdkKey: rows.text(row, 1), userID: rows.identifier(row, 0), experimentKey: rows.identifier(row, 2),
            variationKey: rows.identifier(row, 3))
    }
}
