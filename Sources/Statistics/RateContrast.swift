import Glibc

/// The rates of a variation and its baseline, compared by the likelihood ratio of two binomials.
///
/// The evidence against a hypothesis is a difference of two deviances. The deviance of some rates is twice the
/// logarithm of the likelihood of the observed rates over that of these rates. The deviance of the most likely rates
/// without the hypothesis is subtracted from the deviance of the most likely rates under the hypothesis.
///
/// The comparison needs no minimum number of users, and is valid for rates near 0, such as 0 of 400 against 20 of 400.
/// With several periods of allocation, the ratio of the rates is assumed to be the same in all periods, while each
/// period has its own baseline rate. The difference is then the mean of the differences that follow from this ratio in
/// each period.
public struct RateContrast: Contrast {
    /// The users of one period of allocation, in which the shares of the variations did not change.
    public struct Period: Sendable, Equatable {
        var successes: Double
        var count: Double
        var baseSuccesses: Double
        var baseCount: Double

        /// - Parameters:
        ///   - successes: the users of the variation who converted, out of `count`.
        ///   - baseline: the users of the baseline who converted, out of `baseCount`.
        public init(_ successes: Double, of count: Double, baseline: Double, of baseCount: Double) {
            self.successes = successes
            self.count = count
            self.baseSuccesses = baseline
            self.baseCount = baseCount
        }

        fileprivate var total: Double { count + baseCount }
        /// The period's part of ``Contrast/effectiveUsers``: twice the harmonic mean of the sides' numbers of users.
        fileprivate var effectiveUsers: Double { 4 * count * baseCount / total }
        fileprivate var difference: Double { successes / count - baseSuccesses / baseCount }
    }

    private let periods: [Period]
    /// The successes of the variation in all periods.
    private let successes: Double
    /// The successes of the baseline in all periods.
    private let baseSuccesses: Double
    /// The most likely ratio of the rates; infinite if the baseline has no successes, `NaN` if neither side has any.
    private let bestRatio: Double
    /// The deviance with ``bestRatio``. 0 for one period, whose observed rates have this ratio. Also 0 if a side has no
    /// successes: its rate is 0, and each period can have the observed rate of the other side.
    private let bestDeviance: Double
    public let effectiveUsers: Double

    /// - Parameter periods: periods in which one side has no users are left out.
    /// - Returns: `nil` if no period has users of both sides.
    public init?(_ periods: [Period]) {
        let periods = periods.filter { $0.count > 0 && $0.baseCount > 0 }
        guard let first = periods.first else { return nil }
        self.periods = periods
        let successes = periods.reduce(0) { $0 + $1.successes }
        let baseSuccesses = periods.reduce(0) { $0 + $1.baseSuccesses }
        self.successes = successes
        self.baseSuccesses = baseSuccesses
        effectiveUsers = periods.reduce(0) { $0 + $1.effectiveUsers }
        if periods.count == 1 {
            bestRatio = first.successes / first.count / (first.baseSuccesses / first.baseCount)
            bestDeviance = 0
        } else if baseSuccesses == 0 {
            bestRatio = successes > 0 ? .infinity : .nan
            bestDeviance = 0
        } else if successes == 0 {
            bestRatio = 0
            bestDeviance = 0
        } else {
            bestRatio = Self.bestRatio(periods)
            bestDeviance = Self.deviance(periods, ratio: bestRatio)
        }
    }

    public var difference: Double {
        guard periods.count > 1 else { return periods[0].difference }
        return bestRatio.isNaN ? 0 : difference(ratio: bestRatio)
    }

    public var lift: Double? { baseSuccesses > 0 ? bestRatio - 1 : nil }

    public func squaredZ(_ hypothesis: NullHypothesis) -> Double {
        switch hypothesis {
        case .lift(let lift):
            return max(0, Self.deviance(periods, ratio: max(0, 1 + lift)) - bestDeviance)
        case .difference(let difference):
            guard periods.count > 1 else { return Self.deviance(periods[0], difference: difference) }
            // If a side has no successes, the best ratio is 0 or infinite, and no ratio results in a difference beyond
            // that of the best ratio. For such a difference, the totals are tested like one period.
            let isBeyond =
                successes == 0 && difference < self.difference || baseSuccesses == 0 && difference > self.difference
            guard !isBeyond else { return Self.deviance(totals, difference: difference) }
            let limit = Self.largestLogarithm
            let logarithm = Root.between(-limit, limit) { self.difference(ratio: exp($0)) - difference }
            return max(0, Self.deviance(periods, ratio: exp(logarithm)) - bestDeviance)
        }
    }

    public func isAbove(_ hypothesis: NullHypothesis) -> Bool {
        switch hypothesis {
        case .lift(let lift): bestRatio > 1 + lift
        case .difference(let difference): self.difference > difference
        }
    }

    // MARK: Intervals

    public func differences(upTo squaredZ: Double) -> ClosedRange<Double>? {
        guard periods.count > 1 else { return Self.differences(periods[0], upTo: squaredZ) }
        // Without any success on a side, the ratio does not bound the rate of the other side.
        let all = Self.differences(totals, upTo: squaredZ)
        let low = successes == 0 ? all.lowerBound : difference(ratio: ratio(.below, reaching: squaredZ))
        let high = baseSuccesses == 0 ? all.upperBound : difference(ratio: ratio(.above, reaching: squaredZ))
        return min(low, difference)...max(high, difference)
    }

    /// The totals of all periods as one period.
    private var totals: Period {
        Period(
            successes, of: periods.reduce(0) { $0 + $1.count }, baseline: baseSuccesses,
            of: periods.reduce(0) { $0 + $1.baseCount })
    }

    /// Returns the differences of one period whose squared z is at most a number.
    private static func differences(_ period: Period, upTo squaredZ: Double) -> ClosedRange<Double> {
        func excess(_ difference: Double) -> Double { deviance(period, difference: difference) - squaredZ }
        func bound(_ end: Double) -> Double {
            // If not even the extreme difference has too large a squared z, the bound is -1 or 1.
            excess(end) <= 0 ? end.rounded() : Root.between(period.difference, end, excess)
        }
        let low = bound(-1 + differenceMargin)
        let high = bound(1 - differenceMargin)
        return min(period.difference, low)...max(period.difference, high)
    }

    public func lifts(upTo squaredZ: Double) -> ClosedRange<Double>? {
        let low = successes == 0 ? 0 : ratio(.below, reaching: squaredZ)
        let high = baseSuccesses == 0 ? Double.infinity : ratio(.above, reaching: squaredZ)
        // The best ratio is between the bounds, so only rounding errors could put them in the wrong order.
        return low <= high ? low - 1...high - 1 : nil
    }

    /// The logarithm of the greatest ratio that is searched; e^60 is about 1e26. Ratios are searched by their
    /// logarithms, for which 1/2 is as far from 1 as 2 is.
    private static let largestLogarithm = 60.0

    /// The first step of the search for a bound, as a logarithm of a ratio.
    private static let firstStep = 0.25
    /// The distance from -1 and 1 of the extreme differences that are searched, because the deviance may be infinite at
    /// -1 and 1 themselves.
    private static let differenceMargin = 1e-9
    /// The distance from the ends of the possible rates within which the slope of the likelihood is not computed,
    /// because it may be infinite at the ends themselves.
    private static let rateMargin = 1e-15

    /// A side of the best ratio.
    private enum Side: Double {
        case below = -1
        case above = 1
    }

    /// Returns the ratio on one side of the best ratio at which the squared z reaches a number; 0 or infinity if none
    /// does.
    private func ratio(_ side: Side, reaching squaredZ: Double) -> Double {
        func excess(_ logarithm: Double) -> Double {
            Self.deviance(periods, ratio: exp(logarithm)) - bestDeviance - squaredZ
        }
        let direction = side.rawValue
        let isInside = bestRatio > 0 && bestRatio.isFinite
        // Walks away from the best ratio in steps of doubling length until the squared z is too large. A best ratio of
        // 0 or infinity has no logarithm, so the walk begins at a very small or a very large ratio.
        var near = isInside ? log(bestRatio) : direction * -Self.largestLogarithm / 2
        var step = direction * Self.firstStep
        var far = near + step
        while excess(far) <= 0, abs(far) < Self.largestLogarithm {
            near = far
            step *= 2
            far += step
        }
        guard excess(far) > 0 else { return side == .above ? .infinity : 0 }
        return exp(Root.between(near, far, excess))
    }

    /// Returns the mean of the differences that result from a ratio of the rates, weighted by the users of each period.
    private func difference(ratio: Double) -> Double {
        let users = periods.reduce(0) { $0 + $1.total }
        return periods.reduce(0) { sum, period in
            let base = Self.baseRate(period, ratio: ratio)
            let rate = ratio.isFinite ? min(1, ratio * base) : period.successes / period.count
            return sum + period.total / users * (rate - base)
        }
    }

    // MARK: Likelihood

    /// Returns the deviance of one side: twice the logarithm of the likelihood of the observed rate over that of an
    /// assumed rate.
    private static func deviance(_ successes: Double, of count: Double, _ rate: Double) -> Double {
        // 0 · ln 0 counts as 0, its limit.
        func term(_ number: Double, _ expected: Double) -> Double { number > 0 ? number * log(number / expected) : 0 }
        return 2 * (term(successes, count * rate) + term(count - successes, count * (1 - rate)))
    }

    /// Returns the deviance of one period with assumed rates of both sides.
    private static func deviance(_ period: Period, _ rate: Double, _ baseRate: Double) -> Double {
        deviance(period.successes, of: period.count, rate)
            + deviance(period.baseSuccesses, of: period.baseCount, baseRate)
    }

    /// Returns the deviance of all periods if the variation's rate is a multiple of the baseline's.
    private static func deviance(_ periods: [Period], ratio: Double) -> Double {
        periods.reduce(0) { sum, period in
            let base = baseRate(period, ratio: ratio)
            return sum + deviance(period, min(1, ratio * base), base)
        }
    }

    /// Returns the deviance of one period if the variation's rate is the baseline's plus a difference.
    private static func deviance(_ period: Period, difference: Double) -> Double {
        let base = baseRate(period, difference: difference)
        return deviance(period, min(max(base + difference, 0), 1), base)
    }

    /// Returns the most likely rate of the baseline if the variation's is a multiple of it: the lesser root of a
    /// quadratic equation (Miettinen and Nurminen, Comparative analysis of two rates, 1985).
    private static func baseRate(_ period: Period, ratio: Double) -> Double {
        let all = period.successes + period.baseSuccesses
        guard ratio.isFinite else { return 0 }
        let linear =
            ratio * (period.count + period.baseSuccesses) + period.baseCount + period.successes
        let root = max(0, linear * linear - 4 * ratio * period.total * all).squareRoot()
        // The rationalized root: it has no difference of similar numbers, and is defined for a ratio of 0.
        return all > 0 ? min(1, 2 * all / (linear + root)) : 0
    }

    /// Returns the most likely rate of the baseline if the variation's is higher by a difference: the zero of the
    /// derivative of the log-likelihood, which falls from one end of the possible rates to the other.
    private static func baseRate(_ period: Period, difference: Double) -> Double {
        let low = max(0, -difference)
        let high = min(1, 1 - difference)
        guard low < high else { return low }
        let successes = period.successes
        let failures = period.count - period.successes
        let baseSuccesses = period.baseSuccesses
        let baseFailures = period.baseCount - period.baseSuccesses
        func slope(_ rate: Double) -> Double {
            func share(_ number: Double, _ rate: Double) -> Double { number > 0 ? number / rate : 0 }
            return share(successes, rate + difference) - share(failures, 1 - rate - difference)
                + share(baseSuccesses, rate) - share(baseFailures, 1 - rate)
        }
        // At the ends themselves the derivative may be infinite.
        let first = low + rateMargin
        let last = high - rateMargin
        if slope(first) <= 0 { return low }
        if slope(last) >= 0 { return high }
        return Root.between(first, last, slope)
    }

    // MARK: The most likely ratio of several periods

    /// Returns the ratio at which the derivative of the log-likelihood of all periods is 0. Both sides must have
    /// successes.
    private static func bestRatio(_ periods: [Period]) -> Double {
        func slope(_ logarithm: Double) -> Double {
            let ratio = exp(logarithm)
            return periods.reduce(0) { sum, period in
                let rate = min(1 - rateMargin, ratio * baseRate(period, ratio: ratio))
                return sum + (period.successes - period.count * rate) / (1 - rate)
            }
        }
        var (low, high) = (-0.5, 0.5)
        while slope(low) < 0, low > -largestLogarithm { low *= 2 }
        while slope(high) > 0, high < largestLogarithm { high *= 2 }
        return exp(Root.between(low, high, slope))
    }
}
