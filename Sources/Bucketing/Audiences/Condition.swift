import JSON

/// A tree of conditions on a user, compiled from the JSON of an audience, a segment or an experiment.
///
/// Evaluating uses three-valued logic: true, false, or `nil` for unknown, because an attribute is missing or has the
/// wrong type. `and` is false if one condition is false, `or` is true if one is true, even if others are unknown.
package indirect enum Condition: Sendable {
    case and([Condition])
    case or([Condition])
    /// `nil` for a `not` without a condition, whose result is unknown.
    case not(Condition?)
    case attribute(AttributeCondition)
    /// An audience that the datafile has, with its conditions.
    case audience(Identifier, Condition)
    /// An audience that the datafile does not have.
    case missingAudience(String)
    /// A segment. Segments are defined outside the datafile, so the conditions are looked up when they are evaluated.
    case segment(Identifier)
    /// True for users who are not in the segment, and for users of whom it is unknown.
    case outsideSegment(Identifier)
    /// Conditions that take long enough to evaluate that the result is worth caching, see ``ConditionCache``.
    case cached(ConditionCache.Subject, Condition)
    /// Malformed conditions; the result is always unknown.
    case invalid
}

// MARK: - Compiling

extension Condition {
    /// Compiles `["and", leaf, ["or", leaf, …], …]`. A list without an operator means `or`.
    ///
    /// - Parameter leaf: compiles a value that is not a list: a condition on an attribute, or the id of an audience.
    init(_ value: JSONValue, leaf: (JSONValue) -> Condition) {
        guard let list = value.array else {
            self = leaf(value)
            return
        }
        let operands = list.dropFirst()
        switch list.first?.string {
        case "and": self = .and(operands.map { Condition($0, leaf: leaf) })
        case "or": self = .or(operands.map { Condition($0, leaf: leaf) })
        case "not": self = .not(operands.first.map { Condition($0, leaf: leaf) })
        default: self = list.isEmpty ? .invalid : .or(list.map { Condition($0, leaf: leaf) })
        }
    }

    /// Compiles the conditions of an audience, whose leaves are conditions on attributes or `{"segment":"…"}`.
    ///
    /// - Parameter dialect: which tests the conditions may have.
    init(audience value: JSONValue, _ dialect: ConditionDialect = .datafile) {
        self.init(value) { leaf in
            guard let object = leaf.object else { return .invalid }
            if let segment = object["segment"]?.string {
                if object.count == 1 { return .segment(Identifier(segment)) }
                if object.count == 2, object["match"] == "outside" { return .outsideSegment(Identifier(segment)) }
            }
            return .attribute(AttributeCondition(object, dialect))
        }
    }

    /// Compiles the audience conditions of an experiment, whose leaves are ids of audiences.
    ///
    /// - Returns: `nil` for an empty list, which means everyone.
    static func ofExperiment(_ value: JSONValue, audiences: [Identifier: Condition]) -> Condition? {
        if value.array?.isEmpty == true { return nil }
        return Condition(value) { leaf in
            guard let id = leaf.string else { return .invalid }
            return audiences[Identifier(id)].map { .audience(Identifier(id), $0) } ?? .missingAudience(id)
        }
    }
}

// MARK: - Evaluating

extension Condition {
    /// Evaluates the conditions for a user, and adds the reasons for errors.
    ///
    /// - Returns: `nil` if the result is unknown.
    func evaluate(for user: User, _ reasons: inout Reasons) -> Bool? {
        switch self {
        case .and(let conditions): Self.all(conditions, user, &reasons)
        case .or(let conditions): Self.any(conditions, user, &reasons)
        case .not(let condition): condition?.evaluate(for: user, &reasons).map { !$0 }
        case .attribute(let condition): condition.evaluate(for: user, &reasons)
        case .audience(let id, let condition): Self.audience(id, condition, user, &reasons)
        case .missingAudience(let id): Self.missingAudience(id, &reasons)
        case .segment(let name): Self.segment(name, user, &reasons)
        case .outsideSegment(let name): Self.outsideSegment(name, user, &reasons)
        case .cached(let subject, let condition):
            if let cache = user.conditionCache {
                cache.result(of: subject, &reasons) { condition.evaluate(for: user, &$0) }
            } else {
                condition.evaluate(for: user, &reasons)
            }
        case .invalid: nil
        }
    }

    /// False if one is false, even if another is unknown.
    private static func all(_ conditions: [Condition], _ user: User, _ reasons: inout Reasons) -> Bool? {
        var sawUnknown = false
        for condition in conditions {
            switch condition.evaluate(for: user, &reasons) {
            case false?: return false
            case nil: sawUnknown = true
            case true?: continue
            }
        }
        return sawUnknown ? nil : true
    }

    /// True if one is true, even if another is unknown.
    private static func any(_ conditions: [Condition], _ user: User, _ reasons: inout Reasons) -> Bool? {
        var sawUnknown = false
        for condition in conditions {
            switch condition.evaluate(for: user, &reasons) {
            case true?: return true
            case nil: sawUnknown = true
            case false?: continue
            }
        }
        return sawUnknown ? nil : false
    }

    private static func audience(
        _ id: Identifier, _ condition: Condition, _ user: User, _ reasons: inout Reasons
    ) -> Bool? {
        let result = condition.evaluate(for: user, &reasons)
        if result == nil {
            reasons.addForAgent("an error occurred while evaluating nested tree for audience ID \"\(id)\"")
        }
        return result
    }

    private static func missingAudience(_ id: String, _ reasons: inout Reasons) -> Bool? {
        reasons.add("unable to evaluate nested tree for audience ID \"\(id)\"")
        return nil
    }

    private static func segment(_ name: Identifier, _ user: User, _ reasons: inout Reasons) -> Bool? {
        guard let segment = user.storedAttributes?.segment(name) else {
            reasons.add("there is no segment \"\(name)\"")
            return nil
        }
        return segment.condition.evaluate(for: user, &reasons)
    }

    private static func outsideSegment(_ name: Identifier, _ user: User, _ reasons: inout Reasons) -> Bool? {
        // An unknown result means outside, unless a request could still make it known.
        let isInside = segment(name, user, &reasons)
        return isInside == nil && user.hasUnknownAttributes ? nil : isInside != true
    }
}
