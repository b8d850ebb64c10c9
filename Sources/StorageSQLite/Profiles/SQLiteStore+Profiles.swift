public import Storage

extension SQLiteStore: ProfileStore {
    public func makeReader() throws(StorageError) -> sending any ProfileReader {
        try makeSQLiteReader()
    }

    public func submit(
        _ change: ProfileChange, completion: @escaping @Sendable (Result<ProfileChangeResult, StorageError>) -> Void
    ) {
        let rules = configuration.rules
        let clock = configuration.clock
        writer.submit({ try Self.apply(change, rules, at: clock(), in: $0) }, completion: completion)
    }

    public func submit(
        _ changes: [ProfileChange],
        completion: @escaping @Sendable ([Result<ProfileChangeResult, StorageError>]) -> Void
    ) {
        let rules = configuration.rules
        let clock = configuration.clock
        writer.submit(changes, { try Self.apply($0, rules, at: clock(), in: $1) }, completion: completion)
    }

    static func apply(
        _ change: ProfileChange, _ rules: ProfileRules, at now: Timestamp, in transaction: WriteTransaction
    ) throws -> ProfileChangeResult {
        if case .assign(_, let version) = change.operation, try version != transaction.newestDatafile() {
            throw StorageError.staleDatafile
        }
        if case .erase = change.operation {} else { try transaction.expectNotErased(change.userID) }
        let result = try create(change, rules, at: now, in: transaction) ?? alter(change, rules, at: now, in: transaction)
        // Erasing a user leaves nothing behind, wherever it is kept.
        if case .erase = change.operation {
            try ForcedVariationRows.erase(change.userID, in: transaction)
            try AttributeRows.erase(change.userID, in: transaction)
            try AuditRows.erase(change.userID, in: transaction)
            var recording = EventRecording(in: transaction)
            try recording.erase(change.userID)
            try recording.finish()
            transaction.erased(change.userID)
        }
        if case .override(let experimentID, _) = change.operation {
            var recording = EventRecording(in: transaction)
            try recording.leaveOut(change.userID, of: experimentID)
            try recording.finish()
        }
        return result
    }

    /// Makes a new profile in one step, without a look for the present one; `nil` when that is not how to go about it.
    private static func create(
        _ change: ProfileChange, _ rules: ProfileRules, at now: Timestamp, in transaction: WriteTransaction
    ) throws(SQLiteError) -> ProfileChangeResult? {
        guard transaction.isUnknown(change.userID),
            let outcome = try? rules.apply(change, to: nil, at: now), case .put(let record) = outcome.effect,
            try transaction.insert(record, for: change.userID)
        else { return nil }
        return outcome.result
    }

    private static func alter(
        _ change: ProfileChange, _ rules: ProfileRules, at now: Timestamp, in transaction: WriteTransaction
    ) throws -> ProfileChangeResult {
        let stored = try stored(for: change, in: transaction)
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

    static func stored(
        for change: ProfileChange, in transaction: WriteTransaction
    ) throws -> ProfileRecord? {
        do {
            return try transaction.profile(of: change.userID)
        } catch let error as StorageError {
            // What cannot be read can still be erased; how many assignments it held is not known.
            if case .erase = change.operation { return .empty }
            throw error
        }
    }

    public func probe(completion: @escaping @Sendable (Result<Void, StorageError>) -> Void) {
        writer.probe(completion: completion)
    }

    public var writeFailure: StorageError? { writer.failure }

    public func statistics() -> StoreStatistics {
        writer.statistics()
    }
}
