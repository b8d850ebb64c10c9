import Dispatch
import Storage
import Synchronization

/// A change that waits for its transaction.
protocol PendingWrite: Sendable {
    /// Monotonic nanoseconds.
    var submittedAt: UInt64 { get }
    /// Makes the change. A refusal by a rule is kept for ``complete()``.
    func perform(in transaction: WriteTransaction) throws(SQLiteError)
    /// Whether a rule refused the change.
    var isRefused: Bool { get }
    /// Tells the submitter that the transaction was committed.
    func complete()
    /// Tells the submitter that the transaction failed.
    func fail(_ error: StorageError)
}

final class Write<Value: Sendable>: PendingWrite {
    let submittedAt = DispatchTime.now().uptimeNanoseconds
    private let body: @Sendable (WriteTransaction) throws -> Value
    private let completion: @Sendable (Result<Value, StorageError>) -> Void
    private let result = Mutex<Result<Value, StorageError>?>(nil)

    init(
        body: @escaping @Sendable (WriteTransaction) throws -> Value,
        completion: @escaping @Sendable (Result<Value, StorageError>) -> Void
    ) {
        self.body = body
        self.completion = completion
    }

    func perform(in transaction: WriteTransaction) throws(SQLiteError) {
        do {
            let value = try body(transaction)
            result.withLock { $0 = .success(value) }
        } catch let error as SQLiteError {
            throw error
        } catch let error as StorageError {
            result.withLock { $0 = .failure(error) }
        } catch {
            result.withLock { $0 = .failure(.unavailable(reason: "\(error)")) }
        }
    }

    var isRefused: Bool {
        result.withLock { if case .failure = $0 { true } else { false } }
    }

    func complete() {
        completion(result.withLock { $0 } ?? .failure(.unavailable(reason: "the change was not made")))
    }

    func fail(_ error: StorageError) {
        completion(.failure(error))
    }
}
