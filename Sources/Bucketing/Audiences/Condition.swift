/// A tree of conditions, ready to be evaluated. Its logic has three values: an answer that is unknown, because an
/// attribute is missing or of the wrong type, is `nil`.
package indirect enum Condition: Sendable {
    case and([Condition])
    case or([Condition])
    case not(Condition?)
    case attribute(AttributeCondition)
    case audience(Identifier, Condition)
    /// An audience that the datafile lacks.
    case missingAudience(String)
    /// A segment that is kept beside the datafile; which conditions it has is found when they are evaluated.
    case segment(Identifier)
    /// Conditions that take long enough to be remembered for a user, see ``RememberedAnswers``.
    case remembered(RememberedAnswers.Subject, Condition)
    /// What cannot be evaluated at all.
    case invalid
}

extension Condition {
    func evaluate(for user: User, _ reasons: inout Reasons) -> Bool? {
        switch self {
        case .and(let conditions): Self.all(conditions, user, &reasons)
        case .or(let conditions): Self.any(conditions, user, &reasons)
        case .not(let condition): condition?.evaluate(for: user, &reasons).map { !$0 }
        case .attribute(let condition): condition.evaluate(for: user, &reasons)
        case .audience(let id, let condition): Self.audience(id, condition, user, &reasons)
        case .missingAudience(let id): Self.missingAudience(id, &reasons)
        case .segment(let name): Self.segment(name, user, &reasons)
        case .remembered(let subject, let condition):
            if let answers = user.answers {
                answers.answer(subject, &reasons) { condition.evaluate(for: user, &$0) }
            } else {
                condition.evaluate(for: user, &reasons)
            }
        case .invalid: nil
        }
    }

    /// False if one is false, even when another is unknown.
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

    /// True if one is true, even when another is unknown.
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
        let answer = condition.evaluate(for: user, &reasons)
        if answer == nil {
            reasons.addForAgent("an error occurred while evaluating nested tree for audience ID \"\(id)\"")
        }
        return answer
    }

    private static func missingAudience(_ id: String, _ reasons: inout Reasons) -> Bool? {
        reasons.add("unable to evaluate nested tree for audience ID \"\(id)\"")
        return nil
    }

    private static func segment(_ name: Identifier, _ user: User, _ reasons: inout Reasons) -> Bool? {
        guard let segment = user.known?.segment(name) else {
            reasons.add("there is no segment \"\(name)\"")
            return nil
        }
        return segment.condition.evaluate(for: user, &reasons)
    }
}
