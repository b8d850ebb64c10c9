/// What is stored of a user when a decision is made.
public protocol StoredAssignments: Sendable {
    func assignment(experimentID: Identifier) -> StoredAssignment?
}

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

extension [Identifier: StoredAssignment]: StoredAssignments {
    public func assignment(experimentID: Identifier) -> StoredAssignment? {
        self[experimentID]
    }
}

/// An assignment that a decision has made and that is to be stored.
public struct NewAssignment: Sendable, Equatable {
    public var experimentID: Identifier
    public var variationID: Identifier
    /// The variation that was stored and no longer exists, if there was one.
    public var staleVariationID: Identifier?
}
