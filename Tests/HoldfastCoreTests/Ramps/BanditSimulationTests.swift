import Definitions
import Foundation
import Statistics
import TestSupport
import Testing

@testable import HoldfastCore

/// Bandits whose users are simulated, many times over: what estimates are on average.
@Suite struct BanditSimulationTests {
    /// With `HOLDFAST_TEST_LONG_SIMULATIONS=1` there are more of them.
    private static let isLong = ProcessInfo.processInfo.environment["HOLDFAST_TEST_LONG_SIMULATIONS"] == "1"
    private static let runs = isLong ? 10_000 : 200
    private static let usersOfBatch = 150

    /// The rate of each variation in each batch.
    struct Setting: CustomTestStringConvertible {
        let testDescription: String
        let rates: [[Double]]

        /// Over all users.
        var truth: [Double] {
            rates[0].indices.map { index in rates.reduce(0) { $0 + $1[index] } / Double(rates.count) }
        }
    }

    static let settings = [
        Setting(
            testDescription: "equal variations",
            rates: Array(repeating: [0.1, 0.1], count: 8)),
        // Whoever got ahead early gets most of the later users, who buy more often.
        Setting(
            testDescription: "equal variations, and more is bought from day to day",
            rates: (0..<8).map { Array(repeating: 0.05 + 0.03 * Double($0), count: 2) }),
        Setting(
            testDescription: "three variations of which one is better, and less is bought from day to day",
            rates: (0..<8).map { day in [0.3, 0.3, 0.36].map { $0 - 0.02 * Double(day) } }),
    ]

    private struct Run {
        var weighted: [Sample]
        var plain: [Double]
    }

    private static func run(_ setting: Setting, _ random: inout SeededGenerator) -> Run {
        let count = setting.rates[0].count
        var shares = Array(repeating: 1 / Double(count), count: count)
        var batches: [AdaptiveMeans.Batch] = []
        for rates in setting.rates {
            var (users, converted) = (Array(repeating: 0.0, count: count), Array(repeating: 0.0, count: count))
            var (rest, share) = (usersOfBatch, 1.0)
            for index in 0..<count {
                let own = index == count - 1 ? rest : random.binomial(rest, min(1, shares[index] / share))
                (rest, share) = (rest - own, share - shares[index])
                users[index] = Double(own)
                converted[index] = Double(random.binomial(own, rates[index]))
            }
            batches.append(
                AdaptiveMeans.Batch(
                    shares: shares, samples: zip(converted, users).map { Sample(successes: $0, of: $1) }))
            let means = AdaptiveMeans(batches, of: count).samples
            guard let chances = AdaptiveResults.chances(of: means, .rate, isDecrease: false) else { continue }
            shares = chances.map { 0.05 + (1 - 0.05 * Double(count)) * $0 }
        }
        let plain = (0..<count).map { index -> Double in
            let own = batches.map { $0.samples[index] }
            return own.reduce(0) { $0 + $1.count * $1.mean } / own.reduce(0) { $0 + $1.count }
        }
        return Run(weighted: AdaptiveMeans(batches, of: count).samples, plain: plain)
    }

    private static func simulate(_ setting: Setting, _ count: Int) -> [Run] {
        var random = SeededGenerator(seed: 39)
        return (0..<count).map { _ in run(setting, &random) }
    }

    /// More runs of the first setting, of which several tests ask.
    private static let runsOfEqual = simulate(settings[0], 2 * runs)

    @Test(arguments: settings)
    func `Weighted estimates are right on average and their intervals cover the truth`(setting: Setting) {
        let isFirst = setting.testDescription == Self.settings[0].testDescription
        let runs = isFirst ? Self.runsOfEqual : Self.simulate(setting, Self.runs)
        let count = Double(runs.count)
        for (index, truth) in setting.truth.enumerated() {
            let errors = runs.map { $0.weighted[index].mean - truth }
            let mean = errors.reduce(0, +) / count
            let deviation = (errors.reduce(0) { $0 + ($1 - mean) * ($1 - mean) } / count).squareRoot()
            #expect(abs(mean) < 3.5 * deviation / count.squareRoot(), "\(mean) of \(truth)")
            let covered = runs.count { run in
                let sample = run.weighted[index]
                return abs(sample.mean - truth) <= 1.96 * (sample.variance / sample.count).squareRoot()
            }
            #expect(
                (Self.isLong ? 0.92...0.975 : 0.91...0.985).contains(Double(covered) / count), "\(covered) of \(count)")
            if Self.isLong {
                let plain = runs.reduce(0) { $0 + $1.plain[index] - truth } / count
                print(
                    setting.testDescription, index, "weighted", mean, "plain", plain, "covered", Double(covered) / count
                )
            }
        }
    }

    @Test func `Plain means of a bandit are wrong on average`() {
        let setting = Self.settings[0]
        let errors = Self.runsOfEqual.map { $0.plain[0] - setting.truth[0] }
        let count = Double(errors.count)
        let mean = errors.reduce(0, +) / count
        let deviation = (errors.reduce(0) { $0 + ($1 - mean) * ($1 - mean) } / count).squareRoot()
        // Who did badly by chance gets few users afterwards, who could show it.
        #expect(mean < -3.5 * deviation / count.squareRoot(), "\(mean)")
    }

    @Test func `The chance to be best of two is that of their difference, and of many adds up to 1`() {
        let two = ChanceToBeBest.of([
            Effect(estimate: 0.1, variance: 0.0004), Effect(estimate: 0.13, variance: 0.0001),
        ])
        let expected = Normal.probability(upTo: 0.03 / 0.0005.squareRoot())
        #expect(abs(two[1] - expected) < 1e-9 && abs(two[0] - (1 - expected)) < 1e-9)
        let far = ChanceToBeBest.of([
            Effect(estimate: 0, variance: 1e-12), Effect(estimate: 100, variance: 1), Effect(estimate: 0, variance: 9),
        ])
        #expect(far[0] < 1e-9 && far[1] > 1 - 1e-9)
        let many = ChanceToBeBest.of(
            Array(repeating: Effect(estimate: 0.2, variance: 0.01), count: Bandit.variationCounts.upperBound))
        #expect(many.allSatisfy { abs($0 - 1 / Double(many.count)) < 1e-9 })
    }

    @Test func `With constant shares a weighted mean is near the plain one, and of one batch equals it`() {
        let batch = AdaptiveMeans.Batch(
            shares: [0.5, 0.5], samples: [Sample(successes: 30, of: 100), Sample(successes: 50, of: 120)])
        let one = AdaptiveMeans([batch], of: 2).samples
        #expect(abs(one[0].mean - 0.3) < 1e-12 && abs(one[1].mean - 50 / 120) < 1e-12)
        let two = AdaptiveMeans([batch, batch], of: 2).samples
        #expect(abs(two[0].mean - 0.3) < 1e-12 && two[0].count == 200)
        #expect(abs(two[0].variance / two[0].count - one[0].variance / one[0].count / 2) < 1e-12)
        #expect(AdaptiveMeans([], of: 2).samples.map(\.count) == [0, 0])
    }
}
