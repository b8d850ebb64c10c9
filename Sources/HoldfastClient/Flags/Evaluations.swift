import Synchronization

/// An immutable snapshot of all evaluations of one user.
final class Evaluations: Sendable {
    /// The server's response, which is also the cache's content.
    struct Content: Codable, Sendable {
        var userID: String
        var revision: String
        var evaluations: [Entry]
        /// The response's ETag, from the header field.
        var entityTag: String?
        /// The ``currentFormat`` of the release that wrote the cache; absent in a response, and in the caches of early
        /// releases.
        var format: Int?

        /// Raised whenever ``Entry`` has a new member, which the caches of earlier releases lack.
        static let currentFormat = 1

        private enum CodingKeys: String, CodingKey {
            case userID = "user_id"
            case revision, evaluations
            case entityTag = "entity_tag"
            case format
        }
    }

    /// One flag of a response.
    struct Entry: Codable, Sendable {
        var flagKey: String
        var variationKey: String?
        var variationID: String?
        var experimentID: String?
        var enabled: Bool
        /// The flag's value for the user, of its type; absent in a response of an earlier release.
        var value: HoldfastValue?
        /// `nil` for a flag with several variables.
        var type: String?
        var variables: [String: HoldfastValue]?
        var ruleKey: String?
        var reason: String?
        var source: String?
        /// Absent in a cache that an earlier release wrote.
        var flagVersion: Int?
        var reasons: [String]?

        private enum CodingKeys: String, CodingKey {
            case flagKey = "flag_key"
            case variationKey = "variation_key"
            case variationID = "variation_id"
            case experimentID = "experiment_id"
            case enabled, value, type, variables
            case ruleKey = "rule_key"
            case reason, source
            case flagVersion = "flag_version"
            case reasons
        }
    }

    /// The evaluation of one flag, with its value in each type.
    final class Flag: Sendable {
        let details: EvaluationDetails
        let bool: Bool?
        let string: String?
        let int: Int?
        let double: Double?
        /// Counts the evaluations that return the flag's value, or a default because there is none.
        let counter: EvaluationCounts.Counter
        /// Counts the evaluations that return a default because the value has another type.
        let wrongType: EvaluationCounts.Counter
        /// Whether the exposure was reported, or there is none to report.
        private let isReported: Atomic<Bool>

        fileprivate init(_ details: EvaluationDetails, isReported: Bool, counts: EvaluationCounts) {
            self.details = details
            counter = counts.counter(details.flagKey, details.variationKey, details.reason)
            wrongType = details.variationValue == nil ? counter : counts.counter(details.flagKey, nil, .wrongType)
            bool = details.variationValue?.bool
            string = details.variationValue?.text
            int = details.variationValue?.int
            double = details.variationValue?.double
            self.isReported = Atomic(isReported)
        }

        fileprivate var wasReported: Bool { isReported.load(ordering: .relaxed) }

        /// Returns `true` to the first caller, who must report the exposure.
        @inline(__always)
        func takeReport() -> Bool {
            guard !isReported.load(ordering: .relaxed) else { return false }
            return !isReported.exchange(true, ordering: .relaxed)
        }
    }

    let content: Content
    /// All evaluations in the order of the datafile.
    let all: [EvaluationDetails]
    private let flags: [Key: Flag]

    /// - Parameters:
    ///   - former: the previous snapshot; its reported exposures are not reported again.
    ///   - reports: whether exposures are reported.
    init(_ content: Content, after former: Evaluations?, reports: Bool, counts: EvaluationCounts) {
        self.content = content
        let former = former.flatMap { $0.content.userID.hasSameBytes(as: content.userID) ? $0 : nil }
        all = content.evaluations.map { EvaluationDetails($0, of: content) }
        flags = Dictionary(
            all.map { details in
                let known = former?[details.flagKey]
                let isSame =
                    known?.details.experimentID == details.experimentID
                    && known?.details.variationID == details.variationID
                let hasReport = reports && details.experimentID != nil && details.variationID != nil
                let isReported = !hasReport || (isSame && known?.wasReported == true)
                return (Key(details.flagKey), Flag(details, isReported: isReported, counts: counts))
            }, uniquingKeysWith: { _, last in last })
    }

    subscript(_ flagKey: String) -> Flag? {
        flags[Key(flagKey)]
    }

    /// Variation ids by experiment id that the user has seen.
    var seenVariations: [String: String] {
        flags.values.reduce(into: [:]) { seen, flag in
            guard flag.wasReported, let experimentID = flag.details.experimentID,
                let variationID = flag.details.variationID
            else { return }
            seen[experimentID] = variationID
        }
    }

    /// Returns the keys of flags that differ.
    static func changes(from former: Evaluations?, to new: Evaluations?) -> Set<String> {
        var changed: Set<String> = []
        for flag in new?.flags.values ?? [:].values {
            if former?[flag.details.flagKey]?.details.differs(from: flag.details) ?? true {
                changed.insert(flag.details.flagKey)
            }
        }
        for flag in former?.flags.values ?? [:].values where new?[flag.details.flagKey] == nil {
            changed.insert(flag.details.flagKey)
        }
        return changed
    }
}

extension EvaluationDetails {
    fileprivate init(_ entry: Evaluations.Entry, of content: Evaluations.Content) {
        flagKey = entry.flagKey
        flagVersion = entry.flagVersion ?? Int(content.revision) ?? 0
        userID = content.userID
        id = "\(flagKey):\(flagVersion):\(userID)"
        variationID = entry.variationID
        variationKey = entry.variationKey
        variables = entry.variables ?? [:]
        variationValue =
            if let key = entry.variationKey {
                variables["value"] ?? .string(key)
            } else {
                // The flag is off, or no rule applies: everybody else's value.
                entry.type == nil ? nil : entry.value
            }
        experimentID = entry.experimentID
        isEnabled = entry.enabled
        ruleKey = entry.ruleKey
        reason = VariationReason(
            entry.reason, source: entry.source ?? "none", hasVariation: entry.variationKey != nil)
        messages = entry.reasons ?? []
    }

    /// Whether an app can see a difference; another version or reason alone does not count.
    fileprivate func differs(from other: EvaluationDetails) -> Bool {
        variationKey != other.variationKey || variationID != other.variationID || experimentID != other.experimentID
            || isEnabled != other.isEnabled || variationValue != other.variationValue || variables != other.variables
            || ruleKey != other.ruleKey
    }
}
