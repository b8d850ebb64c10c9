import Bucketing
import Chronology
import Storage

/// The tables of the feed: `feed_state`, `feed` and `feed_removals`.
enum FeedRows {
    /// Returns the row of `feed_state`.
    static func state(on connection: Connection) throws(SQLiteError) -> FeedState {
        var state = FeedState()
        try connection.run(FeedState.read) { state = FeedState($0) }
        return state
    }

    /// Begins or ends the feed according to the mode. While the feed is off, its epoch is 0. A database gets its store
    /// id when it first keeps a feed.
    ///
    /// - Returns: whether changes are added to the feed from now on.
    static func open(_ mode: FeedMode, on connection: Connection) throws(SQLiteError) -> Bool {
        let state = try state(on: connection)
        if case .kept = mode, try connection.integer("SELECT store_id FROM feed_state") == 0 {
            try connection.run(FeedState.identify())
        }
        guard let epoch = state.newEpoch(mode) else { return state.epoch != 0 }
        try connection.run(FeedState.setEpoch(epoch, replacing: state.epoch, .sqlite))
        return epoch != 0
    }

    /// Stores the rows and removals of a transaction.
    ///
    /// - Parameter last: the number of the transaction's last row, to which `counters.feed_number` has been raised.
    static func insert(
        _ feed: TransactionFeed, upTo last: Int64, at now: Instant, on connection: Connection
    ) throws(SQLiteError) {
        let first = last - Int64(feed.rows.count) + 1
        for (index, row) in feed.rows.enumerated() {
            try connection.statement("INSERT INTO feed (number, recorded_at, entries) VALUES (?1, ?2, ?3)").run {
                $0.bind(first + Int64(index), at: 1)
                $0.bind(now.milliseconds, at: 2)
                $0.bind(row, at: 3)
            }
        }
        for removal in feed.removals {
            for query in removal.cause.statements(number: first + Int64(removal.row)) { try connection.run(query) }
        }
    }

    /// Returns the size of the feed and the time of its oldest row.
    static func metrics(_ state: FeedState, on connection: Connection) throws(SQLiteError) -> FeedMetrics {
        var metrics = FeedMetrics()
        metrics.rows = state.rows
        metrics.bytes = state.bytes
        try connection.run(FeedMetrics.oldestQuery) { metrics.oldest = $0.instant(0) }
        return metrics
    }
}

/// The entries of one transaction for the feed, encoded as rows of the table `feed`. A row has many entries.
struct TransactionFeed {
    /// The size in bytes at which a row is complete. Limited, so that a reader can read a large transaction in parts.
    private static let rowSize = 64 << 10

    /// The complete rows.
    private(set) var rows: [[UInt8]] = []
    /// The row in progress. Its initial capacity of 2 KiB suffices for a transaction of some changes of profiles.
    private var encoder = FeedEncoder(capacity: 2 << 10)
    /// The erasures and merges, each with the index of the row that contains its entry.
    private(set) var removals: [(cause: FeedRemoval.Cause, row: Int)] = []

    /// Adds the change of a profile.
    mutating func append(_ record: ProfileRecord, replacing stored: ProfileRecord?, of userID: Identifier) {
        encoder.append(record, replacing: stored, of: userID)
        endLargeRow()
    }

    /// Adds a write of a rule.
    mutating func append(_ write: UserRecords.Write, of userID: Identifier) {
        encoder.append(write, of: userID)
        if let cause = FeedRemoval.Cause(write, of: userID) { removals.append((cause, rows.count)) }
        endLargeRow()
    }

    /// Completes the row in progress if it is large enough.
    private mutating func endLargeRow() {
        if encoder.bytes.count >= Self.rowSize { endRow() }
    }

    /// Completes the row in progress.
    mutating func endRow() {
        guard !encoder.isEmpty else { return }
        rows.append(encoder.bytes)
        encoder = FeedEncoder()
    }
}
