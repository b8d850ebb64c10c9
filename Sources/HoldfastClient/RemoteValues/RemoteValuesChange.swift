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
