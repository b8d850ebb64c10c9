import Bucketing
import Dispatch
import Storage

/// The session of one executor with a ``PostgreSQLStore``, with its own connections.
///
/// Waiting changes become one transaction; see ``OptimisticTransaction``.
final class PostgreSQLSession: StoreSession, @unchecked Sendable {
    // Safe: used on its executor only.

    /// A change that waits for a transaction.
    enum Waiting {
        case change(PendingChange)
        case project(ProjectChange)
    }

    /// A connection for changes. While it waits for a commit, another one can write the changes of other users.
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
    /// For lookups and scans.
    private lazy var reader = makeReader()
    private(set) lazy var writers = makeWriters()
    var profileLookups: [(userID: Identifier, completion: Completion<ProfileRecord?>)] = []
    var attributeLookups: [(userID: Identifier, completion: Completion<AttributeRecord?>)] = []
    /// When the first of them came, in monotonic nanoseconds.
    var lookupsSince: UInt64 = 0
    var isLookingUp = false
    var waiting: [Waiting] = []
    var waitingChanges = 0
    /// The memory that they take, estimated.
    var waitingBytes = 0
    /// Changes of users whose rows somebody else has locked, and later changes of these users.
    var blocked: [PendingChange] = []
    /// The connection of the first of them, which waits for the lock.
    var lane: Writer?
    /// Whether a ``ProjectChange`` is in progress; this session runs no other transaction at the same time.
    var changesProject = false
    private(set) var isInBatch = false
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

    /// When a request that came at a time fails, if the database has not responded.
    func deadline(since time: UInt64) -> UInt64 {
        time &+ UInt64(store.configuration.statementTimeout * 1e9)
    }

    // MARK: Batches

    /// Connections are opened when they are needed.
    func prepareLookups() {
        makesLookups = true
    }

    func beginBatch() {
        isInBatch = true
    }

    func endBatch() {
        isInBatch = false
        let waits = profileLookups.count + attributeLookups.count + waitingChanges
        // The job keeps an event loop awake, and makes up for the next batch on executors that have none of their own.
        if !coalescer.shouldWait(waiting: waits) || !executor.submit({ self.flush() }) { flush() }
    }

    /// Sends what waits, except within a batch.
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
        // The executor of a stopped loop runs no more work, so nothing would complete.
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

    /// Reads what lookups read, of nobody.
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

    /// Does what serving needs, to nobody, and writes one small row.
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
