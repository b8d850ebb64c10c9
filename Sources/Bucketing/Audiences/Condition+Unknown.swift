extension Condition {
    /// Evaluates once more, and collects the conditions on attributes that keep the answer from being known.
    ///
    /// - Parameter unknown: grows only if the answer is unknown.
    func evaluate(for user: User, unknown: inout [AttributeCondition]) -> Bool? {
        switch self {
        case .and(let conditions): return Self.settle(conditions, if: false, user, &unknown)
        case .or(let conditions): return Self.settle(conditions, if: true, user, &unknown)
        case .not(let condition): return condition?.evaluate(for: user, unknown: &unknown).map { !$0 }
        case .attribute(let condition):
            var ignored = Reasons(.none)
            let answer = condition.evaluate(for: user, &ignored)
            if answer == nil { unknown.append(condition) }
            return answer
        case .audience(_, let condition), .remembered(_, let condition):
            return condition.evaluate(for: user, unknown: &unknown)
        case .segment(let name):
            return user.known?.segment(name)?.condition.evaluate(for: user, unknown: &unknown)
        case .missingAudience, .invalid: return nil
        }
    }

    /// - Parameter decisive: the answer of one condition that settles that of all.
    private static func settle(
        _ conditions: [Condition], if decisive: Bool, _ user: User, _ unknown: inout [AttributeCondition]
    ) -> Bool? {
        let former = unknown.count
        var sawUnknown = false
        for condition in conditions {
            let answer = condition.evaluate(for: user, unknown: &unknown)
            if answer == decisive {
                unknown.removeSubrange(former...)
                return decisive
            }
            if answer == nil { sawUnknown = true }
        }
        return sawUnknown ? nil : !decisive
    }
}

extension DecisionRun {
    /// Attributes that the reasons name for one audience.
    private static var namedAttributes: Int { 20 }

    /// Says which attributes keep it unknown whether the user belongs to an audience.
    ///
    /// - Parameter subject: what the audience is of.
    func noteUnknown(_ audience: Condition, of subject: String) {
        var unknown: [AttributeCondition] = []
        _ = audience.evaluate(for: user, unknown: &unknown)
        var names: Set<String> = []
        for condition in unknown {
            guard let name = condition.name, names.insert(name).inserted, names.count <= Self.namedAttributes else { continue }
            reasons.add(
                condition.isMissing(for: user)
                    ? "Attribute \"\(name)\" is missing; the audience of \(subject) needs it."
                    : "Attribute \"\(name)\" has a value that the audience of \(subject) cannot compare.")
        }
        if names.isEmpty { reasons.add("The audience of \(subject) cannot be evaluated.") }
        let others = names.count - Self.namedAttributes
        if others > 0 { reasons.add("The audience of \(subject) lacks \(others) more attributes.") }
    }
}
