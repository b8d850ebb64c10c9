import Bucketing
import Storage

/// The `user_goals` table.
enum UserGoalRows {
    static func find(
        _ userID: Identifier, _ experimentID: Identifier, _ goal: Identifier, on connection: Connection
    ) throws(SQLiteError) -> UserGoal? {
        var found: UserGoal?
        try connection.statement(
            """
            SELECT before_count, before_value, after_count, after_value FROM user_goals
            WHERE user_id = ?1 AND experiment_id = ?2 AND goal = ?3
            """
        ).run {
            $0.bind(userID.string, at: 1)
            $0.bind(experimentID.string, at: 2)
            $0.bind(goal.string, at: 3)
        } row: {
            found = decode($0)
        }
        return found
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
        _ total: UserGoal, _ userID: Identifier, _ experimentID: Identifier, _ goal: Identifier,
        on connection: Connection
    ) throws(SQLiteError) {
        try connection.statement(
            """
            INSERT OR REPLACE INTO user_goals
            (user_id, experiment_id, goal, before_count, before_value, after_count, after_value)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
            """
        ).run {
            $0.bind(userID.string, at: 1)
            $0.bind(experimentID.string, at: 2)
            $0.bind(goal.string, at: 3)
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
