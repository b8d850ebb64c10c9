import Bucketing
import Definitions
import Foundation
import Storage
import TestSupport
import Testing

@testable import HoldfastCore
@testable import Statistics

/// The decision rule over the metrics of a plan.
@Suite struct VerdictTests {
    /// A metric of one variation with a lift, and a standard error of about 1%.
    private static func comparison(
        _ role: Verdict.Role, _ lift: Double, metric: String = "m", isDecrease: Bool = false, variation: Int = 1
    ) -> Verdict.Comparison {
        let samples = [1, 1 + lift].map { Sample(count: 10_000, mean: $0, variance: 0.5) }
        return Verdict.Comparison(
            metric: .init(metric), role: role, isDecrease: isDecrease, variation: variation,
            evidence: MeanContrast([(samples[1], samples[0])]).map { Evidence($0) })
    }

    private static func verdict(_ comparisons: Verdict.Comparison..., names: [String] = ["old", "new"])
        -> Verdict
    {
        Verdict(comparisons, names: names, baseline: 0, alpha: 0.05)
    }

    private static let guardrail = Verdict.Role.guardrail(margin: .share(0.05))

    @Test func `A variation ships if a primary metric is better, none is worse, and no guardrail may be`() {
        for (comparisons, decision) in [
            ([Self.comparison(.primary, 0.2)], Verdict.Decision.ship),
            ([Self.comparison(.primary, 0.2), Self.comparison(.primary, 0)], .ship),
            ([Self.comparison(.primary, 0.2), Self.comparison(.primary, -0.2)], .stop),
            ([Self.comparison(.primary, 0)], .continue),
            ([Self.comparison(.primary, -0.2)], .stop),
            ([Self.comparison(.primary, -0.2, isDecrease: true)], .ship),
            ([Self.comparison(.primary, 0.2), Self.comparison(Self.guardrail, 0)], .ship),
            ([Self.comparison(.primary, 0.2), Self.comparison(Self.guardrail, -0.03)], .continue),
            ([Self.comparison(.primary, 0.2), Self.comparison(Self.guardrail, -0.2)], .stop),
            ([Self.comparison(.primary, 0.2), Self.comparison(Self.guardrail, 0.2, isDecrease: true)], .stop),
            ([Self.comparison(.primary, 0.2), Self.comparison(Self.guardrail, -0.2, isDecrease: true)], .ship),
            // For information only.
            ([Self.comparison(.primary, 0.2), Self.comparison(.secondary, -0.2)], .ship),
            ([Self.comparison(.secondary, 0.2)], .continue),
            ([Self.comparison(Self.guardrail, 0.2)], .continue),
        ] {
            let verdict = Verdict(comparisons, names: ["old", "new"], baseline: 0, alpha: 0.05)
            #expect(verdict.decision == decision, "\(comparisons): \(verdict.reasons)")
            #expect(verdict.winner == (decision == .ship ? 1 : nil))
            #expect(!verdict.reasons.isEmpty)
        }
    }

    @Test func `Of several variations the one with the greatest gain ships, and all must fail to stop`() {
        let names = ["old", "a", "b"]
        let best = Self.verdict(
            Self.comparison(.primary, 0.2), Self.comparison(.primary, 0.3, variation: 2), names: names)
        #expect(best.decision == .ship && best.winner == 2)
        let guarded = Self.verdict(
            Self.comparison(.primary, 0.2), Self.comparison(.primary, 0.3, variation: 2),
            Self.comparison(Self.guardrail, 0),
            Self.comparison(Self.guardrail, -0.2, variation: 2), names: names)
        #expect(guarded.decision == .ship && guarded.winner == 1)
        let half = Self.verdict(
            Self.comparison(.primary, -0.2), Self.comparison(.primary, 0, variation: 2), names: names)
        #expect(half.decision == .continue)
        let all = Self.verdict(
            Self.comparison(.primary, -0.2), Self.comparison(Self.guardrail, -0.2, variation: 2), names: names)
        #expect(all.decision == .stop && all.reasons.count == 2)
    }

    @Test func `Reasons are sentences with the numbers that carry them`() {
        let verdict = Self.verdict(
            Self.comparison(.primary, 0.2, metric: "orders"), Self.comparison(Self.guardrail, 0, metric: "refunds"))
        #expect(
            verdict.reasons == [
                "primary metric 'orders': 'new' is better than 'old': lift +20.0% (+16.6% to +23.5%), p < 0.0001",
                "guardrail metric 'refunds': 'new' is not worse than 'old' by its margin of 5.0%: lift 0.0% "
                    + "(-3.1% to +3.2%), p < 0.0001",
            ])
        var empty = Self.comparison(.primary, 0)
        empty.evidence = nil
        #expect(
            Self.verdict(empty).reasons
                == [
                    "primary metric 'm': whether 'new' differs from 'old' is not certain yet, because it has too few users yet"
                ])
    }

    /// Experiments in which nothing has an effect: three variations, two primary metrics and two guardrails, looked at after
    /// each of many commits.
    @Test
    func
        `Without any effect, at most alpha of the experiments are ever shipped or stopped, with a look at every commit`()
    {
        var random = SeededGenerator(seed: 1)
        let (experiments, looks, users) = (400, 60, 250.0)
        var decided = 0
        for _ in 0..<experiments {
            var sums = [[Double]](repeating: [0, 0, 0], count: 4)
            for look in 1...looks {
                for metric in sums.indices {
                    // Values with a mean and a standard deviation of 1.
                    for variation in 0..<3 { sums[metric][variation] += users + users.squareRoot() * random.normal() }
                }
                let count = users * Double(look)
                let comparisons = sums.enumerated().flatMap { metric, sums in
                    let samples = sums.map { Sample(count: count, mean: $0 / count, variance: 1) }
                    return (1...2).map { variation in
                        Verdict.Comparison(
                            metric: Identifier("m\(metric)"),
                            role: metric < 2 ? .primary : .guardrail(margin: .share(0.01)),
                            isDecrease: false,
                            variation: variation,
                            evidence: MeanContrast([(samples[variation], samples[0])]).map { Evidence($0) })
                    }
                }
                let verdict = Verdict(comparisons, names: ["a", "b", "c"], baseline: 0, alpha: 0.05)
                if verdict.decision != .continue {
                    decided += 1
                    break
                }
            }
        }
        #expect(Double(decided) <= 0.05 * Double(experiments))
    }

    @Test(arguments: [0.05, -0.05])
    func `With the users of the plan, an effect is found as often as planned, by one look and by any`(
        effect: Double
    ) throws {
        var random = SeededGenerator(seed: 2)
        for looks in [Power.Looks.one, .any(tuning: ResultsQuery.tuning)] {
            let power = Power(of: .mean(1, standardDeviation: 1), alpha: 0.05, target: 0.8, looks: looks)
            let users = try #require(power.time(toFind: effect, until: 1e9) { ($0, $0) })
            // One look at the end; or one after each percent of the users.
            let count = looks == .one ? 1 : 100
            let step = users / Double(count)
            var found = 0
            for _ in 0..<1_000 {
                var sums = [0.0, 0.0]
                for look in 1...count {
                    for side in 0...1 {
                        sums[side] += step * (side == 1 ? 1 + effect : 1) + step.squareRoot() * random.normal()
                    }
                    let n = step * Double(look)
                    let samples = sums.map { Sample(count: n, mean: $0 / n, variance: 1) }
                    let contrast = try #require(MeanContrast([(samples[1], samples[0])]))
                    let rule: any LookingRule = looks == .one ? OneLook() : AlwaysValid()
                    if rule.pValue(contrast, .noEffect) <= 0.05 {
                        found += 1
                        break
                    }
                }
            }
            #expect((760...850).contains(found), "\(looks): \(found)")
        }
    }
}
