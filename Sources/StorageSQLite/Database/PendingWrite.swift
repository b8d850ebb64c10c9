import Dispatch
import Storage

/// One or more changes that wait for their transaction. Once submitted it belongs to the writer's queue.
final class PendingWrite: @unchecked Sendable {
    // Safe: what changes is touched on the writer's queue only. Not generic, as every value of a generic class is
    // handled through its type's metadata at run time, for each change.

    /// Monotonic nanoseconds.
    let submittedAt = DispatchTime.now().uptimeNanoseconds
    /// How many changes it makes, refused ones included.
    let changes: Int
    private let body: @Sendable (WriteTransaction) throws(SQLiteError) -> @Sendable () -> Void
    private let failed: @Sendable (StorageError) -> Void
    private var answer: @Sendable () -> Void = {}

    /// - Parameters:
    ///   - body: makes the changes, and returns what tells the submitter of them once they are durable.
    ///   - failed: tells the submitter that nothing was written.
    init(
        changes: Int, _ body: @escaping @Sendable (WriteTransaction) throws(SQLiteError) -> @Sendable () -> Void,
        failed: @escaping @Sendable (StorageError) -> Void
    ) {
        self.changes = changes
        self.body = body
        self.failed = failed
    }

    func perform(in transaction: WriteTransaction) throws(SQLiteError) {
        answer = try body(transaction)
    }

    /// Tells the submitter that the transaction was committed.
    func complete() {
        answer()
    }

    /// Tells the submitter that the transaction failed.
    func fail(_ error: StorageError) {
        failed(error)
    }
}
