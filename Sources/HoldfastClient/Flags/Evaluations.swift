/// An immutable snapshot of all evaluations of one user: the server's response, with the overrides of testers.
///
/// A fetch or a change of overrides replaces the whole snapshot, so that reads need only one short lock.
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

        /// Increased whenever ``Entry`` gets a new member, which the caches of earlier releases lack.
        static let currentFormat = 1

        private enum CodingKeys: String, CodingKey {
            case userID = "user_id"
            case revision, evaluations
            case entityTag = "entity_tag"
            case format
        }
    }

    /// The evaluation of one flag in a response. Members without a comment are those of ``EvaluationDetails``.
    struct Entry: Codable, Sendable {
        var flagKey: String
        var variationKey: String?
        var variationID: String?
        var experimentID: String?
        var enabled: Bool
        /// The flag's value for the user; absent in a response of an earlier release.
        var value: HoldfastValue?
        /// The type of the flag's value; `nil` for a flag with several variables.
        var type: String?
        var variables: [String: HoldfastValue]?
        var ruleKey: String?
        /// Why the flag has its value; absent in a response of an earlier release.
        var reason: String?
        /// The source of the variation, from which ``VariationReason`` is read if ``reason`` is absent or unknown.
        var source: String?
        /// Absent in a cache that an earlier release wrote.
        var flagVersion: Int?
        /// The steps of the decision; see ``EvaluationDetails/messages``.
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
        // The flag's value in each type. It is `nil` if the value cannot be read as the type.
        let bool: Bool?
        let string: String?
        let int: Int?
        let double: Double?
        /// Counts the evaluations that return the flag's value, or a default because there is none.
        let counter: EvaluationCounts.Counter
        /// Counts the evaluations that return a default because the value has another type.
        let wrongType: EvaluationCounts.Counter
        /// Whether no exposure has to be reported: it was reported already, or the flag has none.
        private let isReported: SharedFlag

        fileprivate init(_ details: EvaluationDetails, isReported: Bool, counts: EvaluationCounts) {
            self.details = details
            // Overrides of testers are not counted, and bootstrap values are counted like defaults.
            counter =
                switch details.reason {
                case .localOverride: EvaluationCounts.Counter()
                case .bootstrap: counts.counter(details.flagKey, nil, .notFetched)
                default: counts.counter(details.flagKey, details.variationKey, details.reason)
                }
            // Without a value of the flag, every evaluation is one of `counter`.
            let canHaveWrongType = details.variationValue != nil && details.reason != .localOverride
            wrongType = canHaveWrongType ? counts.counter(details.flagKey, nil, .wrongType) : counter
            bool = details.variationValue?.bool
            string = details.variationValue?.text
            int = details.variationValue?.int
            double = details.variationValue?.double
            self.isReported = SharedFlag(isReported)
        }

        fileprivate var wasReported: Bool { isReported.isSet }

        /// Returns `true` to the first caller, who must report the exposure.
        @inline(__always)
        func takeReport() -> Bool {
            !isReported.exchange(true)
        }
    }

    /// The server's response, without the overrides of testers.
    let content: Content
    /// Whether the content came from the server, now or in an earlier run.
    let isFetched: Bool
    /// All evaluations in the order of the datafile, then overrides of flags that it does not have.
    let all: [EvaluationDetails]
    private let flags: [Key: Flag]

    /// - Parameters:
    ///   - former: the previous snapshot; its reported exposures are not reported again.
    ///   - overrides: values by flag that replace those of the content.
    ///   - reports: whether exposures are reported.
    init(
        _ content: Content, isFetched: Bool, after former: Evaluations?, overrides: [String: HoldfastValue],
        reports: Bool, counts: EvaluationCounts
    ) {
        self.content = content
        self.isFetched = isFetched
        let former = former.flatMap { $0.content.userID.hasSameBytes(as: content.userID) ? $0 : nil }
        all = content.overridden(by: overrides).map { EvaluationDetails($0, of: content) }
        let flags = all.map { details in
            let isReported = !(reports && details.hasExposure) || former?.hasReported(details) == true
            return (Key(details.flagKey), Flag(details, isReported: isReported, counts: counts))
        }
        self.flags = Dictionary(flags) { _, last in last }
    }

    /// Whether the exposure to the same variation of the same experiment was reported.
    private func hasReported(_ details: EvaluationDetails) -> Bool {
        guard let flag = self[details.flagKey], flag.wasReported else { return false }
        return flag.details.experimentID == details.experimentID && flag.details.variationID == details.variationID
    }

    /// The evaluation of a flag; `nil` if there is no such flag.
    subscript(_ flagKey: String) -> Flag? {
        flags[Key(flagKey)]
    }

    /// The variations that the user has seen, by experiment: variation ids by experiment id.
    var seenVariations: [String: String] {
        flags.values.reduce(into: [:]) { seen, flag in
            guard flag.wasReported, let experimentID = flag.details.experimentID,
                let variationID = flag.details.variationID
            else { return }
            seen[experimentID] = variationID
        }
    }

    /// Returns the keys of flags that differ between two snapshots, or that only one of them has.
    static func changes(from former: Evaluations?, to new: Evaluations?) -> Set<String> {
        var changed: Set<String> = []
        for flag in new?.flags.values ?? [:].values {
            let former = former?[flag.details.flagKey]
            if former?.details.differs(from: flag.details) ?? true { changed.insert(flag.details.flagKey) }
        }
        for flag in former?.flags.values ?? [:].values where new?[flag.details.flagKey] == nil {
            changed.insert(flag.details.flagKey)
        }
        return changed
    }
}

extension Evaluations.Content {
    /// Creates the content from the bootstrap values of an app, for a user whose flags were never fetched.
    init(_ bootstrap: [String: HoldfastValue], userID: String) {
        self.userID = userID
        revision = ""
        evaluations = bootstrap.sorted { $0.key < $1.key }.map { Evaluations.Entry($0, $1, reason: .bootstrap) }
    }

    /// Returns the evaluations with the values of testers. An overridden flag that the server does not have is added.
    fileprivate func overridden(by overrides: [String: HoldfastValue]) -> [Evaluations.Entry] {
        guard !overrides.isEmpty else { return evaluations }
        var remaining = Dictionary(overrides.map { (Key($0), $1) }) { _, last in last }
        let known = evaluations.map { entry in
            guard let value = remaining.removeValue(forKey: Key(entry.flagKey)) else { return entry }
            return Evaluations.Entry(
                entry.flagKey, value, reason: .localOverride, variables: entry.variables, version: entry.flagVersion)
        }
        let added = remaining.sorted { $0.key.string < $1.key.string }
        return known + added.map { Evaluations.Entry($0.string, $1, reason: .localOverride) }
    }
}

extension Evaluations.Entry {
    /// Creates an entry whose value does not come from the server.
    fileprivate init(
        _ flagKey: String, _ value: HoldfastValue, reason: VariationReason, variables: [String: HoldfastValue]? = nil,
        version: Int? = nil
    ) {
        self.flagKey = flagKey
        self.value = value
        self.variables = (variables ?? [:]).merging(["value": value]) { $1 }
        self.reason = reason.rawValue
        enabled = value.bool ?? true
        // JSON may have a value of any type.
        type = "json"
        flagVersion = version
    }
}

extension EvaluationDetails {
    /// Reads the evaluation of one flag in a response.
    init(_ entry: Evaluations.Entry, of content: Evaluations.Content) {
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
                // The flag is off, or no rule applies, so it has the value for everybody else.
                entry.type == nil ? nil : entry.value
            }
        experimentID = entry.experimentID
        isEnabled = entry.enabled
        ruleKey = entry.ruleKey
        reason = VariationReason(
            entry.reason, source: entry.source ?? "none", hasVariation: entry.variationKey != nil)
        messages = entry.reasons ?? []
    }

    /// Whether the user sees a variation of an experiment, so that there is an exposure to report.
    fileprivate var hasExposure: Bool { experimentID != nil && variationID != nil }

    /// Whether there is a difference that an app can see. A different version or reason alone does not count.
    fileprivate func differs(from other: EvaluationDetails) -> Bool {
        variationKey != other.variationKey || variationID != other.variationID || experimentID != other.experimentID
            || isEnabled != other.isEnabled || variationValue != other.variationValue || variables != other.variables
            || ruleKey != other.ruleKey
    }
}
