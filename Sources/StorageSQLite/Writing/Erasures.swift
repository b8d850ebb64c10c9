import Bucketing
import Chronology
import Dispatch
import Storage

/// The users that other processes have erased. A change that this process received before an erasure, and that still
/// waits, must not restore the user. Used on the writer's queue, in its transactions.
///
/// The database has the time of each erasure. Times are those of the monotonic clock, which all processes on the
/// machine share. They are read within the transaction of the erasure, so that later erasures have later times.
struct Erasures {
    /// ``ErasureRules/memory`` in nanoseconds.
    static let memory = UInt64(ErasureRules.memory.inSeconds * 1e9)

    /// When the transaction began.
    private var now: UInt64 = 0
    /// The log's header after the last commit that this state includes.
    private var header: LogHeader?
    /// When the last user was erased, by this process or another.
    private var last: UInt64 = 0
    /// When the last user was erased by another process.
    private var lastElsewhere: UInt64 = 0

    /// Updates the state at the start of a transaction. Queries the database only if another process has written.
    ///
    /// - Returns: whether another process may have written.
    mutating func update(on connection: Connection) throws(SQLiteError) -> Bool {
        now = DispatchTime.now().uptimeNanoseconds
        let header = connection.logHeader
        guard header == nil || header != self.header else { return false }
        let newest = try ErasureRows.newest(before: now, on: connection)
        if newest > last {
            last = newest
            lastElsewhere = newest
        }
        self.header = header
        return true
    }

    /// Notes a commit of this process.
    ///
    /// - Parameters:
    ///   - header: the log's header after the commit.
    ///   - erasure: the time of the erasure, if the commit erased a user.
    mutating func didCommit(_ header: LogHeader?, erasure: UInt64?) {
        self.header = header
        last = max(last, erasure ?? 0)
    }

    /// Whether another process has erased the user at this time or later. Also true for a time so long ago that
    /// erasures since then may be forgotten.
    func mayHold(_ userID: Identifier, since time: UInt64, on connection: Connection) throws(SQLiteError) -> Bool {
        if time < now - min(now, Self.memory) { return true }
        guard time <= lastElsewhere else { return false }
        return try ErasureRows.holds(userID, from: time, to: now, on: connection)
    }
}

/// The `erasures` table.
enum ErasureRows {
    /// Records an erasure or a merge.
    ///
    /// - Parameter mark: see ``ErasureRules/mark(_:into:)``.
    static func insert(_ mark: Int64, at time: UInt64, on connection: Connection) throws(SQLiteError) {
        try connection.change(
            "INSERT OR REPLACE INTO erasures (user_hash, erased_at) VALUES (?1, ?2)", .integer(mark), .time(time))
    }

    /// Returns the time of the last erasure; 0 if there is none. Times later than `limit`, the present time, are from
    /// before the machine was restarted, and do not count.
    static func newest(before limit: UInt64, on connection: Connection) throws(SQLiteError) -> UInt64 {
        try connection.all("SELECT max(erased_at) FROM erasures WHERE erased_at <= ?1", .time(limit)) {
            UInt64(clamping: $0.integer(0))
        }.first ?? 0
    }

    /// Whether the user was erased between two times.
    static func holds(
        _ userID: Identifier, from first: UInt64, to last: UInt64, on connection: Connection
    ) throws(SQLiteError) -> Bool {
        let found = try connection.all(
            "SELECT 1 FROM erasures WHERE user_hash = ?1 AND erased_at BETWEEN ?2 AND ?3",
            .integer(ErasureRules.hash(userID)), .time(first), .time(last)
        ) { _ in true }
        return !found.isEmpty
    }

    /// Deletes erasures that are too old to matter, or from before the machine was restarted.
    static func prune(limit: Int, in transaction: WriteTransaction) throws(SQLiteError) {
        let now = DispatchTime.now().uptimeNanoseconds
        let count = try transaction.connection.change(
            """
            DELETE FROM erasures WHERE user_hash IN
            (SELECT user_hash FROM erasures WHERE erased_at < ?1 OR erased_at > ?2 LIMIT ?3)
            """, .time(now - min(now, Erasures.memory)), .time(now), .integer(limit))
        if count > 0 { transaction.changed() }
    }
}

extension SQLValue {
    fileprivate static func time(_ nanoseconds: UInt64) -> SQLValue { .integer(Int64(clamping: nanoseconds)) }
}
