import Bucketing
import Dispatch
import Storage
import StorageSQLite

/// The session of one executor with an ``EdgeStore``.
///
/// - Lookups read the copy. While the copy is incomplete or too old, they ask the upstream (``Lookups``).
/// - Other reads of users, and reads of definitions, read the copy.
/// - Changes of profiles go to the upstream (``Enroller``).
/// - Events go to the outbox, or directly to the upstream if the outbox cannot take them (``DirectEventSender``).
///
/// All other reads and changes fail, because only the upstream has the data.
final class EdgeSession: StoreSession {
    private let store: EdgeStore
    /// The session with the copy.
    private let base: any StoreSession
    private let executor: any StoreExecutor
    /// Whether the lookups of the present batch read only the copy; `nil` outside of a batch. Kept during the batch,
    /// because ``EdgeStore/answersAlone`` reads a clock.
    private var batchReadsOnlyCopy: Bool?

    init(_ store: EdgeStore, _ base: sending any StoreSession, _ executor: any StoreExecutor) {
        self.store = store
        self.base = base
        self.executor = executor
    }

    func prepareLookups() throws(StorageError) { try base.prepareLookups() }

    func beginBatch() {
        batchReadsOnlyCopy = store.answersAlone
        base.beginBatch()
    }

    func endBatch() {
        batchReadsOnlyCopy = nil
        base.endBatch()
    }

    var cacheMetrics: CacheMetrics { base.cacheMetrics }
    var projectNotices: UInt64 { base.projectNotices }
    func close() { base.close() }

    // MARK: Lookups

    private var readsOnlyCopy: Bool { batchReadsOnlyCopy ?? store.answersAlone }

    func profile(of userID: Identifier, _ completion: @escaping Completion<ProfileRecord?>) {
        guard !readsOnlyCopy else { return base.profile(of: userID, completion) }
        let clock = store.clock
        askUpstream(
            for: userID, record: { user in user.profile?.visible(at: clock.now()) },
            orRead: { [base] completion in base.profile(of: userID, completion) }, completion)
    }

    func attributes(of userID: Identifier, _ completion: @escaping Completion<AttributeRecord?>) {
        guard !readsOnlyCopy else { return base.attributes(of: userID, completion) }
        askUpstream(
            for: userID, record: \.attributes,
            orRead: { [base] completion in base.attributes(of: userID, completion) }, completion)
    }

    /// Looks a user up at the upstream. If the upstream does not respond and the copy is complete, looks the user up in
    /// the copy: an old record is better than none.
    ///
    /// - Parameters:
    ///   - record: takes the requested record from the user.
    ///   - readCopy: looks the record up in the copy.
    private func askUpstream<Record: Sendable>(
        for userID: Identifier, record: @escaping @Sendable (MirroredUser) -> Record?,
        orRead readCopy: @escaping (@escaping Completion<Record?>) -> Void, _ completion: @escaping Completion<Record?>
    ) {
        let isComplete = store.applier.isComplete
        let pending = PendingCompletion<Result<MirroredUser, StorageError>> { result in
            switch result {
            case .success(let user): completion(.success(record(user)))
            case .failure(.unavailable) where isComplete: readCopy(completion)
            case .failure(let error): completion(.failure(error))
            }
        }
        store.lookups.find(userID) { [executor] result in executor.submit { pending.call(result) } }
    }

    // MARK: Other reads

    func read<Value>(_ query: StoreQuery<Value>, _ completion: @escaping Completion<Value>) {
        switch query.subject {
        case .projects, .activeDatafile, .datafile, .lastDatafile, .datafileHistory, .definitionVersions, .lastUses,
            .profiles, .userRecords, .knownUsers, .removals:
            base.read(query, completion)
        case .exposures, .latestExposures, .exposuresOfUser, .goalEvents, .goalEventsOfUser, .goals,
            .tally, .enrolledUsers, .breakdown, .series, .openSeries, .frozenResults, .looks, .findings,
            .participants, .participantEvents, .users, .records, .removedUsers, .stickyDocuments,
            .proposals, .proposal, .webhooks, .auditEntries, .auditTail, .feed:
            completion(.failure(Self.onlyUpstream))
        }
    }

    private static let onlyUpstream = StorageError.unavailable(reason: "only the upstream has this; ask it directly")

    // MARK: Changes

    func submit(_ change: ProfileChange, by author: Author?, _ completion: @escaping Completion<ProfileChangeResult>) {
        let pending = PendingCompletion(completion)
        store.enroller.submit(change) { [executor] result in executor.submit { pending.call(result) } }
    }

    func submit(
        _ changes: [ProfileChange], by author: Author?,
        _ completion: @escaping ([Result<ProfileChangeResult, StorageError>]) -> Void
    ) {
        let pending = PendingCompletion(completion)
        let join = Join<Result<ProfileChangeResult, StorageError>>(changes.count) { [executor] results in
            executor.submit { pending.call(results) }
        }
        for (index, change) in changes.enumerated() { store.enroller.submit(change) { join.set($0, at: index) } }
    }

    /// Appends events to the outbox. Their outcome is ``EventOutcome/stored`` once they are durable there, because the
    /// edge cannot know yet what the upstream will do with them.
    func record(_ events: [ReceivedEvent], _ completion: @escaping Completion<[EventOutcome]>) {
        guard !events.isEmpty else { return completion(.success([])) }
        let identity = store.upstream.identity
        let entries: [OutboxEntry.New] = events.map { received in
            let acceptedAt = identity.earliest(of: received.receivedAt)
            return (received.event.userID, OutboxEntry.encode(received.event, acceptedAt: acceptedAt))
        }
        append(entries, reporting: events.map { _ in EventOutcome.stored }, completion)
    }

    /// Appends entries to the outbox. If the outbox is full or cannot be written, sends them directly to the upstream.
    ///
    /// - Parameter value: the result to report once the entries are durable.
    private func append<Value: Sendable>(
        _ entries: [OutboxEntry.New], reporting value: Value, _ completion: @escaping Completion<Value>
    ) {
        let pending = PendingCompletion(completion)
        let report: @Sendable (Result<Void, StorageError>) -> Void = { [executor] result in
            executor.submit { pending.call(result.map { value }) }
        }
        // If the upstream has never responded, its time is unknown. The events would get times of the host's clock,
        // which may be wrong.
        guard store.upstream.identity.upstreamID != 0 else { return report(.failure(.away)) }
        store.outbox.append(entries) { [store] result in
            guard case .failure(let error) = result, error.isFaultOfOutbox, store.upstream.isUp else {
                return report(result)
            }
            store.directSender.send(entries, report)
        }
    }

    func write<Value>(
        _ changes: [UserChange<Value>], _ completion: @escaping ([Result<Value, StorageError>]) -> Void
    ) {
        completion(changes.map { _ in .failure(Self.onlyUpstream) })
    }

    func write<Value>(_ change: SharedChange<Value>, _ completion: @escaping Completion<Value>) {
        switch change.note {
        case .ownAudit: base.write(change, completion)
        case .uses(let uses): append(uses, completion)
        case nil: completion(.failure(Self.onlyUpstream))
        }
    }

    /// Appends last uses of flags to the outbox.
    private func append<Value: Sendable>(_ uses: [LastUse], _ completion: @escaping Completion<Value>) {
        // The outbox has no result to return, so `Value` must be `Void`, as it is in all changes that note uses.
        guard let noResult = () as? Value else { return completion(.failure(Self.onlyUpstream)) }
        // The upstream itself records which flags exist (`known`).
        let used = uses.filter { $0.subject.kind != .known }
        append(used.map { (nil, OutboxEntry.encode($0)) }, reporting: noResult, completion)
    }
}

@available(*, unavailable) extension EdgeSession: Sendable {}

extension StorageError {
    /// Whether this error of an append means that the outbox is full or cannot be used, so that events may go directly
    /// to the upstream.
    fileprivate var isFaultOfOutbox: Bool {
        switch self {
        case .overloaded, .unavailable, .damaged: true
        default: false
        }
    }
}
