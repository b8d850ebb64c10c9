import Bucketing
import Chronology
import Storage

/// The tables of the feed.
enum FeedRows {
    static func state(on connection: Connection) throws(SQLiteError) -> FeedState {
        var state = FeedState()
        try connection.run(FeedState.read) { state = FeedState($0) }
        return state
    }

    /// Begins or ends the feed, as the mode says.
    ///
    /// - Returns: whether changes are to be kept.
    static func open(_ mode: FeedMode, on connection: Connection) throws(SQLiteError) -> Bool {
        let state = try state(on: connection)
        if case .kept = mode, try connection.integer("SELECT store_id FROM feed_state") == 0 {
            try connection.run(FeedState.identify())
        }
        guard let epoch = state.newEpoch(mode) else { return state.epoch != 0 }
        try connection.run(FeedState.setEpoch(epoch, replacing: state.epoch, .sqlite))
        return epoch != 0
    }

    /// Stores what a transaction has changed, under the last of the numbers that its counters have.
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

    static func metrics(_ state: FeedState, on connection: Connection) throws(SQLiteError) -> FeedMetrics {
        var metrics = FeedMetrics()
        (metrics.rows, metrics.bytes) = (state.rows, state.bytes)
        try connection.run(FeedMetrics.oldestQuery) { metrics.oldest = $0.instant(0) }
        return metrics
    }
}

/// What a transaction has changed about users, for the feed.
struct TransactionFeed {
    /// The size at which a row is complete, so that readers need not read all of a large transaction at once.
    private static let rowSize = 64 << 10

    private(set) var rows: [[UInt8]] = []
    /// With room for what a transaction of some saves changes.
    private var encoder = FeedEncoder(capacity: 2 << 10)
    /// With the index of the row that has the entry.
    private(set) var removals: [(cause: FeedRemoval.Cause, row: Int)] = []

    mutating func append(_ record: ProfileRecord, replacing stored: ProfileRecord?, of userID: Identifier) {
        encoder.append(record, replacing: stored, of: userID)
        endLargeRow()
    }

    mutating func append(_ write: UserRecords.Write, of userID: Identifier) {
        encoder.append(write, of: userID)
        if let cause = FeedRemoval.Cause(write, of: userID) { removals.append((cause, rows.count)) }
        endLargeRow()
    }

    private mutating func endLargeRow() {
        if encoder.bytes.count >= Self.rowSize { endRow() }
    }

    mutating func endRow() {
        guard !encoder.isEmpty else { return }
        rows.append(encoder.bytes)
        encoder = FeedEncoder()
    }
}
