/// The stored data of a user that decisions use: what the user's profile and the store of attributes have. Callers of
/// ``DecisionService`` read it in advance, because decisions do no I/O.
public protocol StoredAssignments: Sendable {
    /// Returns the assignment in the user's profile.
    func assignment(experimentID: Identifier) -> StoredAssignment?

    /// Returns the id of the variation that the user was assigned to before an override; `nil` if there was none. This
    /// variation counts again if the variation of the override no longer exists.
    func variationID(beneathOverrideIn experimentID: Identifier) -> Identifier?

    /// Whether the profile has room for a further assignment, because the size of profiles is limited. Asked only for
    /// an experiment in which the user has no assignment.
    func hasRoom(for experimentID: Identifier) -> Bool

    /// The ids of the variations that are forced on the user for a test, by experiment id. They take precedence over
    /// the profile.
    var forcedVariations: [Identifier: Identifier]? { get }

    /// The stored attributes. An audience uses the stored value of an attribute that the request does not have. `nil`
    /// if nothing is stored, or if no audience needs stored attributes.
    var attributes: (any AttributeSource)? { get }
}

// The defaults are those of a store without overrides, limits, forced variations and attributes.
extension StoredAssignments {
    public func variationID(beneathOverrideIn experimentID: Identifier) -> Identifier? { nil }

    public func hasRoom(for experimentID: Identifier) -> Bool { true }

    public var forcedVariations: [Identifier: Identifier]? { nil }

    public var attributes: (any AttributeSource)? { nil }
}

/// Assignments by experiment id.
extension [Identifier: StoredAssignment]: StoredAssignments {
    public func assignment(experimentID: Identifier) -> StoredAssignment? {
        self[experimentID]
    }
}

/// The stored variation of a user in one experiment.
public struct StoredAssignment: Sendable, Equatable {
    public var variationID: Identifier
    /// Whether an admin has set it. Overrides take precedence over the whitelist and apply even if the options ignore
    /// profiles.
    public var isOverride: Bool
    /// Whether the assignment is borrowed: stored in the profile that the user had before logging in. A decision that
    /// uses it stores it for the user, too. Always false for an override.
    public var isFromAnonymousProfile: Bool

    public init(variationID: Identifier, isOverride: Bool = false, isFromAnonymousProfile: Bool = false) {
        self.variationID = variationID
        self.isOverride = isOverride
        self.isFromAnonymousProfile = isFromAnonymousProfile
    }
}

/// An assignment that a decision has made, and that the caller should store.
public struct NewAssignment: Sendable, Equatable {
    public var experimentID: Identifier
    public var variationID: Identifier
    /// The id of the stored variation that this one replaces because it no longer exists; `nil` if none was stored.
    public var staleVariationID: Identifier?
    /// See ``StoredAssignment/isFromAnonymousProfile``.
    public var isFromAnonymousProfile: Bool

    public init(
        experimentID: Identifier, variationID: Identifier, staleVariationID: Identifier? = nil,
        isFromAnonymousProfile: Bool = false
    ) {
        self.experimentID = experimentID
        self.variationID = variationID
        self.staleVariationID = staleVariationID
        self.isFromAnonymousProfile = isFromAnonymousProfile
    }
}
