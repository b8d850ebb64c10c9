import Bucketing
import Storage

/// Reads profiles on one thread, from its cache or else from its own connection.
///
/// Why the cache is never behind what was acknowledged: every commit raises a number in the database. Before the first
/// lookup of a batch the reader takes note of the commits of its own process, which name the users they changed, and
/// asks SQLite whether the database has changed. If the number is higher than the last commit it knows of, either
/// its own process is just about to tell it, and it reads past the cache until then; or another process wrote, and
/// the cache is emptied. What is read after this check may be newer than the check, never older, and the notice of a
/// commit that was read early does no harm. All requests of a batch were received before the check.
final class SQLiteProfileReader: ProfileReader {
    private let file: DatabaseFile
    private let notices: CommitNotices
    private let inbox: CommitNotices.Inbox
    private let clock: WallClock
    private let lockTimeout: Double
    private let cache: RecordCache
    private var connection: Connection?
    private var isClosed = false
    private var hits: UInt64 = 0
    private var misses: UInt64 = 0

    private var isInBatch = false
    /// Whether the cache has been checked in this batch.
    private var isChecked = false
    /// Whether the cache may be read until the next check.
    private var isCacheCurrent = false
    /// The last commit whose changes the cache has taken note of.
    private var knownCommit: Int64 = -1
    private var dataVersion: Int64 = -1
    /// As it was before the database was last asked.
    private var logHeader: LogHeader?

    init(file: DatabaseFile, notices: CommitNotices, configuration: SQLiteConfiguration) throws(SQLiteError) {
        self.file = file
        self.notices = notices
        clock = configuration.clock
        lockTimeout = configuration.readLockTimeout
        cache = RecordCache(bytes: configuration.cacheBytes)
        connection = try file.reader(lockTimeout: configuration.readLockTimeout)
        inbox = notices.makeInbox()
    }

    deinit {
        notices.remove(inbox)
    }

    // MARK: Batches

    func beginBatch() {
        isInBatch = true
        isChecked = false
    }

    func endBatch() {
        isInBatch = false
        endTransaction()
    }

    private func endTransaction() {
        guard let connection, connection.isInTransaction else { return }
        do throws(SQLiteError) {
            try connection.statement("COMMIT").run()
        } catch {
            self.connection = nil
        }
    }

    /// In a batch, lookups that miss the cache share one read transaction: its beginning costs as much as a lookup.
    private func beginTransaction(_ connection: Connection) throws(SQLiteError) {
        if isInBatch, !connection.isInTransaction { try connection.statement("BEGIN").run() }
    }

    // MARK: Reading

    func profile(of userID: Identifier, _ completion: @escaping (Result<ProfileRecord?, StorageError>) -> Void) {
        completion(read { try find(userID, $0) })
    }

    private func find(_ userID: Identifier, _ connection: Connection) throws -> ProfileRecord? {
        if isCacheCurrent {
            switch cache.find(userID) {
            case .unknown:
                break
            case .absent:
                hits &+= 1
                return nil
            case .record(let bytes):
                if let record = try? ProfileRecord(trusting: bytes) {
                    hits &+= 1
                    return visible(record)
                }
            }
        }
        misses &+= 1
        try beginTransaction(connection)
        let bytes = try ProfileRows.find(userID, on: connection)
        let record = try bytes.map { try ProfileRows.decode($0, of: userID) }
        cache.insert(userID, bytes)
        return record.flatMap(visible)
    }

    @inline(__always)
    private func visible(_ record: ProfileRecord) -> ProfileRecord? {
        record.earliestExpiry == nil ? record : record.visible(at: clock())
    }

    func profiles(
        after: Identifier?, limit: Int,
        _ completion: @escaping (Result<[(userID: Identifier, profile: ProfileRecord)], StorageError>) -> Void
    ) {
        completion(
            read { connection in
                let now = clock()
                var found: [(userID: Identifier, profile: ProfileRecord)] = []
                var last = after
                // Profiles that have expired are passed over, so that an empty page means the end.
                while found.count < limit {
                    let rows = try ProfileRows.page(after: last, limit: limit - found.count, on: connection)
                    found += try rows.compactMap { row in
                        try ProfileRows.decode(row.record, of: row.userID).visible(at: now).map { (row.userID, $0) }
                    }
                    guard let end = rows.last else { break }
                    last = end.userID
                }
                return found
            })
    }

    private func read<Value>(
        _ body: (Connection) throws -> Value
    ) -> Result<Value, StorageError> {
        guard !isClosed, !notices.isClosed else { return .failure(.closed) }
        do {
            let connection = try openConnection()
            if !isChecked || !isInBatch {
                try checkCache(connection)
                isChecked = true
            }
            return .success(try body(connection))
        } catch let error as StorageError {
            return .failure(error)
        } catch let error as SQLiteError {
            if error.asksForReopening { connection = nil }
            return .failure(error.asStorageError)
        } catch {
            return .failure(.unavailable(reason: "\(error)"))
        }
    }

    private func openConnection() throws(SQLiteError) -> Connection {
        if let connection { return connection }
        let fresh = try file.reader(lockTimeout: lockTimeout)
        connection = fresh
        // What happened meanwhile is unknown.
        forgetEverything()
        return fresh
    }

    // MARK: The cache

    private func checkCache(_ connection: Connection) throws(SQLiteError) {
        // Nearly always nothing was committed since the last batch, which a glance at shared memory tells; asking
        // SQLite takes two system calls for its locks.
        let header = connection.logHeader
        if isCacheCurrent, let header, header == logHeader {
            for notice in inbox.take() { takeNote(of: notice) }
            return
        }
        logHeader = header
        let version = try connection.integer("PRAGMA data_version")
        let hasChanged = version != dataVersion || !isCacheCurrent
        let commit = hasChanged ? try connection.integer("SELECT commits FROM counters") : knownCommit
        dataVersion = version
        isCacheCurrent = true
        connection.watchLog()
        // After the database was asked, so that what is told late explains more of what it answered.
        for notice in inbox.take() { takeNote(of: notice) }
        guard commit > knownCommit else { return }
        if commit == knownCommit + 1, notices.isAnnounced(commit) {
            isCacheCurrent = false
        } else {
            cache.removeAll()
            knownCommit = commit
        }
    }

    private func takeNote(of notice: CommitNotices.Notice) {
        guard notice.number > knownCommit else {
            // Seen already in the database; users may have been read before that.
            return notice.userIDs?.forEach(cache.remove) ?? cache.removeAll()
        }
        if notice.number == knownCommit + 1, let userIDs = notice.userIDs {
            userIDs.forEach(cache.remove)
        } else {
            cache.removeAll()
        }
        knownCommit = notice.number
    }

    private func forgetEverything() {
        cache.removeAll()
        dataVersion = -1
        isCacheCurrent = false
    }

    var cacheStatistics: CacheStatistics {
        var statistics = CacheStatistics()
        statistics.hits = hits
        statistics.misses = misses
        statistics.bytes = cache.usedBytes
        statistics.entries = cache.count
        return statistics
    }

    func close() {
        isClosed = true
        endTransaction()
        connection = nil
        cache.removeAll()
        notices.remove(inbox)
    }
}

@available(*, unavailable) extension SQLiteProfileReader: Sendable {}
