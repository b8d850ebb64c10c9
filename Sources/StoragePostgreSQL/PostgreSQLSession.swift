import Bucketing
import Dispatch
import Storage

/// The session of one executor with a ``PostgreSQLStore``, with its own connections.
///
/// Lookups and changes are collected during a batch of the executor, and sent at the end of the batch. Lookups and
/// changes that arrive during an exchange with the database wait for the next exchange.
///
/// - `PostgreSQLSession+Lookups.swift`: waiting lookups become one query.
/// - `PostgreSQLSession+Writing.swift`: changes of the store's interface become ``PendingChange``s.
/// - `PostgreSQLSession+Changes.swift`: waiting changes become one ``OptimisticTransaction``.
final class PostgreSQLSession: StoreSession, @unchecked Sendable {
    // Safe: used on its executor only.

    /// A change that waits for a transaction.
    enum Waiting {
        case change(PendingChange)
        case project(ProjectChange)
    }

    /// A connection for changes. While one writer waits for a commit, another one can write the changes of other users.
    final class Writer {
        let connection: Connection
        /// Whether a transaction is in progress.
        var isBusy = false
        /// The users of the transaction in progress.
        var users: Set<Identifier> = []

        init(_ connection: Connection) {
            self.connection = connection
        }
    }

    let store: PostgreSQLStore
    private let executor: any StoreExecutor
    /// The connection for lookups and scans.
    private lazy var reader = makeReader()
    /// The connections for changes; the reader's connection if a session has only one.
    private(set) lazy var writers = makeWriters()
    /// The lookups of profiles that wait for the next query.
    var profileLookups: [(userID: Identifier, completion: Completion<ProfileRecord?>)] = []
    /// The lookups of attributes that wait for the next query.
    var attributeLookups: [(userID: Identifier, completion: Completion<AttributeRecord?>)] = []
    /// When the first waiting lookup arrived, in monotonic nanoseconds.
    var lookupsSince: UInt64 = 0
    /// Whether a query for lookups is in progress.
    var isLookingUp = false
    /// The changes that wait for a transaction, oldest first.
    var waiting: [Waiting] = []
    /// The number of changes that wait or are in progress.
    var waitingChanges = 0
    /// The estimated memory that these changes take, in bytes.
    var waitingBytes = 0
    /// Changes of users whose rows somebody else has locked, and later changes of these users.
    var blocked: [PendingChange] = []
    /// The connection for blocked changes, which waits for their locks, one change at a time; `nil` if none is blocked.
    var blockedWriter: Writer?
    /// Whether a ``ProjectChange`` is in progress; this session runs no other transaction at the same time.
    var changesProject = false
    /// Whether the executor is between the beginning and the end of a batch.
    private(set) var isInBatch = false
    /// Whether the session serves lookups, and its reader therefore listens for changes of projects.
    private var makesLookups = false
    /// See ``Storage/StoreSession/projectNotices``.
    private(set) var projectNotices: UInt64 = 0
    /// Decides at the end of a batch whether to send now.
    var coalescer = BatchCoalescer()
    private(set) var isClosed = false
    /// The session itself while lookups or changes wait, so that they are completed even if the owner closes and
    /// releases the session.
    var untilDone: PostgreSQLSession?

    init(_ store: PostgreSQLStore, on executor: any StoreExecutor) {
        self.store = store
        self.executor = executor
    }

    private func makeReader() -> Connection {
        let connection = makeConnection(lockTimeout: store.configuration.statementTimeout)
        if makesLookups { connection.projectsChanged = { [weak self] in self?.projectNotices &+= 1 } }
        return connection
    }

    private func makeWriters() -> [Writer] {
        // One of the session's connections is the reader's.
        let count = store.configuration.connectionsPerSession - 1
        guard count > 0 else { return [Writer(reader)] }
        return (0..<count).map { _ in Writer(makeConnection(lockTimeout: store.lockPatience)) }
    }

    func makeConnection(lockTimeout: Double) -> Connection {
        Connection(on: executor, store.connector, store.configuration, lockTimeout: lockTimeout) { [weak self] in
            self?.flush()
        }
    }

    var now: UInt64 { DispatchTime.now().uptimeNanoseconds }

    /// Returns when a request fails if the database does not respond, in monotonic nanoseconds.
    ///
    /// - Parameter time: when the request arrived, in monotonic nanoseconds.
    func deadline(since time: UInt64) -> UInt64 {
        time &+ UInt64(store.configuration.statementTimeout * 1e9)
    }

    // MARK: Batches

    /// Notes that the session serves lookups. Opens no connection, because each is opened when it is first needed.
    func prepareLookups() {
        makesLookups = true
    }

    func beginBatch() {
        isInBatch = true
    }

    func endBatch() {
        isInBatch = false
        let waitingRequests = profileLookups.count + attributeLookups.count + waitingChanges
        // If the flush is put off, the submitted job prevents an event loop from sleeping, so that another batch
        // follows. On an executor without batches the job itself flushes.
        let isPutOff = coalescer.shouldWait(waiting: waitingRequests) && executor.submit { self.flush() }
        if !isPutOff { flush() }
    }

    /// Sends waiting lookups and changes, except within a batch. Closes the connections of a closed session once all
    /// its requests are complete.
    func flush() {
        guard !isInBatch else { return }
        sendLookups()
        startTransactions()
        guard hasNoLookups, hasNoChanges else { return }
        if isClosed {
            reader.close()
            for writer in writers { writer.connection.close() }
        }
        untilDone = nil
    }

    /// Whether no lookup waits or is in progress.
    private var hasNoLookups: Bool { !isLookingUp && profileLookups.isEmpty && attributeLookups.isEmpty }

    /// Whether no change waits or is in progress.
    private var hasNoChanges: Bool {
        waiting.isEmpty && blocked.isEmpty && blockedWriter == nil && !writers.contains(where: \.isBusy)
    }

    /// Empty, because users are not cached.
    var cacheMetrics: CacheMetrics { CacheMetrics() }

    func close() {
        guard !isClosed else { return }
        isClosed = true
        // If the executor runs no more jobs, because its loop has stopped, no exchange in progress would complete.
        guard executor.submit({}) else {
            reader.abort()
            for writer in writers { writer.connection.abort() }
            blockedWriter?.connection.abort()
            untilDone = nil
            return
        }
        flush()
    }

    /// Schedules work on the executor after a delay.
    func after(milliseconds: Int, _ work: @escaping () -> Void) {
        // Safe: called on the executor.
        nonisolated(unsafe) let work = work
        DispatchQueue.global().asyncAfter(deadline: .now() + .milliseconds(milliseconds)) { [executor] in
            executor.submit { work() }
        }
    }

    // MARK: Reads

    /// Runs queries on the reader's connection, and retries after a serialization failure.
    ///
    /// - Parameter onlyReads: see ``Connection/run(_:by:onlyReads:_:)``.
    /// - Returns: the rows of each query.
    func read(_ queries: [SQLQuery], onlyReads: Bool = true) async throws(StorageError) -> [Rows] {
        try await completed { read(queries, onlyReads: onlyReads, $0) }
    }

    private func read(
        _ queries: [SQLQuery], onlyReads: Bool = true, _ completion: @escaping (Result<[Rows], StorageError>) -> Void
    ) {
        attempt(queries, by: deadline(since: now), onlyReads: onlyReads) { completion($0.mapError(\.asStorageError)) }
    }

    /// Runs queries on the reader's connection. After a serialization failure they are retried.
    ///
    /// - Parameter attempts: the maximum number of attempts.
    func attempt(
        _ queries: [SQLQuery], attempts: Int = 5, by deadline: UInt64, onlyReads: Bool = true,
        _ completion: @escaping Connection.Completion
    ) {
        reader.run(queries, by: deadline, onlyReads: onlyReads) { [self] result in
            guard case .failure(let error) = result, error.remedy == .retry, attempts > 1 else {
                return completion(result)
            }
            // The pause is random, so that transactions that have conflicted do not meet again.
            after(milliseconds: .random(in: 1...20)) { [self] in
                attempt(queries, attempts: attempts - 1, by: deadline, onlyReads: onlyReads, completion)
            }
        }
    }

    func read<Value>(_ query: StoreQuery<Value>, _ completion: @escaping Completion<Value>) {
        read(query.reading(store.readingContext), completion)
    }

    /// Runs the statements of a reading, in one snapshot if there are several. If the query is a scan, continues with
    /// the next reading.
    private func read<Value>(_ reading: Reading<Value>, _ completion: @escaping Completion<Value>) {
        guard !isClosed, !store.isClosed else { return completion(.failure(.closed)) }
        var begin: [SQLQuery] = []
        if reading.steps.count > 1 || reading.dependsOnValues { begin.append(Statement.beginSnapshot()) }
        if reading.dependsOnValues { begin.append(Statement.planForValues()) }
        let end = begin.isEmpty ? [] : [Statement.commit()]
        read(begin + reading.steps.map { $0.query } + end) { [self] result in
            let outcome = result.flatMap { results in
                for (step, rows) in zip(reading.steps, results.dropFirst(begin.count)) {
                    for row in rows { step.take(row) }
                }
                return Result { () throws(StorageError) in try reading.finish() }
            }
            switch outcome {
            case .success(.value(let value)): completion(.success(value))
            case .success(.more(let next)): read(next, completion)
            case .failure(let error): completion(.failure(error))
            }
        }
    }

    // MARK: Probes

    /// How long a probe waits for a lock, in seconds. While somebody has locked a table for longer, the server cannot
    /// serve.
    private static let probePatience = 1.0

    /// The statements that begin a probe.
    private var probeBegin: [SQLQuery] {
        let configuration = store.configuration
        let patience = min(Self.probePatience, configuration.statementTimeout / 2)
        return [
            Statement.begin(), Statement.limits(lockTimeout: patience, timeout: 2 * configuration.statementTimeout),
        ]
    }

    /// Checks that lookups work, with the query of lookups for no user.
    func probeReads() async throws(StorageError) {
        guard !isClosed else { throw .closed }
        do throws(StorageError) {
            _ = try await read(probeBegin + [UserRows.profiles(.texts([])), Statement.commit()])
        } catch {
            store.readsFail(error)
            throw error
        }
        store.readsWork()
    }

    /// Checks that lookups and changes work: runs their statements for no user, checks the rights of the role, and
    /// writes one small row.
    ///
    /// - Parameter slot: the row of the table `probes` to write.
    /// - Throws: why lookups or changes fail.
    func probe(slot: Int64) async throws(StorageError) {
        guard !isClosed else { throw .closed }
        let checks = probeBegin + [UserRows.profiles(.texts([])), UserRows.touch(.texts([]))]
        let missingRightsIndex = checks.count
        let queries =
            checks + [Self.missingRights(), Self.probeStatement(.integer(slot)), Statement.commit()]
        do throws(StorageError) {
            let rows: [Rows] = try await completed { completion in
                writers[0].connection.run(queries, by: deadline(since: now)) {
                    completion($0.mapError(\.asStorageError))
                }
            }
            let missing = rows[missingRightsIndex].map { $0.text(0) }
            guard missing.isEmpty else { throw .unavailable(reason: Schema.lacking(missing)) }
        } catch {
            store.writesFail(error)
            throw error
        }
        store.didProbe()
    }

    private static let missingRights = Statement("missing_rights", Schema.missingRights)

    private static let probeStatement = Statement(
        "probe",
        """
        INSERT INTO probes (slot, probed_at) VALUES ($1::bigint::smallint, clock_timestamp())
        ON CONFLICT (slot) DO UPDATE SET probed_at = excluded.probed_at
        """)
}
