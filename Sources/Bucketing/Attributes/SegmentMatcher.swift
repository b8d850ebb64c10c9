import JSON

/// The conditions of a segment, tied to the numbers that records have for attributes: made for looking through
/// millions of records where their bytes lie.
public struct SegmentMatcher: Sendable {
    private let test: BoundCondition

    public init(_ segment: Segment, schema: AttributeSchema) {
        test = BoundCondition(segment.condition, schema)
    }

    /// Whether the conditions hold for the user of a record; damaged bytes are as good as no attributes.
    public func matches(_ record: UnsafeRawBufferPointer) -> Bool {
        guard let fields = AttributeFields(record) else { return false }
        return test.answer(fields) ?? false
    }
}

/// A ``Condition`` whose leaves ask for numbers instead of names.
private indirect enum BoundCondition: Sendable {
    case and([BoundCondition])
    case or([BoundCondition])
    case not(BoundCondition)
    case attribute(UInt32, AttributeTest)
    /// What no stored attribute can answer, with its answer.
    case constant(Bool?)

    init(_ condition: Condition, _ schema: AttributeSchema) {
        switch condition {
        case .and(let conditions): self = .and(conditions.map { BoundCondition($0, schema) })
        case .or(let conditions): self = .or(conditions.map { BoundCondition($0, schema) })
        case .not(let condition): self = condition.map { .not(BoundCondition($0, schema)) } ?? .constant(nil)
        case .attribute(let condition): self.init(condition, schema)
        case .remembered(_, let condition): self.init(condition, schema)
        case .audience, .missingAudience, .segment, .invalid: self = .constant(nil)
        }
    }

    private init(_ condition: AttributeCondition, _ schema: AttributeSchema) {
        switch condition.kind {
        case .test(let test):
            if let attribute = condition.name.flatMap({ schema.attribute(Identifier($0)) }) {
                self = .attribute(attribute.number, test)
            } else {
                self = .constant(test.answer(JSONValue?.none))
            }
        case .qualified: self = .constant(false)
        case .unknownType, .unknownMatch: self = .constant(nil)
        }
    }

    func answer(_ fields: AttributeFields) -> Bool? {
        switch self {
        case .and(let conditions): Self.answer(conditions, fields, decisive: false)
        case .or(let conditions): Self.answer(conditions, fields, decisive: true)
        case .not(let condition): condition.answer(fields).map { !$0 }
        case .attribute(let number, let test): test.answer(fields.field(number))
        case .constant(let answer): answer
        }
    }

    /// One decisive answer decides, even when another is unknown.
    private static func answer(_ conditions: [BoundCondition], _ fields: AttributeFields, decisive: Bool) -> Bool? {
        var sawUnknown = false
        for condition in conditions {
            guard let answer = condition.answer(fields) else {
                sawUnknown = true
                continue
            }
            if answer == decisive { return decisive }
        }
        return sawUnknown ? nil : !decisive
    }
}
