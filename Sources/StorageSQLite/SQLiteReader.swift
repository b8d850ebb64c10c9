import Bucketing
import Chronology
import Storage

/// Reads profiles and attributes on one thread, from its caches or from its own connection.
///
/// Why the cache is never stale, even if other programs commit:
///
/// - Every commit changes the log's header, which is in shared memory. A commit of Holdfast also raises a number in the
///   database. The reader remembers the header and the number of the last commit that the cache reflects (``known``).
/// - The reader checks the cache before the first lookup of each batch. All requests of the batch were received before
///   the check, so each request sees every commit that was acknowledged before the request was sent.
/// - The check first processes the notices of this process's commits (``CommitNotices``). A notice has the changes of a
///   commit, and the headers before and after it. If the notices form an unbroken chain from the known header to the
///   present one, nobody else has committed.
/// - Otherwise the reader asks SQLite for the number of the last commit. If this process has announced the number, the
///   notice is about to come, and the reader bypasses the cache until then. If not, another process has committed, and
///   the reader clears the cache.
/// - A read after the check may see a newer commit, but never an older state. A notice may come after the reader has
///   read its commit; processing it does no harm.
final class SQLiteReader {
    private let file: DatabaseFile
    private let notices: CommitNotices
    private let inbox: CommitNotices.Inbox
    private let userFilter: UserFilter
    private let clock: StoreClock
    private let lockTimeout: Double
    private let cache: RecordCache
    /// Allocated at the first lookup of attributes; most servers never need it.
    private var attributeCache: RecordCache?
    /// The size of the attribute cache, in bytes: a quarter of the profile cache.
    private let attributeCacheBytes: Int
    private var connection: Connection?
    private var isClosed = false
    /// The number of lookups that were answered from memory.
    private var hits: UInt64 = 0
    /// The number of lookups that had to query the database.
    private var misses: UInt64 = 0

    private var isInBatch = false
    /// Whether the cache has been checked in this batch.
    private var isChecked = false
    /// Whether the cache may be used until the next check.
    private var isCacheCurrent = false
    /// The last commit that the cache reflects; its number is -1 before the first check.
    private var known = Commit(number: -1)
    /// Whether another process may have committed before the known commit.
    private var isChainBroken = false
    /// The counter of project changes when the database was last asked; -1 before the first time.
    private var projectChanges: Int64 = -1
    /// See ``Storage/StoreSession/projectNotices``.
    private(set) var projectNotices: UInt64 = 0
    /// Contains the users who may have a profile, as of the last check; `nil` if there is no filter.
    private var filter: BloomFilter?

    init(_ store: SQLiteStore) throws(SQLiteError) {
        let configuration = store.configuration
        file = store.file
        notices = store.writer.notices
        userFilter = store.writer.userFilter
        clock = store.clock
        lockTimeout = configuration.readLockTimeout
        cache = RecordCache(bytes: configuration.cacheBytes)
        attributeCacheBytes = configuration.cacheBytes / 4
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

    /// Ends the read transaction of a batch, if one has begun.
    private func endTransaction() {
        guard let connection, connection.isInTransaction else { return }
        do throws(SQLiteError) {
            try connection.statement("COMMIT").run()
        } catch {
            self.connection = nil
        }
    }

    /// Begins the read transaction that all cache misses of a batch share. A transaction for each miss would double the
    /// cost of a miss.
    private func beginTransaction(_ connection: Connection) throws(SQLiteError) {
        if isInBatch, !connection.isInTransaction { try connection.statement("BEGIN").run() }
    }

    // MARK: Reading

    func profile(of userID: Identifier) -> Result<ProfileRecord?, StorageError> {
        read { try find(userID, $0) }
    }

    /// Looks up a profile in memory, and then in the database.
    private func find(_ userID: Identifier, _ connection: Connection) throws -> ProfileRecord? {
        switch findInMemory(userID) {
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
        misses &+= 1
        try beginTransaction(connection)
        let bytes = try ProfileRows.find(userID, on: connection)
        let record = try bytes.map { try ProfileRecord(stored: $0, of: userID) }
        userID.withKey { cache.insert($0, bytes) }
        if bytes == nil, filter == nil { userFilter.scanIfNeeded() }
        return record.flatMap(visible)
    }

    /// Looks up a profile in the cache and in the user filter.
    private func findInMemory(_ userID: Identifier) -> RecordCache.Finding {
        guard isCacheCurrent else { return .unknown }
        return userID.withKey { key in
            let finding = cache.find(key)
            // The filter recognises most users without a profile. So these users need no entries in the cache, where
            // their entries could evict those of users with a profile.
            if case .unknown = finding, let filter, !filter.mayContain(key.hash) { return .absent }
            return finding
        }
    }

    func attributes(of userID: Identifier) -> Result<AttributeRecord?, StorageError> {
        read { try findAttributes(userID, $0) }
    }

    /// Looks up attributes in the cache, and then in the database.
    private func findAttributes(_ userID: Identifier, _ connection: Connection) throws -> AttributeRecord? {
        let cache = attributeCache ?? RecordCache(bytes: attributeCacheBytes)
        attributeCache = cache
        switch isCacheCurrent ? userID.withKey(cache.find) : .unknown {
        case .absent:
            hits &+= 1
            return nil
        case .record(let bytes):
            hits &+= 1
            return AttributeRecord(trusting: bytes)
        case .unknown:
            misses &+= 1
            try beginTransaction(connection)
            let bytes = try AttributeRows.find(userID, on: connection)
            let record = try bytes.map { try AttributeRecord(stored: $0, of: userID) }
            userID.withKey { cache.insert($0, bytes) }
            return record
        }
    }

    /// Returns the profile without expired assignments; `nil` if no assignments are left.
    @inline(__always)
    private func visible(_ record: ProfileRecord) -> ProfileRecord? {
        record.earliestExpiry == nil ? record : record.visible(at: clock.now())
    }

    /// Reads a query, in the transaction of the batch.
    func read<Value>(_ query: StoreQuery<Value>, _ context: ReadingContext) -> Result<Value, StorageError> {
        read { connection in
            try beginTransaction(connection)
            var reading = query.reading(context)
            while true {
                switch try connection.read(reading).get() {
                case .value(let value): return value
                case .more(let next): reading = next
                }
            }
        }
    }

    /// Calls a function with an open connection, after the check of the cache.
    private func read<Value>(
        _ body: (Connection) throws -> Value
    ) -> Result<Value, StorageError> {
        guard !isClosed, !notices.isClosed else { return .failure(.closed) }
        do {
            let connection = try openConnection()
            if !isChecked || !isInBatch {
                try file.contents?.expectNoDifference()
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
        // Commits since the last connection was closed are unknown.
        clearCache()
        isCacheCurrent = false
        return fresh
    }

    // MARK: The cache

    /// Determines whether the cache reflects every commit, and sets ``isCacheCurrent``.
    private func checkCache(_ connection: Connection) throws(SQLiteError) {
        // Nearly always nobody but this process has committed since the last batch. Then the header in shared memory is
        // enough. Asking SQLite would need system calls for its locks.
        let header = connection.logHeader
        let former = known
        takeNotices()
        if header != nil, header == known.header, !isChainBroken {
            isCacheCurrent = true
        } else {
            isCacheCurrent = false
            isCacheCurrent = try askDatabase(connection)
        }
        // Without a new commit the filter stays the same.
        if known != former || filter == nil { filter = isCacheCurrent ? userFilter.filter(asOf: known) : nil }
    }

    /// Asks SQLite for the last commit, and clears the cache if another process made it.
    ///
    /// - Returns: whether the cache now reflects every commit.
    private func askDatabase(_ connection: Connection) throws(SQLiteError) -> Bool {
        try file.expectNoOtherLog()
        let (commit, projectChanges) = try connection.lastCommit()
        if projectChanges != self.projectChanges { projectNotices &+= 1 }
        self.projectChanges = projectChanges
        isChainBroken = false
        // Taken after the query: if this process has made the commit that the query has found, its notice may have come
        // by now.
        let hasNotices = takeNotices()
        if let header = connection.logHeader, header == known.header { return true }
        // The notices may be of later commits than the query has found, so the two cannot be compared. The next check
        // asks again.
        guard let commit, !hasNotices else { return false }
        // This process has made the commit, and its notice is about to come.
        if commit.number == known.number &+ 1, notices.isAnnounced(commit.number) { return false }
        if commit != known {
            clearCache()
            clock.advance(to: Instant(milliseconds: try connection.integer("SELECT latest_time FROM counters")))
        }
        known = commit
        return true
    }

    /// Processes all notices.
    ///
    /// - Returns: whether there were any.
    @discardableResult
    private func takeNotices() -> Bool {
        let notices = inbox.take()
        for notice in notices { process(notice) }
        return !notices.isEmpty
    }

    /// Applies the changes of a commit of this process to the cache.
    private func process(_ notice: CommitNotices.Notice) {
        guard notice.commit.number > known.number else {
            // `askDatabase` has found this commit already, but the cache may contain users as they were before it.
            if let changes = notice.changes { changes.forEach(evict) } else { clearCache() }
            return
        }
        if notice.commit.number == known.number &+ 1, notice.former != nil, notice.former == known.header,
            let changes = notice.changes
        {
            changes.forEach(update)
        } else {
            clearCache()
            isChainBroken = true
        }
        known = notice.commit
    }

    /// Updates the record of a cached user, who is likely to be looked up again.
    private func update(_ change: UserChanges.Change) {
        switch change.content {
        case .profile(let record): cache.replace(change.key, record)
        case .attributes: attributeCache?.remove(change.key)
        }
    }

    /// Removes a user from the cache.
    private func evict(_ change: UserChanges.Change) {
        switch change.content {
        case .profile: cache.remove(change.key)
        case .attributes: attributeCache?.remove(change.key)
        }
    }

    private func clearCache() {
        cache.removeAll()
        attributeCache?.removeAll()
    }

    /// Lets SQLite copy the log when the connection is closed, if the files are still the files that were opened. The
    /// reader of a session may be closed after the writer, as the last connection to the database.
    private func allowCheckpointIfUnchanged(before connection: Connection) {
        do throws(SQLiteError) {
            try file.expectInPlace()
            try file.contents?.expectUnchanged(on: connection)
            connection.setCheckpointOnClose(true)
        } catch {
            // The log is not copied, and stays as it is.
        }
    }

    var cacheMetrics: CacheMetrics {
        var metrics = CacheMetrics()
        metrics.hits = hits
        metrics.misses = misses
        metrics.bytes = cache.usedBytes + (attributeCache?.usedBytes ?? 0)
        metrics.entries = cache.count + (attributeCache?.count ?? 0)
        return metrics
    }

    func close() {
        isClosed = true
        endTransaction()
        if let connection { allowCheckpointIfUnchanged(before: connection) }
        connection = nil
        filter = nil
        clearCache()
        notices.remove(inbox)
    }
}

@available(*, unavailable) extension SQLiteReader: Sendable {}
