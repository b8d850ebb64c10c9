/// A list of callbacks, which are called in the order of their registration, on the thread that notifies them.
///
/// It ends in one of two ways: ``end()`` tells the listeners that there will be no further value, and ``removeAll()``
/// also releases them.
final class Listeners<Value: Sendable>: Sendable {
    private struct Listener {
        /// Called with each value.
        var call: @Sendable (Value) -> Void
        /// Called once there will be no further value.
        var end: @Sendable () -> Void
    }

    private struct State {
        var listeners: [UInt64: Listener] = [:]
        /// The number of the next listener.
        var next: UInt64 = 0
        var hasEnded = false
    }

    private let state = Locked(State())

    var isEmpty: Bool { state.withLock { $0.listeners.isEmpty } }

    /// Adds a listener.
    ///
    /// - Parameter end: called by ``end()`` and ``removeAll()``. If ``end()`` was called before, it is called at once.
    func add(
        _ call: @escaping @Sendable (Value) -> Void, end: @escaping @Sendable () -> Void = {}
    ) -> ListenerToken {
        let (id, hasEnded) = state.withLock { state in
            defer { state.next &+= 1 }
            state.listeners[state.next] = Listener(call: call, end: end)
            return (state.next, state.hasEnded)
        }
        if hasEnded { end() }
        return ListenerToken { [weak self] in self?.remove(id) }
    }

    private func remove(_ id: UInt64) {
        // Released outside the lock: a closure may own an object whose deinit takes the lock.
        _ = state.withLock { $0.listeners.removeValue(forKey: id) }
    }

    /// Calls the `end` of all listeners, and removes them.
    func removeAll() {
        let listeners = state.withLock { state in
            defer { state.listeners = [:] }
            return state.listeners
        }
        for listener in listeners.values { listener.end() }
    }

    /// Calls the `end` of all listeners, and of each listener that is added later. They stay registered.
    func end() {
        let listeners = state.withLock { state in
            state.hasEnded = true
            return state.listeners
        }
        for listener in listeners.values { listener.end() }
    }

    /// Returns a stream of future values, mapped by `element`. Values that are mapped to `nil` are left out.
    ///
    /// - Parameter count: the maximum number of buffered elements. The newest are kept.
    func stream<Element: Sendable>(
        buffering count: Int, _ element: @escaping @Sendable (Value) -> Element?
    ) -> AsyncStream<Element> {
        let (stream, continuation) = AsyncStream<Element>.makeStream(bufferingPolicy: .bufferingNewest(count))
        let token = add({ value in
            if let element = element(value) { continuation.yield(element) }
        }) { continuation.finish() }
        continuation.onTermination = { _ in token.cancel() }
        return stream
    }

    /// Calls all callbacks, in the order of registration. The lock is not held, so that a callback may use the list.
    func notify(_ value: Value) {
        let listeners = state.withLock { state in state.listeners.sorted { $0.key < $1.key } }
        for (_, listener) in listeners { listener.call(value) }
    }
}

/// Removes a listener. The listener stays registered even if the token is discarded.
public struct ListenerToken: Sendable, Hashable {
    private static let count = Locked<UInt64>(0)

    private let id = Self.count.withLock { count in
        count &+= 1
        return count
    }
    private let end: @Sendable () -> Void

    /// - Parameter end: called by ``cancel()``, which removes the listener.
    public init(_ end: @escaping @Sendable () -> Void) {
        self.end = end
    }

    public static func == (left: ListenerToken, right: ListenerToken) -> Bool { left.id == right.id }

    public func hash(into hasher: inout Hasher) { hasher.combine(id) }

    /// Removes the listener; a call in progress finishes.
    public func cancel() {
        end()
    }
}

/// Cancels its tokens when it is released. An object that stores it is thereby no longer called after its own release.
final class OwnedTokens: Sendable {
    private let tokens = Locked<[ListenerToken]>([])

    func add(_ token: ListenerToken) {
        tokens.withLock { $0.append(token) }
    }

    deinit {
        for token in tokens.withLock({ $0 }) { token.cancel() }
    }
}
