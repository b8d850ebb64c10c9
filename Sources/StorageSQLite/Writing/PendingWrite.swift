import Dispatch
import Storage

/// One or more changes that wait for a transaction, with one report of their results.
///
/// The ``Writer`` makes the changes in a transaction, on its queue. After the commit it reports the results to the
/// submitter, on the submitter's executor.
///
/// The class is not generic over the results, because a generic class would handle each result through run-time
/// metadata.
final class PendingWrite: @unchecked Sendable {
    // Safe: mutable state is accessed on the writer's queue, and later on the executor.

    /// Reports the results to the submitter.
    typealias Report = @Sendable () -> Void

    /// When the changes were submitted, in monotonic nanoseconds.
    let submittedAt = DispatchTime.now().uptimeNanoseconds
    /// The number of changes, including refused ones.
    let changes: Int
    /// The estimated memory that the changes take while they wait, in bytes.
    let bytes: Int
    /// The executor of the submitter; `nil` to report on the writer's queue.
    let executor: (any StoreExecutor)?
    private let body: @Sendable (WriteTransaction) throws(SQLiteError) -> Report
    private let reportFailure: @Sendable (StorageError) -> Void
    /// Reports the results; set by ``perform(in:)``.
    private var reportResults: Report = {}

    /// - Parameters:
    ///   - body: makes the changes, and returns a closure that reports their results, which is called after the commit.
    ///   - reportFailure: reports that nothing was written.
    init(
        changes: Int, bytes: Int, on executor: (any StoreExecutor)?,
        _ body: @escaping @Sendable (WriteTransaction) throws(SQLiteError) -> Report,
        reportFailure: @escaping @Sendable (StorageError) -> Void
    ) {
        self.changes = changes
        self.bytes = bytes
        self.executor = executor
        self.body = body
        self.reportFailure = reportFailure
    }

    /// Makes the changes, and keeps their results until ``report(_:)``.
    func perform(in transaction: WriteTransaction) throws(SQLiteError) {
        reportResults = try body(transaction)
    }

    /// Reports the results after the commit.
    ///
    /// - Parameter failure: why the commit failed; `nil` if it has succeeded.
    func report(_ failure: StorageError?) {
        if let failure { reportFailure(failure) } else { reportResults() }
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
