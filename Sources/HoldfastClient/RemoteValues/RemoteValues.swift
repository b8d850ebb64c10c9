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
    let hooks: any RemoteValueHooks

    init(fetched: [RemoteKey: FetchedValue], hooks: any RemoteValueHooks) {
        self.fetched = fetched
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
        if let group = fetched.group { hooks.readValue(for: key, of: group) }
        return found
    }

    private func checked<Value: RemoteValueType>(_ raw: RemoteRawValue, for key: RemoteKey) -> Value? {
        if let value = Value(raw) { return value }
        return hooks.incorrectValue(raw, for: key, expected: Value.self).flatMap(Value.init)
    }
}
