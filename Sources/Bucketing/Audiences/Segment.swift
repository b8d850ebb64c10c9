public import JSON

/// A named set of users: those whose stored attributes meet conditions. Audiences refer to it by name: `{"segment":
/// "vip"}`.
public struct Segment: Sendable {
    /// 1 to 255 bytes.
    public let name: Identifier
    /// The conditions as they were given; see ``ConditionDialect/segment``.
    public let conditions: JSONValue
    /// The compiled conditions.
    package let condition: Condition
    /// The attributes that the conditions use.
    package let mentions: Mentions

    public init(name: Identifier, conditions: JSONValue) {
        self.name = name
        self.conditions = conditions
        let condition = Condition(audience: ConditionDialect.datafileForm(of: conditions), .segment)
        self.condition = condition.cachedIfLarge(as: .segment(name))
        var mentions = Mentions()
        condition.collectMentions(into: &mentions)
        self.mentions = mentions
    }

    /// Parses conditions as stores keep them; `null` if they are damaged.
    public static func conditions(stored text: String) -> JSONValue {
        (try? JSONParser(maximumDepth: 128).parse(text)) ?? .null
    }

    /// The conditions as stores keep them.
    public var storedConditions: String { String(decoding: conditions.encoded(), as: UTF8.self) }

    /// Whether the conditions use an attribute.
    public func asks(for attribute: Identifier) -> Bool {
        mentions.attributes.contains(attribute)
    }
}

/// The stored attributes of one user and the defined segments, as conditions look them up.
public protocol AttributeSource: Sendable {
    /// Returns the result of a test on the stored value of an attribute; `nil` if it is unknown.
    func evaluate(_ test: AttributeTest, attribute: Identifier) -> Bool?

    /// Returns the stored value of an attribute; `nil` if there is none.
    func value(of attribute: Identifier) -> JSONValue?

    /// Returns the segment with a name; `nil` if none is defined.
    func segment(_ name: Identifier) -> Segment?
}

/// The names of the attributes and segments that conditions use.
public struct Mentions: Sendable {
    public internal(set) var attributes: Set<Identifier> = []
    public internal(set) var segments: Set<Identifier> = []

    init() {}

    /// - Parameter audience: conditions in the format of a datafile's audience.
    public init(audience: JSONValue) {
        Condition(audience: audience).collectMentions(into: &self)
    }
}

extension Condition {
    /// Adds the names that the conditions use. Those of conditions that are always unknown are left out.
    func collectMentions(into mentions: inout Mentions) {
        switch self {
        case .and(let conditions), .or(let conditions):
            for condition in conditions { condition.collectMentions(into: &mentions) }
        case .not(let condition): condition?.collectMentions(into: &mentions)
        case .attribute(let condition):
            if case .test = condition.kind, let name = condition.name { mentions.attributes.insert(Identifier(name)) }
        case .audience(_, let condition): condition.collectMentions(into: &mentions)
        case .cached(_, let condition): condition.collectMentions(into: &mentions)
        case .segment(let name), .outsideSegment(let name): mentions.segments.insert(name)
        case .missingAudience, .invalid: break
        }
    }
}
