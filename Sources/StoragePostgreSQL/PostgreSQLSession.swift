import Bucketing
import Dispatch
import Storage

/// The use of a ``PostgreSQLStore`` by one executor, with connections of its own.
///
/// Lookups of a batch are one query, and those that come while it is away are the next one. Changes that wait become one
/// transaction, see ``WriteRound``.
final class PostgreSQLSession: StoreSession, @unchecked Sendable {
    // Safe: used on its executor only.

    /// What waits for its turn, in order.
    private enum Waiting {
        case change(PendingChange)
        case project(ProjectChange)
    }

    let store: PostgreSQLStore
    private let executor: any StoreExecutor
    private var reader: Connection?
    private var writer: Connection?
    private var profileLookups: [(userID: Identifier, completion: Completion<ProfileRecord?>)] = []
    private var attributeLookups: [(userID: Identifier, completion: Completion<AttributeRecord?>)] = []
    private var isLookingUp = false
    private var waiting: [Waiting] = []
    private var waitingChanges = 0
    private var isWriting = false
    private var isInBatch = false
    private var isClosed = false
    /// Itself while something waits: its owner may close it and let it go before that is done.
    private var untilDone: PostgreSQLSession?

    /// The maximum number of lookups that wait.
    private static let mostLookups = 65_536
    /// The maximum number of lookups of one query.
    private static let lookupsPerQuery = 4_096

    init(_ store: PostgreSQLStore, on executor: any StoreExecutor) {
        self.store = store
        self.executor = executor
    }

    /// For lookups and scans.
    private var readConnection: Connection {
        if let reader { return reader }
        let connection = makeConnection()
        reader = connection
        if store.configuration.connectionsPerSession < 2 { writer = connection }
        return connection
    }

    private var writeConnection: Connection {
        if let writer { return writer }
        let connection = makeConnection()
        writer = connection
        if store.configuration.connectionsPerSession < 2 { reader = connection }
        return connection
    }

    private func makeConnection() -> Connection {
        Connection(on: executor, store.connector, store.configuration) { [weak self] in self?.flush() }
    }

    // MARK: Batches

    /// Connections are made when they are needed, and made again when they are lost.
    func prepareLookups() {}

    func beginBatch() {
        isInBatch = true
    }

    func endBatch() {
        isInBatch = false
        flush()
    }

    /// Sends what waits, except within a batch.
    func flush() {
        guard !isInBatch else { return }
        sendLookups()
        startRound()
        guard !isWriting, waiting.isEmpty, !isLookingUp, profileLookups.isEmpty, attributeLookups.isEmpty else {
            return
        }
        if isClosed {
            reader?.close()
            writer?.close()
        }
        untilDone = nil
    }

    var cacheMetrics: CacheMetrics { CacheMetrics() }

    func close() {
        guard !isClosed else { return }
        isClosed = true
        // The executor of a loop that has ended calls nobody any more.
        guard executor.submit({}) else {
            reader?.abort()
            writer?.abort()
            untilDone = nil
            return
        }
        flush()
    }

    /// Does something later on the executor.
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
        return profileLookups.count + attributeLookups.count < Self.mostLookups ? nil : .overloaded
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
        var queries: [Query] = []
        if !profiles.isEmpty { queries.append(UserRows.profiles(.texts(profiles.map(\.userID.string)))) }
        if !attributes.isEmpty { queries.append(UserRows.attributes(.texts(attributes.map(\.userID.string)))) }
        read(queries) { [self] result in
            isLookingUp = false
            switch result {
            case .success(let rows):
                let now = store.configuration.clock()
                if !profiles.isEmpty {
                    Self.complete(profiles, rows[0]) { rows, row, _ throws(StorageError) in
                        try UserRows.decodeProfile(rows, row, 1).record()?.visible(at: now)
                    }
                }
                if !attributes.isEmpty {
                    Self.complete(attributes, rows[rows.count - 1]) { rows, row, userID throws(StorageError) in
                        guard !rows.isNull(row, 1) else { return nil }
                        return try UserRows.decodeAttributes(rows.bytes(row, 1), of: userID)
                    }
                }
            case .failure(let error):
                for lookup in profiles { lookup.completion(.failure(error)) }
                for lookup in attributes { lookup.completion(.failure(error)) }
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

    /// Reads, once more after a serialization failure. There are rows for each query.
    func read(
        _ queries: [Query], attempts: Int = 5, _ completion: @escaping (Result<[Rows], StorageError>) -> Void
    ) {
        readConnection.run(queries) { [self] result in
            switch result {
            case .success(let rows): completion(.success(rows))
            case .failure(let error) where error.remedy == .retry && attempts > 1:
                after(milliseconds: .random(in: 1...20)) { [self] in
                    read(queries, attempts: attempts - 1, completion)
                }
            case .failure(let error): completion(.failure(error.asStorageError))
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
        if let refusal = admit(change.count, since: change.submittedAt) { return change.complete(refusal) }
        waiting.append(.change(change))
        if !isInBatch { startRound() }
    }

    func submit(_ change: ProjectChange) {
        if let refusal = admit(1, since: change.submittedAt) { return change.complete(refusal) }
        waiting.append(.project(change))
        if !isInBatch { startRound() }
    }

    private func admit(_ count: Int, since time: UInt64) -> StorageError? {
        guard !isClosed else { return .closed }
        let configuration = store.configuration
        guard waitingChanges < configuration.waitingChanges,
            Double(time &- (oldestChange ?? time)) <= configuration.waitingSeconds * 1e9
        else {
            store.refused(count)
            return .overloaded
        }
        if let refusal = store.admit(count) { return refusal }
        waitingChanges += count
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
        settled(change.count)
        change.complete(failure)
    }

    func complete(_ change: ProjectChange, _ failure: StorageError?) {
        settled(1)
        change.complete(failure)
    }

    private func settled(_ count: Int) {
        waitingChanges -= count
        store.settled(count)
    }

    /// Starts the next transaction, if none is under way. One that fails at once makes way for the next.
    private func startRound() {
        while !isWriting, let first = waiting.first {
            isWriting = true
            switch first {
            case .project(let change):
                waiting.removeFirst()
                ProjectRound(change, in: self, on: writeConnection) { [self] in isWriting = false }.start()
            case .change:
                let changes = takeChanges()
                WriteRound(changes, in: self, on: writeConnection) { [self] alone in
                    waiting.insert(contentsOf: alone.map { .change($0) }, at: 0)
                    isWriting = false
                }.start()
            }
        }
    }

    /// Takes the changes of the next transaction: as many as may be together, in order.
    private func takeChanges() -> [PendingChange] {
        var changes: [PendingChange] = []
        var steps = 0
        for case .change(let change) in waiting {
            guard let first = changes.first else {
                changes.append(change)
                steps += change.steps.count
                continue
            }
            guard !first.isAlone, !change.isAlone, (first.kind == .records) == (change.kind == .records),
                steps + change.steps.count <= store.configuration.batchLimit
            else { break }
            changes.append(change)
            steps += change.steps.count
        }
        waiting.removeFirst(changes.count)
        return changes
    }

    /// Writes a little.
    func probe(slot: Int64, _ completion: @escaping @Sendable (Result<Void, StorageError>) -> Void) {
        guard !isClosed else { return completion(.failure(.closed)) }
        writeConnection.run([Self.probeStatement(.integer(slot))]) { [self] result in
            switch result {
            case .success:
                store.hasProven()
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
