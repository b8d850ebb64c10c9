import Bucketing
import Dispatch
import Storage

/// The session of one executor with a ``PostgreSQLStore``, with its own connections.
///
/// The lookups of a batch become one query; lookups that arrive before its result become the next one. Waiting changes
/// become one transaction; see ``WriteRound``.
final class PostgreSQLSession: StoreSession, @unchecked Sendable {
    // Safe: used on its executor only.

    /// A change that waits for a transaction.
    private enum Waiting {
        case change(PendingChange)
        case project(ProjectChange)
    }

    /// A connection for changes. While it waits for a commit, another one can write the changes of other users.
    private final class Writer {
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
    private lazy var reader = makeConnection()
    private lazy var writers = makeWriters()
    private var profileLookups: [(userID: Identifier, completion: Completion<ProfileRecord?>)] = []
    private var attributeLookups: [(userID: Identifier, completion: Completion<AttributeRecord?>)] = []
    private var isLookingUp = false
    private var waiting: [Waiting] = []
    private var waitingChanges = 0
    /// The memory that they take, estimated.
    private var waitingBytes = 0
    /// Whether a ``ProjectChange`` is in progress; this session runs no other transaction at the same time.
    private var changesProject = false
    private var isInBatch = false
    private var gathering = Gathering()
    private var isClosed = false
    /// The session itself while something waits, so that it outlives an owner that closes and releases it.
    private var untilDone: PostgreSQLSession?

    /// The maximum number of lookups that wait.
    private static let lookupLimit = 65_536
    /// The maximum memory of the changes in one transaction, estimated; a single one may exceed it.
    private static let batchBytes = 4 << 20
    /// The maximum number of lookups of one query.
    private static let lookupsPerQuery = 4_096

    init(_ store: PostgreSQLStore, on executor: any StoreExecutor) {
        self.store = store
        self.executor = executor
    }

    private func makeWriters() -> [Writer] {
        let count = store.configuration.connectionsPerSession - 1
        guard count > 0 else { return [Writer(reader)] }
        return (0..<count).map { _ in Writer(makeConnection()) }
    }

    private func makeConnection() -> Connection {
        Connection(on: executor, store.connector, store.configuration) { [weak self] in self?.flush() }
    }

    // MARK: Batches

    /// Does nothing: connections are opened when they are needed.
    func prepareLookups() {}

    func beginBatch() {
        isInBatch = true
    }

    func endBatch() {
        isInBatch = false
        let waits = profileLookups.count + attributeLookups.count + waitingChanges
        // The job keeps an event loop awake, and makes up for the next batch on executors that have none of their own.
        if !gathering.goesOn(waiting: waits) || !executor.submit({ self.flush() }) { flush() }
    }

    /// Sends what waits, except within a batch.
    func flush() {
        guard !isInBatch else { return }
        sendLookups()
        startRound()
        guard waiting.isEmpty, !writers.contains(where: \.isBusy), !isLookingUp, profileLookups.isEmpty,
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

    // MARK: Lookups

    private var lookupRefusal: StorageError? {
        if isClosed || store.isClosed { return .closed }
        return profileLookups.count + attributeLookups.count < Self.lookupLimit ? nil : .overloaded
    }

    func profile(of userID: Identifier, _ completion: @escaping Completion<ProfileRecord?>) {
        if let refusal = lookupRefusal { return completion(.failure(refusal)) }
        profileLookups.append((userID, completion))
        untilDone = self
        if !isInBatch { sendLookups() }
    }

    func attributes(of userID: Identifier, _ completion: @escaping Completion<AttributeRecord?>) {
        if let refusal = lookupRefusal { return completion(.failure(refusal)) }
        attributeLookups.append((userID, completion))
        untilDone = self
        if !isInBatch { sendLookups() }
    }

    /// Sends the lookups that wait as one query for profiles and one for attributes.
    private func sendLookups() {
        guard !isLookingUp, !profileLookups.isEmpty || !attributeLookups.isEmpty else { return }
        isLookingUp = true
        let profiles = Array(profileLookups.prefix(Self.lookupsPerQuery))
        let attributes = Array(attributeLookups.prefix(Self.lookupsPerQuery))
        profileLookups.removeFirst(profiles.count)
        attributeLookups.removeFirst(attributes.count)
        lookUp(profiles, attributes) { [self] error in
            isLookingUp = false
            gathering.begin()
            guard let error else { return }
            if store.isDistributed, error.mayConcernOneNode, profiles.count + attributes.count > 1 {
                divide(profiles, attributes)
            } else {
                Self.fail(profiles, attributes, error)
            }
        }
    }

    private typealias Lookups<Record> = [(userID: Identifier, completion: Completion<Record?>)]

    /// - Parameter done: called before the completions of the lookups; or with an error, and then they are not called.
    private func lookUp(
        _ profiles: Lookups<ProfileRecord>, _ attributes: Lookups<AttributeRecord>,
        done: @escaping (PostgreSQLError?) -> Void
    ) {
        var queries: [Query] = []
        if !profiles.isEmpty { queries.append(UserRows.profiles(.texts(profiles.map(\.userID.string)))) }
        if !attributes.isEmpty { queries.append(UserRows.attributes(.texts(attributes.map(\.userID.string)))) }
        attempt(queries) { [self] result in
            switch result {
            case .success(let rows):
                done(nil)
                let now = store.clock.now()
                if !profiles.isEmpty {
                    Self.complete(profiles, rows[0]) { rows, row, _ throws(StorageError) in
                        try UserRows.profile(rows, row, 1).get()?.visible(at: now)
                    }
                }
                if !attributes.isEmpty {
                    Self.complete(attributes, rows[rows.count - 1]) { rows, row, userID throws(StorageError) in
                        guard let bytes = rows.optionalBytes(row, 1) else { return nil }
                        return try AttributeRecord(stored: bytes, of: userID)
                    }
                }
            case .failure(let error): done(error)
            }
        }
    }

    private static func fail(
        _ profiles: Lookups<ProfileRecord>, _ attributes: Lookups<AttributeRecord>, _ error: PostgreSQLError
    ) {
        let failure = error.asStorageError
        for lookup in profiles { lookup.completion(.failure(failure)) }
        for lookup in attributes { lookup.completion(.failure(failure)) }
    }

    /// Sends lookups that failed together again, as one query for each node of a distributed database, so that an
    /// unreachable node fails only its own users.
    private func divide(_ profiles: Lookups<ProfileRecord>, _ attributes: Lookups<AttributeRecord>) {
        let users = Set(profiles.map(\.userID)).union(attributes.map(\.userID))
        attempt([UserRows.nodes(.texts(users.map(\.string)))]) { [self] result in
            switch result {
            case .success(let rows):
                let nodes = UserRows.nodes(rows[0])
                for node in Set(nodes.values) {
                    let (some, others) = (
                        profiles.filter { nodes[$0.userID] == node }, attributes.filter { nodes[$0.userID] == node }
                    )
                    lookUp(some, others) { error in
                        if let error { Self.fail(some, others, error) }
                    }
                }
            case .failure(let error): Self.fail(profiles, attributes, error)
            }
        }
    }

    private static func complete<Record>(
        _ lookups: [(userID: Identifier, completion: Completion<Record?>)], _ rows: Rows,
        _ decode: (Rows, Int, Identifier) throws(StorageError) -> Record?
    ) {
        var places: [Identifier: Int] = [:]
        places.reserveCapacity(rows.count)
        for row in rows.indices { places[rows.identifier(row, 0)] = row }
        for lookup in lookups {
            guard let row = places[lookup.userID] else {
                lookup.completion(.success(nil))
                continue
            }
            lookup.completion(Result { () throws(StorageError) in try decode(rows, row, lookup.userID) })
        }
    }

    // MARK: Reads

    /// Reads, and retries after a serialization failure.
    ///
    /// - Parameter completion: called with the rows of each query.
    func read(_ queries: [Query], _ completion: @escaping (Result<[Rows], StorageError>) -> Void) {
        attempt(queries) { result in completion(result.mapError(\.asStorageError)) }
    }

    private func attempt(_ queries: [Query], attempts: Int = 5, _ completion: @escaping Connection.Completion) {
        reader.run(queries) { [self] result in
            guard case .failure(let error) = result, error.remedy == .retry, attempts > 1 else {
                return completion(result)
            }
            after(milliseconds: .random(in: 1...20)) { [self] in
                attempt(queries, attempts: attempts - 1, completion)
            }
        }
    }

    /// Reads the rows of one query.
    func scan<Value>(
        _ query: Query, _ completion: @escaping Completion<Value>, _ decode: @escaping (Rows) -> Value
    ) {
        guard !isClosed, !store.isClosed else { return completion(.failure(.closed)) }
        read([query]) { result in completion(result.map { decode($0[0]) }) }
    }

    // MARK: Changes

    func submit(_ change: PendingChange) {
        if let refusal = admit(change.count, change.bytes, since: change.submittedAt) {
            return change.complete(refusal)
        }
        waiting.append(.change(change))
        if !isInBatch { startRound() }
    }

    func submit(_ change: ProjectChange) {
        if let refusal = admit(1, change.bytes, since: change.submittedAt) { return change.complete(refusal) }
        waiting.append(.project(change))
        if !isInBatch { startRound() }
    }

    private func admit(_ count: Int, _ bytes: Int, since time: UInt64) -> StorageError? {
        guard !isClosed else { return .closed }
        let settings = store.settings
        guard waitingChanges < settings.waitingChanges, waitingBytes < settings.waitingBytes,
            Double(time &- (oldestChange ?? time)) <= settings.waitingSeconds * 1e9
        else {
            store.refused(count)
            return .overloaded
        }
        if let refusal = store.admit(count, bytes) { return refusal }
        waitingChanges += count
        waitingBytes += bytes
        untilDone = self
        return nil
    }

    private var oldestChange: UInt64? {
        switch waiting.first {
        case .change(let change): change.submittedAt
        case .project(let change): change.submittedAt
        case nil: nil
        }
    }

    func complete(_ change: PendingChange, _ failure: StorageError?) {
        settled(change.count, change.bytes)
        change.complete(failure)
    }

    func complete(_ change: ProjectChange, _ failure: StorageError?) {
        settled(1, change.bytes)
        change.complete(failure)
    }

    private func settled(_ count: Int, _ bytes: Int) {
        waitingChanges -= count
        waitingBytes -= bytes
        store.settled(count, bytes)
    }

    /// Starts transactions while connections are free. A transaction that fails at once frees its connection for the
    /// next.
    private func startRound() {
        while !changesProject, let first = waiting.first {
            switch first {
            case .project(let change):
                guard !writers.contains(where: \.isBusy) else { return }
                waiting.removeFirst()
                let writer = writers[0]
                (changesProject, writer.isBusy) = (true, true)
                ProjectRound(change, in: self, on: writer.connection) { [self] in
                    (changesProject, writer.isBusy) = (false, false)
                }.start()
            case .change:
                guard let writer = writers.first(where: { !$0.isBusy }) else { return }
                let changes = takeChanges()
                guard !changes.isEmpty else { return }
                writer.isBusy = true
                if writers.count > 1 { writer.users = Set(changes.flatMap { $0.steps.map(\.userID) }) }
                WriteRound(changes, in: self, on: writer.connection) { [self] alone in
                    waiting.insert(contentsOf: alone.map { .change($0) }, at: 0)
                    (writer.isBusy, writer.users) = (false, [])
                    gathering.begin()
                }.start()
            }
        }
    }

    /// Takes the changes of the next transaction, in order: as many as can be combined, up to the first one of a user
    /// whom a transaction in progress concerns.
    private func takeChanges() -> [PendingChange] {
        var changes: [PendingChange] = []
        var (steps, bytes) = (0, 0)
        let busy = writers.filter(\.isBusy)
        for next in waiting {
            guard case .change(let change) = next else { break }
            if !busy.isEmpty, change.steps.contains(where: { step in busy.contains { $0.users.contains(step.userID) } })
            {
                break
            }
            guard let first = changes.first else {
                changes.append(change)
                (steps, bytes) = (change.steps.count, change.bytes)
                continue
            }
            guard !first.isAlone, !change.isAlone, first.node == change.node,
                (first.kind == .records) == (change.kind == .records),
                steps + change.steps.count <= store.configuration.batchLimit, bytes + change.bytes <= Self.batchBytes
            else { break }
            changes.append(change)
            steps += change.steps.count
            bytes += change.bytes
        }
        waiting.removeFirst(changes.count)
        return changes
    }

    /// Writes one small row, as a test of the database.
    func probe(slot: Int64, _ completion: @escaping @Sendable (Result<Void, StorageError>) -> Void) {
        guard !isClosed else { return completion(.failure(.closed)) }
        writers[0].connection.run([Self.probeStatement(.integer(slot))]) { [self] result in
            switch result {
            case .success:
                store.didProbe()
                completion(.success(()))
            case .failure(let error): completion(.failure(error.asStorageError))
            }
        }
    }

    private static let probeStatement = Statement(
        "probe",
        """
        INSERT INTO probes (slot, probed_at) VALUES ($1::bigint::smallint, clock_timestamp())
        ON CONFLICT (slot) DO UPDATE SET probed_at = excluded.probed_at
        """)
}
