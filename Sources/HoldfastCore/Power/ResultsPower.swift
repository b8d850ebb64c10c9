public import Bucketing
import Chronology
import Statistics
import Storage

/// The statistical power of a comparison: the smallest lift that the comparison can detect with the current users, and
/// the time until it can detect the lift of interest.
public struct ResultsPower: Sendable {
    /// The smallest lift that is detected with a probability of 80%; `nil` if there is none.
    public var smallestLift: Double?
    /// The number of days until the lift of interest is detected with a probability of 80%, at the current rate of
    /// enrollment; `nil` if there is no lift of interest, or if it takes more than ``dayLimit`` days.
    public var days: Double?

    /// The maximum of ``days``: ten years. The search for the number of days ends there.
    static let dayLimit = 3_650.0

    /// - Parameters:
    ///   - users: the current numbers of users.
    ///   - rates: the numbers of users enrolled per day.
    ///   - effect: the lift of interest; `nil` if there is none.
    init(
        _ power: Power, users: (variation: Double, baseline: Double), rates: (variation: Double, baseline: Double),
        effect: Double?
    ) {
        smallestLift = power.smallestEffect(users: users.variation, baselineUsers: users.baseline)
        days = effect.flatMap { effect in
            power.time(toFind: effect, until: Self.dayLimit) { days in
                (users.variation + days * rates.variation, users.baseline + days * rates.baseline)
            }
        }
    }
}

/// The number of users enrolled per day: the mean of the last seven whole UTC days, or of the days since the first
/// exposure if there are fewer.
public struct EnrollmentRate: Sendable {
    /// The number of days; 0 if the first user was enrolled today.
    public let days: Int
    /// Users per day, by variation.
    private let rates: [Identifier: Double]

    /// The maximum number of days: a week, so that each day of the week counts once.
    private static let window: Int64 = 7

    init(_ days: [ExperimentTally.Day], at now: Instant) {
        // Today is not over, so it does not count.
        let today = now.day
        let start = max(today - Self.window, days.first?.day ?? today)
        let length = max(0, today - start)
        self.days = Int(length)
        var users: [Identifier: Int] = [:]
        for day in days where length > 0 && (start..<today).contains(day.day) {
            for tally in day.variations { users[tally.variationID, default: 0] += tally.counted }
        }
        rates = users.mapValues { Double($0) / Double(length) }
    }

    /// The number of users of a variation per day.
    public subscript(variationID: Identifier) -> Double { rates[variationID] ?? 0 }

    /// The number of users of all variations per day; `nil` if there is no whole day yet.
    public var usersPerDay: Double? { days == 0 ? nil : rates.values.reduce(0, +) }
}

extension VariationData {
    /// Returns the power of the comparison of a goal's rates.
    ///
    /// - Parameter rates: the numbers of users enrolled per day.
    func conversionPower(
        against baseline: VariationData, _ rates: (variation: Double, baseline: Double), _ query: ResultsQuery
    ) -> ResultsPower {
        ResultsPower(
            Power(of: .rate(baseline.conversion.mean), alpha: 1 - query.confidence),
            users: (users, baseline.users), rates: rates, effect: query.effect)
    }

    /// Returns the power of the comparison of a goal's mean values.
    ///
    /// - Parameter rates: the numbers of users enrolled per day.
    func valuePower(
        against baseline: VariationData, _ rates: (variation: Double, baseline: Double), _ query: ResultsQuery
    ) -> ResultsPower {
        power(of: baseline.value.sample, against: baseline, rates, query)
    }

    /// Returns the power of the comparison of means.
    ///
    /// - Parameters:
    ///   - sample: the sample of the baseline, whose mean and variance are assumed for both sides.
    ///   - rates: the numbers of users enrolled per day.
    func power(
        of sample: Sample, against baseline: VariationData, _ rates: (variation: Double, baseline: Double),
        _ query: ResultsQuery
    ) -> ResultsPower {
        ResultsPower(
            Power(
                of: .mean(sample.mean, standardDeviation: sample.variance.squareRoot()), alpha: 1 - query.confidence),
            users: (users, baseline.users), rates: rates, effect: query.effect)
    }
}
