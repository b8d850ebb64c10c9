import Bucketing
import Storage

/// The `exposures` table.
enum ExposureRows {
    private static let crossed: Int64 = 1
    private static let forced: Int64 = 2

    static func find(
        _ userID: Identifier, _ experimentID: Identifier, on connection: Connection
    ) throws(SQLiteError) -> StoredExposure? {
        try connection.statement(
            """
            SELECT number, user_id, experiment_id, experiment_key, variation_id, happened_at, flags, sdk_key, payload,
            period FROM exposures WHERE user_id = ?1 AND experiment_id = ?2
            """
        ).first {
            $0.bind(userID.string, at: 1)
            $0.bind(experimentID.string, at: 2)
        } row: {
            decode($0)
        }
    }

    static func ofUser(_ userID: Identifier, on connection: Connection) throws(SQLiteError) -> [StoredExposure] {
        try connection.statement(
            """
            SELECT number, user_id, experiment_id, experiment_key, variation_id, happened_at, flags, sdk_key, payload,
            period FROM exposures WHERE user_id = ?1
            """
        ).all {
            $0.bind(userID.string, at: 1)
        } row: {
            decode($0)
        }
    }

    /// Stores an exposure under a new number, in place of the user's former one to the experiment.
    static func put(_ stored: StoredExposure, in transaction: WriteTransaction) throws(SQLiteError) {
        let exposure = stored.exposure
        try transaction.connection.statement(
            """
            INSERT OR REPLACE INTO exposures
            (user_id, experiment_id, experiment_key, variation_id, happened_at, flags, sdk_key, payload,
            period)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
            """
        ).run {
            $0.bind(exposure.userID.string, at: 1)
            $0.bind(exposure.experimentID.string, at: 2)
            $0.bind(exposure.experimentKey.string, at: 3)
            $0.bind(exposure.variationID.string, at: 4)
            $0.bind(exposure.happenedAt, at: 5)
            $0.bind((stored.isCrossed ? crossed : 0) | (exposure.isForced ? forced : 0), at: 6)
            $0.bind(exposure.sdkKey, at: 7)
            $0.bind(String(decoding: exposure.payload, as: UTF8.self), at: 8)
            $0.bind(stored.period, at: 9)
        }
        transaction.changed()
    }

    static func page(
        after number: Int64, limit: Int, on connection: Connection
    ) throws(SQLiteError) -> [StoredExposure] {
        try connection.statement(
            """
            SELECT number, user_id, experiment_id, experiment_key, variation_id, happened_at, flags, sdk_key, payload,
            period FROM exposures WHERE number > ?1 ORDER BY number LIMIT ?2
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
    ) throws(SQLiteError) -> [StoredExposure] {
        try connection.statement(
            """
            SELECT number, user_id, experiment_id, experiment_key, variation_id, happened_at, flags, sdk_key, payload,
            period FROM exposures WHERE user_id = ?1 AND +number < ?2 ORDER BY +number DESC LIMIT ?3
            """
        ).all {
            $0.bind(userID.string, at: 1)
            $0.bind(number, at: 2)
            $0.bind(Int64(limit), at: 3)
        } row: {
            decode($0)
        }
    }

    private static func decode(_ row: Statement) -> StoredExposure {
        let flags = row.integer(6)
        let exposure = Exposure(
            userID: Identifier(row.text(1)), experimentID: Identifier(row.text(2)),
            experimentKey: Identifier(row.text(3)), variationID: Identifier(row.text(4)), happenedAt: row.bounded(5),
            isForced: flags & forced != 0, sdkKey: row.text(7), payload: Array(row.text(8).utf8))
        return StoredExposure(
            number: row.integer(0), exposure: exposure, isCrossed: flags & crossed != 0, period: row.integer(9))
    }
}
