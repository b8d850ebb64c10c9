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
