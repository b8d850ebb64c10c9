import Bucketing
import Dispatch
import Storage
import StorageSQLite

/// The session of one executor with an ``EdgeStore``. Reads go to the copy or to the upstream, changes of profiles to
/// the ``Enroller``, and events to the outbox. Everything else fails, because only the upstream has or can change it.
final class EdgeSession: StoreSession {
    private let store: EdgeStore
    private let base: any StoreSession
    private let executor: any StoreExecutor
    /// Whether the copy alone answers the lookups of this batch; `nil` outside of a batch.
    private var answersAlone: Bool?

    init(_ store: EdgeStore, _ base: sending any StoreSession, _ executor: any StoreExecutor) {
        self.store = store
        self.base = base
        self.executor = executor
    }

    func prepareLookups() throws(StorageError) { try base.prepareLookups() }

    func beginBatch() {
        answersAlone = store.answersAlone
        base.beginBatch()
    }

    func endBatch() {
        answersAlone = nil
        base.endBatch()
    }

    var cacheMetrics: CacheMetrics { base.cacheMetrics }
    var projectNotices: UInt64 { base.projectNotices }
    func close() { base.close() }

    // MARK: Lookups

    func profile(of userID: Identifier, _ completion: @escaping Completion<ProfileRecord?>) {
        guard !(answersAlone ?? store.answersAlone) else { return base.profile(of: userID, completion) }
        let clock = store.clock
        find(
            userID, { $0.profile?.visible(at: clock.now()) },
            alone: { [base] in base.profile(of: userID, $0) }, completion)
    }

    func attributes(of userID: Identifier, _ completion: @escaping Completion<AttributeRecord?>) {
        guard !(answersAlone ?? store.answersAlone) else { return base.attributes(of: userID, completion) }
        find(userID, \.attributes, alone: { [base] in base.attributes(of: userID, $0) }, completion)
    }

    /// Looks a user up at the upstream, and in the copy if that fails.
    ///
    /// - Parameters:
    ///   - value: takes the requested record from the user.
    ///   - alone: looks the record up in the copy.
    private func find<Value: Sendable>(
        _ userID: Identifier, _ value: @escaping @Sendable (MirroredUser) -> Value?,
        alone: @escaping (@escaping Completion<Value?>) -> Void, _ completion: @escaping Completion<Value?>
    ) {
        let isComplete = store.applier.isComplete
        let pending = PendingCompletion<Result<MirroredUser, StorageError>> { result in
            switch result {
            case .success(let user): completion(.success(value(user)))
            case .failure(.unavailable) where isComplete: alone(completion)
            case .failure(let error): completion(.failure(error))
            }
        }
        store.lookups.find(userID) { [executor] result in executor.submit { pending.call(result) } }
    }

    // MARK: Other reads

    func read<Value>(_ query: StoreQuery<Value>, _ completion: @escaping Completion<Value>) {
        switch query.subject {
        case .projects, .removals, .profiles, .userRecords, .knownUsers, .lastUses, .activeDatafile, .datafile,
            .datafileHistory, .definitionVersions,
            .lastDatafile:
            base.read(query, completion)
        case .records, .stickyDocuments, .users, .exposures, .latestExposures, .goalEvents, .exposuresOfUser,
            .goalEventsOfUser, .tally, .enrolledUsers, .breakdown, .goals, .frozenResults, .series, .openSeries,
            .participants, .participantEvents,
            .auditEntries,
            .feed, .proposals, .proposal, .looks, .removedUsers, .findings, .webhooks, .auditTail:
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

    /// Events count as stored once they are in the outbox.
    func record(_ events: [ReceivedEvent], _ completion: @escaping Completion<[EventOutcome]>) {
        guard !events.isEmpty else { return completion(.success([])) }
        let identity = store.upstream.identity
        append(
            events.map { received in
                (
                    received.event.userID,
                    OutboxEntry.encode(received.event, acceptedAt: identity.earliest(of: received.receivedAt))
                )
            },
            events.map { _ in EventOutcome.stored }, completion)
    }

    /// Appends entries to the outbox. If it is full or cannot be written, sends them directly to the upstream.
    ///
    /// - Parameter value: the result to report once the entries are durable.
    private func append<Value: Sendable>(
        _ entries: [(userID: Identifier?, content: [UInt8])], _ value: Value,
        _ completion: @escaping Completion<Value>
    ) {
        let pending = PendingCompletion(completion)
        let report: @Sendable (Result<Void, StorageError>) -> Void = { [executor] result in
            executor.submit { pending.call(result.map { value }) }
        }
        // Without an upstream that has ever responded, the times of events would come from this host's clock, which is
        // not trusted.
        guard store.upstream.identity.upstreamID != 0 else { return report(.failure(.away)) }
        store.outbox.append(entries) { [store] result in
            guard case .failure(let error) = result, error.allowsPassage, store.upstream.isUp else {
                return report(result)
            }
            store.passage.send(entries, report)
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
        case .uses(let uses):
            guard let done = () as? Value else { return completion(.failure(Self.onlyUpstream)) }
            // The upstream itself records which flags exist.
            let used = uses.filter { $0.subject.kind != .known }
            append(used.map { (nil, OutboxEntry.encode($0)) }, done, completion)
        case nil: completion(.failure(Self.onlyUpstream))
        }
    }
}

@available(*, unavailable) extension EdgeSession: Sendable {}

extension StorageError {
    /// Whether events may go directly to the upstream after this error of the outbox: it is full, or cannot be used.
    fileprivate var allowsPassage: Bool {
        switch self {
        case .overloaded, .unavailable, .damaged: true
        default: false
        }
    }
}
