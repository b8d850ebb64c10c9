import Statistics

/// The variations of an experiment with their current and future users, and the effect to detect. Computes the needed
/// users and days for a ``SampleSizeEstimate``.
struct SampleSizeScenario {
    /// The share of the experiment's users that each variation gets.
    let shares: [Double]
    /// The current number of users of each variation.
    let enrolled: [Double]
    /// The index of the baseline among the variations.
    let baselineIndex: Int
    /// The indices of the variations that are compared with the baseline.
    let compared: [Int]
    /// The number of users of all variations per day; `nil` if it is unknown.
    let usersPerDay: Double?
    /// The effect to detect, as a share of the baseline's mean; `nil` if only the detectable effect is requested.
    let effect: Double?
    /// The number of days from now for which the detectable effect is computed; `nil` if it is not requested.
    let days: Double?
    /// Whether the effect of interest is a decrease.
    let isDecrease: Bool

    /// An effect that needs more users than this counts as impossible to detect.
    private static let mostUsers = 1e12

    /// Returns the needs for one look that is planned in advance, and for looks at any time.
    ///
    /// - Parameters:
    ///   - baseline: the mean and the standard deviation of the baseline.
    ///   - target: the required power.
    ///   - isGuardrail: whether the test must show that the variation is worse by less than the effect. Otherwise it
    ///     must show that the variation differs from the baseline.
    func needs(
        _ baseline: Power.Baseline, alpha: Double, power target: Double, isGuardrail: Bool
    ) -> (oneLook: SampleSizeEstimate.Needs, anyTime: SampleSizeEstimate.Needs) {
        func power(_ looks: Power.Looks) -> Power {
            Power(
                of: baseline, alpha: alpha, target: target, looks: looks,
                aim: isGuardrail ? .nonInferiority : .difference
            )
        }
        return (needs(power(.one)), needs(power(.any(tuning: ResultsQuery.tuning))))
    }

    /// Returns the needs of the variation whose comparison with the baseline needs most.
    private func needs(_ power: Power) -> SampleSizeEstimate.Needs {
        SampleSizeEstimate.Needs(
            users: neededUsers(power), days: neededDays(power), detectableEffect: detectableEffect(power))
    }

    /// Returns the number of users of all variations from which on the effect is detected; `nil` without an effect, or
    /// if it is impossible to detect.
    private func neededUsers(_ power: Power) -> Double? {
        guard let effect else { return nil }
        return greatest { index in
            power.time(toFind: effect, until: Self.mostUsers) { users in
                (shares[index] * users, shares[baselineIndex] * users)
            }
        }
    }

    /// Returns the number of days after which the effect is detected; `nil` without an effect, if the traffic is
    /// unknown, or if it takes too long.
    private func neededDays(_ power: Power) -> Double? {
        guard let effect, let usersPerDay else { return nil }
        return greatest { index in
            power.time(toFind: effect, until: ResultsPower.dayLimit) { users(index, after: $0, usersPerDay) }
        }
    }

    /// Returns the smallest effect that is detected after ``days``; `nil` if the days or the traffic are unknown, or if
    /// there is no such effect.
    private func detectableEffect(_ power: Power) -> Double? {
        guard let days, let usersPerDay else { return nil }
        let magnitude = greatest { index in
            let (users, baselineUsers) = users(index, after: days, usersPerDay)
            return power.smallestEffect(users: users, baselineUsers: baselineUsers, decrease: isDecrease)
                .map { abs($0) }
        }
        // The margin of a guardrail has no sign.
        let isNegative = isDecrease && power.aim == .difference
        return magnitude.map { isNegative ? -$0 : $0 }
    }

    /// Returns the numbers of users of a variation and of the baseline after a number of days.
    ///
    /// - Parameter rate: the number of users of all variations per day.
    private func users(_ index: Int, after days: Double, _ rate: Double) -> (variation: Double, baseline: Double) {
        (enrolled[index] + days * rate * shares[index], enrolled[baselineIndex] + days * rate * shares[baselineIndex])
    }

    /// Returns the greatest of the numbers of all compared variations; `nil` if any of them is `nil`.
    ///
    /// - Parameter number: returns the number of a variation, given its index.
    private func greatest(_ number: (Int) -> Double?) -> Double? {
        var greatest = 0.0
        for index in compared {
            guard let value = number(index) else { return nil }
            greatest = max(greatest, value)
        }
        return greatest
    }
}
