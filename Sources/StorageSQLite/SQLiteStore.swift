public import Storage

/// The embedded store: everything in one SQLite file, which several processes on one host may share.
public final class SQLiteStore: Store {
    let configuration: SQLiteConfiguration
    let file: DatabaseFile
    let writer: Writer
    let projectReader: BackgroundReader
    let attributeRemoval: AttributeRemoval
    let segmentReader: SegmentReader
    /// For exports, results and the audit log, so that reads of datafiles do not wait for them.
    let eventReader: BackgroundReader
    private let retention: Retention?

    /// Opens the database; creates or migrates it if needed.
    ///
    /// - Throws: ``DatabaseError``; the file is unchanged then.
    public init(_ configuration: SQLiteConfiguration) throws(DatabaseError) {
        self.configuration = configuration
        let closedFile = DatabaseFile(path: configuration.path)
        try closedFile.prepare(lockTimeout: configuration.lockTimeout)
        try CopyState.expectFinished(path: configuration.path, ends: !configuration.isReadOnly)
        do throws(SQLiteError) {
            writer = try Writer(file: closedFile, configuration: configuration)
        } catch {
            throw DatabaseError(configuration.path, error)
        }
        file = writer.file
        projectReader = BackgroundReader(
            file: file, lockTimeout: configuration.lockTimeout, label: "sqlite-project-reader")
        segmentReader = SegmentReader(file: file, lockTimeout: configuration.lockTimeout)
        attributeRemoval = AttributeRemoval(writer: writer, reader: projectReader, configuration: configuration)
        eventReader = BackgroundReader(
            file: file, lockTimeout: configuration.lockTimeout, label: "sqlite-event-reader")
        retention =
            configuration.deletesOld && !configuration.isReadOnly
            ? Retention(writer: writer, configuration: configuration) : nil
    }

    public func makeSession(on executor: any StoreExecutor) throws(StorageError) -> sending any StoreSession {
        try makeSQLiteSession(on: executor)
    }

    func makeSQLiteSession(on executor: any StoreExecutor) throws(StorageError) -> sending SQLiteSession {
        guard !writer.notices.isClosed else { throw .closed }
        return SQLiteSession(self, on: executor)
    }

    public func probe(_ completion: @escaping @Sendable (Result<Void, StorageError>) -> Void) {
        writer.probe(completion)
    }

    public var writeFailure: StorageError? { writer.failure }

    public func metrics() -> StoreMetrics {
        writer.metrics()
    }

    public func close() {
        retention?.stop()
        attributeRemoval.stop()
        writer.notices.close()
        projectReader.close()
        segmentReader.close()
        eventReader.close()
        writer.close()
    }
}

/// The configuration of a SQLite store.
public struct SQLiteConfiguration: Sendable {
    /// The database file.
    public var path: String
    public var rules = ProfileRules()
    /// How long a write waits for a lock of another process, in seconds.
    public var lockTimeout = 2.0
    /// How long a read waits for a lock, in seconds. It blocks an event loop, but rarely needs a lock.
    public var readLockTimeout = 0.2
    /// The maximum number of changes that wait for a commit; more are refused.
    public var waitingChanges = 10_000
    /// How long the oldest of them may have waited, in seconds; beyond it further changes are refused.
    public var waitingSeconds = 5.0
    /// The maximum number of changes in one transaction.
    public var batchLimit = 1_024
    /// The number of 1 KiB pages in the write-ahead log that starts a checkpoint.
    public var checkpointPages = 16_384
    /// The size of each reader's profile cache, in bytes.
    public var cacheBytes = 32 << 20
    /// Whether this process deletes expired and old data in the background.
    public var deletesOld = true
    /// Whether the database is only read, so that nothing is deleted and a copy into it may still be brought up to date.
    /// Changes are not refused: that is left to a ``ReadOnlyStore``.
    public var isReadOnly = false
    /// The interval between sweeps for data to delete, in seconds.
    public var retentionInterval = 5.0
    /// The maximum number of expired profiles, and of old audit entries, that one transaction deletes.
    public var retentionBatch = 500
    /// How long audit entries are kept.
    public var auditRetention = Duration.seconds(400 * 86_400)
    /// How many datafiles of each project are kept, including the active one; at least 1.
    public var datafileHistory = 100
    /// How long goal events are kept, in milliseconds, at least ``EventRules/minimumRetention``; `nil` means forever.
    public var eventRetention: Timestamp?
    /// The minimum pause between scans of all users, in seconds; see ``UserFilter``.
    var userScanPause = 60.0
    /// The minimum capacity of the filter.
    var minimumUserCapacity = 1 << 20
    public var clock: WallClock = systemWallClock
    /// Called on any thread.
    public var report: @Sendable (StoreEvent) -> Void = { _ in }

    public init(path: String) {
        self.path = path
    }
}

/// An event that operators should know of, reported once per change of state.
public enum StoreEvent: Sendable {
    /// Writes have begun to fail.
    case writesFail(reason: String)
    /// Writes succeed again.
    case writesSucceed
    /// Checkpoints have begun to fail; the write-ahead log grows until one succeeds.
    case checkpointFails(reason: String)
    /// The store was closed, but the write-ahead log remains, because another process has the database open or because
    /// the checkpoint failed: a copy of the database file alone is incomplete.
    case logRemains(bytes: Int)
}
