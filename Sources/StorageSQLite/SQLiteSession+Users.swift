import Bucketing
import Storage

extension SQLiteSession {
    // MARK: Profiles

    func records(of userID: Identifier, _ completion: @escaping Completion<UserRecords>) {
        scan(
            with: store.eventReader,
            { connection throws(SQLiteError) in try UserRecordRows.everything(of: userID, on: connection) }, completion)
    }

    func submit(_ change: ProfileChange, by author: Author?, _ completion: @escaping Completion<ProfileChangeResult>) {
        let rules = store.settings.rules
        write(
            bytes: change.waitingBytes, { try Self.apply(change, by: author, rules, at: $0.now, in: $0) }, completion)
    }

    func submit(
        _ changes: [ProfileChange], by author: Author?,
        _ completion: @escaping ([Result<ProfileChangeResult, StorageError>]) -> Void
    ) {
        let rules = store.settings.rules
        store.writer.submit(
            on: executor, bytes: changes.reduce(0) { $0 + $1.waitingBytes }, changes,
            { try Self.apply($0, by: author, rules, at: $1.now, in: $1) }, completion: completion)
    }

    func merge(_ merge: ProfileMerge, by author: Author, _ completion: @escaping Completion<ProfileMergeResult>) {
        let rules = MergeRules(profiles: store.settings.rules)
        write(
            { transaction in
                try transaction.expectNotErased(merge.userID)
                try transaction.expectNotErased(merge.anonymousID)
                let now = transaction.now
                let result = try transaction.apply(to: merge.userID, merge.anonymousID, at: now) {
                    account, anonymous, tallies throws(StorageError) in
                    try rules.apply(merge, by: author, to: &account, &anonymous, at: now, &tallies)
                }
                if result.changed { transaction.merged(merge.anonymousID) }
                return result
            }, completion)
    }

    private static func apply(
        _ change: ProfileChange, by author: Author?, _ rules: ProfileRules, at now: Timestamp,
        in transaction: WriteTransaction
    ) throws -> ProfileChangeResult {
        var anonymous: ProfileRecord?
        if case .assign(_, let version, let anonymousID) = change.operation {
            guard try version == transaction.newestDatafile() else { throw StorageError.staleDatafile }
            anonymous = try anonymousID.flatMap { try transaction.profile(of: $0) }
        }
        let isErasure = change.operation.isErasure
        if !isErasure { try transaction.expectNotErased(change.userID) }
        if change.concernsProfileOnly {
            return try create(change, anonymous: anonymous, rules, at: now, in: transaction)
                ?? update(change, anonymous: anonymous, rules, at: now, in: transaction)
        }
        let result = try transaction.apply(to: change.userID, at: now) { records, tallies throws(StorageError) in
            try StoreRules(profiles: rules).apply(change, by: author, to: &records, at: now, &tallies)
        }
        if isErasure { transaction.erased(change.userID) }
        return result
    }

    /// Inserts a new profile without reading the present one; `nil` if the user may have one, or the change creates none.
    private static func create(
        _ change: ProfileChange, anonymous: ProfileRecord?, _ rules: ProfileRules, at now: Timestamp,
        in transaction: WriteTransaction
    ) throws(SQLiteError) -> ProfileChangeResult? {
        guard transaction.isUnknown(change.userID),
            let outcome = try? rules.apply(change, to: nil, anonymous: anonymous, at: now),
            case .put(let record) = outcome.effect,
            try transaction.insert(record, for: change.userID)
        else { return nil }
        return outcome.result
    }

    private static func update(
        _ change: ProfileChange, anonymous: ProfileRecord?, _ rules: ProfileRules, at now: Timestamp,
        in transaction: WriteTransaction
    ) throws -> ProfileChangeResult {
        let stored = try transaction.profile(of: change.userID)
        let outcome = try rules.apply(change, to: stored, anonymous: anonymous, at: now)
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

    // MARK: Attributes

    func submit(_ change: AttributeChange, _ completion: @escaping Completion<AttributeChangeResult>) {
        write(bytes: change.waitingBytes, { try AttributeRows.apply(change, in: $0) }, completion)
    }

    func submit(
        _ changes: [AttributeChange], _ completion: @escaping ([Result<AttributeChangeResult, StorageError>]) -> Void
    ) {
        store.writer.submit(
            on: executor, bytes: changes.reduce(0) { $0 + $1.waitingBytes }, changes,
            { try AttributeRows.apply($0, in: $1) }, completion: completion)
    }

    func scan(_ matcher: SegmentMatcher, _ scope: SegmentScan, _ completion: @escaping Completion<SegmentPage>) {
        let completion = PendingCompletion(completion)
        store.segmentReader.scan(matcher, scope) { [executor] result in
            executor.submit { completion.call(result) }
        }
    }

    // MARK: Sticky documents

    func submit(_ change: StickyDocumentChange, _ completion: @escaping Completion<StickyDocument>) {
        let limit = store.settings.rules.assignmentLimit
        write(
            bytes: change.waitingBytes, { try StickyDocumentRows.apply(change, limit: limit, in: $0) }, completion)
    }

    func removeStickyDocument(_ key: StickyDocumentKey, by author: Author, _ completion: @escaping Completion<Bool>) {
        write({ try StickyDocumentRows.remove(key, by: author, at: $0.now, in: $0) }, completion)
    }

    // MARK: Events

    func record(_ events: [ReceivedEvent], _ completion: @escaping Completion<[EventOutcome]>) {
        let rules = store.settings.rules
        write(
            bytes: events.reduce(0) { $0 + $1.waitingBytes },
            { transaction in
                let now = transaction.now
                var outcomes: [EventOutcome] = []
                outcomes.reserveCapacity(events.count)
                for received in events {
                    let event = received.event
                    if try transaction.wasErased(event.userID, since: received.receivedAt) {
                        outcomes.append(.stored)
                    } else {
                        outcomes.append(
                            try transaction.apply(to: event.userID, at: now) {
                                EventRules.apply(event, to: &$0, &$1, rules, at: now)
                            })
                    }
                }
                return outcomes
            }, completion)
    }

    func exposures(after number: Int64, limit: Int, _ completion: @escaping Completion<[StoredExposure]>) {
        scan(
            with: store.eventReader,
            { connection throws(SQLiteError) in try ExposureRows.page(after: number, limit: limit, on: connection) },
            completion)
    }

    func goalEvents(after number: Int64, limit: Int, _ completion: @escaping Completion<[StoredGoalEvent]>) {
        scan(
            with: store.eventReader,
            { connection throws(SQLiteError) in try GoalEventRows.page(after: number, limit: limit, on: connection) },
            completion)
    }

    func exposures(
        of userID: Identifier, before number: Int64, limit: Int, _ completion: @escaping Completion<[StoredExposure]>
    ) {
        scan(
            with: store.eventReader,
            { connection throws(SQLiteError) in
                try ExposureRows.page(of: userID, before: number, limit: limit, on: connection)
            }, completion)
    }

    func goalEvents(
        of userID: Identifier, before number: Int64, limit: Int, _ completion: @escaping Completion<[StoredGoalEvent]>
    ) {
        scan(
            with: store.eventReader,
            { connection throws(SQLiteError) in
                try GoalEventRows.page(of: userID, before: number, limit: limit, on: connection)
            }, completion)
    }

    func tally(experimentID: Identifier, goal: Identifier, _ completion: @escaping Completion<ExperimentTally>) {
        scan(
            with: store.eventReader,
            { connection throws(SQLiteError) in
                // One snapshot for all tables.
                try connection.statement("BEGIN").run()
                defer { try? connection.statement("COMMIT").run() }
                return try VariationRows.tally(experimentID: experimentID, goal: goal, on: connection)
            }, completion)
    }

    func goals(experimentID: Identifier, limit: Int, _ completion: @escaping Completion<[Identifier]>) {
        scan(
            with: store.eventReader,
            { connection throws(SQLiteError) in
                try VariationRows.goals(experimentID: experimentID, limit: limit, on: connection)
            }, completion)
    }
}
