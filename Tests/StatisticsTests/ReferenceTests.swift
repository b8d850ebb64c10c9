import Foundation
import JSON
import Statistics
import Testing

/// Compares results with those of scipy, statsmodels, gbstats and ssrm-test for the same data (`vectors.py`).
@Suite struct ReferenceTests {
    private struct Vector {
        let function: String
        let arguments: [Double]
        let expected: [Double]
    }

    private static func vectors() throws -> [Vector] {
        let url = try #require(Bundle.module.url(forResource: "vectors", withExtension: "jsonl"))
        return try Data(contentsOf: url).split(separator: UInt8(ascii: "\n")).map { line in
            let object = try #require(try JSONParser().parse(Array(line)).object)
            func numbers(_ name: String) -> [Double] { object[name]?.array?.compactMap(\.double) ?? [] }
            return Vector(
                function: object["function"]?.string ?? "", arguments: numbers("arguments"),
                expected: numbers("expected"))
        }
    }

    @Test func `Results equal those of scipy, statsmodels, gbstats and ssrm-test to 1e-9`() throws {
        var functions: Set<String> = []
        for vector in try Self.vectors() {
            functions.insert(vector.function)
            let found = try #require(results(vector.function, vector.arguments), "\(vector)")
            #expect(found.count == vector.expected.count, "\(vector)")
            for (found, expected) in zip(found, vector.expected) {
                let isNear = abs(found - expected) <= 1e-9 * max(abs(expected), Self.floor(vector.function)) + 1e-15
                #expect(isNear, "\(vector.function)\(vector.arguments): \(found) instead of \(expected)")
            }
        }
        #expect(functions.count == 19)
    }

    /// The magnitude below which the references are inexact themselves: gbstats subtracts p-values from 1, scipy stops
    /// integrating at 1e-14, a difference of two means is only as exact as the means, and the evidence against a split is
    /// the difference of two large logarithms.
    private static func floor(_ function: String) -> Double {
        switch function {
        case "cuped", "rate posterior", "mean posterior", "sequential", "mean kind", "ratio kind": 1e-8
        case "sample ratio": 1
        default: 1e-12
        }
    }

    private func results(_ function: String, _ x: [Double]) -> [Double]? {
        switch function {
        case "normal quantile": [Normal.quantile(x[0])]
        case "normal probability": [Normal.probability(upTo: x[0])]
        case "t beyond": [StudentT(degreesOfFreedom: x[0]).probability(beyond: x[1])]
        case "t distance": [StudentT(degreesOfFreedom: x[0]).distance(exceededWith: x[1])]
        case "beta": [Beta(x[0], x[1]).probability(upTo: x[2])]
        case "two proportions": twoProportions(x)
        case "rate posterior": ratePosterior(x)
        case "welch": welch(comparison(x))
        case "lift": lift(comparison(x), alpha: x[6])
        case "sequential": sequential(comparison(x), alpha: x[6], tuning: x[7])
        case "mean posterior": [comparison(x).chanceToWin, comparison(x).expectedLoss].compactMap { $0 }
        case "cuped": adjusted(paired(x[..<6]), paired(x[6...]))
        case "mean kind": kind(comparison(x), hasPValue: true)
        case "rate kind":
            kind(
                Comparison(Sample(successes: x[0], of: x[1]), against: Sample(successes: x[2], of: x[3])),
                hasPValue: false)
        case "ratio kind": ratio(paired(x[..<6]), paired(x[6...]))
        case "sample ratio": sampleRatio(x)
        case "sample ratio of periods": sampleRatioOfPeriods(x)
        case "power of rates": power(Power(of: .rate(x[0]), alpha: x[1]), effect: x[2], x[3], x[4])
        case "power of means":
            power(Power(of: .mean(x[0], standardDeviation: x[1]), alpha: x[2]), effect: x[3], x[4], x[5])
        default: nil
        }
    }

    private func ratio(_ variation: PairedSample, _ baseline: PairedSample) -> [Double]? {
        guard let own = variation.ratio, let other = baseline.ratio else { return nil }
        return kind(Comparison(own, against: other), hasPValue: true)
    }

    private func kind(_ comparison: Comparison, hasPValue: Bool) -> [Double]? {
        let sequence = ConfidenceSequence(alpha: 0.05, tuning: 5_000)
        let count = comparison.variation.count + comparison.baseline.count
        guard let lift = comparison.lift, let interval = sequence.interval(lift, count: count),
            let p = comparison.welchPValue
        else { return nil }
        return [
            comparison.variation.mean, comparison.baseline.mean, lift.estimate, lift.standardError,
            interval.lowerBound, interval.upperBound,
        ] + (hasPValue ? [p] : [])
    }

    private func sampleRatio(_ x: [Double]) -> [Double]? {
        let period = SampleRatio.Period(
            counts: x.prefix(x.count / 2).map { Int($0) }, expected: [Array(x.suffix(x.count / 2))])
        return SampleRatio([period]).tests[0].map { [$0.logEvidence] }
    }

    private func sampleRatioOfPeriods(_ x: [Double]) -> [Double]? {
        let (variations, periods) = (Int(x[0]), Int(x[1]))
        let numbers = Array(x.dropFirst(2))
        let test = SampleRatio(
            (0..<periods).map { period in
                let start = 2 * variations * period
                return SampleRatio.Period(
                    counts: numbers[start..<start + variations].map { Int($0) },
                    expected: [Array(numbers[start + variations..<start + 2 * variations])])
            })
        return test.pValue.map { [$0] }
    }

    private func power(_ power: Power, effect: Double, _ users: Double, _ baselineUsers: Double) -> [Double]? {
        guard let found = power.power(effect: effect, users: users, baselineUsers: baselineUsers),
            let smallest = power.smallestEffect(users: users, baselineUsers: baselineUsers)
        else { return nil }
        return [found, smallest]
    }

    private func comparison(_ x: [Double]) -> Comparison {
        Comparison(
            Sample(count: x[0], mean: x[1], variance: x[2]), against: Sample(count: x[3], mean: x[4], variance: x[5]))
    }

    private func twoProportions(_ x: [Double]) -> [Double]? {
        let comparison = Comparison(Sample(successes: x[0], of: x[1]), against: Sample(successes: x[2], of: x[3]))
        guard let p = comparison.twoProportionPValue,
            let interval = comparison.difference.interval(halfWidth: Normal.quantile(0.975))
        else { return nil }
        return [p, interval.lowerBound, interval.upperBound]
    }

    private func ratePosterior(_ x: [Double]) -> [Double] {
        let posterior = RatePosterior(successes: x[0], of: x[1], againstSuccesses: x[2], of: x[3])
        let (chance, loss) = posterior.chanceToWinAndExpectedLoss
        return [chance, loss]
    }

    private func welch(_ comparison: Comparison) -> [Double]? {
        guard let p = comparison.welchPValue, let degrees = comparison.degreesOfFreedom else { return nil }
        let factor = StudentT(degreesOfFreedom: degrees).distance(exceededWith: 0.05)
        guard let interval = comparison.difference.interval(halfWidth: factor) else { return nil }
        return [p, degrees, interval.lowerBound, interval.upperBound]
    }

    private func lift(_ comparison: Comparison, alpha: Double) -> [Double]? {
        guard let lift = comparison.lift, let degrees = comparison.degreesOfFreedom else { return nil }
        let factor = StudentT(degreesOfFreedom: degrees).distance(exceededWith: alpha)
        guard let interval = lift.interval(halfWidth: factor) else { return nil }
        return [lift.estimate, lift.standardError, interval.lowerBound, interval.upperBound]
    }

    private func sequential(_ comparison: Comparison, alpha: Double, tuning: Double) -> [Double]? {
        let sequence = ConfidenceSequence(alpha: alpha, tuning: tuning)
        let count = comparison.variation.count + comparison.baseline.count
        guard let lift = comparison.lift, let interval = sequence.interval(lift, count: count),
            let p = sequence.pValue(lift, count: count)
        else { return nil }
        return [interval.lowerBound, interval.upperBound, p]
    }

    private func paired(_ x: ArraySlice<Double>) -> PairedSample {
        let x = Array(x)
        return PairedSample(
            count: x[0], mean: x[1], meanBefore: x[2], squares: x[3], squaresBefore: x[4], products: x[5])
    }

    private func adjusted(_ variation: PairedSample, _ baseline: PairedSample) -> [Double]? {
        guard let adjusted = AdjustedComparison(variation, against: baseline), let lift = adjusted.lift,
            let p = adjusted.comparison.welchPValue
        else { return nil }
        return [adjusted.theta, lift.estimate, lift.standardError, adjusted.comparison.difference.estimate, p]
    }
}
