extension Condition {
    /// The conditions on attributes that keep the answer from being known; none if it is known.
    func unknownConditions(for user: User) -> [AttributeCondition] {
        var ignored = Reasons(.none)
        guard evaluate(for: user, &ignored) == nil else { return [] }
        switch self {
        case .and(let conditions), .or(let conditions): return conditions.flatMap { $0.unknownConditions(for: user) }
        case .not(let condition): return condition?.unknownConditions(for: user) ?? []
        case .attribute(let condition): return [condition]
        case .audience(_, let condition): return condition.unknownConditions(for: user)
        case .segment(let name): return user.known?.schema.segments[name]?.condition.unknownConditions(for: user) ?? []
        case .missingAudience, .invalid: return []
        }
    }
}

extension DecisionRun {
    /// Says which attributes keep it unknown whether the user belongs to an audience.
    ///
    /// - Parameter subject: what the audience is of.
    func noteUnknown(_ audience: Condition, of subject: String) {
        var named: Set<String> = []
        for condition in audience.unknownConditions(for: user) {
            guard let name = condition.name, named.insert(name).inserted else { continue }
            reasons.add(
                condition.isMissing(for: user)
                    ? "Attribute \"\(name)\" is missing; the audience of \(subject) needs it."
                    : "Attribute \"\(name)\" has a value that the audience of \(subject) cannot compare.")
        }
        if named.isEmpty { reasons.add("The audience of \(subject) cannot be evaluated.") }
    }
}
