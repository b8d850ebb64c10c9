import Synchronization

/// Functions that are called with what happens.
final class Listeners<Value: Sendable>: Sendable {
    private struct State {
        var functions: [UInt64: @Sendable (Value) -> Void] = [:]
        var next: UInt64 = 0
    }

    private let state = Mutex(State())

    var isEmpty: Bool { state.withLock { $0.functions.isEmpty } }

    func add(_ function: @escaping @Sendable (Value) -> Void) -> ListenerToken {
        let id = state.withLock { state in
            defer { state.next &+= 1 }
            state.functions[state.next] = function
            return state.next
        }
        return ListenerToken { [weak self] in self?.state.withLock { _ = $0.functions.removeValue(forKey: id) } }
    }

    /// Calls all, outside the lock, in the order in which they were added.
    func tell(_ value: Value) {
        for (_, function) in state.withLock({ $0.functions.sorted { $0.key < $1.key } }) { function(value) }
    }
}

/// Ends a listener; until then it is called, whether or not the token is kept.
public struct ListenerToken: Sendable {
    private let end: @Sendable () -> Void

    init(_ end: @escaping @Sendable () -> Void) {
        self.end = end
    }

    /// The listener is not called any more; a call under way goes on.
    public func cancel() {
        end()
    }
}
