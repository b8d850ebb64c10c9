import Synchronization

/// Hands out remote values: what was fetched, or else the app's defaults, at once and from any thread.
///
/// ```swift
/// let service = RemoteValueService(keeper: HoldfastValueKeeper(client: client))
/// try await service.fetch()
///
/// let feed = service.getValues(for: FeedValues.self)   // all of one moment
/// let title = service.remoteValue(for: FeedValues.$title)
///
/// for await change in service.changes() where change.concerns(FeedValues.self) {
///     show(FeedValues(change.values))
/// }
/// ```
///
/// Reading takes a lock for the time of a copy and never waits for the network. The order in which a debug value, a
/// custom value, a fetched value and the default count is told at ``RemoteValues``.
public final class RemoteValueService: Sendable {
    private let keeper: any RemoteValueKeeper
    private let current: CurrentRemoteValues
    private let following: Task<Void, Never>

    /// Begins with what the keeper has kept, and follows its updates for as long as the service lives.
    public init(keeper: any RemoteValueKeeper, hooks: any RemoteValueHooks = NoHooks()) {
        let current = CurrentRemoteValues(RemoteValues(keeper: keeper, hooks: hooks))
        let updates = keeper.updates()
        self.keeper = keeper
        self.current = current
        following = Task {
            for await values in updates { current.replaceFetched(values, ticket: current.drawTicket()) }
        }
    }

    deinit {
        following.cancel()
    }

    /// All values as they are now.
    public var values: RemoteValues {
        current.values
    }

    /// Fetches all values. Of two fetches at once the one begun later counts.
    /// - Throws: ``RemoteValueError``; the values stay as they were.
    @discardableResult
    public func fetch() async throws(RemoteValueError) -> RemoteValues {
        let ticket = current.drawTicket()
        current.replaceFetched(try await keeper.fetchValues(), ticket: ticket)
        return current.values
    }

    /// The values of a namespace, all of this moment.
    public func getValues<Namespace: RemoteValuesNamespace>(for namespace: Namespace.Type) -> Namespace {
        Namespace(values)
    }

    /// What there is now for each of these keys, before any app's type; a key without a value is left out.
    public func getValues(for keys: some Sequence<RemoteKey>) -> [RemoteKey: RemoteRawValue] {
        let values = values
        return Dictionary(keys.compactMap { key in values[key].map { (key, $0) } }) { first, _ in first }
    }

    /// One value as it is now.
    public func remoteValue<Value>(for value: RemoteValue<Value>) -> Value {
        values[value]
    }

    /// The changes from now on, by a fetch, by the keeper, and by debug and custom values.
    public func changes() -> RemoteValuesChanges {
        current.changes()
    }

    /// Sets what counts before all else, as a tester's menu does; nil takes it back. Not kept for the next run.
    public func setDebugValue<Value>(_ debugValue: Value?, for value: RemoteValue<Value>) {
        current.change { $0.debug[value.key] = debugValue?.rawRemoteValue }
    }

    /// The debug value that is set; nil for none.
    public func debugValue<Value>(for value: RemoteValue<Value>) -> Value? {
        values.debug[value.key].flatMap(Value.init)
    }

    /// Sets what counts before the fetched value, for a reason the app has; nil takes it back. Not kept for the next run.
    public func setCustomValue<Value>(_ customValue: Value?, for value: RemoteValue<Value>) {
        current.change { $0.custom[value.key] = customValue?.rawRemoteValue }
    }

    /// The custom value that is set; nil for none.
    public func customValue<Value>(for value: RemoteValue<Value>) -> Value? {
        values.custom[value.key].flatMap(Value.init)
    }

    /// Takes back all debug values.
    public func removeDebugValues() {
        current.change { $0.debug = [:] }
    }
}

/// What an app wants to know, or to decide, as its values are read. Each hook has a default that changes nothing, so an
/// app writes those it needs.
///
/// ```swift
/// struct LoggingHooks: RemoteValueHooks {
///     func missingValue(for key: RemoteKey) -> RemoteRawValue? {
///         logger.notice("no value for \(key)")
///         return nil
///     }
/// }
/// ```
///
/// Hooks run on the thread that reads, at each read, so they have to be quick; a baseline value asks them about its
/// baseline key only when the key itself has nothing usable.
public protocol RemoteValueHooks: Sendable {
    /// Nobody has a value for the key. The absence of a value under test is normal, so of a value with a baseline this
    /// tells only the baseline's key, when both are missing.
    /// - Returns: the value to use instead; nil for the default.
    func missingValue(for key: RemoteKey) -> RemoteRawValue?

    /// The value there is cannot be one of the type which the app expects.
    /// - Returns: the value to use instead; nil to go on with the next in order.
    func incorrectValue(_ raw: RemoteRawValue, for key: RemoteKey, expected: any RemoteValueType.Type) -> RemoteRawValue?

    /// The app has just been handed a value which an experiment gave this user: the moment of the exposure.
    func readValue(for key: RemoteKey, of group: ExperimentalGroup)
}

extension RemoteValueHooks {
    public func missingValue(for key: RemoteKey) -> RemoteRawValue? { nil }

    public func incorrectValue(
        _ raw: RemoteRawValue, for key: RemoteKey, expected: any RemoteValueType.Type
    ) -> RemoteRawValue? { nil }

    public func readValue(for key: RemoteKey, of group: ExperimentalGroup) {}
}

/// The hooks of an app that needs none.
public struct NoHooks: RemoteValueHooks {
    public init() {}
}

/// The values of a service, and those who follow them.
final class CurrentRemoteValues: Sendable {
    private struct State {
        var values: RemoteValues
        var lastTicket = 0
        var appliedTicket = 0
    }

    private let state: Mutex<State>
    private let signals = Broadcast<Void>()

    init(_ values: RemoteValues) {
        state = Mutex(State(values: values))
    }

    var values: RemoteValues {
        state.withLock(\.values)
    }

    /// A number that tells when something was asked for, so that an answer that comes late does not undo a later one.
    func drawTicket() -> Int {
        state.withLock { state in
            state.lastTicket += 1
            return state.lastTicket
        }
    }

    func replaceFetched(_ fetched: [RemoteKey: FetchedValue], ticket: Int) {
        let isNews = state.withLock { state in
            guard ticket > state.appliedTicket else { return false }
            state.appliedTicket = ticket
            state.values.fetched = fetched
            return true
        }
        if isNews { signals.send(()) }
    }

    func change(_ change: (inout RemoteValues) -> Void) {
        state.withLock { change(&$0.values) }
        signals.send(())
    }

    func changes() -> RemoteValuesChanges {
        let signals = signals.stream()
        return RemoteValuesChanges(signals: signals, start: values) { [weak self] in self?.values }
    }
}
