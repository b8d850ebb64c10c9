/// The group of an experiment that gave a user a value.
public struct ExperimentalGroup: Sendable, Hashable {
    /// The id of the experiment in the datafile.
    public let experimentID: String
    public let variationID: String
    public let variationKey: String

    public init(experimentID: String, variationID: String, variationKey: String) {
        self.experimentID = experimentID
        self.variationID = variationID
        self.variationKey = variationKey
    }
}
