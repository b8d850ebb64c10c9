public import JSON

/// Whom a decision is made for.
public struct User: Sendable {
    public var id: Identifier
    /// What audiences ask for, as it came in a JSON text.
    public var attributes: JSONObject
    /// What is stored of the user, where ``attributes`` does not say it.
    var known: (any AttributeSource)?
    /// The segments that `qualified` conditions ask for.
    public var qualifiedSegments: [Identifier]
    /// Of several for one flag and rule the last counts.
    public var forcedDecisions: [ForcedDecision] {
        didSet { forcedVariations = Self.variations(forcedDecisions) }
    }
    /// By flag and rule.
    private var forcedVariations: [ForcedDecision.Place: Identifier]
    /// What the audiences that are worth it have answered; `nil`: nothing is remembered.
    var answers: RememberedAnswers?

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

    private static func variations(_ decisions: [ForcedDecision]) -> [ForcedDecision.Place: Identifier] {
        decisions.isEmpty ? [:] : Dictionary(decisions.map { ($0.place, $0.variationKey) }, uniquingKeysWith: { $1 })
    }
}

extension User {
    /// The attribute that replaces the user's id for hashing, if it is a string.
    static let bucketingIDAttribute = "$opt_bucketing_id"

    /// What is hashed for this user.
    public var bucketingID: Identifier {
        attributes[Self.bucketingIDAttribute]?.string.map { Identifier($0) } ?? id
    }

    /// The bucketing id that was given and is none, if so.
    var invalidBucketingID: JSONValue? {
        guard let value = attributes[Self.bucketingIDAttribute], !value.isNull, value.string == nil else { return nil }
        return value
    }

    func forcedVariationKey(flag: Identifier, rule: Identifier?) -> Identifier? {
        forcedVariations[.init(flag: flag, rule: rule)]
    }
}
