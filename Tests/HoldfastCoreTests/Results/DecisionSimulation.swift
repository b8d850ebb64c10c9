import Bucketing
import Definitions
import Foundation
import Statistics
import Storage
import TestSupport

@testable import HoldfastCore

/// Draws what users do, one law for each kind of metric.
struct SimulatedLaw: Sendable {
    let statistic: MetricDefinition.Statistic
    /// Whether the adjustment by earlier values decides.
    var isAdjusted = false
    /// Adds what some users of a variation do.
    let add: @Sendable (_ users: Int, _ goal: inout GoalTally, _ random: inout SeededGenerator) -> Void

    /// A share of users converts.
    static func rate(_ rate: Double) -> Self {
        Self(statistic: .rate) { users, goal, random in goal.converted += random.binomial(users, rate) }
    }

    /// A share of users buys for log-normal amounts, of which at most `cap` counts.
    static func revenue(_ rate: Double, sigma: Double, median: Double = 20, cap: Double = .infinity) -> Self {
        Self(statistic: .mean) { users, goal, random in
            let buyers = random.binomial(users, rate)
            goal.converted += buyers
            for _ in 0..<buyers { goal.addValue(min(cap, median * exp(sigma * random.normal()))) }
        }
    }

    /// Each user has a normal value, and one before with a correlation.
    static func value(_ mean: Double, deviation: Double, correlation: Double = 0) -> Self {
        let rest = (1 - correlation * correlation).squareRoot()
        return Self(statistic: .mean, isAdjusted: correlation != 0) { users, goal, random in
            goal.converted += users
            // What each user did before, and what is independent of it.
            let (n, sums) = (Double(users), NormalSums(users, &random))
            let (sum, square) = (
                correlation * sums.u + rest * sums.v,
                correlation * correlation * sums.uu + 2 * correlation * rest * sums.uv + rest * rest * sums.vv
            )
            goal.y = goal.y + CompensatedSum(n * mean + deviation * sum)
            goal.yy =
                goal.yy + CompensatedSum(n * mean * mean + 2 * mean * deviation * sum + deviation * deviation * square)
            guard correlation != 0 else { return }
            goal.x = goal.x + CompensatedSum(sums.u)
            goal.xx = goal.xx + CompensatedSum(sums.uu)
            goal.xy =
                goal.xy + CompensatedSum(mean * sums.u + deviation * (correlation * sums.uu + rest * sums.uv))
        }
    }

    /// A share of users does something some times, with a value each time: a mean per event, or a ratio of two sums.
    static func ratio(_ rate: Double, sigma: Double, price: Double = 1) -> Self {
        Self(statistic: .ratio) { users, goal, random in
            let active = random.binomial(users, rate)
            goal.converted += active
            goal.convertedBefore += active
            for _ in 0..<active {
                var (sum, events) = (0.0, 0.0)
                repeat {
                    sum += price * exp(sigma * random.normal())
                    events += 1
                } while Double.random(in: 0..<1, using: &random) < 0.4
                goal.addValue(sum, events)
            }
        }
    }
}

/// The sums of pairs of independent standard normal numbers, of their squares and of their products, drawn from their own
/// distributions: it takes as long for thousands of pairs as for one.
private struct NormalSums {
    var (u, v) = (0.0, 0.0)
    var (uu, vv, uv) = (0.0, 0.0, 0.0)

    init(_ count: Int, _ random: inout SeededGenerator) {
        guard count > 0 else { return }
        let n = Double(count)
        (u, v) = (n.squareRoot() * random.normal(), n.squareRoot() * random.normal())
        // The squares around the means have a Wishart distribution (Bartlett's decomposition).
        let first = random.chiSquared(count - 1)
        let mixed = count > 1 ? random.normal() : 0
        uu = first + u * u / n
        uv = first.squareRoot() * mixed + u * v / n
        vv = mixed * mixed + random.chiSquared(count - 2) + v * v / n
    }
}

extension GoalTally {
    fileprivate mutating func addValue(_ value: Double, _ before: Double = 0) {
        y = y + CompensatedSum(value)
        yy = yy + CompensatedSum(product: value, value)
        x = x + CompensatedSum(before)
        xx = xx + CompensatedSum(product: before, before)
        xy = xy + CompensatedSum(product: value, before)
    }
}

extension SeededGenerator {
    /// A number of the standard normal distribution, by the method of Box and Muller.
    mutating func normal() -> Double {
        (-2 * log(Double.random(in: 1e-300..<1, using: &self))).squareRoot()
            * cos(2 * .pi * Double.random(in: 0..<1, using: &self))
    }

    /// A number of the chi-squared distribution, by the method of Marsaglia and Tsang.
    mutating func chiSquared(_ degrees: Int) -> Double {
        guard degrees > 1 else {
            let root = degrees == 1 ? normal() : 0
            return root * root
        }
        let scale = Double(degrees) / 2 - 1.0 / 3
        while true {
            let x = normal()
            let root = 1 + x / (9 * scale).squareRoot()
            guard root > 0 else { continue }
            let cube = root * root * root
            let limit = x * x / 2 + scale * (1 - cube + log(cube))
            if log(Double.random(in: 1e-300..<1, using: &self)) < limit { return 2 * scale * cube }
        }
    }

    /// Returns the number of successes; above 200 expected ones from the normal distribution.
    mutating func binomial(_ count: Int, _ rate: Double) -> Int {
        guard count > 0, rate > 0 else { return 0 }
        guard rate <= 0.5 else { return count - binomial(count, 1 - rate) }
        let mean = Double(count) * rate
        if mean > 200 {
            let drawn = (mean + (mean * (1 - rate)).squareRoot() * normal()).rounded()
            return min(count, max(0, Int(drawn)))
        }
        // From success to success.
        let scale = 1 / log1p(-rate)
        var (successes, position) = (0, 0.0)
        while true {
            position += 1 + (log(1 - Double.random(in: 0..<1, using: &self)) * scale).rounded(.down)
            if position > Double(count) { return successes }
            successes += 1
        }
    }
}

/// An experiment whose users are simulated, and whose verdict is read over and over.
struct SimulatedExperiment: Sendable {
    struct Metric: Sendable {
        var role = Verdict.Role.primary
        var isDecrease = false
        /// By period of allocation and variation, the baseline first.
        var laws: [[SimulatedLaw]]
        /// Whether the share of users behind it is watched, too.
        var hasShare = false
    }

    var metrics: [Metric]
    /// By period of allocation and variation.
    var shares: [[Double]]
    var users = 50_000
    /// Until which number of users each period lasts.
    var ends: [Int] = [.max]

    /// What a reader does.
    enum Reader: Sendable {
        /// Reads the verdict over all metrics, and acts on whatever is certain.
        case verdict
        /// Looks for alarms, as a ramp does.
        case ramp
    }

    /// The numbers of users at which somebody looks.
    static func looks(upTo users: Int, isLong: Bool) -> [Int] {
        if isLong { return Array(stride(from: 100, through: users, by: 100)) }
        let count = 16
        return (1...count).map { Int(100 * pow(Double(users) / 100, Double($0) / Double(count))) }
    }

    /// Returns the number of users with which anything is decided first; `nil` if nothing ever is.
    func decision(by reader: Reader = .verdict, _ looks: [Int], _ random: inout SeededGenerator) -> Int? {
        decision(looks, &random) { isDecided(reader, $0) }
    }

    func decision(
        _ looks: [Int], _ random: inout SeededGenerator, _ isDecided: ([Verdict.Comparison]) -> Bool
    ) -> Int? {
        let count = shares[0].count
        var (known, period) = (0, 0)
        var tallies = metrics.map { _ in shares.map { _ in Self.nobody(count) } }
        for look in looks {
            while known < look {
                let end = min(look, ends[period])
                enroll(end - known, period, &tallies, &random)
                known = end
                if known == ends[period], period + 1 < ends.count { period += 1 }
            }
            if isDecided(comparisons(tallies)) { return look }
        }
        return nil
    }

    private static func nobody(_ count: Int) -> [VariationTally] {
        (0..<count).map { VariationTally(variationID: Identifier("\($0)")) }
    }

    private func enroll(
        _ users: Int, _ period: Int, _ tallies: inout [[[VariationTally]]], _ random: inout SeededGenerator
    ) {
        var (rest, share) = (users, 1.0)
        for (variation, own) in shares[period].enumerated() {
            let isLast = variation == shares[period].count - 1
            let number = isLast ? rest : random.binomial(rest, min(1, own / share))
            (rest, share) = (rest - number, share - own)
            for (metric, tally) in metrics.enumerated() {
                tallies[metric][period][variation].counted += number
                tally.laws[period][variation].add(number, &tallies[metric][period][variation].goal, &random)
            }
        }
    }

    private func comparisons(_ tallies: [[[VariationTally]]]) -> [Verdict.Comparison] {
        var (own, shares): ([Verdict.Comparison], [Verdict.Comparison]) = ([], [])
        for (index, metric) in metrics.enumerated() {
            let data = tallies[index][0].indices.map { variation in
                let parts = tallies[index].map { $0[variation] }
                var total = VariationTally(variationID: parts[0].variationID)
                for part in parts {
                    total.counted += part.counted
                    total.goal = total.goal + part.goal
                }
                return VariationData(total, parts)
            }
            let law = metric.laws[0][0]
            for variation in data.indices.dropFirst() {
                func comparison(_ role: Verdict.Role, _ contrast: (any Contrast)?) -> Verdict.Comparison {
                    Verdict.Comparison(
                        metric: Identifier("m\(index)"), role: role, isDecrease: metric.isDecrease,
                        variation: variation, evidence: contrast.map { Evidence($0) })
                }
                let adjusted = law.isAdjusted ? data[variation].adjustedContrast(against: data[0])?.contrast : nil
                own.append(
                    comparison(metric.role, adjusted ?? data[variation].contrast(law.statistic, against: data[0])))
                if metric.hasShare, let margin = metric.role.margin {
                    shares.append(
                        comparison(
                            .shareOfGuardrail(margin: margin), data[variation].contrast(.rate, against: data[0])))
                }
            }
        }
        return own + shares
    }

    private func isDecided(_ reader: Reader, _ comparisons: [Verdict.Comparison]) -> Bool {
        switch reader {
        case .verdict:
            let names = shares[0].indices.map { "v\($0)" }
            return Verdict(comparisons, names: names, baseline: 0, alpha: 0.05).findings
                .contains { $0.outcome != .uncertain }
        case .ramp:
            var watch = UserWatch(evidence: Ramp.Evidence(users: 0))
            watch.add(comparisons, shares[0].indices.map { "v\($0)" }, tests: comparisons.count)
            return watch.alarm != nil
        }
    }
}
