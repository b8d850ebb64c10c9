import Bucketing
import Storage

/// The `forced_variations` table.
enum ForcedVariationRows {
    static func all(on connection: Connection) throws(SQLiteError) -> [ForcedVariation] {
        var all: [ForcedVariation] = []
        try connection.statement("SELECT sdk_key, user_id, experiment_key, variation_key FROM forced_variations").run(
            row: { row in
                all.append(
                    ForcedVariation(
                        sdkKey: row.text(0), userID: Identifier(row.text(1)), experimentKey: Identifier(row.text(2)),
                        variationKey: Identifier(row.text(3))))
            })
        return all
    }

    /// - Returns: the variation that was forced before.
    static func set(
        _ variationKey: Identifier?, experimentKey: Identifier, userID: Identifier, sdkKey: String,
        in transaction: WriteTransaction
    ) throws(SQLiteError) -> Identifier? {
        func bindKey(_ statement: Statement) {
            statement.bind(sdkKey, at: 1)
            statement.bind(userID.string, at: 2)
            statement.bind(experimentKey.string, at: 3)
        }
        let connection = transaction.connection
        var previous: Identifier?
        try connection.statement(
            """
            SELECT variation_key FROM forced_variations WHERE sdk_key = ?1 AND user_id = ?2 AND experiment_key = ?3
            """
        ).run(bindKey, row: { previous = Identifier($0.text(0)) })
        guard previous != variationKey else { return previous }
        if let variationKey {
            try connection.statement(
                """
                INSERT OR REPLACE INTO forced_variations (sdk_key, user_id, experiment_key, variation_key)
                VALUES (?1, ?2, ?3, ?4)
                """
            ).run {
                bindKey($0)
                $0.bind(variationKey.string, at: 4)
            }
        } else {
            try connection.statement(
                "DELETE FROM forced_variations WHERE sdk_key = ?1 AND user_id = ?2 AND experiment_key = ?3"
            ).run(bindKey)
        }
        try transaction.changedProjects()
        return previous
    }

    static func exists(
        experimentKey: Identifier, userID: Identifier, sdkKey: String, on connection: Connection
    ) throws(SQLiteError) -> Bool {
        var found = false
        try connection.statement(
            "SELECT 1 FROM forced_variations WHERE sdk_key = ?1 AND user_id = ?2 AND experiment_key = ?3"
        ).run {
            $0.bind(sdkKey, at: 1)
            $0.bind(userID.string, at: 2)
            $0.bind(experimentKey.string, at: 3)
        } row: { _ in
            found = true
        }
        return found
    }

    static func erase(_ userID: Identifier, in transaction: WriteTransaction) throws(SQLiteError) {
        let count = try transaction.connection.statement("DELETE FROM forced_variations WHERE user_id = ?1")
            .change { $0.bind(userID.string, at: 1) }
        if count > 0 { try transaction.changedProjects() }
    }
}
