import Dispatch
import Storage

/// One or more changes that wait for a transaction, with one report of their results.
///
/// The ``Writer`` performs it in a transaction, on the writer's queue. After the commit it reports the results to the
/// submitter, on the submitter's executor.
///
/// Not generic over the results: a generic class would handle its values through run-time metadata, for each change.
final class PendingWrite: @unchecked Sendable {
    // Safe: mutable state is accessed on the writer's queue, and later on the executor.

    /// Reports the results to the submitter.
    typealias Report = @Sendable () -> Void

    /// Monotonic nanoseconds.
    let submittedAt = DispatchTime.now().uptimeNanoseconds
    /// The number of changes, including refused ones.
    let changes: Int
    /// The memory that the changes take, estimated.
    let bytes: Int
    /// Where to report; `nil` for the writer's queue.
    let executor: (any StoreExecutor)?
    private let body: @Sendable (WriteTransaction) throws(SQLiteError) -> Report
    private let failed: @Sendable (StorageError) -> Void
    private var results: Report = {}

    /// - Parameters:
    ///   - body: makes the changes and returns a closure that reports their results once they are durable.
    ///   - failed: reports that nothing was written.
    init(
        changes: Int, bytes: Int, on executor: (any StoreExecutor)?,
        _ body: @escaping @Sendable (WriteTransaction) throws(SQLiteError) -> Report,
        failed: @escaping @Sendable (StorageError) -> Void
    ) {
        self.changes = changes
        self.bytes = bytes
        self.executor = executor
        self.body = body
        self.failed = failed
    }

    /// Makes the changes, and keeps their results until ``report(_:)``.
    func perform(in transaction: WriteTransaction) throws(SQLiteError) {
        results = try body(transaction)
    }

    /// Reports the results after the commit, or why it failed.
    func report(_ failure: StorageError?) {
        if let failure { failed(failure) } else { results() }
    }
}

/// A value that is used on one queue only; any other access traps.
final class QueueBound<Value>: @unchecked Sendable {
    // Safe: `value` traps on other queues.
    private var stored: Value
    private let queue: ThreadQueue

    init(_ value: Value, _ queue: ThreadQueue) {
        stored = value
        self.queue = queue
    }

    var value: Value {
        get {
            queue.expectCurrent()
            return stored
        }
        set {
            queue.expectCurrent()
            stored = newValue
        }
    }
}
