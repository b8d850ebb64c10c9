/// The stored variation of a user in one experiment.
public struct StoredAssignment: Sendable, Equatable {
    public var variationID: Identifier
    /// Whether an admin has set it: then it counts before the whitelist, and even if profiles are to be ignored.
    public var isOverride: Bool

    public init(variationID: Identifier, isOverride: Bool = false) {
        self.variationID = variationID
        self.isOverride = isOverride
    }
}
