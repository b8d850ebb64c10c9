/// What audiences and segments have answered for one user, so that conditions which many experiments share are evaluated
/// once. For one request, on one thread, and with reasons always or never.
package final class RememberedAnswers: @unchecked Sendable {
    // Safe: a user that has one is handed from one decision to the next, never to two at once.

    package enum Subject: Hashable, Sendable {
        case audience(Identifier)
        case segment(Identifier)
    }

    private struct Answer {
        let holds: Bool?
        let reasons: ArraySlice<String>
    }

    private var answers: [Subject: Answer] = [:]

    func answer(_ subject: Subject, _ reasons: inout Reasons, _ evaluate: (inout Reasons) -> Bool?) -> Bool? {
        if let known = answers[subject] {
            reasons.append(known.reasons)
            return known.holds
        }
        let count = reasons.texts.count
        let holds = evaluate(&reasons)
        answers[subject] = Answer(holds: holds, reasons: reasons.texts[count...])
        return holds
    }
}

extension User {
    /// The user with a memory for what long audiences answer, for several decisions with the same stored attributes.
    public func rememberingAnswers() -> User {
        guard answers == nil else { return self }
        var user = self
        user.answers = RememberedAnswers()
        return user
    }
}

extension Condition {
    /// Conditions that are evaluated in less time than an answer is remembered.
    private static let small = 16

    var isLong: Bool { leaves > Self.small }

    /// The condition, remembered if it is worth it.
    func remembered(as subject: RememberedAnswers.Subject) -> Condition {
        isLong ? .remembered(subject, self) : self
    }

    private var leaves: Int {
        switch self {
        case .and(let conditions), .or(let conditions): conditions.reduce(0) { $0 + $1.leaves }
        case .not(let condition): condition?.leaves ?? 1
        case .remembered(_, let condition), .audience(_, let condition): condition.leaves
        case .attribute, .missingAudience, .segment, .invalid: 1
        }
    }
}
