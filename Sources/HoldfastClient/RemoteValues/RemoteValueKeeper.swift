import Synchronization

/// Fetches remote values and keeps them between two runs of the app. ``HoldfastValueKeeper`` asks a Holdfast server;
/// ``InMemoryValueKeeper`` has what a test or a preview puts into it; an app may bring its own.
public protocol RemoteValueKeeper: Sendable {
    /// What is kept of the last fetch, of this or an earlier run. Answers at once, without the network.
    var keptValues: [RemoteKey: FetchedValue] { get }

    /// Fetches all values, and keeps them.
    /// - Throws: ``RemoteValueError``. What was kept before is then still kept.
    func fetchValues() async throws(RemoteValueError) -> [RemoteKey: FetchedValue]

    /// All values whenever the keeper gets new ones on its own account, until it has no more to tell.
    /// A keeper that only fetches when asked finishes the stream at once.
    func updates() -> AsyncStream<[RemoteKey: FetchedValue]>

    /// The app has read a value which an experiment gave the user. Called at each read, on the thread that reads.
    func didRead(_ key: RemoteKey, of group: ExperimentalGroup)
}

extension RemoteValueKeeper {
    public func updates() -> AsyncStream<[RemoteKey: FetchedValue]> {
        AsyncStream { $0.finish() }
    }

    public func didRead(_ key: RemoteKey, of group: ExperimentalGroup) {}
}

/// A value a keeper has for one key.
public struct FetchedValue: Sendable, Hashable {
    public let raw: RemoteRawValue

    /// The experiment the value comes from; nil for a value that is no experiment's.
    public let group: ExperimentalGroup?

    public init(_ raw: RemoteRawValue, group: ExperimentalGroup? = nil) {
        self.raw = raw
        self.group = group
    }
}

/// The group of an experiment that gave a user a value.
public struct ExperimentalGroup: Sendable, Hashable {
    /// The key of the flag the value belongs to.
    public let flagKey: String
    /// The id of the experiment in the datafile.
    public let experimentID: String
    public let variationID: String
    public let variationKey: String

    public init(flagKey: String, experimentID: String, variationID: String, variationKey: String) {
        self.flagKey = flagKey
        self.experimentID = experimentID
        self.variationID = variationID
        self.variationKey = variationKey
    }
}

/// Why remote values could not be fetched. The values there were stay in use.
public enum RemoteValueError: Error, Sendable, Equatable {
    /// The source could not be reached or did not answer in time; it may later.
    case unavailable(reason: String)

    /// The source answered, and refused or made no sense; the same request will not do better.
    case refused(reason: String)
}

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

/// Tells any number of listeners, each through a stream of its own.
final class Broadcast<Element: Sendable>: Sendable {
    private struct Listeners {
        var continuations: [Int: AsyncStream<Element>.Continuation] = [:]
        var next = 0
    }

    private let listeners = Mutex(Listeners())

    /// A stream of what is sent from now on. A listener that falls behind gets the newest element only.
    func stream() -> AsyncStream<Element> {
        let (stream, continuation) = AsyncStream.makeStream(of: Element.self, bufferingPolicy: .bufferingNewest(1))
        let number = listeners.withLock { listeners in
            listeners.next += 1
            listeners.continuations[listeners.next] = continuation
            return listeners.next
        }
        continuation.onTermination = { [weak self] _ in
            self?.listeners.withLock { $0.continuations[number] = nil }
        }
        return stream
    }

    func send(_ element: Element) {
        for continuation in listeners.withLock({ Array($0.continuations.values) }) { continuation.yield(element) }
    }

    deinit {
        for continuation in listeners.withLock({ Array($0.continuations.values) }) { continuation.finish() }
    }
}
