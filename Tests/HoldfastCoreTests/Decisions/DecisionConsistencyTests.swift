import Bucketing
import Definitions
import Foundation
import Statistics
import TestSupport
import Testing

@testable import HoldfastCore

/// Intervals, p-values, outcomes and sentences of one verdict, for random totals.
@Suite struct DecisionConsistencyTests {
    private static func evidence(_ random: inout SeededGenerator) -> Evidence? {
        func number(_ range: ClosedRange<Double>) -> Double { .random(in: range, using: &random) }
        func users() -> Double { pow(10, number(1...5)).rounded() }
        let periods = 1 + Int(number(0...1.3))
        let change = number(0.3...1.7)
        if Bool.random(using: &random) {
            let rate = pow(10, number(-3...(-0.3)))
            return RateContrast(
                (0..<periods).map { _ in
                    let (n1, n0) = (users(), users())
                    return .init(
                        (n1 * min(1, rate * change)).rounded(), of: n1, baseline: (n0 * rate).rounded(), of: n0)
                }
            ).map { Evidence($0) }
        }
        let (mean, variance) = (number(-1...1), exp(number(-4...2)))
        return MeanContrast(
            (0..<periods).map { _ in
                (
                    Sample(count: users(), mean: mean * change, variance: variance),
                    Sample(count: users(), mean: mean, variance: variance)
                )
            }
        ).map { Evidence($0) }
    }

    private static func comparisons(_ random: inout SeededGenerator) -> [Verdict.Comparison] {
        let roles: [Verdict.Role] = [
            .primary, .primary, .secondary, .guardrail(margin: .share(0.2)), .guardrail(margin: .absolute(0.1)),
        ]
        return roles.enumerated().flatMap { index, role in
            let isDecrease = Bool.random(using: &random)
            return (1...2).map { variation in
                Verdict.Comparison(
                    metric: Identifier("m\(index)"), role: role, isDecrease: isDecrease, variation: variation,
                    evidence: evidence(&random))
            }
        }
    }

    /// Whether an interval lies on the worse side of a number (-1), on the better one (1), or has it inside.
    private static func side(_ interval: ClosedRange<Double>, of number: Double, isDecrease: Bool) -> Int {
        let side = interval.lowerBound > number ? 1 : interval.upperBound < number ? -1 : 0
        return isDecrease ? -side : side
    }

    @Test func `Interval, p-value, outcome and sentence of 10,000 random results never contradict each other`() throws {
        var random = SeededGenerator(seed: 56)
        var outcomes: [String: Int] = [:]
        for _ in 0..<1_000 {
            let comparisons = Self.comparisons(&random)
            let verdict = Verdict(comparisons, names: ["a", "b", "c"], baseline: 0, alpha: 0.05)
            for (comparison, finding) in zip(comparisons, verdict.findings) {
                guard let evidence = comparison.evidence, let effect = finding.effect, let p = finding.pValue else {
                    #expect(finding.outcome == .uncertain)
                    continue
                }
                outcomes[finding.outcome.rawValue, default: 0] += 1
                let oneLook = OneLook().pValue(evidence.contrast, .noEffect)
                #expect(evidence.pValue() >= oneLook)
                #expect(finding.outcome == .uncertain || p <= 0.05)
                let isDecrease = comparison.isDecrease
                let side =
                    switch finding.outcome {
                    case .better, .withinMargin: 1
                    case .worse, .beyondMargin: -1
                    case .uncertain: 0
                    }
                switch comparison.role.margin {
                case .share(let margin):
                    if let interval = effect.liftInterval {
                        let edge = isDecrease ? margin : -margin
                        #expect(Self.side(interval, of: edge, isDecrease: isDecrease) == side, "\(finding)")
                    }
                case .absolute(let margin):
                    if let interval = effect.differenceInterval {
                        let edge = isDecrease ? margin : -margin
                        #expect(Self.side(interval, of: edge, isDecrease: isDecrease) == side, "\(finding)")
                    }
                case nil:
                    for interval in [effect.liftInterval, effect.differenceInterval].compactMap({ $0 }) {
                        #expect(Self.side(interval, of: 0, isDecrease: isDecrease) == side, "\(finding)")
                    }
                    #expect(side == 0 || (effect.difference > 0) == ((side > 0) != isDecrease))
                }
                try Self.expectSentence(finding, comparison, verdict)
            }
        }
        #expect(outcomes.values.reduce(0, +) > 9_900)
        for outcome in ["better", "worse", "uncertain", "within_margin", "beyond_margin"] {
            #expect(outcomes[outcome, default: 0] > 100, "\(outcomes)")
        }
    }

    /// The sentences about a metric of a variation say its outcome, and no other one.
    private static func expectSentence(
        _ finding: Verdict.Finding, _ comparison: Verdict.Comparison, _ verdict: Verdict
    ) throws {
        let name = ["a", "b", "c"][finding.variation]
        let own = verdict.reasons.filter { $0.contains("'\(finding.metric)'") && $0.contains("'\(name)'") }
        for sentence in own {
            let isExpected =
                switch finding.outcome {
                case .better: sentence.contains("'\(name)' is better than 'a'")
                case .worse: sentence.contains("'\(name)' is worse than 'a':")
                case .withinMargin: sentence.contains("'\(name)' is not worse than 'a' by its margin")
                case .beyondMargin: sentence.contains("'\(name)' is worse than 'a' by more than its margin")
                case .uncertain: sentence.contains("is not certain yet")
                }
            #expect(isExpected, "\(finding.outcome): \(sentence)")
        }
    }
}
