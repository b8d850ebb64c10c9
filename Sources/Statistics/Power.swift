import Glibc

/// The power of the tests of results: how likely they are to find an effect of some size.
///
/// Effects are shares of the baseline's mean. The variation's values are assumed to vary as much as the baseline's.
public struct Power: Sendable, Equatable {
    /// What is known of the baseline.
    public enum Baseline: Sendable, Equatable {
        /// A share of users, compared by the z test of two proportions: pooled variance under the null hypothesis,
        /// unpooled under the alternative (Fleiss, Levin and Paik, Statistical Methods for Rates and Proportions, 2003,
        /// section 4.2).
        case rate(Double)
        /// A mean of values, compared by the z test, which Welch's t test approaches (Chow, Shao and Wang, Sample Size
        /// Calculations in Clinical Research, 2008, section 3.2).
        case mean(Double, standardDeviation: Double)
    }

    /// How often results are looked at.
    public enum Looks: Sendable, Equatable {
        /// Once, as planned before.
        case one
        /// As often as one likes: by the ``ConfidenceSequence`` of the lift with this tuning. The power is the probability
        /// that it shows the effect with these users, which is less than that it has shown it at any time until then.
        case any(tuning: Double)
    }

    /// What is to be shown.
    public enum Aim: Sendable, Equatable {
        /// That a variation with the effect differs from the baseline.
        case difference
        /// That a variation without any effect is not worse than the baseline by as much as the effect.
        case nonInferiority
    }

    public let baseline: Baseline
    private let alpha: Double
    private let target: Double
    private let looks: Looks
    private let aim: Aim
    private let critical: Double

    /// - Parameters:
    ///   - alpha: the level of the two-sided test, between 0 and 1.
    ///   - target: the power that the test should have.
    public init(
        of baseline: Baseline, alpha: Double, target: Double = Self.target, looks: Looks = .one, aim: Aim = .difference
    ) {
        self.baseline = baseline
        self.alpha = alpha
        self.target = target
        self.looks = looks
        self.aim = aim
        critical = -Normal.quantile(alpha / 2)
    }

    /// The power that a test should have unless something else is said: the share of effects that it finds.
    public static let target = 0.8

    /// Returns the probability that an effect is found.
    ///
    /// - Parameters:
    ///   - effect: not 0; of ``Aim/nonInferiority`` the margin, in the direction that is worse or the other one.
    ///   - users: of the variation.
    ///   - baselineUsers: of the baseline.
    /// - Returns: `nil` if the baseline cannot have such an effect, or there are no users.
    public func power(effect: Double, users: Double, baselineUsers: Double) -> Double? {
        guard users > 0, baselineUsers > 0, effect != 0 else { return nil }
        if case .one = looks, aim == .difference {
            return powerOfDifference(effect, users, baselineUsers)
        }
        // The variance of the lift by the delta method, relative to the baseline's mean.
        let real = aim == .difference ? effect : 0
        let (variation, base): (Double, Double)
        switch baseline {
        case .rate(let rate):
            let other = rate * (1 + real)
            guard rate > 0, rate < 1, other >= 0, other <= 1 else { return nil }
            (variation, base) = (other * (1 - other) / (rate * rate), (1 - rate) / rate)
        case .mean(let mean, let standardDeviation):
            guard mean != 0, standardDeviation > 0 else { return nil }
            base = standardDeviation * standardDeviation / (mean * mean)
            variation = base
        }
        let deviation = (variation / users + (1 + real) * (1 + real) * base / baselineUsers).squareRoot()
        guard deviation > 0, deviation.isFinite else { return nil }
        let distance = abs(effect) / deviation
        let reach =
            switch looks {
            case .one: critical
            case .any(let tuning):
                ConfidenceSequence(alpha: alpha, tuning: tuning).halfWidth(count: users + baselineUsers, alpha: alpha)
            }
        let found = Normal.probability(upTo: distance - reach)
        return aim == .difference ? found + Normal.probability(upTo: -distance - reach) : found
    }

    private func powerOfDifference(_ effect: Double, _ users: Double, _ baselineUsers: Double) -> Double? {
        let difference: Double
        let (null, alternative): (Double, Double)
        switch baseline {
        case .rate(let rate):
            let other = rate * (1 + effect)
            guard rate > 0, other >= 0, other <= 1 else { return nil }
            difference = abs(other - rate)
            let pooled = (users * other + baselineUsers * rate) / (users + baselineUsers)
            null = (pooled * (1 - pooled) * (1 / users + 1 / baselineUsers)).squareRoot()
            alternative = (other * (1 - other) / users + rate * (1 - rate) / baselineUsers).squareRoot()
        case .mean(let mean, let standardDeviation):
            guard mean != 0, standardDeviation > 0 else { return nil }
            difference = abs(mean * effect)
            null = standardDeviation * (1 / users + 1 / baselineUsers).squareRoot()
            alternative = null
        }
        guard difference > 0, null > 0, alternative > 0 else { return nil }
        return Normal.probability(upTo: (difference - critical * null) / alternative)
            + Normal.probability(upTo: (-difference - critical * null) / alternative)
    }

    /// Returns the smallest effect that is found with the target power.
    ///
    /// - Parameter decrease: whether effects below 0 are of interest.
    /// - Returns: `nil` if no effect is.
    public func smallestEffect(users: Double, baselineUsers: Double, decrease: Bool = false) -> Double? {
        let sign: Double = decrease ? -1 : 1
        func isFound(_ size: Double) -> Bool? {
            power(effect: sign * size, users: users, baselineUsers: baselineUsers).map { $0 >= target }
        }
        var low = 1e-9
        var high: Double
        switch baseline {
        case .rate(let rate):
            guard rate > 0, rate < 1 else { return nil }
            high = (decrease && aim == .difference ? 1 : (1 - rate) / rate) * (1 - 1e-12)
        case .mean:
            high = 1e-3
            while isFound(high) == false {
                low = high
                high *= 2
                guard high < 1e12 else { return nil }
            }
        }
        guard isFound(high) == true else { return nil }
        return sign * Self.boundary(low, high) { isFound($0) == true }
    }

    /// Returns the first time at which an effect is found with the target power, if users keep coming.
    ///
    /// - Parameters:
    ///   - users: by time; must not decrease.
    ///   - limit: the latest time that counts.
    /// - Returns: 0 if it is found now; `nil` if it is not at the limit.
    public func time(
        toFind effect: Double, until limit: Double, users: (Double) -> (variation: Double, baseline: Double)
    ) -> Double? {
        func isFound(at time: Double) -> Bool {
            let users = users(time)
            let power = power(effect: effect, users: users.variation, baselineUsers: users.baseline)
            return power.map { $0 >= target } ?? false
        }
        if isFound(at: 0) { return 0 }
        guard isFound(at: limit) else { return nil }
        return Self.boundary(0, limit, isFound)
    }

    /// Returns the least number for which a condition holds, between one for which it does not and one for which it
    /// does.
    private static func boundary(_ low: Double, _ high: Double, _ holds: (Double) -> Bool) -> Double {
        var (low, high) = (low, high)
        for _ in 0..<200 where high - low > 1e-13 * high {
            let middle = (low + high) / 2
            if holds(middle) { high = middle } else { low = middle }
        }
        return high
    }
}
