public import Bucketing
public import JSON

/// The conditions of a segment or an audience, compiled for a scan of all users. A scan may evaluate millions of
/// records. Attributes are therefore found by number instead of by name, and values are compared without decoding them.
public struct SegmentMatcher: Sendable {
    private let test: BoundCondition

    public init(_ segment: Segment, schema: AttributeSchema) {
        test = BoundCondition(segment.condition, schema)
    }

    /// - Parameter conditions: in the form of a datafile's audience. `{"segment":"…"}` is met by the users of a
    ///   segment.
    public init(audience conditions: JSONValue, schema: AttributeSchema) {
        let audience = Segment(name: "", conditions: conditions)
        test = BoundCondition(audience.condition, schema, segments: schema.segments)
    }

    /// Whether a record meets the conditions. A damaged record counts as one without attributes.
    public func matches(_ record: UnsafeRawBufferPointer) -> Bool {
        guard let fields = AttributeFields(record) else { return false }
        return test.evaluate(fields) ?? false
    }
}

/// A `Condition` whose leaves refer to attributes by number instead of by name.
private indirect enum BoundCondition: Sendable {
    case and([BoundCondition])
    case or([BoundCondition])
    case not(BoundCondition)
    /// True for every user for whom the condition is false or unknown.
    case outside(BoundCondition)
    /// A test of the attribute with this number.
    case attribute(UInt32, AttributeTest)
    /// A leaf that does not depend on stored attributes.
    case constant(Bool?)

    /// - Parameter segments: the segments that leaves may name. It is empty for the conditions of a segment, because
    ///   segments must not name other segments.
    init(_ condition: Condition, _ schema: AttributeSchema, segments: [Identifier: Segment] = [:]) {
        func bound(_ condition: Condition) -> BoundCondition { BoundCondition(condition, schema, segments: segments) }
        func users(of name: Identifier) -> BoundCondition {
            segments[name].map { BoundCondition($0.condition, schema) } ?? .constant(nil)
        }
        switch condition {
        case .and(let conditions): self = .and(conditions.map(bound))
        case .or(let conditions): self = .or(conditions.map(bound))
        case .not(let condition): self = condition.map { .not(bound($0)) } ?? .constant(nil)
        case .attribute(let condition): self.init(condition, schema)
        case .cached(_, let condition): self = bound(condition)
        case .segment(let name): self = users(of: name)
        case .outsideSegment(let name): self = .outside(users(of: name))
        case .audience, .missingAudience, .invalid: self = .constant(nil)
        }
    }

    private init(_ condition: AttributeCondition, _ schema: AttributeSchema) {
        switch condition.kind {
        case .test(let test):
            if let attribute = condition.name.flatMap({ schema.attribute(Identifier($0)) }) {
                self = .attribute(attribute.number, test)
            } else {
                // An attribute that is not in the schema has no stored value.
                self = .constant(test.evaluate(JSONValue?.none))
            }
        // Only a request can list the user's segments of Optimizely's Data Platform, and a scan has no request.
        case .qualified: self = .constant(false)
        case .unknownType, .unknownMatch: self = .constant(nil)
        }
    }

    /// Returns whether a record meets the condition; `nil` if that is unknown, for example for a missing attribute.
    func evaluate(_ fields: AttributeFields) -> Bool? {
        switch self {
        case .and(let conditions): Self.evaluate(conditions, fields, decisive: false)
        case .or(let conditions): Self.evaluate(conditions, fields, decisive: true)
        case .not(let condition): condition.evaluate(fields).map { !$0 }
        case .outside(let condition): condition.evaluate(fields) != true
        case .attribute(let number, let test): test.evaluate(fields.field(number))
        case .constant(let value): value
        }
    }

    /// Evaluates a conjunction or a disjunction with three values: true, false and unknown (`nil`).
    ///
    /// - Parameter decisive: the value of an operand that determines the result, even if another operand is unknown.
    private static func evaluate(_ conditions: [BoundCondition], _ fields: AttributeFields, decisive: Bool) -> Bool? {
        var hasUnknown = false
        for condition in conditions {
            guard let value = condition.evaluate(fields) else {
                hasUnknown = true
                continue
            }
            if value == decisive { return decisive }
        }
        return hasUnknown ? nil : !decisive
    }
}

/// The extent of a segment scan.
public enum SegmentScan: Sendable {
    /// A page of users of the segment, which begins after this user; `nil` begins at the first user.
    case users(after: Identifier?)
    /// The number of users of the segment, without their ids.
    case size
}

/// The result of a segment scan.
public struct SegmentPage: Sendable {
    /// Users of the segment in the byte order of their ids; empty if users are only counted, or if none are left.
    public var userIDs: [Identifier] = []
    /// The last scanned user, after whom the next page begins; `nil` if all users have been scanned.
    public var last: Identifier?
    /// The number of scanned users who are in the segment.
    public var matches = 0
    /// The number of scanned users.
    public var examined = 0

    public init() {}
}
