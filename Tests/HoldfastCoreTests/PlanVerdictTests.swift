import Bucketing
import Foundation
import Storage
import TestSupport
import Testing

@testable import HoldfastCore
@testable import Statistics

/// The decision rule over the metrics of a plan.
@Suite struct PlanVerdictTests {
    /// A metric of one variation with a lift, and its standard error of 1%.
    private static func comparison(
        _ role: PlanVerdict.Role, _ lift: Double, metric: String = "m", isDecrease: Bool = false, variation: Int = 1
    ) -> PlanVerdict.Comparison {
        let effect = Effect(estimate: lift, variance: 0.0001)
        return PlanVerdict.Comparison(
            metric: .init(metric), role: role, isDecrease: isDecrease, variation: variation,
            sequence: .init(effect, count: 20_000, ConfidenceSequence(alpha: 0.05, tuning: ResultsQuery.tuning)))
    }

    private static func verdict(_ comparisons: PlanVerdict.Comparison..., names: [String] = ["old", "new"])
        -> PlanVerdict
    {
        PlanVerdict(comparisons, names: names, baseline: 0, alpha: 0.05)
    }

    private static let guardrail = PlanVerdict.Role.guardrail(margin: 0.05)

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
            let verdict = PlanVerdict(comparisons, names: ["old", "new"], baseline: 0, alpha: 0.05)
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
                "primary metric 'orders': 'new' is better than 'old': lift +20.0% (+16.9% to +23.1%), p < 0.0001",
                "guardrail metric 'refunds': 'new' is not worse than 'old' by its margin of 5.0%: lift 0.0% "
                    + "(-3.1% to +3.1%), p < 0.0001",
            ])
        var empty = Self.comparison(.primary, 0)
        empty.sequence = nil
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
                let sequence = ConfidenceSequence(alpha: 0.05, tuning: ResultsQuery.tuning)
                let comparisons = sums.enumerated().flatMap { metric, sums in
                    let samples = sums.map { Sample(count: count, mean: $0 / count, variance: 1) }
                    return (1...2).map { variation in
                        PlanVerdict.Comparison(
                            metric: Identifier("m\(metric)"), role: metric < 2 ? .primary : .guardrail(margin: 0.01),
                            isDecrease: false,
                            variation: variation,
                            sequence: Comparison(samples[variation], against: samples[0]).lift.flatMap {
                                .init($0, count: 2 * count, sequence)
                            })
                    }
                }
                let verdict = PlanVerdict(comparisons, names: ["a", "b", "c"], baseline: 0, alpha: 0.05)
                if verdict.decision != .continue {
                    decided += 1
                    break
                }
            }
        }
        #expect(Double(decided) <= 0.05 * Double(experiments))
    }

    @Test func `With the users of the plan, an effect is found as often as planned, by one look and by any`() throws {
        var random = SeededGenerator(seed: 2)
        for looks in [Power.Looks.one, .any(tuning: ResultsQuery.tuning)] {
            let power = Power(of: .mean(1, standardDeviation: 1), alpha: 0.05, target: 0.9, looks: looks)
            let users = try #require(power.time(toFind: 0.05, until: 1e9) { ($0, $0) })
            var found = 0
            for _ in 0..<1_000 {
                let samples = [1, 1.05].map { mean in
                    Sample(count: users, mean: mean + random.normal() / users.squareRoot(), variance: 1)
                }
                let comparison = Comparison(samples[1], against: samples[0])
                var p = comparison.welchPValue
                if case .any(let tuning) = looks {
                    let lift = try #require(comparison.lift)
                    p = ConfidenceSequence(alpha: 0.05, tuning: tuning).pValue(lift, count: 2 * users)
                }
                if try #require(p) <= 0.05 { found += 1 }
            }
            #expect((870...930).contains(found), "\(looks): \(found)")
        }
    }
}

extension SeededGenerator {
    /// A number of the standard normal distribution, by the method of Box and Muller.
    fileprivate mutating func normal() -> Double {
        (-2 * log(Double.random(in: 1e-300..<1, using: &self))).squareRoot()
            * cos(2 * .pi * Double.random(in: 0..<1, using: &self))
    }
}
