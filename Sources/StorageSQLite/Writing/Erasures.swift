import Bucketing
import Chronology
import Dispatch
import Storage

/// Knows which users other processes have erased, so that a change that this process received before an erasure does
/// not restore the user. Used on the writer's queue, in its transactions.
///
/// The table `erasures` has the time of each erasure, by the monotonic clock, which all processes on the machine share.
/// The time is read within the transaction of the erasure, so that later erasures have later times.
struct Erasures {
    /// How long erasures are remembered, in nanoseconds; see ``ErasureRules/memory``.
    static let memory = UInt64(ErasureRules.memory.inSeconds * 1e9)

    /// When the present transaction began. All times are in monotonic nanoseconds.
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

    /// Whether another process may have erased the user at a time or later. Also `true` if the time is so long ago that
    /// later erasures may be forgotten.
    func mayHaveErased(
        _ userID: Identifier, since time: UInt64, on connection: Connection
    ) throws(SQLiteError) -> Bool {
        let earliestRemembered = now - min(now, Self.memory)
        if time < earliestRemembered { return true }
        guard time <= lastElsewhere else { return false }
        return try ErasureRows.contains(userID, from: time, to: now, on: connection)
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

    /// Returns the time of the last erasure; 0 if there is none.
    ///
    /// - Parameter now: the present time. A later time is from before the machine was restarted, and does not count.
    static func newest(before now: UInt64, on connection: Connection) throws(SQLiteError) -> UInt64 {
        try connection.all("SELECT max(erased_at) FROM erasures WHERE erased_at <= ?1", .time(now)) {
            UInt64(clamping: $0.integer(0))
        }.first ?? 0
    }

    /// Whether the user was erased between two times, both included.
    static func contains(
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
    /// Returns a time in monotonic nanoseconds as a parameter.
    fileprivate static func time(_ nanoseconds: UInt64) -> SQLValue { .integer(Int64(clamping: nanoseconds)) }
}
