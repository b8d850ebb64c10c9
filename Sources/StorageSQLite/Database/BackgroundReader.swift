import Bucketing
import Storage
import Synchronization

/// Reads on its own thread, with its own connection, one request at a time, so that event loops do not wait for the
/// disk.
final class BackgroundReader: @unchecked Sendable {
    // Safe: mutable state is accessed on the queue only.
    private let file: DatabaseFile
    private let lockTimeout: Double
    private let queue: ThreadQueue
    private var connection: Connection?
    private var isClosed = false
    /// The maximum number of queries that wait or are in progress.
    private let limit: Int
    /// The number of queries that wait or are in progress.
    private let reads = Atomic<Int>(0)

    /// - Parameters:
    ///   - name: the name of the thread.
    ///   - limit: the maximum number of queries that wait or are in progress. Further ones are refused.
    init(file: DatabaseFile, lockTimeout: Double, name: String, limit: Int = .max) {
        self.limit = limit
        queue = ThreadQueue(name: name)
        self.file = file
        self.lockTimeout = lockTimeout
    }

    /// Reads with the connection, and blocks the caller until the result is there.
    func read<Value: Sendable>(
        _ body: @escaping @Sendable (Connection) throws(SQLiteError) -> Value
    ) throws(StorageError) -> Value {
        let outcome = Outcome<Value>()
        queue.async { [self] in outcome.settle(result(of: body)) }
        return try outcome.wait().get()
    }

    /// Reads with the connection, without blocking the caller.
    func read<Value: Sendable>(
        _ body: @escaping @Sendable (Connection) throws(SQLiteError) -> Value
    ) async throws(StorageError) -> Value {
        try await completed { completion in queue.async { [self] in completion(result(of: body)) } }
    }

    /// Reads a query. Each step of a scan is a separate read, so that concurrent scans alternate and no scan keeps the
    /// log from restarting.
    ///
    /// - Parameter completion: called on the reader's queue; with ``StorageError/overloaded`` if too many queries wait.
    func read<Value>(
        _ query: StoreQuery<Value>, _ context: ReadingContext,
        _ completion: @escaping @Sendable (Result<Value, StorageError>) -> Void
    ) {
        guard reads.add(1, ordering: .relaxed).newValue <= limit else {
            reads.subtract(1, ordering: .relaxed)
            return completion(.failure(.overloaded))
        }
        queue.async { [self] in
            readSteps(from: query.reading(context)) { [self] result in
                reads.subtract(1, ordering: .relaxed)
                completion(result)
            }
        }
    }

    /// Reads a step of a query, and then the following steps, each with a job of its own on the queue.
    private func readSteps<Value>(
        from reading: Reading<Value>, _ completion: @escaping @Sendable (Result<Value, StorageError>) -> Void
    ) {
        let outcome = result { connection throws(SQLiteError) in try connection.read(reading) }
        switch outcome.flatMap({ $0 }) {
        case .success(.value(let value)): completion(.success(value))
        case .success(.more(let next)):
            // Safe: used on the queue only.
            nonisolated(unsafe) let next = next
            queue.async { [self] in readSteps(from: next, completion) }
        case .failure(let error): completion(.failure(error))
        }
    }

    /// Returns the result of a read with the open connection.
    private func result<Value>(of body: (Connection) throws(SQLiteError) -> Value) -> Result<Value, StorageError> {
        guard !isClosed else { return .failure(.closed) }
        do throws(SQLiteError) {
            return .success(try body(try openConnection()))
        } catch {
            if error.asksForReopening { connection = nil }
            return .failure(error.asStorageError)
        }
    }

    private func openConnection() throws(SQLiteError) -> Connection {
        if let connection {
            try file.expectNoOtherLog()
            return connection
        }
        let fresh = try file.reader(lockTimeout: lockTimeout)
        connection = fresh
        return fresh
    }

    func close() {
        queue.sync { [self] in
            isClosed = true
            connection = nil
        }
    }
}
