public import Bucketing
public import Storage

extension SQLiteStore: ProfileStore {
    public func makeReader() throws(StorageError) -> sending any ProfileReader {
        try makeSQLiteReader()
    }

    func makeSQLiteReader() throws(StorageError) -> sending SQLiteReader {
        guard !writer.notices.isClosed else { throw .closed }
        do throws(SQLiteError) {
            return try SQLiteReader(
                file: file, notices: writer.notices, userFilter: writer.userFilter, configuration: configuration)
        } catch {
            throw error.asStorageError
        }
    }

    public func submit(
        _ change: ProfileChange, completion: @escaping @Sendable (Result<ProfileChangeResult, StorageError>) -> Void
    ) {
        let rules = configuration.rules
        let clock = configuration.clock
        writer.submit({ try Self.apply(change, by: nil, rules, at: clock(), in: $0) }, completion: completion)
    }

    public func submit(
        _ changes: [ProfileChange],
        completion: @escaping @Sendable ([Result<ProfileChangeResult, StorageError>]) -> Void
    ) {
        let rules = configuration.rules
        let clock = configuration.clock
        writer.submit(changes, { try Self.apply($0, by: nil, rules, at: clock(), in: $1) }, completion: completion)
    }

    private static func apply(
        _ change: ProfileChange, by author: Author?, _ rules: ProfileRules, at now: Timestamp,
        in transaction: WriteTransaction
    ) throws -> ProfileChangeResult {
        if case .assign(_, let version) = change.operation, try version != transaction.newestDatafile() {
            throw StorageError.staleDatafile
        }
        let isErasure = if case .erase = change.operation { true } else { false }
        if !isErasure { try transaction.expectNotErased(change.userID) }
        if change.concernsProfileOnly {
            return try create(change, rules, at: now, in: transaction) ?? update(change, rules, at: now, in: transaction)
        }
        let result = try transaction.apply(to: change.userID, at: now) { records, tallies throws(StorageError) in
            try StoreRules(profiles: rules).apply(change, by: author, to: &records, at: now, &tallies)
        }
        if isErasure { transaction.erased(change.userID) }
        return result
    }

    /// Inserts a new profile without reading the present one; `nil` if the user may have one, or the change creates none.
    private static func create(
        _ change: ProfileChange, _ rules: ProfileRules, at now: Timestamp, in transaction: WriteTransaction
    ) throws(SQLiteError) -> ProfileChangeResult? {
        guard transaction.isUnknown(change.userID),
            let outcome = try? rules.apply(change, to: nil, at: now), case .put(let record) = outcome.effect,
            try transaction.insert(record, for: change.userID)
        else { return nil }
        return outcome.result
    }

    private static func update(
        _ change: ProfileChange, _ rules: ProfileRules, at now: Timestamp, in transaction: WriteTransaction
    ) throws -> ProfileChangeResult {
        let stored = try transaction.profile(of: change.userID)
        let outcome = try rules.apply(change, to: stored, at: now)
        switch outcome.effect {
        case .none:
            break
        case .put(let record):
            try transaction.put(record, for: change.userID, replacing: stored)
        case .delete:
            try transaction.deleteProfile(of: change.userID, replacing: stored)
        }
        return outcome.result
    }

    public func probe(completion: @escaping @Sendable (Result<Void, StorageError>) -> Void) {
        writer.probe(completion: completion)
    }

    public var writeFailure: StorageError? { writer.failure }

    public func statistics() -> StoreStatistics {
        writer.statistics()
    }
}

extension SQLiteStore: AuditStore {
    public func submit(
        _ change: ProfileChange, by author: Author,
        completion: @escaping @Sendable (Result<ProfileChangeResult, StorageError>) -> Void
    ) {
        let rules = configuration.rules
        let clock = configuration.clock
        writer.submit({ try Self.apply(change, by: author, rules, at: clock(), in: $0) }, completion: completion)
    }

    public func record(
        _ note: AuditNote, by author: Author, completion: @escaping @Sendable (Result<Void, StorageError>) -> Void
    ) {
        let now = configuration.clock()
        writer.submit({ try $0.record(note, by: author, at: now) }, completion: completion)
    }

    public func auditEntries(
        _ query: AuditQuery, completion: @escaping @Sendable (Result<[AuditEntry], StorageError>) -> Void
    ) {
        eventReader.read({ connection throws(SQLiteError) in try AuditRows.find(query, on: connection) }, completion)
    }
}

extension SQLiteStore: EventStore {
    public func record(
        _ events: [ReceivedEvent], completion: @escaping @Sendable (Result<[EventOutcome], StorageError>) -> Void
    ) {
        let clock = configuration.clock
        writer.submit(
            { transaction in
                let now = clock()
                var outcomes: [EventOutcome] = []
                outcomes.reserveCapacity(events.count)
                for received in events {
                    let event = received.event
                    if try transaction.wasErased(event.userID, since: received.receivedAt) {
                        outcomes.append(.stored)
                    } else {
                        outcomes.append(
                            try transaction.apply(to: event.userID, at: now) { EventRules.apply(event, to: &$0, &$1) })
                    }
                }
                return outcomes
            }, completion: completion)
    }

    public func exposures(after number: Int64, limit: Int) throws(StorageError) -> [StoredExposure] {
        try eventReader.read { connection throws(SQLiteError) in
            try ExposureRows.page(after: number, limit: limit, on: connection)
        }
    }

    public func goalEvents(after number: Int64, limit: Int) throws(StorageError) -> [StoredGoalEvent] {
        try eventReader.read { connection throws(SQLiteError) in
            try GoalEventRows.page(after: number, limit: limit, on: connection)
        }
    }

    public func tallies(experimentID: Identifier, goal: Identifier) throws(StorageError) -> [VariationTally] {
        try eventReader.read { connection throws(SQLiteError) in
            // One snapshot for both tables.
            try connection.statement("BEGIN").run()
            defer { try? connection.statement("COMMIT").run() }
            return try VariationRows.tallies(experimentID: experimentID, goal: goal, on: connection)
        }
    }

    public func goals(experimentID: Identifier, limit: Int) throws(StorageError) -> [Identifier] {
        try eventReader.read { connection throws(SQLiteError) in
            try VariationRows.goals(experimentID: experimentID, limit: limit, on: connection)
        }
    }
}
