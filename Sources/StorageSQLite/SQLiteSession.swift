import Bucketing
import Storage

/// The session of one executor, mostly an event loop, with a ``SQLiteStore``.
///
/// Lookups complete before the call returns, from the caches or the database (``SQLiteReader``). Other reads run on the
/// threads of ``BackgroundReader``s, and changes on the queue of the ``Writer``; both complete on the executor.
final class SQLiteSession: StoreSession {
    let store: SQLiteStore
    let executor: any StoreExecutor
    /// The reader for lookups. Opened at the first lookup, because a session that only writes needs neither a
    /// connection nor caches.
    private var reader: SQLiteReader?
    private var isInBatch = false
    private var isClosed = false

    init(_ store: SQLiteStore, on executor: any StoreExecutor) {
        self.store = store
        self.executor = executor
    }

    // MARK: Lookups

    func prepareLookups() throws(StorageError) {
        _ = try openReader()
    }

    func beginBatch() {
        isInBatch = true
        reader?.beginBatch()
    }

    func endBatch() {
        isInBatch = false
        reader?.endBatch()
    }

    func profile(of userID: Identifier, _ completion: @escaping Completion<ProfileRecord?>) {
        do throws(StorageError) {
            completion(try openReader().profile(of: userID))
        } catch {
            completion(.failure(error))
        }
    }

    func attributes(of userID: Identifier, _ completion: @escaping Completion<AttributeRecord?>) {
        do throws(StorageError) {
            completion(try openReader().attributes(of: userID))
        } catch {
            completion(.failure(error))
        }
    }

    var projectNotices: UInt64 { reader?.projectNotices ?? 0 }

    /// Returns the reader for lookups; opens it if needed.
    @inline(__always)
    private func openReader() throws(StorageError) -> SQLiteReader {
        if let reader { return reader }
        return try makeReader()
    }

    private func makeReader() throws(StorageError) -> SQLiteReader {
        guard !isClosed, !store.writer.notices.isClosed else { throw .closed }
        do throws(SQLiteError) {
            let fresh = try SQLiteReader(store)
            if isInBatch { fresh.beginBatch() }
            reader = fresh
            return fresh
        } catch {
            throw error.asStorageError
        }
    }

    // MARK: Other reads

    /// Reads a query.
    ///
    /// Sticky documents and pages of profiles are found by key, so they are read at once, in the snapshot of the batch.
    /// Decisions wait for sticky documents. All other queries are read on the thread of the background reader for their
    /// kind.
    func read<Value>(_ query: StoreQuery<Value>, _ completion: @escaping Completion<Value>) {
        guard let reader = backgroundReader(for: query.subject) else { return readNow(query, completion) }
        let completion = PendingCompletion(completion)
        reader.read(query, store.readingContext) { [executor] result in
            executor.submit { completion.call(result) }
        }
    }

    /// Returns the background reader for a kind of queries; `nil` for queries that are read at once.
    private func backgroundReader(for subject: QuerySubject) -> BackgroundReader? {
        switch subject {
        case .profiles, .stickyDocuments: nil
        case .projects, .activeDatafile, .datafile, .lastDatafile, .datafileHistory, .definitionVersions, .lastUses,
            .proposals, .proposal, .looks, .findings, .webhooks, .removals, .removedUsers:
            store.projectReader
        case .exposures, .latestExposures, .exposuresOfUser, .goalEvents, .goalEventsOfUser, .goals, .records,
            .tally, .enrolledUsers, .breakdown, .series, .openSeries, .frozenResults, .knownUsers,
            .auditEntries, .auditTail, .feed:
            store.eventReader
        case .users, .userRecords, .participants, .participantEvents: store.segmentReader
        }
    }

    /// Reads a query on the executor, before the call returns.
    private func readNow<Value>(_ query: StoreQuery<Value>, _ completion: @escaping Completion<Value>) {
        do throws(StorageError) {
            completion(try openReader().read(query, store.readingContext))
        } catch {
            completion(.failure(error))
        }
    }

    // MARK: Changes

    func submit(_ change: ProfileChange, by author: Author?, _ completion: @escaping Completion<ProfileChangeResult>) {
        let rules = store.settings.rules
        store.writer.submit(
            on: executor, bytes: change.waitingBytes, { try $0.apply(change, by: author, rules) },
            completion: completion)
    }

    func submit(
        _ changes: [ProfileChange], by author: Author?,
        _ completion: @escaping ([Result<ProfileChangeResult, StorageError>]) -> Void
    ) {
        let rules = store.settings.rules
        store.writer.submit(
            on: executor, bytes: changes.reduce(0) { $0 + $1.waitingBytes }, changes,
            { change, transaction in try transaction.apply(change, by: author, rules) }, completion: completion)
    }

    func record(_ events: [ReceivedEvent], _ completion: @escaping Completion<[EventOutcome]>) {
        let rules = store.settings.rules
        store.writer.submit(
            on: executor, bytes: events.reduce(0) { $0 + $1.waitingBytes },
            { transaction in
                let now = transaction.now
                return try events.map { received in
                    // An event from before the user's erasure is dropped. The outcome is the same as if the event had
                    // been stored first and then erased with the user, so that the sender does not send it again.
                    if try transaction.wasErased(received.event.userID, since: received.receivedAt) { return .stored }
                    return try transaction.apply(.event(received), rules, at: now)
                }
            }, completion: completion)
    }

    func write<Value>(
        _ changes: [UserChange<Value>], _ completion: @escaping ([Result<Value, StorageError>]) -> Void
    ) {
        let rules = store.settings.rules
        store.writer.submit(
            on: executor, bytes: changes.reduce(0) { $0 + $1.bytes }, changes,
            { change, transaction in
                for userID in change.userIDs { try transaction.expectNotErased(userID) }
                return try transaction.apply(change, rules, at: transaction.now)
            }, completion: completion)
    }

    func write<Value>(_ change: SharedChange<Value>, _ completion: @escaping Completion<Value>) {
        let settings = store.settings
        let attributeRemoval = store.attributeRemoval
        store.writer.submit(
            on: executor, bytes: change.bytes, { transaction in try transaction.apply(change, settings) },
            completion: { (result: Result<WriteTransaction.SharedResult<Value>, StorageError>) in
                completion(result.map(\.value))
                // The users' values of a deleted attribute are deleted in the background, because they may be many.
                if case .success(let success) = result, success.deletesAttribute { attributeRemoval.sweep() }
            })
    }

    // MARK: Metrics and closing

    var cacheMetrics: CacheMetrics { reader?.cacheMetrics ?? CacheMetrics() }

    func close() {
        isClosed = true
        reader?.close()
    }
}

@available(*, unavailable) extension SQLiteSession: Sendable {}
