public import Definitions

/// A proposed limit of the totals of single users (winsorizing). With the limit, a few users with great totals no
/// longer determine the variance, so an experiment needs fewer users.
public struct ProposedCap: Sendable {
    /// The users with the greatest totals, one in a thousand of all users.
    public struct GreatestUsers: Sendable {
        /// The number of these users.
        public let users: Int
        /// Their share of all users.
        public let shareOfUsers: Double
        /// Their share of the sum of all totals.
        public let shareOfSum: Double
    }

    /// The limit.
    public let cap: Double
    public let greatest: GreatestUsers
    /// The mean with the cap, as a share of the mean without it.
    private let meanRatio: Double
    /// The number of users whom an experiment needs with the cap, as a share of the number without it. The effect to
    /// detect is a share of the mean in both cases.
    public let users: Double

    /// The cap limits this share of the users who have a total, and at least one user.
    private static let limitedShare = 0.001
    /// A cap is proposed only if ``users`` is at most this share. Otherwise the cap would save too few users.
    private static let mostUsers = 0.8

    /// - Returns: `nil` if a cap would save too few users.
    init?(_ known: UserTotals) {
        let totals = known.totals
        let count = Double(known.users)
        let limited = max(1, Int(Double(totals.count) * Self.limitedShare))
        guard totals.count > limited, known.users > 1 else { return nil }
        // The totals are in descending order, so this is the greatest total after those of the limited users.
        let cap = Self.rounded(totals[limited])
        let capped = totals.map { min($0, cap) }
        // The variance over all users, divided by the squared mean. The number of users that is needed for a relative
        // effect is proportional to this ratio.
        func relativeVariance(_ totals: [Double]) -> Double {
            let sum = totals.reduce(0, +)
            return count * totals.reduce(0) { $0 + $1 * $1 } / (sum * sum) - 1
        }
        let before = relativeVariance(totals)
        let after = relativeVariance(capped)
        guard before.isFinite, before > 0, after >= 0, after <= Self.mostUsers * before else { return nil }
        let sum = totals.reduce(0, +)
        let greatest = max(1, Int((count * Self.limitedShare).rounded()))
        self.cap = cap
        self.greatest = GreatestUsers(
            users: greatest, shareOfUsers: Double(greatest) / count,
            shareOfSum: totals.prefix(greatest).reduce(0, +) / sum)
        meanRatio = capped.reduce(0, +) / sum
        users = after / before
    }

    /// Rounds a limit up to two significant digits. A limit below 1 stays.
    private static func rounded(_ number: Double) -> Double {
        guard number >= 1 else { return number }
        var unit = 1.0
        while number / unit >= 100 { unit *= 10 }
        return (number / unit).rounded(.up) * unit
    }

    /// Returns the mean and the standard deviation that a sample would have with the cap.
    func limiting(mean: Double, standardDeviation: Double) -> (mean: Double, standardDeviation: Double) {
        // `users` is the ratio of the variances relative to the squared means. Its root is the ratio of the standard
        // deviations relative to the means, so the product with `meanRatio` is the ratio of the standard deviations.
        (mean * meanRatio, standardDeviation * meanRatio * users.squareRoot())
    }
}

extension MetricDefinition {
    /// Whether the metric could have a cap on users' totals, but has none.
    public var lacksCap: Bool { statistic == .mean && cap == nil }
}
