import Bucketing
import Dispatch
import Storage

/// One piece of a change, about one user: the application of a rule.
final class ChangeStep {
    let userID: Identifier
    /// Applies the rule to what the round has read; may be called again and again.
    ///
    /// - Returns: `false` if the round must read something first.
    let apply: (WriteRound) -> Bool

    init(_ userID: Identifier, _ apply: @escaping (WriteRound) -> Bool) {
        self.userID = userID
        self.apply = apply
    }
}

/// Changes that wait for a transaction, with one completion.
final class PendingChange {
    /// Monotonic nanoseconds.
    let submittedAt = DispatchTime.now().uptimeNanoseconds
    /// The number of changes, including refused ones.
    let count: Int
    /// Those that are not durable yet, in order.
    var steps: [ChangeStep]
    let kind: Kind
    /// Whether the change failed together with others, and is tried without them.
    var isAlone = false
    /// The node of a distributed database that it concerns, if it failed together with changes of others.
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

    /// - Parameter completion: called with why not everything was stored; `nil` once all steps are durable.
    init(_ kind: Kind, _ steps: [ChangeStep], completion: @escaping (StorageError?) -> Void) {
        self.kind = kind
        count = steps.count
        self.steps = steps
        self.completion = completion
    }

    func complete(_ failure: StorageError?) {
        completion(failure)
    }
}
