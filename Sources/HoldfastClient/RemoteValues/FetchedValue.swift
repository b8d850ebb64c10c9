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
