import Bucketing
import Dispatch
import Storage

/// The application of one rule to the records of one user: a part of a ``PendingChange``.
final class ChangeStep {
    let userID: Identifier
    /// Applies the rule to what the transaction has read. It is called again after each read and each attempt.
    ///
    /// - Returns: `false` if the transaction must read something first.
    let apply: (OptimisticTransaction) -> Bool

    init(_ userID: Identifier, _ apply: @escaping (OptimisticTransaction) -> Bool) {
        self.userID = userID
        self.apply = apply
    }
}

/// The result of a step or of a ``ProjectChange``. Each attempt of the transaction sets it again.
final class Outcome<Value> {
    var result: Result<Value, StorageError> = .failure(.closed)

    /// - Parameter failure: why the transaction failed; `nil` if it is durable.
    func result(unless failure: StorageError?) -> Result<Value, StorageError> {
        failure.map { .failure($0) } ?? result
    }
}

/// One or more changes of users that wait for an ``OptimisticTransaction``, with one completion.
final class PendingChange {
    /// Monotonic nanoseconds.
    let submittedAt = DispatchTime.now().uptimeNanoseconds
    /// The number of changes, including refused ones.
    let count: Int
    /// The memory that the changes take, estimated.
    let bytes: Int
    /// The steps that are not durable yet, in order.
    var steps: [ChangeStep]
    let kind: Kind
    /// Whether the change gets a transaction of its own, for instance after it failed together with others.
    var isAlone = false
    /// The node of a distributed database that has the users' rows; set after the change failed together with others.
    var node: Int64?
    private let completion: (StorageError?) -> Void

    /// What the steps touch.
    enum Kind {
        /// The profile only.
        case profile
        /// The attributes only.
        case attributes
        /// Rows of several tables, which must be written in one transaction.
        case records
    }

    /// - Parameters:
    ///   - bytes: the memory that the change takes while it waits, estimated.
    ///   - completion: called with `nil` once all steps are durable, or with why they are not.
    init(
        _ kind: Kind, bytes: Int = WaitingBytes.ofChange, _ steps: [ChangeStep],
        completion: @escaping (StorageError?) -> Void
    ) {
        self.kind = kind
        self.bytes = bytes
        count = steps.count
        self.steps = steps
        self.completion = completion
    }

    func complete(_ failure: StorageError?) {
        completion(failure)
    }
}
