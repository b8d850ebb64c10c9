import Bucketing
import Chronology
import Definitions
import Foundation
import Statistics
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
                number: Int64(index) + 1, sdkKey: "sdk", since: Instant(milliseconds: Int64(index)),
                allocation: allocation)
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

    @Test
    func `Changes of weights and traffic raise no more false alarms than stated`() {
        var random = SeededGenerator(seed: 20)
        var all: [Double] = []
        for design in Self.designs {
            let found = Self.pValues(
                Simulation(design), experiments: Self.experiments / Self.designs.count, newcomers: 500...3_000, &random)
            all += found
            let usual = Self.share(of: found, below: 0.05)
            #expect(usual < 0.05, "\(design.testDescription): \(usual) below 0.05")
        }
        // Three standard deviations above the stated rate.
        let rate = SampleRatioCheck.threshold
        let alarms = Self.share(of: all, below: rate)
        #expect(alarms <= rate + 3 * (rate / Double(all.count)).squareRoot(), "\(alarms) of \(all.count)")
    }

    /// Looks at an experiment with two variations whenever so many more users have come.
    ///
    /// - Returns: the number of users at the first alarm; `nil` if there is none.
    private static func firstAlarm(share: Double, users: Int, step: Int, _ random: inout SeededGenerator) -> Int? {
        var counts = [0, 0]
        for _ in 0..<users / step {
            for _ in 0..<step { counts[Double.random(in: 0..<1, using: &random) < share ? 0 : 1] += 1 }
            let test = SampleRatio([SampleRatio.Period(counts: counts, expected: [[1, 1]])])
            if test.pValue.map({ $0 < SampleRatioCheck.threshold }) ?? false { return counts[0] + counts[1] }
        }
        return nil
    }

    @Test
    func `A correct split raises no alarm in 5,000 looks at 100,000 users, and 51:49 is found`() {
        var random = SeededGenerator(seed: 34)
        let correct = Self.experiments / 200
        let alarms = (0..<correct).count { _ in Self.firstAlarm(share: 0.5, users: 100_000, step: 20, &random) != nil }
        #expect(alarms <= Int((Double(correct) * SampleRatioCheck.threshold * 3).rounded(.up)), "\(alarms)")
        let found = (0..<9).map { _ in Self.firstAlarm(share: 0.51, users: 200_000, step: 200, &random) ?? .max }
            .sorted()
        #expect((30_000..<60_000).contains(found[4]), "\(found)")
    }

    /// In the last design users may return who did not take part before; then a loss is only found beyond what they
    /// explain.
    @Test(arguments: [(1, 0.15, 0.95), (2, 0.15, 0.95), (4, 0.7, 0.95)])
    func `A loss in one period is found`(design: Int, lost: Double, power: Double) {
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

    @Test
    func `A change from 50:50 to 90:10 is no mismatch, and users of each period are compared with its allocation`() {
        let good = check(1, [[5_000, 5_010], [9_000, 1_010]])
        #expect(!good.isMismatch)
        #expect(good.periods.map(\.shares) == [[0.5, 0.5], [0.9, 0.1]])
        #expect(good.changes == [1])
        let bad = check(1, [[5_000, 5_010], [9_000, 800]])
        #expect(bad.isMismatch)
        #expect((bad.periods[0].pValue ?? 0) > 0.5 && (bad.periods[1].pValue ?? 1) < 1e-6)
        #expect(good.expectedShares.map { $0.map { ($0 * 1_000).rounded() / 1_000 } } == [0.7, 0.3])
    }

    @Test
    func `Users who came before the traffic was raised and return are no mismatch; more than can return are`() {
        // All who return get the first variation or the new part of the second: 8,500 to 500 of 9,000.
        #expect(!check(4, [[500, 500], [94_400, 5_600]]).isMismatch)
        #expect(!check(4, [[500, 500], [90_000, 10_000]]).isMismatch)
        #expect(check(4, [[500, 500], [97_000, 3_000]]).isMismatch)
        #expect(check(4, [[500, 500], [88_000, 12_000]]).isMismatch)
    }

    @Test
    func `How returning users may be split is asked only for periods with users, and follows from all before`() {
        let periods = Self.allocations(Self.designs[5])
        let all = SampleRatioCheck.strata(periods, ["0", "1", "2"]).map(\.components)
        let used = SampleRatioCheck.strata(periods, ["0", "1", "2"]) { $0 == 3 }.map(\.components)
        #expect(all[1].count > 1 && all[2].count > 1)
        #expect(used == [[all[0][0]], [all[1][0]], all[2], [all[3][0]]])
    }

    @Test
    func `Periods with the same ratio are compared as one, and few users are no evidence`() {
        #expect(Self.allocations(Self.designs[3]).count == 3)
        #expect(SampleRatioCheck.strata(Self.allocations(Self.designs[3]), ["0", "1"]).map(\.numbers) == [[1, 2, 3]])
        let few = check(1, [[5, 3], [6_000, 700]])
        #expect((few.periods[0].pValue ?? 0) > 0.9 && (few.periods[1].pValue ?? 0) > 0.1)
        #expect((check(1, [[1, 3], [3, 0]]).pValue ?? 0) > 0.9)
        #expect(check(1, [[0, 0], [0, 0]]).pValue == nil)
    }

    // MARK: The history of the definition

    private static func datafile(firstEnd: Int) -> String {
        """
        {"version":"4","revision":"\(firstEnd)","accountId":"1","projectId":"1","experiments":[{"id":"e","key":"e","status":"Running",
        "layerId":"1","audienceIds":[],"forcedVariations":{},"variations":[{"id":"0","key":"0"},{"id":"1","key":"1"}],
        "trafficAllocation":[{"entityId":"0","endOfRange":\(firstEnd)},{"entityId":"1","endOfRange":10000}]}],
        "groups":[],"audiences":[],"attributes":[],"events":[],"featureFlags":[],"rollouts":[]}
        """
    }

    /// The tally of an experiment whose weights are changed at random, and whose users are exposed in a random period
    /// from the one in which they were assigned.
    private static func tally(usersPerPeriod: Int, _ random: inout SeededGenerator) async throws -> ExperimentTally {
        let clock = ManualClock()
        let store = InMemoryStore(clock: clock.wallClock)
        let periods = Int.random(in: 2...4, using: &random)
        var waiting: [[UserEvent]] = Array(repeating: [], count: periods)
        for period in 0..<periods {
            clock.advance(by: .seconds(60))
            let end = Int.random(in: 1...9, using: &random) * 1_000
            let stored = try #require(try await store.activate(datafile(firstEnd: end), sdkKey: "sdk"))
            let active = AllocationPeriod(
                number: stored.version, sdkKey: "sdk", since: stored.storedAt,
                allocation: AllocationRules.allocations(inContent: stored.content)["e"] ?? TrafficAllocation(ranges: [])
            )
            clock.advance(by: .seconds(60))
            var changes: [ProfileChange] = []
            for user in 0..<usersPerPeriod {
                let userID = Identifier("\(period) \(user)")
                let variationID: Identifier = Int.random(in: 0..<10_000, using: &random) < end ? "0" : "1"
                let proposal = ProfileChange.Candidate(experimentID: "e", variationID: variationID)
                changes.append(
                    ProfileChange(userID: userID, operation: .assign([proposal], decidedWith: stored.version)))
                waiting[Int.random(in: period..<periods, using: &random)].append(
                    .exposure(
                        Exposure(
                            userID: userID, experimentID: "e", experimentKey: "e", variationID: variationID,
                            happenedAt: clock.now + 1_000, isChosen: false, sdkKey: "sdk")))
            }
            for result in await store.applyAsOne(changes) { _ = try result.get() }
            clock.advance(by: .seconds(60))
            _ = try await store.record(
                waiting[period].map { event in
                    guard case .exposure(var exposure) = event else { return event }
                    exposure.active = active
                    exposure.happenedAt = clock.now
                    return .exposure(exposure)
                })
        }
        return try store.tally(experimentID: "e", goal: "g")
    }

    @Test
    func `Users who are exposed after a change of weights raise no alarm in 100 correct experiments`() async throws {
        var random = SeededGenerator(seed: 32)
        let experiment = try #require(
            try Datafile.usable(Array(Self.datafile(firstEnd: 5_000).utf8)).experiment(id: "e"))
        var pValues: [Double] = []
        for _ in 0..<100 {
            let tally = try await Self.tally(usersPerPeriod: 60, &random)
            pValues.append(SampleRatioCheck(tally, of: experiment).pValue ?? 1)
        }
        #expect(pValues.count { $0 < SampleRatioCheck.threshold } <= 1, "\(pValues.min() ?? 1)")
        #expect(pValues.count { $0 < 0.05 } < 13)
    }

    /// Returns the number of comparisons for an experiment with so many allocations.
    private static func work(allocations: Int, _ random: inout SeededGenerator) -> Int {
        let ids: [Identifier] = ["0", "1", "2"]
        var shares = EnrolledShares(ids)
        var allocation = TrafficAllocation(ranges: [])
        for _ in 0..<allocations {
            let weights = TrafficAllocation.weights(
                of: ids, ratio: ids.map { _ in Double.random(in: 1...9, using: &random) },
                traffic: Double.random(in: 1...100, using: &random))
            allocation = allocation.reallocated(to: weights)
            #expect(shares.components(of: allocation).count <= SampleRatio.componentLimit + 1)
        }
        return shares.comparisons
    }

    @Test
    func `The work for many allocations grows no faster than their number, once there are many`() {
        var random = SeededGenerator(seed: 33)
        let perAllocation = (EnrolledShares.limit + 1) * 4
        for count in [30, 60, 120, 240] {
            let work = Self.work(allocations: count, &random)
            #expect(work <= count * perAllocation, "\(work) for \(count)")
        }
    }

    @Test
    func `A change of weights before anybody took part is no change, and its period is not listed`() {
        let early = check(1, [[0, 0], [9_000, 1_010]])
        #expect(early.changes.isEmpty && early.periods.map(\.shares) == [[0.9, 0.1]])
        let late = check(1, [[500, 510], [0, 0]])
        #expect(late.changes.isEmpty && late.periods.count == 2 && !late.isMismatch)
    }

    @Test(arguments: [
        ([500, 500], [1, 0.0], true), ([333, 333, 334], [1, 1, 0], true), ([100_000, 900], [1, 0], false),
        ([100_000, 1_500], [1, 0], true), ([3, 20], [1, 0], false), ([500, 0], [1, 0], false),
        ([500, 500, 0], [1, 1, 0], false), ([500, 520, 25], [1, 1, 0], false),
    ])
    func `Many users of a variation that nobody is to get are a mismatch, a few of a former definition are not`(
        counts: [Int], expected: [Double], isMismatch: Bool
    ) {
        let test = SampleRatio([.init(counts: counts, expected: [expected])])
        #expect(((test.pValue ?? 1) < SampleRatioCheck.threshold) == isMismatch, "\(test.pValue ?? 1)")
    }

    @Test func `A share at the limit of what is allowed without a share raises no alarm in many looks`() {
        var alarms = 0
        for seed in 0..<100 as Range<UInt64> {
            var random = SeededGenerator(seed: seed)
            var counts = [0, 0]
            for user in 1...20_000 {
                counts[Double.random(in: 0..<1, using: &random) < SampleRatio.strayShare ? 1 : 0] += 1
                guard user % 50 == 0 else { continue }
                let test = SampleRatio([.init(counts: counts, expected: [[1, 0]])])
                if (test.pValue ?? 1) < SampleRatioCheck.threshold {
                    alarms += 1
                    break
                }
            }
        }
        #expect(alarms == 0)
    }
}
