public import JSON

/// The attributes and segments that conditions name.
public struct Mentions: Sendable {
    public internal(set) var attributes: Set<Identifier> = []
    public internal(set) var segments: Set<Identifier> = []

    init() {}

    /// - Parameter audience: conditions as an audience of a datafile has them.
    public init(audience: JSONValue) {
        Condition(audience: audience).collectMentions(into: &self)
    }
}

extension Condition {
    func collectMentions(into mentions: inout Mentions) {
        switch self {
        case .and(let conditions), .or(let conditions):
            for condition in conditions { condition.collectMentions(into: &mentions) }
        case .not(let condition): condition?.collectMentions(into: &mentions)
        case .attribute(let condition):
            if case .test = condition.kind, let name = condition.name { mentions.attributes.insert(Identifier(name)) }
        case .audience(_, let condition): condition.collectMentions(into: &mentions)
        case .remembered(_, let condition): condition.collectMentions(into: &mentions)
        case .segment(let name): mentions.segments.insert(name)
        case .missingAudience, .invalid: break
        }
    }
}
