public import JSON

/// The user that a decision is made for.
public struct User: Sendable {
    public var id: Identifier
    /// Whether the request has no user id, as on a page that is rendered before an id exists. Such a user cannot be
    /// bucketed: no experiment enrolls the user and no holdout holds the user out, and a delivery rule delivers only
    /// what everybody in its audience gets.
    public private(set) var isUnidentified = false
    /// The attributes in the request, which take precedence over stored ones.
    public var attributes: JSONObject
    /// The stored attributes; `nil` if nothing is stored, or no audience needs it.
    var storedAttributes: (any AttributeSource)?
    /// Whether the user may have attributes and segments that only requests contain. If so, a condition on an attribute
    /// without a known value is unknown, even `exists`.
    var hasUnknownAttributes = false
    /// The segments that `qualified` conditions look for.
    public var qualifiedSegments: [Identifier]
    /// The variations that the request forces. The last one counts if several have the same flag and rule.
    public var forcedDecisions: [ForcedDecision] {
        didSet { forcedVariations = Self.variations(forcedDecisions) }
    }
    /// The keys of the forced variations, by flag and rule.
    private var forcedVariations: [ForcedDecision.Target: Identifier]
    /// Caches the results of large audiences; `nil` to cache nothing.
    var conditionCache: ConditionCache?

    public init(
        id: Identifier, attributes: JSONObject = JSONObject(),
        qualifiedSegments: [Identifier] = [], forcedDecisions: [ForcedDecision] = []
    ) {
        self.id = id
        self.attributes = attributes
        self.qualifiedSegments = qualifiedSegments
        self.forcedDecisions = forcedDecisions
        forcedVariations = Self.variations(forcedDecisions)
    }

    /// A user without an id.
    public static func unidentified(attributes: JSONObject) -> User {
        var user = User(id: "", attributes: attributes)
        user.isUnidentified = true
        return user
    }

    private static func variations(_ decisions: [ForcedDecision]) -> [ForcedDecision.Target: Identifier] {
        decisions.isEmpty ? [:] : Dictionary(decisions.map { ($0.target, $0.variationKey) }, uniquingKeysWith: { $1 })
    }

    /// Returns the key of the variation that the request forces.
    ///
    /// - Parameter rule: `nil` for the flag as a whole.
    func forcedVariationKey(flag: Identifier, rule: Identifier?) -> Identifier? {
        forcedVariations[.init(flag: flag, rule: rule)]
    }
}

extension User {
    /// The attribute that replaces the user id for bucketing, if it is a string.
    public static let bucketingIDAttribute = "$opt_bucketing_id"

    /// The id that is hashed to bucket the user.
    public var bucketingID: Identifier {
        attributes[Self.bucketingIDAttribute]?.string.map { Identifier($0) } ?? id
    }

    /// The bucketing id in the request if it is not a string, and therefore ignored.
    var invalidBucketingID: JSONValue? {
        guard let value = attributes[Self.bucketingIDAttribute], !value.isNull, value.string == nil else { return nil }
        return value
    }
}

/// A variation that the request forces for a flag, or for one of its rules.
public struct ForcedDecision: Sendable, Equatable {
    public var flagKey: Identifier
    /// The experiment or delivery rule; `nil` for the flag as a whole.
    public var ruleKey: Identifier?
    public var variationKey: Identifier

    struct Target: Hashable {
        let flag: Identifier
        let rule: Identifier?
    }

    var target: Target { Target(flag: flagKey, rule: ruleKey) }

    /// - Parameter ruleKey: an empty key means the flag as a whole.
    public init(flagKey: Identifier, ruleKey: Identifier? = nil, variationKey: Identifier) {
        self.flagKey = flagKey
        self.ruleKey = ruleKey?.string.isEmpty == true ? nil : ruleKey
        self.variationKey = variationKey
    }
}

// MARK: - Assignments

/// The stored data of a user that decisions use.
public protocol StoredAssignments: Sendable {
    /// Returns the assignment in the user's profile.
    func assignment(experimentID: Identifier) -> StoredAssignment?

    /// Returns the id of the variation of the underlying assignment of an override, if there is one.
    func variationID(beneathOverrideIn experimentID: Identifier) -> Identifier?

    /// Whether the profile has room for an assignment in an experiment in which the user has none.
    func hasRoom(for experimentID: Identifier) -> Bool

    /// The ids of the variations that are forced on the user for a test, by experiment id. They take precedence over
    /// the profile.
    var forcedVariations: [Identifier: Identifier]? { get }

    /// The attributes that audiences use where the request has none; `nil` if nothing is stored, or no audience needs
    /// it.
    var attributes: (any AttributeSource)? { get }
}

extension StoredAssignments {
    public func variationID(beneathOverrideIn experimentID: Identifier) -> Identifier? { nil }

    public func hasRoom(for experimentID: Identifier) -> Bool { true }

    public var forcedVariations: [Identifier: Identifier]? { nil }

    public var attributes: (any AttributeSource)? { nil }
}

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
    /// Whether the assignment is stored in the user's anonymous profile. A decision that uses it stores it for the
    /// user, too. Always false for an override.
    public var isFromAnonymousProfile: Bool

    public init(variationID: Identifier, isOverride: Bool = false, isFromAnonymousProfile: Bool = false) {
        self.variationID = variationID
        self.isOverride = isOverride
        self.isFromAnonymousProfile = isFromAnonymousProfile
    }
}

/// An assignment that a decision has made and that should be stored.
public struct NewAssignment: Sendable, Equatable {
    public var experimentID: Identifier
    public var variationID: Identifier
    /// The stored variation that no longer exists and is replaced, if there is one.
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
