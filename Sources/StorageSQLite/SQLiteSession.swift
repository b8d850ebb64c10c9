import Bucketing
import Storage

/// The session of one executor, mostly an event loop, with a ``SQLiteStore``.
///
/// Lookups complete before the call returns, from the caches or the database. Other reads run on the threads of
/// background readers, and changes on the writer's queue; both complete on the executor.
final class SQLiteSession: StoreSession {
    let store: SQLiteStore
    let executor: any StoreExecutor
    /// Opened at the first lookup: a session that only writes needs neither a connection nor caches.
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

    /// Reads a query: at once if it concerns single users like a lookup, or else on the thread of the background reader
    /// for queries of its kind.
    func read<Value>(_ query: StoreQuery<Value>, _ completion: @escaping Completion<Value>) {
        let reader: BackgroundReader
        switch query.subject {
        case .profiles, .stickyDocuments:
            do throws(StorageError) {
                completion(try openReader().read(query, store.readingContext))
            } catch {
                completion(.failure(error))
            }
            return
        case .projects, .removals, .removedUsers, .datafileHistory, .activeDatafile, .datafile, .lastDatafile,
            .definitionVersions, .lastUses,
            .proposals, .proposal, .looks, .findings, .webhooks:
            reader = store.projectReader
        case .records, .exposures, .goalEvents, .exposuresOfUser, .goalEventsOfUser, .tally, .enrolledUsers, .breakdown,
            .goals, .frozenResults, .series, .openSeries, .auditEntries, .auditTail, .feed, .knownUsers,
            .latestExposures:
            reader = store.eventReader
        case .users, .userRecords, .participants, .participantEvents: reader = store.segmentReader
        }
        let completion = PendingCompletion(completion)
        reader.read(query, store.readingContext) { [executor] result in
            executor.submit { completion.call(result) }
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
            { try $1.apply($0, by: author, rules) }, completion: completion)
    }

    func record(_ events: [ReceivedEvent], _ completion: @escaping Completion<[EventOutcome]>) {
        let rules = store.settings.rules
        store.writer.submit(
            on: executor, bytes: events.reduce(0) { $0 + $1.waitingBytes },
            { transaction in
                let now = transaction.now
                return try events.map { received in
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
        let removal = store.attributeRemoval
        store.writer.submit(
            on: executor, bytes: change.bytes, { try $0.apply(change, settings) },
            completion: { (result: Result<(value: Value, removesAttribute: Bool), StorageError>) in
                completion(result.map(\.value))
                if case .success((_, true)) = result { removal.sweep() }
            })
    }

    var projectNotices: UInt64 { reader?.projectNotices ?? 0 }

    // MARK: Closing

    var cacheMetrics: CacheMetrics { reader?.cacheMetrics ?? CacheMetrics() }

    func close() {
        isClosed = true
        reader?.close()
    }
}

@available(*, unavailable) extension SQLiteSession: Sendable {}
