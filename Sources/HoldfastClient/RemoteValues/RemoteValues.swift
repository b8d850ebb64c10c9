/// All remote values at one moment. What is read from one of these does not change while it is used.
///
/// A value that belongs to no namespace is declared in an extension:
///
/// ```swift
/// extension RemoteValues {
///     @StringRemoteValue var greeting = "Hello"
/// }
/// let text = service.values.greeting
/// ```
///
/// ### Order
/// Of the values there may be for a key the first counts: the debug value, the custom value, the fetched value, the
/// default. One that cannot be of the expected type is passed over, after ``RemoteValueHooks`` was asked.
public struct RemoteValues: Sendable {
    /// What a tester sets, to see a value whatever the server says.
    var debug: [RemoteKey: RemoteRawValue] = [:]
    /// What the app sets, for reasons of its own.
    var custom: [RemoteKey: RemoteRawValue] = [:]
    var fetched: [RemoteKey: FetchedValue]
    private let keeper: any RemoteValueKeeper
    private let hooks: any RemoteValueHooks

    /// Begins with what the keeper has kept.
    init(keeper: any RemoteValueKeeper, hooks: any RemoteValueHooks) {
        fetched = keeper.keptValues
        self.keeper = keeper
        self.hooks = hooks
    }

    /// The value of this description now.
    public subscript<Value>(_ value: RemoteValue<Value>) -> Value {
        if let found: Value = usable(for: value.key) { return found }
        if let baselineKey = value.baselineKey, let found: Value = usable(for: baselineKey) { return found }
        let lastKey = value.baselineKey ?? value.key
        guard self[lastKey] == nil, self[value.key] == nil, let raw = hooks.missingValue(for: lastKey) else {
            return value.defaultValue
        }
        return Value(raw) ?? value.defaultValue
    }

    /// The first value there is for a key, of whatever type; nil if there is none. Reads nothing in the sense of
    /// ``RemoteValueHooks``.
    public subscript(_ key: RemoteKey) -> RemoteRawValue? {
        debug[key] ?? custom[key] ?? fetched[key]?.raw
    }

    /// All keys that have a value.
    public var keys: Set<RemoteKey> {
        Set(fetched.keys).union(custom.keys).union(debug.keys)
    }

    private func usable<Value: RemoteValueType>(for key: RemoteKey) -> Value? {
        for raw in [debug[key], custom[key]] {
            if let raw, let found: Value = checked(raw, for: key) { return found }
        }
        guard let fetched = fetched[key], let found: Value = checked(fetched.raw, for: key) else { return nil }
        if let group = fetched.group {
            keeper.didRead(key, of: group)
            hooks.readValue(for: key, of: group)
        }
        return found
    }

    private func checked<Value: RemoteValueType>(_ raw: RemoteRawValue, for key: RemoteKey) -> Value? {
        if let value = Value(raw) { return value }
        return hooks.incorrectValue(raw, for: key, expected: Value.self).flatMap(Value.init)
    }
}

/// A struct whose properties are remote values, as ``RemoteValuesNamespace(_:)`` writes it: all values of one screen or
/// feature, of one moment.
public protocol RemoteValuesNamespace: Sendable {
    /// The keys of all its values, those of the baselines too.
    static var remoteKeys: [RemoteKey] { get }

    /// Where the values come from.
    var remoteValues: RemoteValues { get }

    init(_ remoteValues: RemoteValues)
}

extension RemoteValuesNamespace {
    /// The value of this description at the moment this namespace is of.
    public subscript<Value>(_ value: RemoteValue<Value>) -> Value {
        remoteValues[value]
    }
}

/// What changed between two moments.
public struct RemoteValuesChange: Sendable {
    /// The keys whose value came, went, or became another.
    public let keys: Set<RemoteKey>

    /// All values after the change.
    public let values: RemoteValues

    /// Nil if nothing an app could see is different.
    init?(from old: RemoteValues, to new: RemoteValues) {
        keys = old.keys.union(new.keys).filter { old[$0] != new[$0] }
        values = new
        if keys.isEmpty { return nil }
    }

    /// Whether a value of this namespace changed.
    public func concerns<Namespace: RemoteValuesNamespace>(_ namespace: Namespace.Type) -> Bool {
        !keys.isDisjoint(with: Namespace.remoteKeys)
    }
}

/// The changes of the values from the moment ``RemoteValueService/changes()`` was called. One who reads slowly gets
/// several changes as one, and misses none. Each call's result is for one reader.
public struct RemoteValuesChanges: AsyncSequence, Sendable {
    let signals: AsyncStream<Void>
    let start: RemoteValues
    let current: @Sendable () -> RemoteValues?

    public func makeAsyncIterator() -> Iterator {
        Iterator(signals: signals.makeAsyncIterator(), last: start, current: current)
    }

    public struct Iterator: AsyncIteratorProtocol {
        private var signals: AsyncStream<Void>.Iterator
        private var last: RemoteValues
        private let current: @Sendable () -> RemoteValues?

        init(signals: AsyncStream<Void>.Iterator, last: RemoteValues, current: @escaping @Sendable () -> RemoteValues?) {
            self.signals = signals
            self.last = last
            self.current = current
        }

        /// Waits for the next change; nil once the service is gone or the task is cancelled.
        public mutating func next() async -> RemoteValuesChange? {
            while await signals.next() != nil, let values = current() {
                defer { last = values }
                if let change = RemoteValuesChange(from: last, to: values) { return change }
            }
            return nil
        }
    }
}
