import Bucketing
import Dispatch
import Storage

/// The session of one executor with a ``PostgreSQLStore``, with its own connections.
///
/// Lookups and changes are collected during a batch of the executor, and sent at its end. Waiting lookups become one
/// query (`PostgreSQLSession+Lookups.swift`), waiting changes one transaction (`PostgreSQLSession+Changes.swift`, and
/// ``OptimisticTransaction``). What arrives during an exchange waits for the next one.
final class PostgreSQLSession: StoreSession, @unchecked Sendable {
    // Safe: used on its executor only.

    /// A change that waits for a transaction.
    enum Waiting {
        case change(PendingChange)
        case project(ProjectChange)
    }

    /// A connection for changes. While one waits for a commit, another one can write the changes of other users.
    final class Writer {
        let connection: Connection
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
    /// The lookups that wait for the next query.
    var profileLookups: [(userID: Identifier, completion: Completion<ProfileRecord?>)] = []
    var attributeLookups: [(userID: Identifier, completion: Completion<AttributeRecord?>)] = []
    /// When the first waiting lookup came, in monotonic nanoseconds.
    var lookupsSince: UInt64 = 0
    /// Whether a query for lookups is in progress.
    var isLookingUp = false
    /// The changes that wait for a transaction, oldest first.
    var waiting: [Waiting] = []
    /// The number of changes that wait or are in progress.
    var waitingChanges = 0
    /// The memory that these changes take, estimated.
    var waitingBytes = 0
    /// Changes of users whose rows somebody else has locked, and later changes of these users.
    var blocked: [PendingChange] = []
    /// The connection for blocked changes, one at a time. It waits for the lock.
    var lane: Writer?
    /// Whether a ``ProjectChange`` is in progress; this session runs no other transaction at the same time.
    var changesProject = false
    private(set) var isInBatch = false
    /// Whether the session serves lookups, and its reader therefore listens for changes of projects.
    private var makesLookups = false
    private(set) var projectNotices: UInt64 = 0
    var coalescer = BatchCoalescer()
    private(set) var isClosed = false
    /// The session itself while something waits, so that it outlives an owner that closes and releases it.
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

    /// Returns when a request fails without a response of the database.
    ///
    /// - Parameter time: when the request came, in monotonic nanoseconds.
    func deadline(since time: UInt64) -> UInt64 {
        time &+ UInt64(store.configuration.statementTimeout * 1e9)
    }

    // MARK: Batches

    /// Opens no connection yet: each is opened when it is needed.
    func prepareLookups() {
        makesLookups = true
    }

    func beginBatch() {
        isInBatch = true
    }

    func endBatch() {
        isInBatch = false
        let waits = profileLookups.count + attributeLookups.count + waitingChanges
        // While a flush is put off, the job keeps an event loop awake. On an executor without batches it does the
        // flush.
        if !coalescer.shouldWait(waiting: waits) || !executor.submit({ self.flush() }) { flush() }
    }

    /// Sends waiting lookups and changes, except within a batch. Closes the connections once nothing is left of a
    /// closed session.
    func flush() {
        guard !isInBatch else { return }
        sendLookups()
        startTransactions()
        guard waiting.isEmpty, blocked.isEmpty, lane == nil, !writers.contains(where: \.isBusy), !isLookingUp,
            profileLookups.isEmpty,
            attributeLookups.isEmpty
        else {
            return
        }
        if isClosed {
            reader.close()
            for writer in writers { writer.connection.close() }
        }
        untilDone = nil
    }

    var cacheMetrics: CacheMetrics { CacheMetrics() }

    func close() {
        guard !isClosed else { return }
        isClosed = true
        // If the executor runs no more work, because its loop has stopped, nothing in progress would complete.
        guard executor.submit({}) else {
            reader.abort()
            for writer in writers { writer.connection.abort() }
            lane?.connection.abort()
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

    /// Reads, and retries after a serialization failure.
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

    /// Runs queries on the reader's connection, up to a number of times.
    func attempt(
        _ queries: [SQLQuery], attempts: Int = 5, by deadline: UInt64, onlyReads: Bool = true,
        _ completion: @escaping Connection.Completion
    ) {
        reader.run(queries, by: deadline, onlyReads: onlyReads) { [self] result in
            guard case .failure(let error) = result, error.remedy == .retry, attempts > 1 else {
                return completion(result)
            }
            after(milliseconds: .random(in: 1...20)) { [self] in
                attempt(queries, attempts: attempts - 1, by: deadline, onlyReads: onlyReads, completion)
            }
        }
    }

    func read<Value>(_ query: StoreQuery<Value>, _ completion: @escaping Completion<Value>) {
        read(query.reading(store.readingContext), completion)
    }

    /// Runs the steps of a reading, in one snapshot if there are several, and then those of the next reading, if there
    /// is one.
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

    /// How long a probe waits for a lock: a table that somebody has locked for longer serves nobody.
    private static let probePatience = 1.0

    private var probeBegin: [SQLQuery] {
        let configuration = store.configuration
        let patience = min(Self.probePatience, configuration.statementTimeout / 2)
        return [
            Statement.begin(), Statement.limits(lockTimeout: patience, timeout: 2 * configuration.statementTimeout),
        ]
    }

    /// Runs the query of lookups without any user.
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

    /// Runs the statements that serving needs without any user, checks the rights of the role, and writes one small
    /// row.
    func probe(slot: Int64) async throws(StorageError) {
        guard !isClosed else { throw .closed }
        let queries =
            probeBegin + [
                UserRows.profiles(.texts([])), UserRows.touch(.texts([])), Self.missingRights(),
                Self.probeStatement(.integer(slot)), Statement.commit(),
            ]
        do throws(StorageError) {
            let rows: [Rows] = try await completed { completion in
                writers[0].connection.run(queries, by: deadline(since: now)) {
                    completion($0.mapError(\.asStorageError))
                }
            }
            // The rows of `missingRights`.
            let missing = rows[4].map { $0.text(0) }
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
