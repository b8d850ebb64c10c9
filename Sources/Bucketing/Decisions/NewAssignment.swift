/// An assignment that a decision has made and that is to be stored.
public struct NewAssignment: Sendable, Equatable {
    public var experimentID: Identifier
    public var variationID: Identifier
    /// The variation that was stored and no longer exists, if there was one.
    public var staleVariationID: Identifier?

    public init(experimentID: Identifier, variationID: Identifier, staleVariationID: Identifier? = nil) {
        self.experimentID = experimentID
        self.variationID = variationID
        self.staleVariationID = staleVariationID
    }
}
