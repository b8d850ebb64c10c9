import Synchronization

/// All flags of one user as the server last told them. Never changed: a fetch makes a new one.
final class Evaluations: Sendable {
    /// What is kept on disk, and what the server answers.
    struct Content: Codable, Sendable {
        var userID: String
        var revision: String
        var evaluations: [EvaluationDetails]
        /// Names this answer to the server; absent in the answer itself.
        var entityTag: String?

        private enum CodingKeys: String, CodingKey {
            case userID = "user_id"
            case revision, evaluations
            case entityTag = "entity_tag"
        }
    }

    /// One flag, ready to be asked for.
    final class Flag: Sendable {
        let details: EvaluationDetails
        /// The only variable that is a number, if there is just one.
        let number: JSONValue?
        /// Whether the user's exposure to the experiment has been reported, or there is none to report.
        private let isReported: Atomic<Bool>

        fileprivate init(_ details: EvaluationDetails, isReported: Bool) {
            self.details = details
            let numbers = details.variables.values.filter { $0.doubleValue != nil }
            number = numbers.count == 1 ? numbers.first : nil
            self.isReported = Atomic(isReported)
        }

        fileprivate var wasReported: Bool { isReported.load(ordering: .relaxed) }

        /// Whether the caller is the first to use the flag and so has to report it.
        @inline(__always)
        func takeReport() -> Bool {
            guard !isReported.load(ordering: .relaxed) else { return false }
            return !isReported.exchange(true, ordering: .relaxed)
        }
    }

    let content: Content
    private let flags: [Key: Flag]

    /// - Parameters:
    ///   - former: what the user had before; what was reported of it is not reported again.
    ///   - reports: whether exposures are reported at all.
    init(_ content: Content, after former: Evaluations?, reports: Bool) {
        self.content = content
        let former = former.flatMap { $0.content.userID.hasSameBytes(as: content.userID) ? $0 : nil }
        flags = Dictionary(
            content.evaluations.map { details in
                let known = former?[details.featureID]
                let isSame = known?.details.experimentID == details.experimentID && known?.details.variationID == details.variationID
                let hasReport = reports && details.experimentID != nil && details.variationID != nil
                return (Key(details.featureID), Flag(details, isReported: !hasReport || (isSame && known?.wasReported == true)))
            }, uniquingKeysWith: { _, last in last })
    }

    subscript(_ featureID: String) -> Flag? {
        flags[Key(featureID)]
    }

    /// The keys of flags that are not as they were.
    static func changes(from former: Evaluations?, to new: Evaluations?) -> Set<String> {
        var changed: Set<String> = []
        for flag in new?.flags.values ?? [:].values {
            if former?[flag.details.featureID]?.details.differs(from: flag.details) ?? true {
                changed.insert(flag.details.featureID)
            }
        }
        for flag in former?.flags.values ?? [:].values where new?[flag.details.featureID] == nil {
            changed.insert(flag.details.featureID)
        }
        return changed
    }
}

extension EvaluationDetails {
    /// Whether an app can see the difference; that a variation is by now stored it cannot.
    fileprivate func differs(from other: EvaluationDetails) -> Bool {
        variationKey != other.variationKey || variationID != other.variationID || experimentID != other.experimentID
            || isEnabled != other.isEnabled || variables != other.variables || ruleKey != other.ruleKey
    }
}
