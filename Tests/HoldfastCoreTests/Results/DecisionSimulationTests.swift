import Bucketing
import Definitions
import Foundation
import Statistics
import Storage
import TestSupport
import Testing

@testable import HoldfastCore

/// How often decisions are wrong, and how soon they are right, on simulated users from the totals of variations to the
/// verdict: the figures of the article "How Holdfast decides".
///
/// `HOLDFAST_TEST_SIMULATED_RUNS=4000` makes so many runs of each row, with a look every 100 users, and prints their results:
/// for a release build, by hand.
@Suite struct DecisionSimulationTests {
    private static let longRuns = ProcessInfo.processInfo.environment["HOLDFAST_TEST_SIMULATED_RUNS"].flatMap {
        Int($0)
    }
    private static let isLong = longRuns != nil
    private static let runs = longRuns ?? 100

    /// A setting in which nothing is worse, or better, than it may be.
    struct Null: CustomTestStringConvertible, Sendable {
        let testDescription: String
        let experiment: SimulatedExperiment
        var reader = SimulatedExperiment.Reader.verdict
    }

    private static func oneMetric(
        _ law: SimulatedLaw, other: SimulatedLaw? = nil, share: Double = 0.5, role: Verdict.Role = .primary,
        isDecrease: Bool = false
    ) -> SimulatedExperiment {
        SimulatedExperiment(
            metrics: [.init(role: role, isDecrease: isDecrease, laws: [[law, other ?? law]])],
            shares: [[1 - share, share]])
    }

    private static let margin = ExperimentMetrics.Margin.share(0.2)

    static let nulls: [Null] = {
        var nulls: [Null] = []
        // The extremes, and all in a long run.
        let rates = isLong ? [0.5, 0.1, 0.05, 0.02, 0.01, 0.001] : [0.5, 0.05, 0.001]
        let revenues: [(sigma: Double, buyers: Double)] =
            isLong
            ? [(1, 0.03), (1, 0.05), (1.5, 0.03), (1.5, 0.05), (2, 0.03), (2, 0.05)] : [(1, 0.05), (2, 0.03)]
        for share in [0.5, 0.1, 0.9] {
            for rate in rates {
                nulls.append(
                    Null(
                        testDescription: "rate \(rate * 100)%, \(share * 100)% in the variation",
                        experiment: oneMetric(.rate(rate), share: share)))
            }
            for (sigma, buyers) in revenues {
                nulls.append(
                    Null(
                        testDescription:
                            "revenue, sigma \(sigma), \(buyers * 100)% buy, \(share * 100)% in the variation",
                        experiment: oneMetric(.revenue(buyers, sigma: sigma), share: share)))
            }
        }
        func equal(_ laws: [SimulatedLaw], variations: Int) -> SimulatedExperiment {
            SimulatedExperiment(
                metrics: laws.map { law in .init(laws: [(0..<variations).map { _ in law }]) },
                shares: [(0..<variations).map { _ in 1 / Double(variations) }])
        }
        let others: [(String, SimulatedExperiment)] = [
            ("5 variations", equal([.rate(0.05)], variations: 6)),
            ("2 primary metrics", equal([.rate(0.05), .revenue(0.05, sigma: 1)], variations: 2)),
            ("mean order value", oneMetric(.ratio(0.05, sigma: 1, price: 20))),
            ("ratio", oneMetric(.ratio(0.4, sigma: 0.5))),
            ("retention", oneMetric(.rate(0.35))),
            ("step of a funnel", oneMetric(.rate(0.15), share: 0.1)),
            ("revenue with a cap", oneMetric(.revenue(0.05, sigma: 2, cap: 200))),
            ("means below zero", oneMetric(.value(-2, deviation: 3))),
            ("CUPED", oneMetric(.value(2, deviation: 3, correlation: 0.6))),
            (
                "guardrail of a rate at its margin",
                oneMetric(.rate(0.05), other: .rate(0.04), role: .guardrail(margin: margin))
            ),
            (
                "guardrail of revenue at its margin",
                oneMetric(
                    .revenue(0.05, sigma: 1), other: .revenue(0.05, sigma: 1, median: 16),
                    role: .guardrail(margin: margin))
            ),
            (
                "absolute margin",
                oneMetric(
                    .value(0.1, deviation: 3), other: .value(-0.1, deviation: 3),
                    role: .guardrail(margin: .absolute(0.2)))
            ),
            (
                "weights changed half-way while the rate moves",
                SimulatedExperiment(
                    metrics: [.init(laws: [0.05, 0.06].map { [.rate($0), .rate($0)] })],
                    shares: [[0.9, 0.1], [0.5, 0.5]],
                    ends: [25_000, .max])
            ),
            (
                "weights changed half-way while revenue moves",
                SimulatedExperiment(
                    metrics: [
                        .init(laws: [0.05, 0.07].map { [.revenue($0, sigma: 1), .revenue($0, sigma: 1)] })
                    ], shares: [[0.9, 0.1], [0.5, 0.5]], ends: [25_000, .max])
            ),
        ]
        nulls += others.map { Null(testDescription: $0, experiment: $1) }
        let ramp = SimulatedExperiment(
            metrics: [
                .init(laws: [[.rate(0.05), .rate(0.05)]]),
                .init(
                    role: .guardrail(margin: margin), laws: [[.revenue(0.05, sigma: 1), .revenue(0.04, sigma: 1)]],
                    hasShare: true),
                .init(role: .guardrail(margin: margin), isDecrease: true, laws: [[.rate(0.01), .rate(0.012)]]),
            ], shares: [[0.5, 0.5]])
        nulls.append(
            Null(testDescription: "ramp stopped, guardrails at their margins", experiment: ramp, reader: .ramp))
        return nulls
    }()

    /// The greatest number of runs that may decide if each does with a probability of 5%: two standard errors above it.
    private static func limit(_ probability: Double, of runs: Int = runs) -> Double {
        let count = Double(runs)
        return probability * count + 2 * (count * probability * (1 - probability)).squareRoot()
    }

    private static func report(_ name: String, _ count: Int, of runs: Int = runs) {
        if isLong { print("simulated | \(name) | \(count) of \(runs) | \(Double(count) / Double(runs) * 100)%") }
    }

    @Test(arguments: nulls)
    func `Where nothing is to be found, few runs ever decide`(null: Null) {
        var random = SeededGenerator(seed: 48)
        let looks = SimulatedExperiment.looks(upTo: null.experiment.users, isLong: Self.isLong)
        let decided = (0..<Self.runs).count { _ in null.experiment.decision(by: null.reader, looks, &random) != nil }
        Self.report("A/A " + null.testDescription, decided)
        #expect(Double(decided) <= Self.limit(0.05))
    }

    @Test func `A bandit whose variations are equal is rarely decided`() {
        var random = SeededGenerator(seed: 49)
        let (batches, users) = Self.isLong ? (100, 500) : (20, 1_000)
        let decided = (0..<Self.runs).count { _ in
            var shares = [0.5, 0.5]
            var known: [AdaptiveMeans.Batch] = []
            for _ in 0..<batches {
                let own = random.binomial(users, shares[1])
                let counts = [users - own, own]
                known.append(
                    AdaptiveMeans.Batch(
                        shares: shares,
                        samples: counts.map { Sample(successes: Double(random.binomial($0, 0.1)), of: Double($0)) }))
                let means = AdaptiveMeans(known, of: 2).samples
                if let contrast = MeanContrast(weighted: means[1], against: means[0]),
                    Evidence(contrast).pValue() <= 0.05
                {
                    return true
                }
                guard let chances = AdaptiveResults.chances(of: means, .rate, isDecrease: false) else { continue }
                shares = chances.map { 0.05 + 0.9 * $0 }
            }
            return false
        }
        Self.report("A/A bandit", decided)
        #expect(Double(decided) <= Self.limit(0.05))
    }

    @Test func `A control check is rarely suspicious in 200 looks`() {
        var random = SeededGenerator(seed: 50)
        let experiment = Self.oneMetric(.rate(0.1))
        let looks =
            Self.isLong
            ? Array(stride(from: 250, through: 50_000, by: 250))
            : SimulatedExperiment.looks(upTo: 50_000, isLong: false)
        let decided = (0..<Self.runs).count { _ in
            experiment.decision(looks, &random) { comparisons in
                ExperimentResults.ControlCheck(conversionPValue: comparisons[0].evidence?.pValue(), valuePValue: nil)
                    .isSuspicious
            } != nil
        }
        Self.report("A/A/A control check", decided)
        #expect(Double(decided) <= Self.limit(0.01))
    }

    // MARK: Power

    /// A setting in which something is to be found.
    struct Effect: CustomTestStringConvertible, Sendable {
        let testDescription: String
        let rates: [Double]
        let users: Int
    }

    static let effects = [
        Effect(testDescription: "1 to 2%, 10,000 users", rates: [0.01, 0.02], users: 10_000),
        Effect(testDescription: "5 to 5.5%, 50,000 users", rates: [0.05, 0.055], users: 50_000),
        Effect(testDescription: "0.1 to 0.05%, 50,000 users", rates: [0.001, 0.0005], users: 50_000),
    ]

    /// The plain difference of rates with the same boundary, once each side has ten conversions.
    private static func findsPlainly(_ comparison: Verdict.Comparison, _ tally: [(Double, Double)]) -> Bool {
        let ((users, converted), (baseUsers, baseConverted)) = (tally[1], tally[0])
        guard min(converted, baseConverted) >= 10, min(users, baseUsers) >= 100 else { return false }
        let (rate, base) = (converted / users, baseConverted / baseUsers)
        let variance = rate * (1 - rate) / users + base * (1 - base) / baseUsers
        let effective = 4 * users * baseUsers / (users + baseUsers)
        let squaredZ = (rate - base) * (rate - base) / variance
        return AlwaysValid().pValue(squaredZ: squaredZ, effectiveUsers: effective) <= 0.05
    }

    @Test(arguments: effects)
    func `Rates are told apart at least as often as by their plain difference`(effect: Effect) {
        var found: [Double: (own: Int, plain: Int)] = [:]
        for share in [0.5, 0.1, 0.9] {
            var random = SeededGenerator(seed: 51)
            let looks = SimulatedExperiment.looks(upTo: effect.users, isLong: Self.isLong)
            for _ in 0..<Self.runs {
                var tally = [(0.0, 0.0), (0.0, 0.0)]
                var (own, plain) = (false, false)
                for (look, step) in zip(looks, zip(looks, [0] + looks).map { $0 - $1 }) {
                    _ = look
                    let number = random.binomial(step, share)
                    for (index, users) in [step - number, number].enumerated() {
                        tally[index].0 += Double(users)
                        tally[index].1 += Double(random.binomial(users, effect.rates[index]))
                    }
                    let contrast = RateContrast([
                        .init(tally[1].1, of: tally[1].0, baseline: tally[0].1, of: tally[0].0)
                    ])
                    let comparison = Verdict.Comparison(
                        metric: "m", role: .primary, isDecrease: false, variation: 1,
                        evidence: contrast.map { Evidence($0) })
                    own = own || (comparison.evidence?.pValue() ?? 1) <= 0.05
                    plain = plain || Self.findsPlainly(comparison, tally)
                    if own, plain { break }
                }
                found[share, default: (0, 0)].own += own ? 1 : 0
                found[share, default: (0, 0)].plain += plain ? 1 : 0
            }
            Self.report("power \(effect.testDescription), \(share * 100)% in the variation", found[share]?.own ?? 0)
            Self.report("plain \(effect.testDescription), \(share * 100)% in the variation", found[share]?.plain ?? 0)
        }
        let slack = 2 * (Double(Self.runs) / 4).squareRoot()
        if let even = found[0.5] {
            #expect(Double(even.own) >= Double(even.plain) - slack)
            if effect.rates == [0.01, 0.02] { #expect(Double(even.own) >= 0.85 * Double(Self.runs) - slack / 2) }
        }
        if let (low, high) = found[0.1].flatMap({ low in found[0.9].map { (low, $0) } }) {
            #expect(Double(low.own + high.own) >= Double(low.plain + high.plain) - slack * 2.0.squareRoot())
        }
    }

    /// Something that does not work at all in the variation.
    struct Breakage: CustomTestStringConvertible, Sendable {
        let testDescription: String
        let rates: [Double]
        let isDecrease: Bool
        let share: Double
    }

    static let breakages = [0.5, 0.2, 0.05].flatMap { share in
        [
            Breakage(
                testDescription: "conversions 5% to 0, \(share * 100)% in the variation", rates: [0.05, 0],
                isDecrease: false, share: share),
            Breakage(
                testDescription: "crashes 0 to 10%, \(share * 100)% in the variation", rates: [0, 0.1],
                isDecrease: true,
                share: share),
        ]
    }

    @Test(arguments: breakages)
    func `What does not work is found before 400 users have it, by verdict and ramp`(breakage: Breakage) {
        let laws = breakage.rates.map { SimulatedLaw.rate($0) }
        let shares = [[1 - breakage.share, breakage.share]]
        let guardrail = SimulatedExperiment.Metric(
            role: .guardrail(margin: Self.margin), isDecrease: breakage.isDecrease, laws: [laws])
        let other = SimulatedExperiment.Metric(
            role: .guardrail(margin: Self.margin), laws: [[.rate(0.2), .rate(0.2)]])
        let readers: [(String, SimulatedExperiment, SimulatedExperiment.Reader, Double)] = [
            (
                "verdict",
                SimulatedExperiment(metrics: [.init(isDecrease: breakage.isDecrease, laws: [laws])], shares: shares),
                .verdict, 400
            ),
            ("ramp with a guardrail", SimulatedExperiment(metrics: [guardrail], shares: shares), .ramp, 400),
            (
                "ramp with four guardrails",
                SimulatedExperiment(metrics: [guardrail, other, other, other], shares: shares),
                .ramp, 450
            ),
        ]
        for (name, experiment, reader, limit) in readers {
            var random = SeededGenerator(seed: 52)
            // A look after every 10 users of the variation.
            let looks = (1...100).map { Int((Double($0) * 10 / breakage.share).rounded()) }
            let needed = (0..<Self.runs).compactMap { _ in experiment.decision(by: reader, looks, &random) }.sorted()
            let rank = Int((0.95 * Double(Self.runs)).rounded(.up)) - 1
            let users = needed.count > rank ? Double(needed[rank]) * breakage.share : .infinity
            if Self.isLong {
                print(
                    "simulated | \(name): \(breakage.testDescription) | found in 95% of runs with \(users) of its users"
                )
            }
            #expect(users < limit, "\(name)")
        }
    }

    @Test func `Revenue that rises by a fifth is found with twice the users of a fixed test`() {
        var random = SeededGenerator(seed: 53)
        let (buyers, sigma, median) = (0.05, 1.0, 20.0)
        func moments(_ median: Double) -> (mean: Double, variance: Double) {
            let mean = buyers * median * exp(sigma * sigma / 2)
            return (mean, buyers * median * median * exp(2 * sigma * sigma) - mean * mean)
        }
        let (old, new) = (moments(median), moments(1.2 * median))
        let distance = Normal.quantile(0.975) + Normal.quantile(0.8)
        let fixed =
            2 * (old.variance + new.variance) * distance * distance / ((new.mean - old.mean) * (new.mean - old.mean))
        let experiment = Self.oneMetric(
            .revenue(buyers, sigma: sigma, median: median), other: .revenue(buyers, sigma: sigma, median: 1.2 * median))
        let looks = SimulatedExperiment.looks(upTo: Int(2 * fixed), isLong: Self.isLong)
        let found = (0..<Self.runs).count { _ in experiment.decision(looks, &random) != nil }
        Self.report("power revenue +20% with twice the \(Int(fixed)) users of a fixed test", found)
        #expect(Double(found) >= 0.8 * Double(Self.runs) - 2 * (0.16 * Double(Self.runs)).squareRoot())
    }

    /// What is planned.
    struct Planned: CustomTestStringConvertible, Sendable {
        let testDescription: String
        let effect: Double
        let looks: Power.Looks
    }

    static let planned = [0.2, -0.2].flatMap { effect in
        [
            Planned(testDescription: "\(effect * 100)%, one look", effect: effect, looks: .one),
            Planned(
                testDescription: "\(effect * 100)%, any looks", effect: effect, looks: .any(tuning: ResultsQuery.tuning)
            ),
        ]
    }

    @Test(arguments: planned)
    func `With the planned users, an effect on a rate is found as often as planned`(planned: Planned) throws {
        var random = SeededGenerator(seed: 54)
        let power = Power(of: .rate(0.05), alpha: 0.05, looks: planned.looks)
        let users = try #require(power.time(toFind: planned.effect, until: 1e9) { ($0 / 2, $0 / 2) })
        let experiment = Self.oneMetric(.rate(0.05), other: .rate(0.05 * (1 + planned.effect)))
        let isOne = planned.looks == .one
        let looks = isOne ? [Int(users)] : SimulatedExperiment.looks(upTo: Int(users), isLong: Self.isLong)
        let found = (0..<Self.runs).count { _ in
            experiment.decision(looks, &random) { comparisons in
                guard let contrast = comparisons[0].evidence?.contrast else { return false }
                let rule: any LookingRule = isOne ? OneLook() : AlwaysValid()
                return rule.pValue(contrast, .noEffect) <= 0.05
            } != nil
        }
        Self.report("power planned 0.8, \(planned.testDescription), \(Int(users)) users", found)
        let count = Double(Self.runs)
        // Few looks find less than many.
        let slack = 2 * (0.16 * count).squareRoot()
        #expect((0.78 * count - slack...0.9 * count + slack).contains(Double(found)))
    }

    @Test func `With earlier values of a correlation of 0.6, 0.7 of the users are enough`() throws {
        var random = SeededGenerator(seed: 55)
        let power = Power(
            of: .mean(2, standardDeviation: 3), alpha: 0.05, looks: .any(tuning: ResultsQuery.tuning))
        let users = Int(try #require(power.time(toFind: 0.15, until: 1e9) { ($0 / 2, $0 / 2) }))
        var found: [Int] = []
        for (correlation, users) in [(0.0, users), (0.6, users * 7 / 10)] {
            let experiment = Self.oneMetric(
                .value(2, deviation: 3, correlation: correlation),
                other: .value(2.3, deviation: 3, correlation: correlation))
            let looks = SimulatedExperiment.looks(upTo: users, isLong: Self.isLong)
            found.append((0..<Self.runs).count { _ in experiment.decision(looks, &random) != nil })
            Self.report("power correlation \(correlation), \(users) users", found.last ?? 0)
        }
        #expect(Double(found[1]) >= Double(found[0]) - (0.32 * Double(Self.runs)).squareRoot())
    }
}
