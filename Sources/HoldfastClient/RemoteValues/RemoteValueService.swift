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
        let current = CurrentRemoteValues(RemoteValues(fetched: keeper.keptValues, hooks: hooks))
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
