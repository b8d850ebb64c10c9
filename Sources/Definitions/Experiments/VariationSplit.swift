public import Bucketing

/// The division of an experiment's users among the variations.
public struct VariationSplit: Sendable {
    public let ids: [Identifier]
    /// The relative weights that were given, in the order of ``ids``. A variation without a weight is left out, so the
    /// list may be shorter than ``ids``.
    public let given: [Double]
    /// The number of bucket values of each variation, of 10,000.
    public let shares: [Identifier: Int]

    public init(ids: [Identifier], given: [Double], shares: [Identifier: Int]) {
        self.ids = ids
        self.given = given
        self.shares = shares
    }

    /// The maximum difference between a variation's share and that of a new allocation by the same weights, in bucket
    /// values. Raising the traffic never takes a bucket value away from a variation, so its result is rounded in
    /// another way.
    private static let roundingDifference = 2

    /// The percentage of the experiment's bucket values that any variation has.
    public var traffic: Double { Double(ids.reduce(0) { $0 + (shares[$1] ?? 0) }) / 100 }

    /// The relative weights of the variations: the weights that were given, if the allocation agrees with them;
    /// otherwise each variation's share of users, in hundredths of a percent.
    ///
    /// Shares that differ by at most one hundredth of a percent are taken for rounded equal parts, and get equal
    /// weights. Otherwise the rounding at little traffic would still skew the split after the traffic is raised.
    public var weights: [Identifier: Double] {
        if given.count == ids.count, given.contains(where: { $0 > 0 }), given.allSatisfy({ $0 >= 0 && $0.isFinite }) {
            let expected = TrafficAllocation.weights(of: ids, ratio: given, traffic: traffic)
            let agrees = expected.allSatisfy { entry in
                abs((shares[entry.entityID] ?? 0) - entry.weight) <= Self.roundingDifference
            }
            if agrees {
                return Dictionary(zip(ids, given), uniquingKeysWith: { first, _ in first })
            }
        }
        let parts = ids.map { shares[$0] ?? 0 }
        let difference = (parts.max() ?? 0) - (parts.min() ?? 0)
        // Without traffic there are no shares to derive weights from, so all variations get the same.
        if traffic == 0 || difference <= 1 {
            return Dictionary(ids.map { ($0, 1) }, uniquingKeysWith: { first, _ in first })
        }
        return shares.mapValues { Double($0) }
    }
}
