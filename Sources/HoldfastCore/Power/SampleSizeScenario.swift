import Statistics

/// The variations of an experiment with their current and future users, for which a ``SampleSizeEstimate`` computes
/// what is needed.
struct SampleSizeScenario {
    /// The share of the experiment's users that each variation gets.
    let shares: [Double]
    /// The current number of users of each variation.
    let enrolled: [Double]
    /// The index of the baseline.
    let baseline: Int
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

    /// The number of users from which on an effect counts as impossible to detect.
    private static let mostUsers = 1e12

    /// Returns the needs for one look that is planned in advance, and for looks at any time.
    ///
    /// - Parameters:
    ///   - baseline: the mean and the standard deviation of the baseline.
    ///   - target: the required power.
    ///   - isGuardrail: whether the variation must be shown to be no worse than the effect, instead of different.
    func needs(
        _ baseline: Power.Baseline, alpha: Double, power target: Double, isGuardrail: Bool
    ) -> (one: SampleSizeEstimate.Needs, always: SampleSizeEstimate.Needs) {
        func power(_ looks: Power.Looks) -> Power {
            Power(
                of: baseline, alpha: alpha, target: target, looks: looks,
                aim: isGuardrail ? .nonInferiority : .difference
            )
        }
        return (needs(power(.one)), needs(power(.any(tuning: ResultsQuery.tuning))))
    }

    /// Returns the needs of the comparison that needs most.
    private func needs(_ power: Power) -> SampleSizeEstimate.Needs {
        var needs = SampleSizeEstimate.Needs()
        if let effect {
            needs.users = greatest { index in
                power.time(toFind: effect, until: Self.mostUsers) { users in
                    (shares[index] * users, shares[baseline] * users)
                }
            }
            needs.days = greatest { index in
                usersPerDay.flatMap { rate in
                    power.time(toFind: effect, until: ResultsPower.dayLimit) { users(index, after: $0, rate) }
                }
            }
        }
        if let days, let usersPerDay {
            let magnitude = greatest { index in
                let (users, baselineUsers) = users(index, after: days, usersPerDay)
                return power.smallestEffect(users: users, baselineUsers: baselineUsers, decrease: isDecrease)
                    .map { abs($0) }
            }
            // The margin of a guardrail has no sign.
            let isNegative = isDecrease && power.aim == .difference
            needs.detectableEffect = magnitude.map { isNegative ? -$0 : $0 }
        }
        return needs
    }

    /// Returns the numbers of users of a variation and of the baseline after some days.
    ///
    /// - Parameter rate: the number of users of all variations per day.
    private func users(_ index: Int, after days: Double, _ rate: Double) -> (variation: Double, baseline: Double) {
        (enrolled[index] + days * rate * shares[index], enrolled[baseline] + days * rate * shares[baseline])
    }

    /// Returns the greatest number of all comparisons; `nil` if that of any comparison is `nil`.
    private func greatest(_ number: (Int) -> Double?) -> Double? {
        var greatest = 0.0
        for index in compared {
            guard let value = number(index) else { return nil }
            greatest = max(greatest, value)
        }
        return greatest
    }
}
