/// The group of an experiment that gave a user a value.
public struct ExperimentalGroup: Sendable, Hashable {
    /// The key of the flag the value belongs to.
    public let flagKey: String
    /// The id of the experiment in the datafile.
    public let experimentID: String
    public let variationID: String
    public let variationKey: String

    public init(flagKey: String, experimentID: String, variationID: String, variationKey: String) {
        self.flagKey = flagKey
        self.experimentID = experimentID
        self.variationID = variationID
        self.variationKey = variationKey
    }
}
