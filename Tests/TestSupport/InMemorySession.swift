import Bucketing
import Chronology
import Storage

/// The use of an ``InMemoryStore`` by one executor.
final class InMemorySession: StoreSession {
    private let store: InMemoryStore
    private let executor: any StoreExecutor
    private let clock: StoreClock
    private var isClosed = false

    init(_ store: InMemoryStore, on executor: any StoreExecutor) {
        self.store = store
        self.executor = executor
        clock = store.clock
    }

    /// Makes a change now or later.
    ///
    /// - Parameter userID: whose change it is; `nil` for a change that keeps its order among all others.
    private func change<Value: Sendable>(
        of userID: Identifier?, _ completion: @escaping Completion<Value>,
        _ body: @escaping @Sendable (inout InMemoryTables) throws(StorageError) -> Value
    ) {
        change(of: userID, completion) { store in store.result(of: body) }
    }

    private func change<Outcome: Sendable>(
        of userID: Identifier?, _ completion: @escaping (Outcome) -> Void,
        _ perform: @escaping @Sendable (InMemoryStore) -> Outcome
    ) {
        guard case .shuffled = store.timing else { return completion(perform(store)) }
        let completion = PendingCompletion(completion)
        store.schedule(userID) { [store, executor] in
            let outcome = perform(store)
            executor.submit { completion.call(outcome) }
        }
    }

    /// Reads now or later.
    private func read<Value: Sendable>(
        of userID: Identifier? = nil, _ completion: @escaping Completion<Value>,
        _ body: @escaping @Sendable (InMemoryTables) -> Value
    ) {
        guard !isClosed else { return completion(.failure(.closed)) }
        change(of: userID, completion) { store in store.read(body) }
    }

    func prepareLookups() {}

    func beginBatch() {}

    func endBatch() {}

    var cacheMetrics: CacheMetrics { CacheMetrics() }

    func close() {
        isClosed = true
    }

    // MARK: Reads

    func profile(of userID: Identifier, _ completion: @escaping Completion<ProfileRecord?>) {
        let now = clock.now()
        read(of: userID, completion) { $0.profiles[userID]?.visible(at: now) }
    }

    func attributes(of userID: Identifier, _ completion: @escaping Completion<AttributeRecord?>) {
        read(of: userID, completion) { $0.attributes[userID] }
    }

    func read<Value>(_ query: StoreQuery<Value>, _ completion: @escaping Completion<Value>) {
        let now = clock.now()
        let userID: Identifier? =
            switch query.subject {
            case .records(let userID), .exposuresOfUser(let userID, _, _), .goalEventsOfUser(let userID, _, _): userID
            default: nil
            }
        guard !isClosed else { return completion(.failure(.closed)) }
        change(of: userID, completion) { store in
            store.read { tables in tables.find(query.subject, at: now) as? Value }.flatMap { value in
                guard let value else { return .failure(.unavailable(reason: "\(query.subject) is no \(Value.self)")) }
                return .success(value)
            }
        }
    }

    // MARK: Changes

    func submit(_ change: ProfileChange, by author: Author?, _ completion: @escaping Completion<ProfileChangeResult>) {
        let clock = clock
        self.change(of: change.userID, completion) { tables throws(StorageError) in
            try tables.apply(change, by: author, at: clock.now())
        }
    }

    func submit(
        _ changes: [ProfileChange], by author: Author?,
        _ completion: @escaping ([Result<ProfileChangeResult, StorageError>]) -> Void
    ) {
        let clock = clock
        change(of: nil, completion) { store in
            changes.map { change in
                store.result { tables throws(StorageError) in try tables.apply(change, by: author, at: clock.now()) }
            }
        }
    }

    func record(_ events: [ReceivedEvent], _ completion: @escaping Completion<[EventOutcome]>) {
        let clock = clock
        change(of: nil, completion) { tables throws(StorageError) in
            var outcomes: [EventOutcome] = []
            for event in events { outcomes.append(try tables.apply(.event(event), at: clock.now())) }
            return outcomes
        }
    }

    func write<Value>(
        _ changes: [UserChange<Value>], _ completion: @escaping ([Result<Value, StorageError>]) -> Void
    ) {
        let clock = clock
        let users = Set(changes.flatMap(\.userIDs))
        change(of: users.count == 1 ? users.first : nil, completion) { store in
            changes.map { change in
                store.result { tables throws(StorageError) in try tables.apply(change, at: clock.now()) }
            }
        }
    }

    func write<Value>(_ change: SharedChange<Value>, _ completion: @escaping Completion<Value>) {
        let clock = clock
        self.change(of: change.userID, completion) { tables throws(StorageError) in
            try tables.apply(change, at: clock.now())
        }
    }
}
