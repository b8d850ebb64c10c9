import Bucketing
import Dispatch
import Storage

/// Whom other processes have erased: what this one received of them before, and had waiting meanwhile, must not bring
/// them back. For the writer's queue, within its transactions.
///
/// Time is that of the monotonic clock, which all processes of the machine share. It is read within the transaction of
/// the erasure, so that later erasures have later times.
struct Erasures {
    /// For how long an erasure is remembered, in nanoseconds. What has waited for longer is not stored at all.
    static let memory: UInt64 = 3_600_000_000_000

    /// When the transaction began.
    private var now: UInt64 = 0
    /// The log when the database was last asked.
    private var header: LogHeader?
    /// When the last user was erased, by this process or another.
    private var last: UInt64 = 0
    /// When the last user was erased by another process.
    private var lastElsewhere: UInt64 = 0

    /// Called when a transaction has begun. Asks nothing of the database while nobody else writes to it.
    mutating func update(on connection: Connection) throws(SQLiteError) {
        now = DispatchTime.now().uptimeNanoseconds
        let header = connection.logHeader
        guard header == nil || header != self.header else { return }
        let newest = try ErasureRows.newest(before: now, on: connection)
        if newest > last { (last, lastElsewhere) = (newest, newest) }
        self.header = header
    }

    /// Called after a commit of this process.
    ///
    /// - Parameters:
    ///   - header: as the commit left it.
    ///   - erasure: when the commit erased a user.
    mutating func hasCommitted(_ header: LogHeader?, erasure: UInt64?) {
        self.header = header
        last = max(last, erasure ?? 0)
    }

    /// Whether the user may have been erased by another process since a moment.
    func mayHold(_ userID: Identifier, since moment: UInt64, on connection: Connection) throws(SQLiteError) -> Bool {
        if moment < now - min(now, Self.memory) { return true }
        guard moment <= lastElsewhere else { return false }
        return try ErasureRows.holds(userID, from: moment, to: now, on: connection)
    }
}

/// The `erasures` table.
enum ErasureRows {
    static func insert(_ userID: Identifier, at moment: UInt64, on connection: Connection) throws(SQLiteError) {
        try connection.statement("INSERT OR REPLACE INTO erasures (user_hash, erased_at) VALUES (?1, ?2)").run {
            $0.bind(hash(userID), at: 1)
            $0.bind(Int64(clamping: moment), at: 2)
        }
    }

    /// The newest time; later than `moment` are only those of before the machine was started.
    static func newest(before moment: UInt64, on connection: Connection) throws(SQLiteError) -> UInt64 {
        var newest: Int64 = 0
        try connection.statement("SELECT max(erased_at) FROM erasures WHERE erased_at <= ?1").run {
            $0.bind(Int64(clamping: moment), at: 1)
        } row: {
            newest = $0.integer(0)
        }
        return UInt64(clamping: newest)
    }

    static func holds(
        _ userID: Identifier, from first: UInt64, to last: UInt64, on connection: Connection
    ) throws(SQLiteError) -> Bool {
        var found = false
        try connection.statement("SELECT 1 FROM erasures WHERE user_hash = ?1 AND erased_at BETWEEN ?2 AND ?3").run {
            $0.bind(hash(userID), at: 1)
            $0.bind(Int64(clamping: first), at: 2)
            $0.bind(Int64(clamping: last), at: 3)
        } row: { _ in
            found = true
        }
        return found
    }

    /// Deletes what need not be remembered, or is from before the machine was started.
    static func prune(limit: Int, in transaction: WriteTransaction) throws(SQLiteError) {
        let now = DispatchTime.now().uptimeNanoseconds
        let count = try transaction.connection.statement(
            """
            DELETE FROM erasures WHERE user_hash IN
            (SELECT user_hash FROM erasures WHERE erased_at < ?1 OR erased_at > ?2 LIMIT ?3)
            """
        ).change {
            $0.bind(Int64(clamping: now - min(now, Erasures.memory)), at: 1)
            $0.bind(Int64(clamping: now), at: 2)
            $0.bind(Int64(limit), at: 3)
        }
        if count > 0 { transaction.changed() }
    }

    /// The same in all processes; who has only this does not know the user.
    private static func hash(_ userID: Identifier) -> Int64 {
        var text = userID.string
        return text.withUTF8 { bytes in
            let bytes = UnsafeRawBufferPointer(bytes)
            let (high, low) = (MurmurHash3.hash(bytes, seed: 2), MurmurHash3.hash(bytes, seed: 3))
            return Int64(bitPattern: UInt64(high) << 32 | UInt64(low))
        }
    }
}
