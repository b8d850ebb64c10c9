import Bucketing
import Definitions
import Glibc
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
        public var effect: EffectSize
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
            results.estimate(of: variation)?.comparison.map { (index: index, evidence: $0.evidence) }
        }
        // The direction in which a metric improves.
        let sign = results.measured?.definition.direction == .decrease ? -1.0 : 1
        let unit = results.measured?.definition.unit ?? ""
        findings = Self.findings(comparisons, sign, alpha: 1 - results.query.confidence, unit: unit)
        let better = findings.filter { $0.outcome == .better }.sorted {
            $0.effect.difference * sign > $1.effect.difference * sign
        }
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
        _ comparisons: [(index: Int, evidence: Evidence)], _ sign: Double, alpha: Double, unit: String
    ) -> [Finding] {
        let tested = Multiplicity.holm(comparisons.map { $0.evidence.pValue() }, alpha: alpha)
        return zip(comparisons, tested).map { comparison, test in
            let effect = EffectSize(comparison.evidence, alpha: test.level, unit: unit)
            let isBetter = effect.difference * sign > 0
            return Finding(
                index: comparison.index, outcome: test.isRejected ? isBetter ? .better : .worse : .uncertain,
                effect: effect, pValue: test.pValue)
        }
    }

    private static func numbers(of finding: Finding, among count: Int) -> String {
        let correction = count > 1 ? ", corrected for \(count) variations" : ""
        return "\(finding.effect), p \(ExperimentResults.short(finding.pValue))\(correction)"
    }

    /// For people: a share as a number of percents with one decimal.
    static func percent(_ share: Double, signed: Bool = true) -> String {
        guard abs(share) < 100 else { return share > 0 ? "> +10000%" : "< -10000%" }
        let rounded = (share * 1_000).rounded() / 10
        return "\(signed && rounded > 0 ? "+" : "")\(rounded)%"
    }
}

/// How much a variation differs from the baseline, with always-valid intervals of the level at which it was tested: each
/// excludes 0 if and only if the variation is certainly better or worse.
public struct EffectSize: Sendable, CustomStringConvertible {
    public let difference: Double
    /// `nil` if it is not bounded, as is that of the lift.
    public internal(set) var differenceInterval: ClosedRange<Double>?
    /// The difference as a share of the magnitude of the baseline's mean; `nil` if that is 0.
    public let lift: Double?
    public internal(set) var liftInterval: ClosedRange<Double>?
    /// That of the metric, for people.
    private let unit: String

    init(_ evidence: Evidence, alpha: Double, unit: String = "") {
        self.unit = unit
        difference = evidence.contrast.difference
        differenceInterval = evidence.differenceInterval(alpha: alpha)
        lift = evidence.contrast.lift
        liftInterval = evidence.liftInterval(alpha: alpha)
    }

    /// For people: the lift, or the difference if the lift is not bounded.
    public var description: String {
        if let lift, let interval = liftInterval {
            return "lift \(Verdict.percent(lift)) (\(Verdict.percent(interval.lowerBound)) to "
                + "\(Verdict.percent(interval.upperBound)))"
        }
        return inUnits + (lift == nil ? "" : "; the lift is not bounded")
    }

    /// For people: the difference.
    var inUnits: String {
        let interval = differenceInterval.map {
            " (\(Verdict.number($0.lowerBound)) to \(Verdict.number($0.upperBound)))"
        }
        return "difference \(Verdict.number(difference, unit: unit))\(interval ?? ", not bounded")"
    }
}

extension Verdict {
    /// For people: a number with four significant digits and its sign.
    static func number(_ number: Double, signed: Bool = true, unit: String = "") -> String {
        let unit = unit.isEmpty ? "" : " " + unit
        guard number != 0, number.isFinite else { return "0" + unit }
        let scale = pow(10, 3 - floor(log10(abs(number))))
        let rounded = scale.isFinite && scale > 0 ? (number * scale).rounded() / scale : number
        return "\(signed && rounded > 0 ? "+" : "")\(rounded)\(unit)"
    }
}
