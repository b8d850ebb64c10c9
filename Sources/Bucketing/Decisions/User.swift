public import JSON

/// The user that a decision is made for, with everything that the request says about the user.
public struct User: Sendable {
    public var id: Identifier
    /// Whether the request has no user id, as on a page that is rendered before an id exists. Such a user cannot be
    /// bucketed, so no experiment enrolls the user, no holdout holds the user out, and a delivery rule applies only if
    /// it gives everybody in its audience the same variation.
    public private(set) var isUnidentified = false
    /// The attributes in the request, which take precedence over stored ones.
    public var attributes: JSONObject
    /// The stored attributes; `nil` if nothing is stored, or no audience needs stored attributes.
    var storedAttributes: (any AttributeSource)?
    /// Whether there is no request, so that the user may have attributes and segments that only requests contain. A
    /// condition on an attribute without a stored value is then unknown, even `exists`. See
    /// ``DecisionService/possibleEnrollment(of:for:stored:)``.
    var hasUnknownAttributes = false
    /// The segments of Optimizely's Data Platform (ODP) that the user is in, which `qualified` conditions look for.
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

    /// Returns the keys of the forced variations, by flag and rule.
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

    /// What the variation is forced for.
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
