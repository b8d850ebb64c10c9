public import Bucketing
public import Definitions
import Statistics
import Storage

/// The recommendation that follows from the results of one goal or metric, or of all metrics of a plan. It may be read
/// at any time, and any number of times.
///
/// The decision rule follows Schultzberg, Ankargren and Frånberg, Risk-aware product decisions in A/B tests with
/// multiple metrics, 2024:
/// - **Ship** a variation that improves at least one primary metric, worsens no primary metric, and is shown to be
///   within the margin of every guardrail.
/// - **Stop** if every variation worsens a primary metric or exceeds the margin of a guardrail.
/// - **Continue** otherwise.
///
/// All p-values and intervals are always valid. The primary metrics of all variations are tested together by Holm's
/// procedure. Passing a guardrail is tested without a correction, because a variation must pass every guardrail.
/// Failing a guardrail is corrected for the number of guardrails, because one failure is sufficient to stop. The
/// probability of ever shipping or stopping when nothing has an effect is at most α.
public struct Verdict: Sendable {
    /// What to do with the experiment.
    public enum Decision: String, Sendable, CaseIterable {
        /// A variation is better.
        case ship
        /// All variations are worse.
        case stop
        /// There is no significant result yet.
        case `continue`
        /// The users are not comparable, so the numbers are meaningless.
        case invalid
    }

    /// The role of a metric in the verdict.
    public enum Role: Sendable, Equatable {
        case primary
        /// The metric is shown, but does not affect the verdict.
        case secondary
        /// - Parameter margin: by how much the metric may become worse.
        case guardrail(margin: ExperimentMetrics.Margin)
        /// The share of users with any event that a guardrail counts. The share shows breakage earlier than a total or
        /// a mean. It can only count against a variation: shipping does not require that it is within the margin.
        case shareOfGuardrail(margin: ExperimentMetrics.Margin)

        /// The name of the role in the API.
        public var name: String {
            switch self {
            case .primary: "primary"
            case .secondary: "secondary"
            case .guardrail, .shareOfGuardrail: "guardrail"
            }
        }
    }

    /// A metric of a variation, compared with the baseline.
    public struct Comparison: Sendable {
        /// The key of the metric, or the goal.
        var metric: Identifier
        var role: Role
        /// Whether less is better.
        var isDecrease: Bool
        /// The unit of the metric, for texts.
        var unit = ""
        /// The index of the variation in the results.
        var variation: Int
        /// The contrast with the baseline; `nil` if there is too little data.
        var evidence: Evidence?
    }

    /// The result of the test of a comparison.
    public struct Finding: Sendable {
        public enum Outcome: String, Sendable, CaseIterable {
            /// `better` and `worse` are significant differences from the baseline; guardrails do not have them.
            /// `uncertain` means that there is no significant result yet.
            case better, worse, uncertain
            /// For a guardrail: significantly better than its margin.
            case withinMargin = "within_margin"
            /// For a guardrail: significantly worse than its margin.
            case beyondMargin = "beyond_margin"
        }

        /// The key of the metric, or the goal.
        public var metric: Identifier
        public var role: Role
        /// The unit of the metric, for texts.
        var unit = ""
        /// The index of the variation in the results.
        public var variation: Int
        public var outcome: Outcome
        /// The effect; `nil` if there is too little data. Its intervals exclude the null hypothesis if and only if the
        /// outcome is significant. The null hypothesis is 0 for a primary or secondary metric. For a guardrail it is
        /// the margin, in the interval that has the unit of the margin.
        public var effect: EffectSize?
        /// The p-value of the null hypothesis, corrected according to the role; `nil` if there is too little data.
        public var pValue: Double?
    }

    public let decision: Decision
    /// The index of the variation to ship; `nil` unless the decision is to ship.
    public let winner: Int?
    /// The reasons as sentences, with the numbers on which the decision is based.
    public let reasons: [String]
    /// The findings, in the order of the comparisons.
    public let findings: [Finding]

    /// - Parameters:
    ///   - names: the names of the variations.
    ///   - baseline: the index of the baseline.
    ///   - subject: the goal or metric, if there is only one. Sentences then do not name it.
    ///   - invalid: sentences that explain why the users are not comparable.
    ///   - unready: sentences that explain why there is too little data.
    init(
        _ comparisons: [Comparison], names: [String], baseline: Int, alpha: Double, onlyOf subject: String? = nil,
        invalid: [String] = [], unready: [String] = []
    ) {
        let findings = Self.findings(comparisons, alpha: alpha)
        guard invalid.isEmpty else {
            self.init(.invalid, because: invalid, findings)
            return
        }
        guard unready.isEmpty else {
            self.init(.continue, because: unready, findings)
            return
        }
        guard comparisons.contains(where: { $0.role == .primary }) else {
            let reason =
                subject.map { "no variation has a \($0) that can be compared with that of '\(names[baseline])' yet" }
                ?? "the plan has no primary metric that could be improved"
            self.init(.continue, because: [reason], findings)
            return
        }
        let sentences = VerdictSentences(
            comparisons: comparisons, findings: findings, names: names, baseline: baseline,
            namesMetrics: subject == nil)
        let variations = names.indices.filter { $0 != baseline }
        if let winner = Self.winner(of: variations, comparisons, findings) {
            // The sentences about the winner come first.
            let ordered = [winner] + variations.filter { $0 != winner }
            self.init(.ship, winner: winner, because: ordered.flatMap { sentences.certain(of: $0) }, findings)
        } else if !variations.isEmpty, variations.allSatisfy({ Self.isRuledOut($0, findings) }) {
            self.init(.stop, because: variations.flatMap { sentences.against($0) }, findings)
        } else {
            let reasons = variations.flatMap { sentences.certain(of: $0) + sentences.uncertain(of: $0) }
            self.init(.continue, because: reasons, findings)
        }
    }

    private init(_ decision: Decision, winner: Int? = nil, because reasons: [String], _ findings: [Finding]) {
        self.decision = decision
        self.winner = winner
        self.reasons = reasons
        self.findings = findings
    }

    /// Returns the shippable variation that improves the most important metric most; `nil` if none is shippable.
    private static func winner(
        of variations: [Int], _ comparisons: [Comparison], _ findings: [Finding]
    ) -> Int? {
        variations.filter { isShippable($0, findings) }.max { left, right in
            gains(of: left, comparisons, findings).lexicographicallyPrecedes(gains(of: right, comparisons, findings))
        }
    }

    /// Whether a variation improves a primary metric, worsens none, and is within the margin of every guardrail.
    private static func isShippable(_ variation: Int, _ findings: [Finding]) -> Bool {
        let own = findings.filter { $0.variation == variation }
        let primary = own.filter { $0.role == .primary }.map(\.outcome)
        return primary.contains(.better) && !primary.contains(.worse)
            && own.allSatisfy { finding in
                if case .guardrail = finding.role { finding.outcome == .withinMargin } else { true }
            }
    }

    /// Whether a variation worsens a primary metric, or exceeds the margin of a guardrail.
    private static func isRuledOut(_ variation: Int, _ findings: [Finding]) -> Bool {
        findings.contains { $0.variation == variation && $0.rulesOut }
    }

    /// Returns how much a variation improves each primary metric, in the order of the metrics; 0 without a significant
    /// improvement. The gain is the magnitude of the lift, or of the difference if the baseline's mean is 0.
    private static func gains(of variation: Int, _ comparisons: [Comparison], _ findings: [Finding]) -> [Double] {
        zip(comparisons, findings).compactMap { comparison, finding in
            guard finding.variation == variation, finding.role == .primary else { return nil }
            guard finding.outcome == .better, let effect = finding.effect else { return 0 }
            return abs(effect.lift ?? effect.difference)
        }
    }

    // MARK: Findings

    /// Tests comparisons: primary ones by Holm's procedure, secondary ones by that of Benjamini and Hochberg, and
    /// guardrails against their margins.
    ///
    /// - Returns: a finding for each comparison, in their order.
    static func findings(_ comparisons: [Comparison], alpha: Double) -> [Finding] {
        /// Tests the comparisons of some roles together. Comparisons without data are included with the p-value 1, so
        /// that the levels of the other comparisons do not change when the data arrives.
        ///
        /// Returns the results by the index of the comparison.
        func tested(
            _ hasRole: (Role) -> Bool, _ procedure: ([Double], Double) -> [TestedHypothesis]
        ) -> [Int: TestedHypothesis] {
            let indices = comparisons.indices.filter { hasRole(comparisons[$0].role) }
            let results = procedure(indices.map { comparisons[$0].evidence?.pValue() ?? 1 }, alpha)
            return Dictionary(zip(indices, results), uniquingKeysWith: { first, _ in first })
        }
        let primary = tested({ $0 == .primary }) { Multiplicity.holm($0, alpha: $1) }
        let secondary = tested({ $0 == .secondary }) { Multiplicity.benjaminiHochberg($0, alpha: $1) }
        let guardrails = comparisons.count { $0.role.margin != nil }
        return comparisons.enumerated().map { index, comparison in
            var finding = Finding(
                metric: comparison.metric, role: comparison.role, unit: comparison.unit,
                variation: comparison.variation, outcome: .uncertain)
            guard let evidence = comparison.evidence else { return finding }
            if let margin = comparison.role.margin {
                finding.judge(evidence, margin, isDecrease: comparison.isDecrease, alpha: alpha, among: guardrails)
            } else if let test = primary[index] ?? secondary[index] {
                let effect = EffectSize(evidence, alpha: test.level, unit: comparison.unit)
                finding.effect = effect
                finding.pValue = test.pValue
                if test.isRejected {
                    finding.outcome = (effect.difference > 0) != comparison.isDecrease ? .better : .worse
                }
            }
            return finding
        }
    }
}

extension Verdict.Finding {
    /// Whether the finding excludes shipping the variation.
    var rulesOut: Bool { (role == .primary && outcome == .worse) || outcome == .beyondMargin }

    /// Compares a guardrail with its margin.
    ///
    /// The two errors have different levels. Wrongly passing a guardrail has the level α without a correction, because
    /// a variation must pass every guardrail to be shipped. Wrongly failing a guardrail has the level α divided by the
    /// number of guardrails, because one failure is sufficient to stop. Each interval has these levels at its two ends,
    /// so that the interval agrees with the outcome.
    ///
    /// - Parameter count: the number of comparisons with a margin.
    fileprivate mutating func judge(
        _ evidence: Evidence, _ margin: ExperimentMetrics.Margin, isDecrease: Bool, alpha: Double, among count: Int
    ) {
        let edge = margin.edge(isDecrease: isDecrease)
        let isWithin = evidence.contrast.isAbove(edge) != isDecrease
        let corrected = alpha / Double(max(1, count))
        let p = evidence.pValue(edge)
        pValue = isWithin ? p : min(1, p * Double(count))
        if isWithin, p < alpha { outcome = .withinMargin }
        if !isWithin, p < corrected { outcome = .beyondMargin }
        // The lower end of the interval is on the worse side, unless less is better.
        let lowerLevel = isDecrease ? corrected : alpha
        let upperLevel = isDecrease ? alpha : corrected
        /// Returns the interval with the lower end of one level and the upper end of the other.
        func joined(_ interval: (Double) -> ClosedRange<Double>?) -> ClosedRange<Double>? {
            guard let lower = interval(lowerLevel), let upper = interval(upperLevel) else { return nil }
            return lower.lowerBound...upper.upperBound
        }
        var effect = EffectSize(evidence, alpha: alpha, unit: unit)
        effect.liftInterval = joined { evidence.liftInterval(alpha: $0) }
        effect.differenceInterval = joined { evidence.differenceInterval(alpha: $0) }
        self.effect = effect
    }
}

extension Verdict.Role {
    /// Whether the share of users with any event is compared instead of the metric itself.
    var isShareOfUsers: Bool { if case .shareOfGuardrail = self { true } else { false } }

    /// The margin of a guardrail; `nil` for other roles.
    var margin: ExperimentMetrics.Margin? {
        switch self {
        case .guardrail(let margin), .shareOfGuardrail(let margin): margin
        case .primary, .secondary: nil
        }
    }
}
