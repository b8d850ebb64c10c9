/// Typed access to remote values, with defaults in the app.
///
/// ```swift
/// let service = RemoteConfigService(keeper: HoldfastRemoteConfigKeeper(client: client))
/// try await service.fetch()
/// service.getValues(for: Key.allCases)
/// let paywall: PaywallType = service.remoteValue(for: Key.paywallType)
/// ```
///
/// The value of a key is the first one that exists of: ``customValue(for:)``, ``debugValue(for:)``, the keeper's value,
/// the default of the type. An incorrect remote value counts as missing.
///
/// Keep one instance for the whole app, as a singleton: it has state, and its streams end with it. Subclasses override
/// the methods that are `open`; their own state must be safe to use from several threads.
open class RemoteConfigService: @unchecked Sendable {
    // Safe: all stored properties are immutable and Sendable. Subclasses are responsible for theirs.

    /// The source of the remote values.
    public let keeper: any RemoteConfigKeeper
    private let changes = Listeners<Void>()
    private let registration = OwnedTokens()

    public init(keeper: any RemoteConfigKeeper) {
        self.keeper = keeper
        registration.add(keeper.observe { [changes] in changes.notify(()) })
        registration.add(keeper.observeEnd { [changes] in changes.end() })
    }

    deinit {
        changes.removeAll()
    }

    /// Fetches the values. If that fails, the previous values stay in use.
    open func fetch() async throws {
        try await keeper.fetch()
        valuesDidChange()
    }

    // MARK: Reading

    /// Returns the current value of a key, without waiting for a fetch.
    ///
    /// - Parameter type: the type of the value, which must be ``RemoteKey/valueType`` of the key.
    open func remoteValue<Value: RemoteValue>(for key: some RemoteKey, as type: Value.Type = Value.self) -> Value {
        check(type, key)
        let resolved = resolve(key, type)
        if resolved.source == .remote { keeper.didRead(key.name) }
        return resolved.value
    }

    /// Returns a stream of the current value of a key and of its values after each change. The stream ends with the
    /// service, and when the keeper's values cannot change any more, as after ``HoldfastClient/destroy()``.
    public func remoteValues<Value: RemoteValue>(
        for key: some RemoteKey, as type: Value.Type = Value.self
    ) -> AsyncStream<Value> {
        let (stream, continuation) = AsyncStream<Value>.makeStream(bufferingPolicy: .bufferingNewest(1))
        let token = addListener(for: key, as: type, end: { continuation.finish() }) { continuation.yield($0) }
        continuation.onTermination = { _ in token.cancel() }
        return stream
    }

    /// Calls a function with the current value of a key, and again after each change, on an arbitrary thread. A key may
    /// have any number of listeners.
    ///
    /// - Parameter end: called when the service ends, or when the keeper's values cannot change any more.
    @discardableResult
    public func addListener<Value: RemoteValue>(
        for key: some RemoteKey, as type: Value.Type = Value.self, end: @escaping @Sendable () -> Void = {},
        _ listener: @escaping @Sendable (Value) -> Void
    ) -> ListenerToken {
        check(type, key)
        let last = Locked<Resolved<Value>?>(nil)
        // Calls are serialized, so that values arrive in order, but without a lock: methods that the app overrides may
        // change values, which would call this again.
        let update = Repetition { [weak self] in
            guard let self else { return }
            let new = self.resolve(key, type)
            let hasChanged = last.withLock { last in
                guard last?.isUnchanged(in: new) != true else { return false }
                last = new
                return true
            }
            guard hasChanged else { return }
            if new.source == .remote { self.keeper.didRead(key.name) }
            listener(new.value)
        }
        let token = changes.add({ _ in update.run() }) {
            // The listener gets its last value before the end. This is also true if the keeper had ended before this
            // call.
            update.run()
            end()
        }
        update.run()
        return token
    }

    /// Updates the streams of ``remoteValues(for:as:)`` and the listeners. Call it when ``customValue(for:)`` or
    /// ``debugValue(for:)`` would return another value than before.
    public func valuesDidChange() {
        changes.notify(())
    }

    /// Returns the current value of a key with a static type, without waiting for a fetch.
    public func remoteValue<Value>(for key: TypedRemoteKey<Value>) -> Value { remoteValue(for: key, as: Value.self) }

    /// Returns ``remoteValues(for:as:)`` of a key with a static type.
    public func remoteValues<Value>(for key: TypedRemoteKey<Value>) -> AsyncStream<Value> {
        remoteValues(for: key, as: Value.self)
    }

    /// Reports a type that is not the key's.
    private func check(_ type: any RemoteValue.Type, _ key: any RemoteKey) {
        if type != key.valueType { wrongType(type, for: key) }
    }

    // MARK: Methods to override

    /// Called when the app has asked for a value of another type than ``RemoteKey/valueType`` of the key. The caller
    /// gets the default of its type, unless the remote value happens to fit. The default implementation stops debug
    /// builds, and does nothing in others.
    open func wrongType(_ type: any RemoteValue.Type, for key: any RemoteKey) {
        assertionFailure("the key \(key.name) has values of type \(key.valueType); asked for \(type)")
    }

    /// Returns a value by the app's own logic, which precedes all other sources. The default implementation returns
    /// `nil`. A value of another type than the key's is ignored.
    open func customValue(for key: any RemoteKey) -> (any RemoteValue)? { nil }

    /// Returns the choice of a tester, which precedes the remote value. The default implementation returns `nil`. A
    /// value of another type than the key's is ignored.
    open func debugValue(for key: any RemoteKey) -> (any RemoteValue)? { nil }

    /// Called when ``getValues(for:)`` found no remote value for a key.
    open func trackKeyNotFound(_ key: any RemoteKey) {}

    /// Called once per ``getValues(for:)`` with all keys without a remote value, unless there are none.
    open func trackKeysNotFound(_ keys: [any RemoteKey]) {}

    /// Called when ``getValues(for:)`` found a remote value that is not of the key's type.
    open func trackIncorrectValue(_ value: HoldfastValue, for key: any RemoteKey) {}

    /// Called once per ``getValues(for:)`` with all remote values that are not of their keys' types, unless there are
    /// none.
    open func trackIncorrectValues(_ values: [(key: any RemoteKey, value: HoldfastValue)]) {}

    /// Called when ``getValues(for:)`` found a correct remote value of a type that is ``ExperimentalGroupTrackable``.
    /// Not called for a baseline.
    open func trackExperimentalGroup(_ group: String, for key: any RemoteKey) {}

    // MARK: Audit

    /// Returns the values of all keys by name, and calls the `track` methods. Call it once after the first ``fetch()``.
    /// It reports no exposures.
    @discardableResult
    public func getValues(for keys: some Sequence<some RemoteKey>) -> [String: any RemoteValue] {
        getValues(for: keys.map { $0 as any RemoteKey })
    }

    /// Returns the values of keys of several types by name, and calls the `track` methods.
    @discardableResult
    open func getValues(for keys: [any RemoteKey]) -> [String: any RemoteValue] {
        var values: [String: any RemoteValue] = [:]
        var missing: [any RemoteKey] = []
        var incorrect: [(key: any RemoteKey, value: HoldfastValue)] = []
        for key in keys {
            values[key.name] = state(of: key).value
            guard let raw = keeper.value(for: key.name) else {
                trackKeyNotFound(key)
                missing.append(key)
                continue
            }
            guard let value = key.valueType.parse(raw) else {
                trackIncorrectValue(raw, for: key)
                incorrect.append((key, raw))
                continue
            }
            if let group = (value as? any ExperimentalGroupTrackable)?.experimentalGroup {
                trackExperimentalGroup(group, for: key)
            }
        }
        if !missing.isEmpty { trackKeysNotFound(missing) }
        if !incorrect.isEmpty { trackIncorrectValues(incorrect) }
        return values
    }

    // MARK: Debug list

    /// Returns the current state of each key, for a debug menu.
    public func states(of keys: some Sequence<some RemoteKey>) -> [RemoteValueState] {
        keys.map { state(of: $0) }
    }

    private func state(of key: any RemoteKey) -> RemoteValueState {
        // A generic function, because the type of the value is known only at run time.
        func typedState<Value: RemoteValue>(_ type: Value.Type) -> RemoteValueState {
            let resolved = resolve(key, type)
            let possible = (type as? any CaseIterable.Type).map(Self.cases) ?? []
            return RemoteValueState(
                key: key, value: resolved.value, source: resolved.source, defaultValue: Value.default,
                possibleValues: possible.compactMap { $0 as? any RemoteValue })
        }
        return typedState(key.valueType)
    }

    /// Returns all cases of a type that is known only at run time.
    private static func cases(_ type: any CaseIterable.Type) -> [Any] {
        func typedCases<Cases: CaseIterable>(_ type: Cases.Type) -> [Any] { Array(type.allCases) }
        return typedCases(type)
    }

    /// Returns the current value of a key: the first that exists of the custom, debug, remote and default value.
    private func resolve<Value: RemoteValue>(_ key: any RemoteKey, _ type: Value.Type) -> Resolved<Value> {
        if let value = customValue(for: key) as? Value { return Resolved(value: value, source: .custom) }
        if let value = debugValue(for: key) as? Value { return Resolved(value: value, source: .debug) }
        guard let raw = keeper.value(for: key.name) else { return Resolved(value: Value.default, source: .missing) }
        guard let value = Value.parse(raw) else {
            return Resolved(value: Value.default, source: .incorrect(raw), raw: raw)
        }
        return Resolved(value: value, source: .remote, raw: raw)
    }
}

/// The current value of a key, with its origin.
private struct Resolved<Value: RemoteValue>: Sendable {
    var value: Value
    var source: RemoteValueState.Source
    /// The keeper's value; `nil` if the keeper was not asked or has none.
    var raw: HoldfastValue?

    /// Whether another value is the same for a listener.
    func isUnchanged(in new: Resolved) -> Bool {
        if isSame(value, new.value) { return true }
        // A value of a type that is not Equatable is unchanged if its source and raw value are. Custom and debug values
        // have no raw value, so they always count as changed.
        guard ![.custom, .debug].contains(new.source) else { return false }
        return source == new.source && raw == new.raw
    }
}

/// The state of a remote value, for a debug menu. To let a tester choose, show ``possibleValues``, remember the choice,
/// and return it from ``RemoteConfigService/debugValue(for:)``.
public struct RemoteValueState: Sendable {
    /// Where the current value comes from.
    public enum Source: Sendable, Hashable {
        /// ``RemoteConfigService/customValue(for:)``, ``RemoteConfigService/debugValue(for:)``, or the keeper.
        case custom, debug, remote
        /// The default, because there is no remote value.
        case missing
        /// The default, because the remote value is not of the key's type.
        case incorrect(HoldfastValue)
    }

    /// The key of the value.
    public let key: any RemoteKey
    /// The value that the app gets now.
    public let value: any RemoteValue
    /// Where ``value`` comes from.
    public let source: Source
    /// The default of the value's type.
    public let defaultValue: any RemoteValue
    /// All cases of a `CaseIterable` type; empty for others. ``RemoteValue/displayName`` names each.
    public let possibleValues: [any RemoteValue]

    /// The name of the value's type.
    public var typeName: String { String(describing: type(of: value)) }
}

/// Whether two values are equal: by `==`, or else by their raw values. The result is `false` if their type is neither
/// `Equatable` nor `RawRepresentable`.
private func isSame(_ left: some Any, _ right: some Any) -> Bool {
    func equals<Value: Equatable>(_ left: Value) -> Bool { right as? Value == left }
    if let left = left as? any Equatable { return equals(left) }
    if let left = left as? any RawRepresentable, let right = right as? any RawRepresentable {
        return isSame(left.rawValue, right.rawValue)
    }
    return false
}
