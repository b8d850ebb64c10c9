import Dispatch
public import Storage
import Synchronization

/// The embedded store: everything is in one SQLite file, which several processes on one host may share.
///
/// ```
/// lookups   SQLiteSession → SQLiteReader: caches, or a connection of the event loop's own
/// reads     SQLiteSession → BackgroundReader: a thread for each kind of queries
/// changes   SQLiteSession → Writer: one transaction for all that wait → CommitNotices → caches
/// ```
///
/// One ``Writer`` makes all changes of this process. The ``Checkpointer`` copies its log into the database file.
/// ``Retention`` deletes old data.
public final class SQLiteStore: Store {
    let configuration: SQLiteConfiguration
    var settings: StoreSettings { configuration.settings }
    public var rules: ProfileRules { settings.rules }
    public var clock: StoreClock { writer.clock }
    /// The opened file, which must stay in place.
    let file: DatabaseFile
    let writer: Writer
    /// Deletes the users' values of deleted attributes.
    let attributeRemoval: AttributeRemoval
    /// Reads datafiles and other definitions.
    let projectReader: BackgroundReader
    /// Scans all users.
    let segmentReader: BackgroundReader
    /// Reads exports, results and the audit log. Separate, so that reads of datafiles do not wait for them.
    let eventReader: BackgroundReader
    /// Deletes old data; `nil` for a store that deletes nothing.
    private let retention: Retention?
    /// The watches that were made, which are cancelled when the store is closed.
    private let watches = Mutex<[ProjectChangeWatch]>([])
    /// The maximum number of concurrent scans of all users; more are refused.
    private static let concurrentScans = 64
    /// The number of rows that one step of a scan reads, in a few milliseconds.
    private static let scanRows = 4_096

    var readingContext: ReadingContext { ReadingContext(.sqlite, settings, clock, scanRows: Self.scanRows) }

    /// Opens the database; creates or migrates it if needed.
    ///
    /// - Throws: ``DatabaseError`` if the file cannot be opened, is not a Holdfast database, is of a newer release, is
    ///   the target of an incomplete copy, or is of the wrong kind for ``SQLiteConfiguration/isEdge``. The file is
    ///   unchanged then.
    public init(_ configuration: SQLiteConfiguration) throws(DatabaseError) {
        self.configuration = configuration
        let closedFile = DatabaseFile(path: configuration.path)
        try closedFile.prepare(lockTimeout: configuration.lockTimeout)
        try CopyState.expectFinished(path: configuration.path, removesMark: !configuration.settings.isReadOnly)
        try EdgeState.expect(configuration.isEdge, path: configuration.path)
        do throws(SQLiteError) {
            writer = try Writer(file: closedFile, configuration: configuration)
        } catch {
            throw DatabaseError(configuration.path, error)
        }
        file = writer.file
        projectReader = BackgroundReader(
            file: file, lockTimeout: configuration.lockTimeout, name: "sqlite-projects")
        segmentReader = BackgroundReader(
            file: file, lockTimeout: configuration.lockTimeout, name: "sqlite-segments",
            limit: Self.concurrentScans)
        attributeRemoval = AttributeRemoval(writer: writer, reader: projectReader, configuration: configuration)
        eventReader = BackgroundReader(
            file: file, lockTimeout: configuration.lockTimeout, name: "sqlite-events")
        retention =
            configuration.settings.deletesOld && !configuration.settings.isReadOnly
            ? Retention(writer: writer, reader: eventReader, configuration: configuration) : nil
    }

    public func makeSession(on executor: any StoreExecutor) throws(StorageError) -> sending any StoreSession {
        try makeSQLiteSession(on: executor)
    }

    /// Makes a session with its concrete type, for tests.
    func makeSQLiteSession(on executor: any StoreExecutor) throws(StorageError) -> sending SQLiteSession {
        guard !writer.notices.isClosed else { throw .closed }
        return SQLiteSession(self, on: executor)
    }

    public func probe() async throws(StorageError) { try await writer.probe() }

    public func probeReads() async throws(StorageError) {
        try await projectReader.read { connection throws(SQLiteError) in
            try connection.statement("SELECT 1 FROM profiles LIMIT 1").run()
        }
    }

    public func watchProjects(_ changed: @escaping @Sendable () -> Void) -> (any ProjectWatch)? {
        let watch = ProjectChangeWatch(file, lockTimeout: configuration.lockTimeout, changed)
        watches.withLock { $0.append(watch) }
        return watch
    }

    public var writeFailure: StorageError? { writer.failure }

    public var closeFailure: StorageError? { writer.closeFailure }

    public func metrics() -> StoreMetrics {
        writer.metrics()
    }

    public func close() {
        retention?.stop()
        attributeRemoval.stop()
        writer.notices.close()
        for watch in watches.withLock({ $0 }) { watch.cancel() }
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
    public var settings: StoreSettings
    /// How long a write waits for a lock of another process, in seconds.
    public var lockTimeout = 2.0
    /// How long a lookup waits for a lock, in seconds. Short, because it blocks an event loop. Lookups rarely need a
    /// lock.
    public var readLockTimeout = 0.2
    /// The maximum number of changes in one transaction.
    public var batchLimit = 1_024
    /// The number of pages (1 KiB each) in the write-ahead log at which a checkpoint starts.
    public var checkpointPages = 16_384
    /// Whether the file is an edge's copy of another database.
    public var isEdge = false
    /// The size of each reader's profile cache, in bytes. The attribute cache is a quarter of this size.
    public var cacheBytes = 32 << 20
    /// The minimum pause between scans of all users, in seconds; see ``UserFilter``.
    var userScanPause = 60.0
    /// The minimum number of users that the ``UserFilter`` is sized for.
    var minimumUserCapacity = 1 << 20
    /// Receives events for operators. Called on any thread.
    public var report: @Sendable (StoreEvent) -> Void = { _ in }

    public init(path: String, _ settings: StoreSettings = StoreSettings()) {
        self.path = path
        self.settings = settings
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
    /// The store was closed, but the write-ahead log remains. Another process has the database open, or the last
    /// checkpoint failed. A copy of the database file alone is incomplete then.
    case logRemains(bytes: Int)
}
