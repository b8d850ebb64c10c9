/// The description of a remote value: where it is kept, its type, and the default the app has for it.
///
/// The macros write these (``StringRemoteValue(key:)``), and they can be written by hand:
///
/// ```swift
/// let greeting = RemoteValue("greeting", default: "Hello")
/// let text = service.remoteValue(for: greeting)
/// ```
///
/// ### Baseline
/// A value with a ``baselineKey`` has two names. The key itself holds the value under test, which only the users in the
/// experiment are given. The baseline key, by custom the same name with the suffix `_baseline`, holds the value for
/// everybody else: today's normal, which can be moved without touching the experiment. The value is then what the key
/// has, or else what the baseline key has, or else the default.
public struct RemoteValue<Value: RemoteValueType>: Sendable {
    public let key: RemoteKey
    public let baselineKey: RemoteKey?
    public let defaultValue: Value

    public init(_ key: RemoteKey, baselineKey: RemoteKey? = nil, default defaultValue: Value) {
        self.key = key
        self.baselineKey = baselineKey
        self.defaultValue = defaultValue
    }

    /// The value of those outside the experiment, whether or not this user is in it. A value without a baseline key is
    /// its own baseline.
    public var baseline: RemoteValue {
        RemoteValue(baselineKey ?? key, default: defaultValue)
    }
}
