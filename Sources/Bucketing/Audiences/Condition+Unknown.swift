// Explains why the result of an audience is unknown: which attributes are missing or have values that cannot be
// compared.

extension Condition {
    /// Evaluates the conditions like ``evaluate(for:_:)``, and collects the conditions on attributes that make the
    /// result unknown. This is a method of its own, so that ordinary decisions need not collect a list.
    ///
    /// - Parameter unknown: conditions are added only if the result is unknown.
    func evaluate(for user: User, unknown: inout [AttributeCondition]) -> Bool? {
        switch self {
        case .and(let conditions): return Self.evaluate(conditions, decisive: false, user, &unknown)
        case .or(let conditions): return Self.evaluate(conditions, decisive: true, user, &unknown)
        case .not(let condition): return condition?.evaluate(for: user, unknown: &unknown).map { !$0 }
        case .attribute(let condition):
            var ignored = Reasons(.none)
            let result = condition.evaluate(for: user, &ignored)
            if result == nil { unknown.append(condition) }
            return result
        case .audience(_, let condition), .cached(_, let condition):
            return condition.evaluate(for: user, unknown: &unknown)
        case .segment(let name):
            return user.storedAttributes?.segment(name)?.condition.evaluate(for: user, unknown: &unknown)
        case .outsideSegment(let name):
            // The result is never unknown: if it is unknown whether a user is in the segment, the user counts as
            // outside.
            var ignored: [AttributeCondition] = []
            return Condition.segment(name).evaluate(for: user, unknown: &ignored) != true
        case .missingAudience, .invalid: return nil
        }
    }

    /// Evaluates the conditions of an `and` or `or`.
    ///
    /// - Parameter decisive: the result of one condition that decides the whole: `false` for `and`, `true` for `or`.
    private static func evaluate(
        _ conditions: [Condition], decisive: Bool, _ user: User, _ unknown: inout [AttributeCondition]
    ) -> Bool? {
        let countBefore = unknown.count
        var sawUnknown = false
        for condition in conditions {
            let result = condition.evaluate(for: user, unknown: &unknown)
            if result == decisive {
                unknown.removeSubrange(countBefore...)
                return decisive
            }
            if result == nil { sawUnknown = true }
        }
        return sawUnknown ? nil : !decisive
    }
}

extension DecisionRun {
    /// The maximum number of attributes that the reasons list for one audience.
    private static var listedAttributes: Int { 20 }

    /// Adds a reason for each attribute that makes the result of an audience unknown.
    ///
    /// - Parameter subject: what the audience belongs to, such as `experiment "e"`.
    func explainUnknown(_ audience: Condition, of subject: String) {
        var unknown: [AttributeCondition] = []
        _ = audience.evaluate(for: user, unknown: &unknown)
        var names: Set<String> = []
        for condition in unknown {
            guard let name = condition.name, names.insert(name).inserted, names.count <= Self.listedAttributes else {
                continue
            }
            reasons.add(
                condition.isMissing(for: user)
                    ? "Attribute \"\(name)\" is missing; the audience of \(subject) needs it."
                    : "Attribute \"\(name)\" has a value that the audience of \(subject) cannot compare.")
        }
        if names.isEmpty { reasons.add("The audience of \(subject) cannot be evaluated.") }
        let others = names.count - Self.listedAttributes
        if others > 0 {
            reasons.add("\(others) more attributes of the audience of \(subject) are missing or cannot be compared.")
        }
    }
}
