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
