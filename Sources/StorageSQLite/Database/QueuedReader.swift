import Dispatch
import Storage

/// Reads what no event loop reads, from any thread, one at a time.
final class QueuedReader: @unchecked Sendable {
    // Safe: the connection is used on the queue only.
    private let file: DatabaseFile
    private let lockTimeout: Double
    private let queue: DispatchQueue
    private var connection: Connection?
    private var isClosed = false

    /// - Parameter label: of its queue.
    init(file: DatabaseFile, lockTimeout: Double, label: String, qos: DispatchQoS = .userInitiated) {
        queue = DispatchQueue(label: label, qos: qos)
        self.file = file
        self.lockTimeout = lockTimeout
    }

    func read<Value>(_ body: (Connection) throws(SQLiteError) -> Value) throws(StorageError) -> Value {
        try queue.sync { result(of: body) }.get()
    }

    /// - Parameter completion: called on a queue of the reader.
    func read<Value>(
        _ body: @escaping @Sendable (Connection) throws(SQLiteError) -> Value,
        _ completion: @escaping @Sendable (Result<Value, StorageError>) -> Void
    ) {
        queue.async { [self] in completion(result(of: body)) }
    }

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
        queue.sync {
            isClosed = true
            connection = nil
        }
    }
}
