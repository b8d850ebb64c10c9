import Bucketing
import Foundation
import Storage
import TestSupport
import Testing

@testable import HoldfastCore

/// The check of the sample ratio over periods of different allocation, on simulated experiments.
@Suite("Sample ratio by period")
struct SampleRatioTests {
    /// The weights of the variations in each period, and the traffic in percent.
    struct Design: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var periods: [(weights: [Double], traffic: Double)]
    }

    private static let designs = [
        Design(testDescription: "no change", periods: [([1, 1], 100)]),
        Design(testDescription: "50:50, then 90:10", periods: [([1, 1], 100), ([9, 1], 100)]),
        Design(
            testDescription: "10:90, then 50:50, then 90:10", periods: [([1, 9], 100), ([1, 1], 100), ([9, 1], 100)]),
        Design(testDescription: "more traffic", periods: [([1, 1], 10), ([1, 1], 50), ([1, 1], 100)]),
        Design(testDescription: "other weights and more traffic", periods: [([1, 1], 10), ([9, 1], 100)]),
        Design(
            testDescription: "three variations, other weights, more traffic, less traffic",
            periods: [([1, 1, 1], 30), ([5, 1, 1], 60), ([1, 2, 2], 100), ([1, 1, 1], 40)]),
        Design(testDescription: "a variation comes", periods: [([1, 1, 0], 100), ([1, 1, 1], 100)]),
        Design(testDescription: "a variation goes", periods: [([3, 2, 5], 80), ([3, 2, 0], 100)]),
    ]

    private static func allocations(_ design: Design) -> [AllocationPeriod] {
        var allocation = TrafficAllocation(ranges: [])
        return design.periods.enumerated().map { index, period in
            let ids = period.weights.indices.map { Identifier("\($0)") }
            let weights = TrafficAllocation.weights(of: ids, ratio: period.weights, traffic: period.traffic)
            allocation = allocation.reallocated(to: weights)
            return AllocationPeriod(
                number: Int64(index) + 1, sdkKey: "sdk", since: Timestamp(index), allocation: allocation)
        }
    }

    /// A design whose bucket values are grouped into cells of one fate: the owner in each period.
    private struct Simulation {
        let variations: Int
        let strata: [SampleRatioCheck.Stratum]
        /// For each cell its share of the bucket values, and its owner in each period.
        var cells: [(share: Double, owners: [Int?])] = []
        let periods: Int

        init(_ design: Design) {
            let allocations = SampleRatioTests.allocations(design)
            variations = design.periods[0].weights.count
            periods = allocations.count
            strata = SampleRatioCheck.strata(allocations, (0..<variations).map { Identifier("\($0)") })
            var shares: [[Int?]: Double] = [:]
            let owners = allocations.map { allocation in
                (0..<Bucketer.bucketCount).map { value in
                    allocation.allocation.entity(at: value).flatMap { Int($0.string) }
                }
            }
            for value in 0..<Bucketer.bucketCount {
                shares[owners.map { $0[value] }, default: 0] += 1 / Double(Bucketer.bucketCount)
            }
            cells = shares.map { ($0.value, $0.key) }.sorted { "\($0.owners)" < "\($1.owners)" }
        }

        /// Returns the counts of each stratum.
        ///
        /// - Parameters:
        ///   - newcomers: how many users come for the first time in each period.
        ///   - returning: how many of those who came before and did not take part come again.
        ///   - lost: the share of the users of variation 1 that is not recorded in the last period.
        func counts(
            newcomers: Int, returning: Double, lost: Double = 0, _ random: inout SeededGenerator
        ) -> [[Int]] {
            var byPeriod: [[Int]] = []
            /// Users of each cell who came and did not take part.
            var outside = cells.map { _ in 0 }
            for period in 0..<periods {
                var counts = [Int](repeating: 0, count: variations)
                var rest = newcomers
                var restOfShare = 1.0
                for (index, cell) in cells.enumerated() {
                    let new = Self.binomial(rest, min(1, cell.share / restOfShare), &random)
                    rest -= new
                    restOfShare = max(restOfShare - cell.share, 1e-12)
                    let again = Self.binomial(outside[index], returning, &random)
                    guard let owner = cell.owners[period] else {
                        outside[index] += new
                        continue
                    }
                    outside[index] -= again
                    let isBroken = owner == 1 && period == periods - 1
                    let users = new + again
                    counts[owner] += isBroken && lost > 0 ? Self.binomial(users, 1 - lost, &random) : users
                }
                byPeriod.append(counts)
            }
            return strata.map { stratum in
                stratum.numbers.reduce([Int](repeating: 0, count: variations)) { sum, number in
                    zip(sum, byPeriod[Int(number) - 1]).map(+)
                }
            }
        }

        /// Returns the number of successes of `count` trials, by inversion from the mode outwards.
        private static func binomial(_ count: Int, _ p: Double, _ random: inout SeededGenerator) -> Int {
            guard count > 0, p > 0 else { return 0 }
            guard p < 1 else { return count }
            guard p <= 0.5 else { return count - binomial(count, 1 - p, &random) }
            let mode = Int(Double(count + 1) * p)
            let q = 1 - p
            let logarithm =
                lgamma(Double(count) + 1) - lgamma(Double(mode) + 1) - lgamma(Double(count - mode) + 1)
                + Double(mode) * log(p) + Double(count - mode) * log(q)
            let atMode = exp(logarithm)
            var u = Double.random(in: 0..<1, using: &random) - atMode
            guard u > 0 else { return mode }
            var (below, above) = (mode, mode)
            var (down, up) = (atMode, atMode)
            while below > 0 || above < count {
                if above < count {
                    up *= Double(count - above) * p / (Double(above + 1) * q)
                    above += 1
                    u -= up
                    if u <= 0 { return above }
                }
                if below > 0 {
                    down *= Double(below) * q / (Double(count - below + 1) * p)
                    below -= 1
                    u -= down
                    if u <= 0 { return below }
                }
                if up + down < 1e-300 { break }
            }
            return mode
        }
    }

    /// With `HOLDFAST_TEST_LONG_SIMULATIONS=1` there are more, which takes longer than a usual run of the suite.
    private static let experiments =
        ProcessInfo.processInfo.environment["HOLDFAST_TEST_LONG_SIMULATIONS"] == "1" ? 10_000 : 1_000

    /// Returns the p-values of simulated experiments.
    private static func pValues(
        _ simulation: Simulation, experiments: Int, newcomers: ClosedRange<Int>, lost: Double = 0,
        _ random: inout SeededGenerator
    ) -> [Double] {
        (0..<experiments).map { _ in
            let users = simulation.counts(
                newcomers: Int.random(in: newcomers, using: &random),
                returning: Double.random(in: 0...1, using: &random), lost: lost, &random)
            return SampleRatioCheck(simulation.strata, users: users).pValue ?? 1
        }
    }

    private static func share(of pValues: [Double], below threshold: Double) -> Double {
        Double(pValues.count { $0 < threshold }) / Double(pValues.count)
    }

    @Test("Changes of weights and traffic raise no more false alarms than one experiment in a thousand")
    func falseAlarms() {
        var random = SeededGenerator(seed: 20)
        var all: [Double] = []
        for (index, design) in Self.designs.enumerated() {
            let found = Self.pValues(
                Simulation(design), experiments: Self.experiments / Self.designs.count, newcomers: 500...3_000, &random)
            all += found
            let usual = Self.share(of: found, below: 0.05)
            #expect(usual < 0.11, "\(design.testDescription): \(usual) below 0.05")
            // Where nobody can return, the rate is that of the test, not only at most that.
            if index < 3 { #expect(usual > 0.008, "\(design.testDescription): \(usual) below 0.05") }
        }
        // Three standard deviations above the stated rate.
        let rate = SampleRatioCheck.threshold
        let alarms = Self.share(of: all, below: rate)
        #expect(alarms <= rate + 3 * (rate / Double(all.count)).squareRoot(), "\(alarms) of \(all.count)")
    }

    /// In the last design users may return who did not take part before; then a loss is only found beyond what they
    /// explain.
    @Test("A loss in one period is found", arguments: [(1, 0.15, 0.95), (2, 0.15, 0.95), (4, 0.7, 0.95)])
    func losses(design: Int, lost: Double, power: Double) {
        var random = SeededGenerator(seed: 21)
        let found = Self.pValues(
            Simulation(Self.designs[design]), experiments: 100, newcomers: 20_000...20_000, lost: lost, &random)
        let share = Self.share(of: found, below: SampleRatioCheck.threshold)
        #expect(share >= power, "\(share)")
    }

    private func check(_ design: Int, _ users: [[Int]]) -> SampleRatioCheck {
        let periods = Self.allocations(Self.designs[design])
        let tally = ExperimentTally(
            periods: periods,
            users: zip(periods, users).flatMap { period, users in
                users.enumerated().map { index, count in
                    (
                        Cohort(variationID: Identifier("\(index)"), period: period.number, day: 0),
                        UserCounts(counted: count)
                    )
                }
            })
        return SampleRatioCheck(
            SampleRatioCheck.strata(tally.periods, users[0].indices.map { Identifier("\($0)") }), users: users)
    }

    @Test("A change from 50:50 to 90:10 is no mismatch, and users of each period are compared with its allocation")
    func deliberateChange() {
        let good = check(1, [[5_000, 5_010], [9_000, 1_010]])
        #expect(!good.isMismatch)
        #expect(good.periods.map(\.shares) == [[0.5, 0.5], [0.9, 0.1]])
        #expect(good.changes == [1])
        let bad = check(1, [[5_000, 5_010], [9_000, 800]])
        #expect(bad.isMismatch)
        #expect((bad.periods[0].pValue ?? 0) > 0.5 && (bad.periods[1].pValue ?? 1) < 1e-6)
        #expect(good.expectedShares.map { $0.map { ($0 * 1_000).rounded() / 1_000 } } == [0.7, 0.3])
    }

    @Test("Users who came before the traffic was raised and return are no mismatch; more than can return are")
    func returningUsers() {
        // All who return get the first variation or the new part of the second: 8,500 to 500 of 9,000.
        #expect(!check(4, [[500, 500], [94_400, 5_600]]).isMismatch)
        #expect(!check(4, [[500, 500], [90_000, 10_000]]).isMismatch)
        #expect(check(4, [[500, 500], [97_000, 3_000]]).isMismatch)
        #expect(check(4, [[500, 500], [88_000, 12_000]]).isMismatch)
    }

    @Test("Periods with the same ratio are compared as one, and those with too few users not at all")
    func sameRatio() {
        #expect(Self.allocations(Self.designs[3]).count == 3)
        #expect(SampleRatioCheck.strata(Self.allocations(Self.designs[3]), ["0", "1"]).map(\.numbers) == [[1, 2, 3]])
        let few = check(1, [[5, 3], [6_000, 700]])
        #expect(few.periods[0].pValue == nil && few.periods[1].pValue != nil)
        #expect(check(1, [[1, 3], [3, 0]]).pValue == nil)
    }
}
