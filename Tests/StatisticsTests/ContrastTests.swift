import Foundation
import JSON
import Statistics
import Testing

/// Contrasts, compared with those of scipy for the same totals (`contrast_vectors.py`), and what they promise.
@Suite struct ContrastTests {
    @Test func `Squared z, p-values and intervals equal the reference to 1e-9`() throws {
        let url = try #require(Bundle.module.url(forResource: "contrast-vectors", withExtension: "jsonl"))
        var count = 0
        for line in try Data(contentsOf: url).split(separator: UInt8(ascii: "\n")) {
            let object = try #require(try JSONParser().parse(Array(line)).object)
            func numbers(_ name: String) -> [Double] { object[name]?.array?.compactMap(\.double) ?? [] }
            let function = object["function"]?.string ?? ""
            let contrast = try #require(make(function, numbers("arguments")))
            let expected = numbers("expected")
            let found = results(contrast, ratesFirst: function == "rates", count: expected.count)
            #expect(found.count == expected.count)
            for (index, (found, expected)) in zip(found, expected).enumerated() {
                #expect(abs(found - expected) <= 1e-9 * max(1, abs(expected)), "\(line) \(index): \(found)")
            }
            count += 1
        }
        #expect(count == 149)
    }

    private func make(_ function: String, _ x: [Double]) -> (any Contrast)? {
        if function == "rates" {
            return RateContrast(
                stride(from: 0, to: x.count, by: 4).map { start in
                    RateContrast.Period(x[start + 2], of: x[start], baseline: x[start + 3], of: x[start + 1])
                })
        }
        let sides = stride(from: 0, to: x.count, by: 6).map { start -> PairedSample in
            let (n, scale) = (x[start], x[start] - 1)
            return PairedSample(
                count: n, mean: x[start + 1], meanBefore: x[start + 2], squares: x[start + 3] * scale,
                squaresBefore: x[start + 4] * scale, products: x[start + 5] * scale)
        }
        let periods = stride(from: 0, to: sides.count, by: 2).map { (sides[$0], sides[$0 + 1]) }
        return function == "means"
            ? MeanContrast(periods.map { ($0.0.sample, $0.1.sample) }) : MeanContrast(adjusting: periods)
    }

    private func results(_ contrast: any Contrast, ratesFirst: Bool, count: Int) -> [Double] {
        let z2 = [-0.1, 0.1].map { contrast.squaredZ(.lift($0)) }
        let difference = contrast.squaredZ(.difference(ratesFirst ? 0.01 : 0.05))
        let lifts = AlwaysValid().lifts(of: contrast, alpha: 0.05).map { [$0.lowerBound, $0.upperBound] } ?? []
        let differences =
            AlwaysValid().differences(of: contrast, alpha: 0.05).map { [$0.lowerBound, $0.upperBound] } ?? []
        let head =
            [contrast.squaredZ(.noEffect)] + z2 + [
                difference, AlwaysValid().pValue(contrast, .noEffect), OneLook().pValue(contrast, .noEffect),
            ]
        return ratesFirst ? head + lifts + differences : head + differences + (count > 8 ? lifts : [])
    }

    /// Random totals, among them rare events, uneven sides, baselines below zero and several periods.
    private static func random(_ generator: inout SystemRandomNumberGenerator) -> (any Contrast)? {
        func number(_ range: ClosedRange<Double>) -> Double { .random(in: range, using: &generator) }
        func users() -> Double { pow(10, number(0.5...5)).rounded() }
        let periods = Int(number(1...3.5))
        if Bool.random(using: &generator) {
            return RateContrast(
                (0..<periods).map { _ in
                    let (n1, n0, rate) = (users(), users(), pow(10, number(-4...0)))
                    return RateContrast.Period(
                        (n1 * min(1, rate * number(0.5...1.5))).rounded(), of: n1,
                        baseline: (n0 * rate).rounded(), of: n0)
                })
        }
        return MeanContrast(
            (0..<periods).map { _ in
                (
                    Sample(count: users(), mean: number(-1...1), variance: exp(number(-3...3))),
                    Sample(count: users(), mean: number(-1...1), variance: exp(number(-3...3)))
                )
            })
    }

    @Test func `Interval, p-value and estimate never contradict each other`() throws {
        var generator = SystemRandomNumberGenerator()
        for _ in 0..<10_000 {
            guard let contrast = Self.random(&generator) else { continue }
            let alpha = [0.05, 0.01, 0.0083].randomElement(using: &generator) ?? 0.05
            for rule in [OneLook(), AlwaysValid()] as [any LookingRule] {
                let isCertain = rule.pValue(contrast, .noEffect) < alpha
                if let differences = rule.differences(of: contrast, alpha: alpha) {
                    #expect(differences.contains(contrast.difference))
                    #expect(isCertain != differences.contains(0), "\(contrast)")
                } else {
                    #expect(!isCertain)
                }
                if let lifts = rule.lifts(of: contrast, alpha: alpha) {
                    #expect(isCertain != lifts.contains(0), "\(contrast)")
                }
            }
            #expect(AlwaysValid().pValue(contrast, .noEffect) >= OneLook().pValue(contrast, .noEffect))
        }
    }

    @Test func `Nobody against a few is told apart as soon as it is certain`() throws {
        let crashes = try #require(RateContrast([.init(20, of: 400, baseline: 0, of: 400)]))
        #expect(AlwaysValid().pValue(crashes, .noEffect) < 0.001)
        #expect(crashes.lift == nil)
        #expect(AlwaysValid().pValue(crashes, .lift(0.2)) < 0.01)
        let lifts = try #require(AlwaysValid().lifts(of: crashes, alpha: 0.05))
        #expect(lifts.lowerBound > 0.2 && lifts.upperBound == .infinity)
        let orders = try #require(RateContrast([.init(0, of: 400, baseline: 20, of: 400)]))
        #expect(try #require(AlwaysValid().lifts(of: orders, alpha: 0.05)).lowerBound == -1)
        let nothing = try #require(RateContrast([.init(0, of: 10_000, baseline: 0, of: 10_000)]))
        #expect(AlwaysValid().pValue(nothing, .noEffect) == 1)
    }

    @Test func `One outlier makes nothing certain`() throws {
        let usual = Sample(count: 200, mean: 2, variance: 40)
        let outlier = Sample(count: 200, mean: 102, variance: 2_000_000)
        for contrast in [MeanContrast([(usual, outlier)]), MeanContrast([(outlier, usual)])] {
            #expect(AlwaysValid().pValue(try #require(contrast), .noEffect) > 0.3)
        }
    }

    @Test func `A loss that shrinks is a gain`() throws {
        let loss = Sample(count: 2_000, mean: -5, variance: 4)
        let less = Sample(count: 2_000, mean: -3, variance: 4)
        let contrast = try #require(MeanContrast([(less, loss)]))
        #expect(contrast.isAbove(.noEffect))
        #expect(abs(try #require(contrast.lift) - 0.4) < 1e-12)
        let lifts = try #require(AlwaysValid().lifts(of: contrast, alpha: 0.05))
        #expect(lifts.lowerBound > 0.3 && lifts.upperBound < 0.5)
        #expect(!contrast.isAbove(.lift(0.5)) && contrast.isAbove(.lift(-0.1)))
    }
}
