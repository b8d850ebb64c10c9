import Synchronization

/// Fetches and keeps the raw values of a ``RemoteConfigService``. ``HoldfastRemoteConfigKeeper`` reads flags,
/// ``InMemoryRemoteConfigKeeper`` serves tests and previews; apps may add their own.
public protocol RemoteConfigKeeper: Sendable {
    /// Fetches all values. After an error the former values stay.
    func fetch() async throws

    /// Returns the value that was fetched last, in this or an earlier run; `nil` if there is none.
    /// Must not wait for the network.
    func value(for name: String) -> HoldfastValue?

    /// Calls a function whenever values have changed other than by ``fetch()``. By default never.
    func observe(_ listener: @escaping @Sendable () -> Void) -> ListenerToken

    /// The app has read a value. By default does nothing.
    func didRead(_ name: String)
}

extension RemoteConfigKeeper {
    public func observe(_ listener: @escaping @Sendable () -> Void) -> ListenerToken { ListenerToken {} }

    public func didRead(_ name: String) {}
}

/// Keeps the values that it is given, for tests, previews and apps without a server.
public final class InMemoryRemoteConfigKeeper: RemoteConfigKeeper {
    private struct State {
        var values: [Key: HoldfastValue]
        var error: (any Error)?
    }

    private let state: Mutex<State>
    private let listeners = Listeners<Void>()

    public init(_ values: [String: HoldfastValue] = [:]) {
        state = Mutex(State(values: Dictionary(values.map { (Key($0.key), $0.value) }) { _, last in last }))
    }

    public func fetch() async throws {
        if let error = state.withLock({ $0.error }) { throw error }
    }

    public func value(for name: String) -> HoldfastValue? {
        state.withLock { $0.values[Key(name)] }
    }

    public func observe(_ listener: @escaping @Sendable () -> Void) -> ListenerToken {
        listeners.add { _ in listener() }
    }

    /// Sets or, with `nil`, removes a value.
    public func set(_ value: HoldfastValue?, for name: String) {
        state.withLock { $0.values[Key(name)] = value }
        listeners.notify(())
    }

    /// Makes every later fetch fail, or with `nil` succeed again.
    public func failFetches(with error: (any Error)?) {
        state.withLock { $0.error = error }
    }
}
