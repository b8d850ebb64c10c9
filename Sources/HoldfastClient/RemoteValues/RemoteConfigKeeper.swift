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

    /// Calls a function when the values will not change any more. If they cannot change already, the function is called
    /// at once. The default implementation never calls it.
    func observeEnd(_ listener: @escaping @Sendable () -> Void) -> ListenerToken

    /// Called when the app has read a value. The default implementation does nothing.
    func didRead(_ name: String)
}

extension RemoteConfigKeeper {
    public func observe(_ listener: @escaping @Sendable () -> Void) -> ListenerToken { ListenerToken {} }

    public func observeEnd(_ listener: @escaping @Sendable () -> Void) -> ListenerToken { ListenerToken {} }

    public func didRead(_ name: String) {}
}

/// A keeper with values in memory, for tests, previews and apps without a server.
public final class InMemoryRemoteConfigKeeper: RemoteConfigKeeper {
    private struct State {
        var values: [Key: HoldfastValue]
        var error: (any Error)?
    }

    private let state: Locked<State>
    private let listeners = Listeners<Void>()

    public init(_ values: [String: HoldfastValue] = [:]) {
        state = Locked(State(values: Dictionary(values.map { (Key($0.key), $0.value) }) { _, last in last }))
    }

    /// Does nothing, because the values are in memory already.
    ///
    /// - Throws: the error that ``failFetches(with:)`` has set.
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

/// Reads remote values from the flags of the client's current user.
///
/// | name of the key | value |
/// | --- | --- |
/// | `paywall` | the value of the flag's variation, as ``EvaluationDetails/variationValue`` |
/// | `checkout.title` | the variable `title` of the flag `checkout`, unless there is a flag `checkout.title` |
///
/// A flag that has no value for the user is a missing key. A flag that is turned off has its off value. Reading a value
/// of an experiment reports the exposure, once. The client keeps the values on disk, and announces changes until it is
/// destroyed.
public struct HoldfastRemoteConfigKeeper: RemoteConfigKeeper {
    private let client: HoldfastClient

    /// - Parameter client: a client for which ``HoldfastClient/initialize(user:timeout:)`` was called.
    public init(client: HoldfastClient) {
        self.client = client
    }

    public func fetch() async throws {
        try await client.fetchEvaluations()
    }

    public func value(for name: String) -> HoldfastValue? {
        if let details = client.evaluationDetails(flagKey: name) { return details.variationValue }
        guard let (flagKey, variable) = Self.split(name) else { return nil }
        return client.evaluationDetails(flagKey: flagKey)?.variables[variable]
    }

    public func observe(_ listener: @escaping @Sendable () -> Void) -> ListenerToken {
        client.observeFlags { _ in listener() }
    }

    /// Calls a function when the client is destroyed. If it is destroyed already, the function is called at once.
    public func observeEnd(_ listener: @escaping @Sendable () -> Void) -> ListenerToken {
        client.observeEnd(listener)
    }

    public func didRead(_ name: String) {
        if client.evaluationDetails(flagKey: name) != nil {
            client.reportUse(flagKey: name)
        } else if let (flagKey, _) = Self.split(name) {
            client.reportUse(flagKey: flagKey)
        }
    }

    /// Splits `checkout.title` at the first dot; `nil` without a dot.
    private static func split(_ name: String) -> (flagKey: String, variable: String)? {
        guard let dot = name.firstIndex(of: ".") else { return nil }
        return (String(name[..<dot]), String(name[name.index(after: dot)...]))
    }
}
