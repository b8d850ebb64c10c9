import Bucketing
import Dispatch
import Storage

/// A part of a ``PendingChange``: it applies one rule to the records of one user.
final class ChangeStep {
    let userID: Identifier
    /// Applies the rule to the data that the transaction has read. Called again after each read, and in each attempt.
    ///
    /// - Returns: `false` if the transaction must read something first.
    let apply: (OptimisticTransaction) -> Bool

    init(_ userID: Identifier, _ apply: @escaping (OptimisticTransaction) -> Bool) {
        self.userID = userID
        self.apply = apply
    }
}

/// The result of a ``ChangeStep`` or of a ``ProjectChange``. Each attempt of the transaction sets it again.
final class Outcome<Value> {
    /// The result of the last attempt; a failure before the first one.
    var result: Result<Value, StorageError> = .failure(.closed)

    /// Returns the result, or the failure of the transaction.
    ///
    /// - Parameter failure: why the transaction failed; `nil` if it is durable.
    func result(unless failure: StorageError?) -> Result<Value, StorageError> {
        failure.map { .failure($0) } ?? result
    }
}

/// One or more changes of users that wait for an ``OptimisticTransaction``, with one completion.
final class PendingChange {
    /// When the changes were submitted, in monotonic nanoseconds.
    let submittedAt = DispatchTime.now().uptimeNanoseconds
    /// The number of changes, including refused ones.
    let count: Int
    /// The estimated memory that the changes take while they wait, in bytes.
    let bytes: Int
    /// The steps that are not durable yet, in order.
    var steps: [ChangeStep]
    let kind: Kind
    /// Whether the change must not share a transaction with others. Set for merges, and for changes that have failed
    /// together with others, so that the faulty one fails alone.
    var needsOwnTransaction = false
    /// The node of a distributed database that has the users' rows. Set after a failure of one node, so that the
    /// changes of other nodes get other transactions.
    var node: Int64?
    private let completion: (StorageError?) -> Void

    /// The kind of records that the steps change.
    enum Kind {
        /// Profiles only.
        case profile
        /// Attributes only.
        case attributes
        /// Rows of several tables, which must be written in one transaction.
        case records
    }

    /// - Parameters:
    ///   - bytes: the estimated memory that the change takes while it waits.
    ///   - completion: called with `nil` once all steps are durable, or with the reason why they have failed.
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

    /// Reports to the submitter.
    ///
    /// - Parameter failure: why the change has failed; `nil` if it is durable.
    func complete(_ failure: StorageError?) {
        completion(failure)
    }
}
