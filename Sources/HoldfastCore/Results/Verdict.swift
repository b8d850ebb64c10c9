import Bucketing
import Statistics
import Storage

/// What results say to do, by a rule that is stated: it may be read at any time and as often as one likes.
///
/// A variation is better or worse than the baseline if its always-valid p-value says so, after Holm's correction for the
/// number of variations: the probability of ever calling any variation without an effect better or worse is at most α, one
/// minus the confidence.
public struct Verdict: Sendable {
    public enum Decision: String, Sendable {
        /// A variation is better.
        case ship
        /// All variations are worse.
        case stop
        /// Nothing is certain yet.
        case `continue`
        /// The users are not comparable, so that no number means anything.
        case invalid
    }

    public enum Metric: String, Sendable, CaseIterable {
        case conversion, value
    }

    /// A variation as the verdict sees it.
    public struct Finding: Sendable {
        public enum Outcome: String, Sendable {
            case better, worse, uncertain
        }

        /// The index of the variation in the results.
        public var index: Int
        public var outcome: Outcome
        public var lift: Double
        /// Always valid, at the level at which Holm's procedure tests this variation: it excludes 0 if and only if the
        /// variation is better or worse.
        public var liftInterval: ClosedRange<Double>?
        /// Always valid, after Holm's correction.
        public var pValue: Double
    }

    public let decision: Decision
    /// Of a goal.
    public let metric: Metric
    /// What is compared: a metric of the goal, or the key of a metric.
    public let subject: String
    /// The index of the variation to ship.
    public let winner: Int?
    /// Sentences, with the numbers that carry the decision.
    public let reasons: [String]
    /// In the order of the variations; without the baseline, and those that cannot be compared.
    public let findings: [Finding]

    /// - Parameters:
    ///   - invalid: why the users are not comparable.
    ///   - unready: why there is too little data.
    init(_ results: ExperimentResults, invalid: [String], unready: [String]) {
        let variations = results.variations
        metric = results.query.metric
        let subject = results.measured.map { $0.definition.key.string } ?? results.query.metric.rawValue
        self.subject = subject
        let comparisons = variations.enumerated().compactMap { index, variation in
            results.estimate(of: variation)?.comparison?.sequence.map { (index: index, sequence: $0) }
        }
        // The direction in which a metric improves.
        let sign = results.measured?.definition.direction == .decrease ? -1.0 : 1
        findings = Self.findings(comparisons, sign, alpha: 1 - results.query.confidence)
        let better = findings.filter { $0.outcome == .better }.sorted { $0.lift * sign > $1.lift * sign }
        let worse = findings.filter { $0.outcome == .worse }
        let count = findings.count
        let baseline = results.baseline?.name ?? ""
        func sentences(_ findings: [Finding], _ word: String) -> [String] {
            findings.map {
                "'\(variations[$0.index].name)' is \(word) than '\(baseline)': \(Self.numbers(of: $0, among: count))"
            }
        }
        if !invalid.isEmpty {
            (decision, winner, reasons) = (.invalid, nil, invalid)
        } else if !unready.isEmpty {
            (decision, winner, reasons) = (.continue, nil, unready)
        } else if let best = better.first {
            (decision, winner) = (.ship, best.index)
            reasons = sentences(better, "better") + sentences(worse, "worse")
        } else if !worse.isEmpty, worse.count == variations.count - 1 {
            (decision, winner, reasons) = (.stop, nil, sentences(worse, "worse"))
        } else {
            (decision, winner) = (.continue, nil)
            let others = findings.filter { $0.outcome == .uncertain }.map {
                "whether '\(variations[$0.index].name)' differs from '\(baseline)' is not certain yet: "
                    + Self.numbers(of: $0, among: count)
            }
            let none = "no variation has a \(subject) that can be compared with that of '\(baseline)' yet"
            reasons = findings.isEmpty ? [none] : sentences(worse, "worse") + others
        }
    }

    private static func findings(
        _ comparisons: [(index: Int, sequence: ResultsComparison.Sequence)], _ sign: Double, alpha: Double
    ) -> [Finding] {
        let tested = Multiplicity.holm(comparisons.map(\.sequence.pValue), alpha: alpha)
        return zip(comparisons, tested).map { comparison, test in
            let (index, sequence) = comparison
            let lift = sequence.effect.estimate
            return Finding(
                index: index, outcome: test.isRejected ? lift * sign > 0 ? .better : .worse : .uncertain, lift: lift,
                liftInterval: sequence.interval(alpha: test.level), pValue: test.pValue)
        }
    }

    private static func numbers(of finding: Finding, among count: Int) -> String {
        let interval = finding.liftInterval.map { " (\(percent($0.lowerBound)) to \(percent($0.upperBound)))" } ?? ""
        let correction = count > 1 ? ", corrected for \(count) variations" : ""
        return "lift \(percent(finding.lift))\(interval), p \(ExperimentResults.short(finding.pValue))\(correction)"
    }

    /// For people: a share as a number of percents with one decimal.
    static func percent(_ share: Double, signed: Bool = true) -> String {
        guard abs(share) < 100 else { return share > 0 ? "> +10000%" : "< -10000%" }
        let rounded = (share * 1_000).rounded() / 10
        return "\(signed && rounded > 0 ? "+" : "")\(rounded)%"
    }
}
