import Dispatch

/// A value that only the code on one queue uses.
final class QueueBound<Value>: @unchecked Sendable {
    // Safe: `value` traps when it is used elsewhere.
    private var stored: Value
    private let queue: DispatchQueue

    init(_ value: Value, _ queue: DispatchQueue) {
        stored = value
        self.queue = queue
    }

    var value: Value {
        get {
            dispatchPrecondition(condition: .onQueue(queue))
            return stored
        }
        set {
            dispatchPrecondition(condition: .onQueue(queue))
            stored = newValue
        }
    }
}
