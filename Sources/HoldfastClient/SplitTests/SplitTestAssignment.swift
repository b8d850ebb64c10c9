/// The group a user was given, as an assigner tells it and a storage keeps it.
public struct SplitTestAssignment: Sendable, Hashable, Codable {
    /// The raw value of the group.
    public let variationKey: String

    /// The variation's id in the datafile; nil for a group assigned without a server.
    public let variationID: String?

    public init(variationKey: String, variationID: String? = nil) {
        self.variationKey = variationKey
        self.variationID = variationID
    }
}
