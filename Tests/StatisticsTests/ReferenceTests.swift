import Foundation
import JSON
import Statistics
import Testing

/// Compares results with those of scipy, gbstats and ssrm-test for the same data (`vectors.py`).
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

    @Test func `Results equal those of scipy, gbstats and ssrm-test to 1e-9`() throws {
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
        #expect(functions.count == 7)
    }

    /// The magnitude below which the references are inexact themselves: scipy stops
    /// integrating at 1e-14, a difference of two means is only as exact as the means, and the evidence against a split is
    /// the difference of two large logarithms.
    private static func floor(_ function: String) -> Double {
        switch function {
        case "rate posterior", "mean posterior": 1e-8
        case "sample ratio": 1
        default: 1e-12
        }
    }

    private func results(_ function: String, _ x: [Double]) -> [Double]? {
        switch function {
        case "normal quantile": [Normal.quantile(x[0])]
        case "normal probability": [Normal.probability(upTo: x[0])]
        case "beta": [Beta(x[0], x[1]).probability(upTo: x[2])]
        case "rate posterior": ratePosterior(x)
        case "mean posterior": meanPosterior(x)
        case "sample ratio": sampleRatio(x)
        case "sample ratio of periods": sampleRatioOfPeriods(x)
        default: nil
        }
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

    private func meanPosterior(_ x: [Double]) -> [Double] {
        let posterior = MeanPosterior(
            Sample(count: x[0], mean: x[1], variance: x[2]), against: Sample(count: x[3], mean: x[4], variance: x[5]))
        return [posterior.chanceToWin, posterior.expectedLoss].compactMap { $0 }
    }

    private func ratePosterior(_ x: [Double]) -> [Double] {
        let posterior = RatePosterior(successes: x[0], of: x[1], againstSuccesses: x[2], of: x[3])
        let (chance, loss) = posterior.chanceToWinAndExpectedLoss
        return [chance, loss]
    }
}
