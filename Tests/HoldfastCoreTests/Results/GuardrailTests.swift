import Bucketing
import Definitions
import Foundation
import Statistics
import TestSupport
import Testing

@testable import HoldfastCore

/// How often guardrails stop ramps that have no mistake, on simulated users.
@Suite struct GuardrailTests {
    /// With `HOLDFAST_TEST_LONG_SIMULATIONS=1` there are more ramps, with more users.
    private static let isLong = ProcessInfo.processInfo.environment["HOLDFAST_TEST_LONG_SIMULATIONS"] == "1"
    private static let ramps = isLong ? 10_000 : 500
    private static let commits = isLong ? 300 : 100
    private static let guardrail = ExperimentMetrics.Guardrail(metric: "checkouts", margin: .share(0.25))

    /// Half of the baseline's users reach the goal.
    enum Variation: CaseIterable {
        case equalToBaseline
        /// 3 of 8 users reach the goal: as few as the margin allows.
        case atMargin

        /// Returns a bit for each of 64 users: whether the user reaches the goal.
        func draw(_ random: inout SeededGenerator) -> UInt64 {
            switch self {
            case .equalToBaseline: random.next()
            case .atMargin: random.next() & (random.next() | random.next())
            }
        }
    }

    private struct Arm {
        var users = 0
        var converted = 0

        mutating func enroll(_ count: Int, _ draw: UInt64) {
            users += count
            converted += (draw >> UInt64(64 - count)).nonzeroBitCount
        }
    }

    @Test(arguments: Variation.allCases)
    func `Few ramps without a mistake are stopped by a guardrail, with a look at every commit`(
        kind: Variation
    ) {
        var random = SeededGenerator(seed: 35)
        let stopped = (0..<Self.ramps).count { _ in Self.isStopped(kind, &random) }
        if Self.isLong { print("guardrails stopped \(stopped) of \(Self.ramps) ramps, \(kind)") }
        #expect(Double(stopped) <= Double(Self.ramps) * UserWatch.alpha)
    }

    /// A ramp with two variations beside the baseline.
    private static func isStopped(_ kind: Variation, _ random: inout SeededGenerator) -> Bool {
        var (baseline, variations) = (Arm(), [Arm(), Arm()])
        for _ in 0..<commits {
            baseline.enroll(Int.random(in: 1...64, using: &random), random.next())
            for index in variations.indices {
                variations[index].enroll(Int.random(in: 1...64, using: &random), kind.draw(&random))
            }
            let isAlarm = variations.indices.contains { index in
                let contrast = RateContrast([
                    .init(
                        Double(variations[index].converted), of: Double(variations[index].users),
                        baseline: Double(baseline.converted), of: Double(baseline.users))
                ])
                return Verdict.Comparison(
                    metric: guardrail.metric, role: .guardrail(margin: guardrail.margin), isDecrease: false,
                    variation: index, evidence: contrast.map { Evidence($0) }
                )
                .isWorse(alpha: UserWatch.alpha / Double(variations.count))
            }
            if isAlarm { return true }
        }
        return false
    }
}
