import Bucketing
import Storage

/// The session of one executor with a ``SQLiteStore``. Lookups complete before the call returns, from the caches or the
/// database. Scans run in the background, and changes on the writer's queue; both complete on the executor.
final class SQLiteSession: StoreSession {
    let store: SQLiteStore
    let executor: any StoreExecutor
    /// Opened on demand: a session that only writes needs neither a connection nor caches.
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

    func stickyDocuments(_ keys: [StickyDocumentKey], _ completion: @escaping Completion<[StickyDocument?]>) {
        do throws(StorageError) {
            completion(try openReader().stickyDocuments(keys))
        } catch {
            completion(.failure(error))
        }
    }

    func profiles(after: Identifier?, limit: Int, _ completion: @escaping Completion<ProfilePage>) {
        do throws(StorageError) {
            completion(try openReader().profiles(after: after, limit: limit))
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

    // MARK: Scans and changes

    /// Reads on a queue of the store, and completes on the executor.
    func scan<Value: Sendable>(
        with reader: BackgroundReader, _ body: @escaping @Sendable (Connection) throws(SQLiteError) -> Value,
        _ completion: @escaping Completion<Value>
    ) {
        let completion = PendingCompletion(completion)
        reader.read(body) { [executor] result in
            executor.submit { completion.call(result) }
        }
    }

    /// Makes a change on the writer's queue, and completes on the executor.
    ///
    /// - Parameter bytes: the memory that the change takes while it waits, estimated.
    func write<Value: Sendable>(
        bytes: Int = WaitingBytes.ofChange, _ body: @escaping @Sendable (WriteTransaction) throws -> Value,
        _ completion: @escaping Completion<Value>
    ) {
        store.writer.submit(on: executor, bytes: bytes, body, completion: completion)
    }

    // MARK: Closing

    var cacheMetrics: CacheMetrics { reader?.cacheMetrics ?? CacheMetrics() }

    func close() {
        isClosed = true
        reader?.close()
    }
}

@available(*, unavailable) extension SQLiteSession: Sendable {}
