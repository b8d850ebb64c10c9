import Dispatch
import Storage

/// A change that waits for its transaction. Once submitted it belongs to the writer's queue.
final class PendingWrite: @unchecked Sendable {
    // Safe: what changes is touched on the writer's queue only. Not generic, as every value of a generic class is
    // handled through its type's metadata at run time, for each change.

    /// What making the change came to.
    private enum Outcome {
        case made(answer: @Sendable () -> Void)
        /// A rule refused it; nothing of it was written.
        case refused(StorageError)
    }

    /// Monotonic nanoseconds.
    let submittedAt = DispatchTime.now().uptimeNanoseconds
    private let body: @Sendable (WriteTransaction) throws -> @Sendable () -> Void
    private let failed: @Sendable (StorageError) -> Void
    private var outcome = Outcome.refused(.unavailable(reason: "the change was not made"))

    /// - Parameters:
    ///   - body: makes the change, and returns what tells the submitter of it once it is durable.
    ///   - failed: tells the submitter that nothing was written.
    init(
        _ body: @escaping @Sendable (WriteTransaction) throws -> @Sendable () -> Void,
        failed: @escaping @Sendable (StorageError) -> Void
    ) {
        self.body = body
        self.failed = failed
    }

    /// Makes the change. A refusal by a rule is kept for ``complete()``.
    func perform(in transaction: WriteTransaction) throws(SQLiteError) {
        do {
            outcome = .made(answer: try body(transaction))
        } catch let error as SQLiteError {
            throw error
        } catch let error as StorageError {
            outcome = .refused(error)
        } catch {
            outcome = .refused(.unavailable(reason: "\(error)"))
        }
    }

    var isRefused: Bool {
        if case .refused = outcome { true } else { false }
    }

    /// Tells the submitter that the transaction was committed.
    func complete() {
        switch outcome {
        case .made(let answer): answer()
        case .refused(let error): failed(error)
        }
    }

    /// Tells the submitter that the transaction failed.
    func fail(_ error: StorageError) {
        failed(error)
    }
}
