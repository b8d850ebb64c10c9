import Bucketing
import Definitions
import Foundation
import JSON
import Statistics
import Storage
import Testing

@testable import HoldfastCore

/// Compares verdicts and power with an independent computation for the same data (`plan_vectors.py`).
@Suite struct PlanVectorTests {
    private static func vectors(_ member: String) throws -> [JSONValue] {
        let url = try #require(Bundle.module.url(forResource: "plan-vectors", withExtension: "jsonl"))
        return try Data(contentsOf: url).split(separator: UInt8(ascii: "\n"))
            .map { try JSONParser().parse(Array($0)) }.filter { $0.object?[member] != nil }
    }

    private static func sample(_ value: JSONValue) throws -> Sample {
        let numbers = value.array?.compactMap(\.double) ?? []
        try #require(numbers.count == 3)
        return Sample(count: numbers[0], mean: numbers[1], variance: numbers[2])
    }

    private static func comparisons(_ vector: JSONObject) throws -> [Verdict.Comparison] {
        try (vector["metrics"]?.array ?? []).enumerated().flatMap { index, metric in
            let metric = try #require(metric.object)
            let samples = try (metric["samples"]?.array ?? []).map(sample)
            let role: Verdict.Role =
                switch metric["role"]?.string {
                case "primary": .primary
                case "secondary": .secondary
                default: .guardrail(margin: .share(metric["margin"]?.double ?? 0))
                }
            return try samples.indices.dropFirst().map { variation in
                let contrast = try #require(MeanContrast([(samples[variation], samples[0])]))
                return Verdict.Comparison(
                    metric: Identifier("m\(index)"), role: role, isDecrease: metric["decrease"]?.bool ?? false,
                    variation: variation, evidence: Evidence(contrast))
            }
        }
    }

    @Test func `Verdicts equal those of an independent computation`() throws {
        var decisions: [Verdict.Decision: Int] = [:]
        let vectors = try Self.vectors("decision")
        for vector in vectors.compactMap(\.object) {
            let alpha = try #require(vector["alpha"]?.double)
            let names = (0..<Int(try #require(vector["variations"]?.integer))).map { "v\($0)" }
            let comparisons = try Self.comparisons(vector)
            let verdict = Verdict(comparisons, names: names, baseline: 0, alpha: alpha)
            decisions[verdict.decision, default: 0] += 1
            #expect(verdict.decision.rawValue == vector["decision"]?.string)
            #expect(verdict.winner.map { Int64($0) } == vector["winner"]?.integer)
            #expect(!verdict.reasons.isEmpty)
            let expected = (vector["findings"]?.array ?? []).compactMap(\.object)
            #expect(expected.count == verdict.findings.count)
            for (found, expected) in zip(verdict.findings, expected) {
                #expect(found.outcome.rawValue == expected["outcome"]?.string)
                let (p, lift) = (try #require(found.pValue), try #require(found.effect?.lift))
                #expect(
                    Self.isNear(p, expected["p"]?.double ?? -1) && Self.isNear(lift, expected["lift"]?.double ?? -9))
                guard let interval = found.effect?.liftInterval else {
                    #expect(expected["interval"]?.isNull != false)
                    continue
                }
                if let bounds = expected["interval"]?.array?.compactMap(\.double) {
                    #expect(
                        Self.isNear(interval.lowerBound, bounds[0]) && Self.isNear(interval.upperBound, bounds[1]),
                        "\(interval) instead of \(bounds)")
                }
                Self.expectAgreement(found, interval)
            }
        }
        // The data leads to every decision often enough.
        for decision in [Verdict.Decision.ship, .stop, .continue] { #expect(decisions[decision, default: 0] >= 20) }
    }

    private static func isNear(_ found: Double, _ expected: Double) -> Bool {
        abs(found - expected) <= 1e-9 * max(abs(expected), 1e-4)
    }

    /// An interval and an outcome never contradict each other.
    private static func expectAgreement(_ finding: Verdict.Finding, _ interval: ClosedRange<Double>) {
        switch finding.role {
        case .guardrail: break
        default: #expect(interval.contains(0) == (finding.outcome == .uncertain))
        }
        #expect(interval.contains(finding.effect?.lift ?? .nan))
    }

    @Test func `The power of always-valid tests equals that of an independent computation`() throws {
        let vectors = try Self.vectors("power").compactMap(\.object)
        #expect(vectors.count > 40)
        for vector in vectors {
            func number(_ name: String) throws -> Double { try #require(vector[name]?.double) }
            let users = vector["users"]?.array?.compactMap(\.double) ?? []
            let mean = try number("mean")
            let power = Power(
                of: vector["rate"] == true ? .rate(mean) : .mean(mean, standardDeviation: try number("deviation")),
                alpha: try number("alpha"), looks: .any(tuning: ResultsQuery.tuning),
                aim: vector["margin"] == true ? .nonInferiority : .difference)
            let found = try #require(
                power.power(effect: try number("effect"), users: users[0], baselineUsers: users[1]))
            #expect(abs(found - (try number("power"))) <= 1e-9)
        }
    }
}
