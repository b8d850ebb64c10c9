/// The power of the tests of results: the probability that they find an effect of some size. Plans an experiment: how
/// many users or how much time it needs.
///
/// Effects are shares of the magnitude of the baseline's mean: 0.1 is an increase by 10%. The model has three
/// assumptions: the variation's values have the variance of the baseline's; the z of a test is normally distributed
/// with a standard deviation of 1; and its mean is the z of the expected totals, computed by the same ``Contrast`` as
/// the z of results. The power is then the probability that a normal variable with this mean exceeds the z that the
/// test requires.
public struct Power: Sendable, Equatable {
    /// The distribution of the baseline's values.
    public enum Baseline: Sendable, Equatable {
        /// The share of users who convert: 0.05 for 5%.
        case rate(Double)
        /// The mean and the standard deviation of a value of each user, such as revenue.
        case mean(Double, standardDeviation: Double)

        public var mean: Double {
            switch self {
            case .rate(let rate): rate
            case .mean(let mean, _): mean
            }
        }

        public var standardDeviation: Double {
            switch self {
            case .rate(let rate): (rate * (1 - rate)).squareRoot()
            case .mean(_, let deviation): deviation
            }
        }
    }

    /// How often results may be looked at.
    public enum Looks: Sendable, Equatable {
        /// Once, at a time that was planned in advance: ``OneLook``.
        case one
        /// Any number of times: ``AlwaysValid`` with this tuning.
        case any(tuning: Double)

        /// The rule by which the results of such an experiment are tested.
        fileprivate var rule: any LookingRule {
            switch self {
            case .one: OneLook()
            case .any(let tuning): AlwaysValid(tuning: tuning)
            }
        }

        /// How much earlier looks add to the power, as a distance in standard deviations: they can find an effect that
        /// the last look misses. The number is from simulations of tests of 1,000 to 1,000,000 users with powers of 0.8
        /// and 0.9.
        fileprivate var gain: Double { self == .one ? 0 : 0.26 }
    }

    /// The claim that the test is meant to support.
    public enum Aim: Sendable, Equatable {
        /// That a variation with the effect differs from the baseline.
        case difference
        /// That a variation without any effect is not worse than the baseline by as much as the effect.
        case nonInferiority
    }

    public let baseline: Baseline
    /// The level of the two-sided test.
    private let alpha: Double
    /// The power that the test should have.
    private let target: Double
    /// How often the results may be looked at.
    private let looks: Looks
    public let aim: Aim

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
    }

    /// The power that a test should have unless the caller chooses another one.
    public static let target = 0.8

    /// Returns the probability that an effect is found.
    ///
    /// - Parameters:
    ///   - effect: not 0; for ``Aim/nonInferiority`` the margin, with either sign.
    ///   - users: the number of users of the variation.
    ///   - baselineUsers: the number of users of the baseline.
    /// - Returns: `nil` if the baseline cannot have such an effect, or there are no users.
    public func power(effect: Double, users: Double, baselineUsers: Double) -> Double? {
        guard users > 0, baselineUsers > 0, effect != 0,
            let contrast = expected(aim == .difference ? effect : 0, users, baselineUsers)
        else { return nil }
        let hypothesis = aim == .difference ? NullHypothesis.noEffect : .lift(effect)
        let expectedZ = contrast.squaredZ(hypothesis).squareRoot()
        let requiredZ = looks.rule.squaredZ(alpha: alpha, effectiveUsers: contrast.effectiveUsers).squareRoot()
        let power = Normal.probability(upTo: expectedZ - requiredZ + looks.gain)
        return power.isFinite ? power : nil
    }

    /// Returns the contrast of the totals that an effect is expected to result in.
    ///
    /// - Returns: `nil` if the baseline cannot have such an effect.
    private func expected(_ effect: Double, _ users: Double, _ baselineUsers: Double) -> (any Contrast)? {
        switch baseline {
        case .rate(let rate):
            let other = rate * (1 + effect)
            guard rate > 0, rate < 1, other >= 0, other <= 1 else { return nil }
            return RateContrast([
                .init(users * other, of: users, baseline: baselineUsers * rate, of: baselineUsers)
            ])
        case .mean(let mean, let standardDeviation):
            guard mean != 0, standardDeviation > 0 else { return nil }
            let variance = standardDeviation * standardDeviation
            // A contrast of means needs more than one user on each side.
            return MeanContrast([
                (
                    Sample(count: max(users, 1.5), mean: mean + effect * abs(mean), variance: variance),
                    Sample(count: max(baselineUsers, 1.5), mean: mean, variance: variance)
                )
            ])
        }
    }

    /// Returns the smallest effect that is found with the target power.
    ///
    /// - Parameter decrease: whether to search the effects below 0 instead of those above 0.
    /// - Returns: `nil` if no effect is found with that power.
    public func smallestEffect(users: Double, baselineUsers: Double, decrease: Bool = false) -> Double? {
        let sign: Double = decrease ? -1 : 1
        func isFound(_ size: Double) -> Bool? {
            power(effect: sign * size, users: users, baselineUsers: baselineUsers).map { $0 >= target }
        }
        // The search begins with a size of effect that no realistic number of users finds.
        var low = 1e-9
        var high: Double
        switch baseline {
        case .rate(let rate):
            guard rate > 0, rate < 1 else { return nil }
            // The effect that changes the rate to 0 or 1, less a margin. Rounding must not move the rate beyond 0 or 1.
            high = (decrease ? 1 : (1 - rate) / rate) * (1 - 1e-12)
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
    ///   - limit: the latest time to consider, in the unit of the parameter of `users`.
    ///   - users: returns the numbers of users at a time; they must not decrease.
    /// - Returns: 0 if the effect is found at time 0; `nil` if it is not found at the limit.
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

    /// Returns the least number for which a condition holds, by bisection. The condition must hold for `high`, and not
    /// for `low`.
    private static func boundary(_ low: Double, _ high: Double, _ holds: (Double) -> Bool) -> Double {
        var (low, high) = (low, high)
        for _ in 0..<200 where high - low > 1e-13 * high {
            let middle = (low + high) / 2
            if holds(middle) { high = middle } else { low = middle }
        }
        return high
    }
}
