import Synchronization

/// A keeper that has what is put into it: for tests, for previews, and for an app without a server.
///
/// ```swift
/// let keeper = InMemoryValueKeeper(["greeting": FetchedValue(.string("Good morning"))])
/// let service = RemoteValueService(keeper: keeper)
/// ```
public final class InMemoryValueKeeper: RemoteValueKeeper {
    private struct State {
        var values: [RemoteKey: FetchedValue]
        var failure: RemoteValueError?
    }

    private let state: Mutex<State>
    private let broadcast = Broadcast<[RemoteKey: FetchedValue]>()

    public init(_ values: [RemoteKey: FetchedValue] = [:]) {
        state = Mutex(State(values: values))
    }

    public var keptValues: [RemoteKey: FetchedValue] {
        state.withLock(\.values)
    }

    public func fetchValues() async throws(RemoteValueError) -> [RemoteKey: FetchedValue] {
        let (values, failure) = state.withLock { ($0.values, $0.failure) }
        if let failure { throw failure }
        return values
    }

    public func updates() -> AsyncStream<[RemoteKey: FetchedValue]> {
        broadcast.stream()
    }

    /// Puts a value in, or takes it out with nil, and tells those who follow the updates.
    public func set(_ value: FetchedValue?, for key: RemoteKey) {
        broadcast.send(
            state.withLock { state in
                state.values[key] = value
                return state.values
            })
    }

    /// Makes each fetch from now on fail, or succeed again with nil.
    public func failFetches(with error: RemoteValueError?) {
        state.withLock { $0.failure = error }
    }
}
