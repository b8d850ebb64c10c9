import Bucketing
import Chronology
import Definitions
import Foundation
import FoundationXML
import JSON
import Storage
import TestSupport
import Testing

@testable import HoldfastAPI
@testable import HoldfastCore

/// Results computed from given counts.
@Suite struct ResultsTests {
    private static func experiment(_ variations: [String] = ["control", "new"], weights: [Int]? = nil) throws
        -> Experiment
    {
        var start = 0
        let ranges = variations.indices.map { index -> JSONValue in
            start += weights?[index] ?? 10_000 / variations.count
            return ["entityId": .string("id of \(variations[index])"), "endOfRange": .integer(Int64(start))]
        }
        let datafile: JSONValue = [
            "version": "4", "accountId": "1", "projectId": "1", "revision": "1", "attributes": [], "audiences": [],
            "groups": [], "featureFlags": [], "rollouts": [], "events": [],
            "experiments": [
                [
                    "id": "7", "key": "checkout", "layerId": "7", "status": "Running", "audienceIds": [],
                    "forcedVariations": [:], "trafficAllocation": .array(ranges),
                    "variations": .array(variations.map { ["id": .string("id of \($0)"), "key": .string($0)] }),
                ]
            ],
        ]
        return try #require(try Datafile(datafile).experiment(key: "checkout"))
    }

    /// Users of a variation, of whom some converted, all with one value; and some had done so before.
    private static func tally(
        _ variation: String, users: Int, converted: Int, value: Double = 0, before: Int = 0, multipleVariations: Int = 0
    ) -> VariationTally {
        var tally = VariationTally(variationID: Identifier("id of \(variation)"))
        tally.counted = users
        tally.multipleVariations = multipleVariations
        tally.goal.events = converted
        tally.goal.converted = converted
        tally.goal.convertedBefore = before
        tally.goal.convertedBoth = min(before, converted)
        tally.goal.y = CompensatedSum(Double(converted) * value)
        tally.goal.yy = CompensatedSum(Double(converted) * value * value)
        tally.goal.x = CompensatedSum(Double(before) * value)
        tally.goal.xx = CompensatedSum(Double(before) * value * value)
        tally.goal.xy = CompensatedSum(Double(min(before, converted)) * value * value)
        return tally
    }

    private func results(
        _ tallies: [VariationTally], _ query: [String: String] = [:], of experiment: Experiment? = nil
    ) throws -> ExperimentResults {
        let query = try ResultsQuery(["goal": "buy"].merging(query) { $1 })
        return try ExperimentResults(
            experiment ?? Self.experiment(), sdkKey: "sdk", query, Self.tally(of: tallies), now: 0)
    }

    /// What was tallied on one day, under an allocation that is not known.
    private static func tally(of tallies: [VariationTally]) -> ExperimentTally {
        ExperimentTally(
            users: tallies.map { (Cohort(variationID: $0.variationID, period: 0, day: 0), $0.users) },
            goals: tallies.map { ($0.variationID, 0, $0.goal) })
    }

    private func codes(_ results: ExperimentResults) -> [String] {
        results.warnings.map(\.code.rawValue)
    }

    @Test func `A variation is compared with the baseline, which is control unless another is asked for`() throws {
        let tallies = [
            Self.tally("control", users: 1_000, converted: 100), Self.tally("new", users: 1_000, converted: 130),
        ]
        let usual = try results(tallies)
        #expect(usual.baseline?.key == "control")
        #expect(usual.variations[0].conversion.comparison == nil)
        let comparison = try #require(usual.variations[1].conversion.comparison)
        #expect(abs((comparison.lift ?? 0) - 0.3) < 1e-12)
        // scipy: the likelihood ratio of two binomials, chi2.sf(z2, 1)
        #expect(abs(comparison.numbers.pValue - 0.03525639984326342) < 1e-12)
        let other = try results(tallies, ["baseline": "new"])
        #expect(abs((other.variations[0].conversion.comparison?.lift ?? 0) + 3.0 / 13) < 1e-12)
        #expect(throws: CoreError.self) { try results(tallies, ["baseline": "nope"]) }
    }

    @Test func `There are no results for values where events have none, and none for lifts over nothing`() throws {
        let results = try results([
            Self.tally("control", users: 200, converted: 0), Self.tally("new", users: 200, converted: 20),
        ])
        #expect(results.variations.allSatisfy { $0.value == nil })
        let comparison = try #require(results.variations[1].conversion.comparison)
        let numbers = comparison.numbers
        #expect(numbers.lift == nil && numbers.sequentialLiftInterval == nil)
        #expect(numbers.pValue < 1e-6 && numbers.sequentialPValue < 0.05)
        #expect(try #require(numbers.sequentialDifferenceInterval).lowerBound > 0)
        #expect(codes(results).isEmpty)
        #expect(results.verdict.decision == .ship)
        #expect(results.verdict.reasons[0].contains("difference +0.1 (+0.0"), "\(results.verdict.reasons)")
    }

    @Test func `Values of any size give finite numbers in every format`() throws {
        var random = SystemRandomNumberGenerator()
        let extremes = [
            0, .leastNonzeroMagnitude, .leastNormalMagnitude / 256, 1e-200, 1e-170, 1e-156, 1e-15, 1, 1e15, 1e155,
            1e300,
        ]
        func value() -> Double {
            let size =
                Bool.random(using: &random)
                ? extremes.randomElement(using: &random) ?? 0 : Double.random(in: 0...1, using: &random)
            return Bool.random(using: &random) ? size : -size
        }
        for _ in 0..<700 {
            let tallies = ["control", "new"].map { variation in
                var tally = Self.tally(variation, users: Int.random(in: 0...3, using: &random), converted: 0)
                tally.goal.converted = Int.random(in: 0...tally.counted, using: &random)
                for sum in [\GoalTally.x, \.y, \.xx, \.yy, \.xy] { tally.goal[keyPath: sum] = CompensatedSum(value()) }
                return tally
            }
            let results = try results(tallies)
            let texts = [String(decoding: results.json, as: UTF8.self), results.csv, ResultsChart(results).svg]
            // A regular expression takes seconds for these texts in a debug build.
            let wrong = texts.filter { strstr($0, "nan") != nil || strstr($0, "inf") != nil }
            #expect(wrong.isEmpty, "\(tallies)")
        }
    }

    @Test func `What users did before is used when there is any`() throws {
        let with = try results([
            Self.tally("control", users: 1_000, converted: 100, value: 5, before: 100),
            Self.tally("new", users: 1_000, converted: 130, value: 5, before: 100),
        ])
        let comparison = try #require(with.variations[1].value?.comparison)
        let cuped = try #require(comparison.adjusted)
        #expect(comparison.varianceReduction ?? 0 > 0.5)
        let interval = try #require(comparison.numbers.liftInterval)
        let adjusted = try #require(cuped.liftInterval)
        #expect(adjusted.upperBound - adjusted.lowerBound < interval.upperBound - interval.lowerBound)
        #expect(with.variations[1].conversion.comparison?.adjusted == nil)
        let without = try results([
            Self.tally("control", users: 1_000, converted: 100, value: 5),
            Self.tally("new", users: 1_000, converted: 130, value: 5),
        ])
        #expect(without.variations[1].value?.comparison?.adjusted == nil)
    }

    @Test func `A split that the traffic allocation does not explain is reported`() throws {
        let uneven = [
            Self.tally("control", users: 5_000, converted: 500), Self.tally("new", users: 4_400, converted: 440),
        ]
        #expect(try codes(results(uneven)) == ["sample_ratio_mismatch"])
        #expect(try results(uneven).sampleRatio.isMismatch)
        let planned = try Self.experiment(weights: [5_300, 4_700])
        #expect(try codes(results(uneven, of: planned)).isEmpty)
        let stopped = try Self.experiment(weights: [10_000, 0])
        #expect(try codes(results(uneven, of: stopped)) == ["traffic_changed"])
    }

    @Test func `Groups that get the same and differ are reported`() throws {
        let experiment = try Self.experiment(["control", "control-check", "new"])
        func results(_ check: Int) throws -> ExperimentResults {
            try self.results(
                [("control", 100), ("control-check", check), ("new", 100)].map {
                    Self.tally($0.0, users: 1_000, converted: $0.1)
                }, of: experiment)
        }
        #expect(try results(110).controlCheck?.isSuspicious == false)
        #expect(try codes(results(180)) == ["control_check_differs"])
    }

    @Test func `No users, many in several variations, and a goal that nobody reached are reported`() throws {
        #expect(try codes(results([])) == ["no_exposures"])
        let crossed = [
            Self.tally("control", users: 1_000, converted: 100, multipleVariations: 30),
            Self.tally("new", users: 1_000, converted: 100),
        ]
        #expect(try codes(results(crossed)) == ["multiple_variations"])
        let nobody = [Self.tally("control", users: 1_000, converted: 0), Self.tally("new", users: 1_000, converted: 0)]
        #expect(try codes(results(nobody)) == ["no_conversions"])
    }

    @Test func `Users of a variation that is gone are left out`() throws {
        let results = try results([
            Self.tally("old", users: 10, converted: 1), Self.tally("control", users: 10, converted: 1),
        ])
        #expect(results.variations.map(\.name) == ["control", "new"])
        #expect(results.removedVariations.map(\.id) == ["id of old"])
        #expect((results.counted, results.excludedUsers) == (10, 10))
    }

    @Test func `Power tells the smallest lift that would be found, and when a wanted one would be`() throws {
        let days = (0..<10).map { Int64($0) }
        let tally = ExperimentTally(
            users: days.flatMap { day in
                ["control", "new"].map {
                    (
                        Cohort(variationID: Identifier("id of \($0)"), period: 0, day: day),
                        UserCounts(counted: day < 5 ? 1_600 : 400)
                    )
                }
            },
            goals: ["control", "new"].map { name in
                var tally = GoalTally()
                tally.converted = 1_000
                return (Identifier("id of \(name)"), 0, tally)
            })
        let query = try ResultsQuery(["goal": "buy", "mde": "0.1"])
        let results = try ExperimentResults(
            Self.experiment(), sdkKey: "sdk", query, tally, now: Instant(day: 10) + .milliseconds(5))
        // Two of the last seven days have 1,600 users of each variation, five have 400.
        #expect(results.enrollment.days == 7)
        #expect(abs((results.enrollment.usersPerDay ?? 0) - 2 * 5_200.0 / 7) < 1e-9)
        #expect(results.variations[0].conversion.power == nil)
        let power = try #require(results.variations[1].conversion.power)
        // scipy: norm.cdf(sqrt(z2) - 1.96) is 0.8, with the z2 of the expected numbers.
        #expect(abs((power.smallestLift ?? 0) - 0.12198673056909373) < 1e-9)
        let wantedDays: Double = (14746.968767073664 - 10_000) / (5_200.0 / 7)
        #expect(abs((power.days ?? 0) - wantedDays) < 1e-6)
    }

    @Test(arguments: [
        ["goal": ""], ["confidence": "1"], ["confidence": "x"], ["confidence": "nan"], ["sequential_tuning": "0"],
        ["format": "xml"],
    ])
    func `A parameter that makes no sense is refused`(query: [String: String]) {
        #expect(throws: CoreError.self) { try ResultsQuery(["goal": "buy"].merging(query) { $1 }) }
    }

    @Test func `Every number that is written is finite, and the table has a value for each column`() throws {
        let cases = [
            [], [Self.tally("control", users: 1, converted: 1, value: 1e15)],
            [
                Self.tally("control", users: 1, converted: 0),
                Self.tally("new", users: 1, converted: 1, value: -3, before: 1),
            ],
            [
                Self.tally("control", users: 2, converted: 2, value: 2),
                Self.tally("new", users: 3, converted: 3, value: 2),
            ],
        ]
        for tallies in cases {
            let results = try results(tallies)
            let json = String(decoding: results.json, as: UTF8.self)
            _ = try JSONParser().parse(results.json)
            #expect(!json.contains("nan") && !json.contains("inf"))
            let rows = results.csv.split(separator: "\r\n")
            #expect(Set(rows.map { $0.split(separator: ",", omittingEmptySubsequences: false).count }).count == 1)
            let chart = ResultsChart(results).svg
            #expect(!chart.contains("nan") && !chart.contains("inf"))
        }
    }

    @Test func `The picture is well-formed XML, whatever things are called`() throws {
        let names = ["control", "<b>&\"new\"\u{7}"]
        let results = try results(
            [
                Self.tally(names[0], users: 1_000, converted: 100, value: 3),
                Self.tally(names[1], users: 900, converted: 130, value: 2),
            ],
            ["goal": "a<b"], of: Self.experiment(names))
        let parser = XMLParser(data: Data(ResultsChart(results).svg.utf8))
        #expect(parser.parse(), "\(String(describing: parser.parserError))")
    }

    @Test func `An axis has round numbers and covers what is drawn`() {
        let scale = ChartScale(covering: [-0.012...0.034, 0...0], onto: 100...200)
        #expect(scale.ticks.map { scale.label($0, isShare: true) } == ["−2%", "−1%", "0%", "+1%", "+2%", "+3%", "+4%"])
        #expect(scale.position(-0.02) == 100 && abs(scale.position(0.04) - 200) < 1e-9)
    }

    // MARK: The verdict

    @Test func `A variation is shipped when it is better at every look, and the reason has the numbers`() throws {
        let results = try results([
            Self.tally("control", users: 5_000, converted: 500), Self.tally("new", users: 5_000, converted: 750),
        ])
        let verdict = results.verdict
        #expect(verdict.decision == .ship && verdict.winner == 1)
        let finding = try #require(verdict.findings.first)
        let effect = try #require(finding.effect)
        let numbers = try #require(results.variations[1].conversion.comparison).numbers
        #expect(effect.liftInterval == numbers.sequentialLiftInterval)
        #expect(effect.differenceInterval == numbers.sequentialDifferenceInterval)
        #expect(finding.pValue == numbers.sequentialPValue)
        #expect(verdict.reasons.count == 1)
        #expect(verdict.reasons[0].hasPrefix("'new' is better than 'control': lift +50.0% (+"), "\(verdict.reasons)")
    }

    @Test func `What one look would call certain is not certain at every look`() throws {
        let results = try results([
            Self.tally("control", users: 5_000, converted: 500), Self.tally("new", users: 5_000, converted: 570),
        ])
        #expect(results.variations[1].conversion.comparison?.numbers.pValue ?? 1 < 0.05)
        #expect(results.verdict.decision == .continue && results.verdict.winner == nil)
        #expect(results.verdict.findings.map(\.outcome) == [.uncertain])
    }

    @Test func `The experiment is stopped when every variation is worse`() throws {
        let worse = [
            Self.tally("control", users: 5_000, converted: 750), Self.tally("new", users: 5_000, converted: 500),
        ]
        #expect(try results(worse).verdict.decision == .stop)
        let other = worse + [Self.tally("other", users: 5_000, converted: 750)]
        let experiment = try Self.experiment(["control", "new", "other"])
        let verdict = try results(other, of: experiment).verdict
        #expect(verdict.decision == .continue)
        #expect(verdict.findings.map(\.outcome) == [.worse, .uncertain])
        #expect(verdict.reasons.count == 2)
    }

    @Test func `Users who are not comparable, and values that nobody has, decide nothing`() throws {
        let lost = [
            Self.tally("control", users: 5_000, converted: 500), Self.tally("new", users: 4_000, converted: 750),
        ]
        let invalid = try results(lost).verdict
        #expect(invalid.decision == .invalid && invalid.winner == nil)
        #expect(try invalid.reasons == results(lost).warnings.prefix(1).map(\.message))
        let few = [Self.tally("control", users: 20, converted: 1), Self.tally("new", users: 20, converted: 5)]
        #expect(try results(few).verdict.decision == .continue)
        #expect(try results([]).verdict.reasons == ["no user who counts has been exposed to this experiment yet"])
        let left = [Self.tally("control", users: 0, converted: 0, multipleVariations: 2)]
        #expect(
            try results(left).warnings.first?.message
                == "no user who counts has been exposed to this experiment yet; left out: 2 with several variations")
        #expect(try results(lost, ["metric": "value"]).verdict.findings.isEmpty)
        #expect(throws: CoreError.self) { try results(lost, ["metric": "mean"]) }
    }

    /// Every variation is judged at the level at which Holm's procedure tests it, so what is drawn and what is said agree.
    @Test func `An interval excludes 0 if and only if the corrected p-value is below the level`() throws {
        var random = SeededGenerator(seed: 35)
        let keys = ["control", "a", "b", "c", "d"]
        let experiment = try Self.experiment(keys)
        var outcomes: [Verdict.Finding.Outcome: Int] = [:]
        for _ in 0..<120 {
            let tallies = keys.map {
                Self.tally($0, users: 10_000, converted: Int.random(in: 900...1_300, using: &random))
            }
            for finding in try results(tallies, of: experiment).verdict.findings {
                let effect = try #require(finding.effect)
                let interval = try #require(effect.liftInterval)
                let isCertain = finding.outcome != .uncertain
                #expect(isCertain == !interval.contains(0))
                #expect(isCertain == (try #require(finding.pValue) <= 0.05), "\(finding)")
                #expect(finding.outcome != .better || effect.difference > 0)
                outcomes[finding.outcome, default: 0] += 1
            }
        }
        #expect(outcomes.values.allSatisfy { $0 > 20 } && outcomes.count == 3, "\(outcomes)")
    }

    /// Looks at two equal variations after every 100 users.
    @Test func `Without an effect few verdicts ever ship or stop, whoever looks how often`() throws {
        var random = SeededGenerator(seed: 36)
        let experiment = try Self.experiment()
        let experiments = 15
        var wrong = 0
        for _ in 0..<experiments {
            var converted = [0, 0]
            for look in 1...60 {
                for index in 0..<2 {
                    converted[index] += (0..<100).count { _ in Int.random(in: 0..<10, using: &random) == 0 }
                }
                let tallies = ["control", "new"].enumerated().map {
                    Self.tally($1, users: 100 * look, converted: converted[$0])
                }
                guard try results(tallies, of: experiment).verdict.decision == .continue else {
                    wrong += 1
                    break
                }
            }
        }
        // At most 5% of them, and three standard deviations.
        #expect(wrong <= 3, "\(wrong) of \(experiments)")
    }
}
