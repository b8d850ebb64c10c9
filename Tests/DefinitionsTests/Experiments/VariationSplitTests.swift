import Bucketing
import Testing

@testable import Definitions

/// The weights that are shown of an experiment: those that were given, as long as its allocation agrees with them.
@Suite struct VariationSplitTests {
    private static let ids: [Identifier] = ["a", "b", "c"]

    private static func weights(_ given: [Double], _ shares: [Int]) -> [Double] {
        let ids = Array(ids.prefix(shares.count))
        let split = VariationSplit(
            ids: ids, given: given, shares: Dictionary(uniqueKeysWithValues: zip(ids, shares)))
        return ids.map { split.weights[$0] ?? -1 }
    }

    @Test(
        arguments: [
            ([3, 1], [7_500, 2_500], [3, 1]), ([3, 1], [750, 250], [3, 1]), ([2.5, 1], [5, 2], [2.5, 1]),
            // As much as rounding makes of it, and more.
            ([1, 1, 1], [3_334, 3_333, 3_333], [1, 1, 1]), ([3, 1], [7_498, 2_502], [3, 1]),
            ([3, 1], [7_400, 2_600], [7_400, 2_600]),
            // None, not for all, or none that can be.
            ([], [5_000, 5_000], [1, 1]), ([1], [9_000, 1_000], [9_000, 1_000]), ([0, 0], [2, 1], [1, 1]),
            ([-1, 1], [4_000, 6_000], [4_000, 6_000]), ([.infinity, 1], [10_000, 0], [10_000, 0]),
            // Without traffic there are no shares.
            ([], [0, 0], [1, 1]), ([9, 1], [0, 0], [9, 1]),
        ] as [([Double], [Int], [Double])])
    func `Weights agree with the shares`(given: [Double], shares: [Int], expected: [Double]) {
        #expect(Self.weights(given, shares) == expected)
    }

    @Test func `The traffic is the part of the bucket values that the variations have`() {
        let split = VariationSplit(ids: Self.ids, given: [], shares: ["a": 10, "b": 2_490, "gone": 500])
        #expect(split.traffic == 25)
    }
}
