import Bucketing
public import Chronology
import Definitions
import Statistics
import Storage

/// Compares the split of users into variations with the traffic allocation.
///
/// The users of each allocation period are compared with the allocation of that period, and the evidence of all periods
/// is combined (``Statistics/SampleRatio``). A change of weights is therefore not a mismatch, and a loss of users in a
/// single period is still detected. Only the current variations of the experiment are compared.
///
/// Consecutive periods with the same ratio of the variations are compared as one ``Stratum``.
public struct SampleRatioCheck: Sendable {
    /// A period in which the ratio of the variations did not change.
    public struct Period: Sendable {
        /// The start of the period; `nil` if the allocation by which the users got their variations is unknown.
        public var since: Instant?
        /// The counted users of each of the experiment's variations, in their order.
        public var users: [Int]
        /// The expected share of each variation; `nil` if it is unknown.
        public var shares: [Double]?
        /// The always-valid p-value; `nil` without users.
        public var pValue: Double?

        var hasUsers: Bool { users.contains { $0 > 0 } }
    }

    /// The periods, without those before the first user.
    public let periods: [Period]
    /// The always-valid p-value of all periods together; `nil` without users.
    public let pValue: Double?
    /// The share of all counted users that the allocations of the periods give to each variation; `nil` if no
    /// allocation is known.
    public let expectedShares: [Double]?

    /// A p-value below this threshold means that the split is broken. The p-value of a correct split is ever below the
    /// threshold with at most this probability, at any number of looks.
    static let threshold = 0.0005

    /// Whether the users are not split as the traffic allocation says.
    public var isMismatch: Bool { pValue.map { $0 < Self.threshold } ?? false }

    /// The times at which the ratio of the variations was changed while users were enrolled.
    public var changes: [Instant] { periods.filter(\.hasUsers).dropFirst().compactMap(\.since) }

    /// Ranges of UTC days of enrollment with one ratio of the variations. Each day on which the ratio was changed is a
    /// range of its own. Users of different ranges are not compared with each other, because a rate that changes over
    /// time is not an effect of the variation.
    var daysByRatio: [ClosedRange<Int64>] {
        var ranges: [ClosedRange<Int64>] = []
        var start = Int64.min
        for day in Set(changes.map(\.day)).sorted() {
            if start < day { ranges.append(start...day - 1) }
            ranges.append(day...day)
            start = day + 1
        }
        return ranges + [start...Int64.max]
    }

    init(_ tally: ExperimentTally, of experiment: Experiment) {
        let variations = experiment.variations.map(\.id)
        let counted = tally.countedByPeriod
        let periodsWithUsers = Set(counted.filter { $0.value.values.contains { $0 > 0 } }.keys)
        // The numbers of periods whose allocation is unknown, although they have users.
        let unknownPeriods = Array(periodsWithUsers.subtracting(tally.periods.map(\.number)))
        var strata = Self.strata(tally.periods, variations) { number in
            // Users of unknown periods may be added to any stratum.
            !unknownPeriods.isEmpty || periodsWithUsers.contains(number)
        }
        if !unknownPeriods.isEmpty { Self.add(unknownPeriods, to: &strata, counted, of: experiment) }
        let users = strata.map { stratum in
            variations.map { id in stratum.numbers.reduce(0) { $0 + (counted[$1]?[id] ?? 0) } }
        }
        self.init(strata, users: users)
    }

    /// Adds periods whose allocation is unknown.
    ///
    /// If the ratio of the variations never changed, the users of these periods got their variations by the current
    /// ratio, and are added to the first stratum. Otherwise they are a stratum without an expected split.
    ///
    /// - Parameter counted: the numbers of users by period and variation.
    private static func add(
        _ unknownPeriods: [Int64], to strata: inout [Stratum], _ counted: [Int64: [Identifier: Int]],
        of experiment: Experiment
    ) {
        let variations = experiment.variations.map(\.id)
        let shares = variations.map { Double(experiment.shares[$0] ?? 0) }
        let hadTraffic = variations.map { id in unknownPeriods.contains { counted[$0]?[id] ?? 0 > 0 } }
        let hasKnownChange = !strata.allSatisfy { ratio($0.components[0]) == ratio(shares) }
        // A variation with users of unknown periods, but without traffic now, shows that there was a change.
        let hasUnknownChange = zip(shares, hadTraffic).contains { share, hadTraffic in share == 0 && hadTraffic }
        let neverChanged = !hasKnownChange && !hasUnknownChange
        if neverChanged, !strata.isEmpty {
            strata[0].numbers += unknownPeriods
        } else {
            let components = neverChanged ? [shares] : []
            strata.insert(Stratum(since: nil, numbers: unknownPeriods, components: components), at: 0)
        }
    }

    /// - Parameter users: the counted users of each variation, for each stratum.
    init(_ strata: [Stratum], users: [[Int]]) {
        let test = SampleRatio(
            zip(strata, users).map { stratum, users in
                SampleRatio.Period(counts: users, expected: stratum.components)
            })
        var all: [Period] = []
        for (index, stratum) in strata.enumerated() {
            all.append(
                Period(
                    since: stratum.since, users: users[index],
                    shares: stratum.components.first.flatMap(Self.normalized), pValue: test.tests[index]?.pValue))
        }
        // If there are no users at all, only the last period is kept.
        let first = all.firstIndex(where: \.hasUsers) ?? max(0, all.count - 1)
        periods = Array(all.dropFirst(first))
        pValue = test.pValue
        expectedShares = Self.expectedShares(periods)
    }

    /// Returns the mean of the periods' shares, weighted by their numbers of users.
    private static func expectedShares(_ periods: [Period]) -> [Double]? {
        var sum: [Double] = []
        for period in periods {
            guard let shares = period.shares else { continue }
            let total = Double(period.users.reduce(0, +))
            if sum.isEmpty { sum = shares.map { _ in 0 } }
            for (index, share) in shares.enumerated() { sum[index] += total * share }
        }
        return normalized(sum) ?? periods.last?.shares
    }

    /// Returns the shares as parts of 1; `nil` if all are 0.
    private static func normalized(_ shares: [Double]) -> [Double]? {
        let sum = shares.reduce(0, +)
        return sum > 0 ? shares.map { $0 / sum } : nil
    }

    // MARK: Periods with the same ratio

    /// Consecutive allocation periods in which the ratio of the variations did not change.
    struct Stratum: Sendable {
        /// The start of the first period; `nil` if it is unknown.
        var since: Instant?
        /// The numbers of the periods.
        var numbers: [Int64]
        /// The possible splits of the users, with the split of new users first. The true split is a mixture of them
        /// (see ``EnrolledShares``). Empty if the allocation is unknown.
        var components: [[Double]]

        /// Adds the possible splits of another period.
        mutating func append(_ others: ArraySlice<[Double]>) {
            components += others
            if components.count > SampleRatio.componentLimit {
                components = [components[0]] + SampleRatio.covering(Array(components.dropFirst()))
            }
        }
    }

    /// Combines consecutive periods with the same ratio, separately for each project that has the experiment.
    ///
    /// - Parameter hasUsers: returns whether users may have been enrolled in the period with this number. For other
    ///   periods the possible splits of returning users are not computed.
    static func strata(
        _ periods: [AllocationPeriod], _ variations: [Identifier], hasUsers: (Int64) -> Bool = { _ in true }
    ) -> [Stratum] {
        var strata: [Stratum] = []
        for (_, periods) in Dictionary(grouping: periods, by: \.sdkKey) {
            var enrolled = EnrolledShares(variations)
            // The index of the stratum of the preceding period of this project.
            var current: Int?
            for period in periods {
                let components = enrolled.components(of: period.allocation, returning: hasUsers(period.number))
                if let current, ratio(strata[current].components[0]) == ratio(components[0]) {
                    strata[current].numbers.append(period.number)
                    strata[current].append(components.dropFirst())
                } else {
                    current = strata.count
                    strata.append(Stratum(since: period.since, numbers: [period.number], components: components))
                }
            }
        }
        return strata.sorted { ($0.since ?? .epoch, $0.numbers[0]) < ($1.since ?? .epoch, $1.numbers[0]) }
    }

    /// Returns the shares as whole numbers in lowest terms, such as [1, 2] for [3,000, 6,000].
    private static func ratio(_ shares: [Double]) -> [Int] {
        let shares = shares.map { Int($0) }
        let divisor = shares.reduce(0, greatestCommonDivisor)
        return divisor == 0 ? shares : shares.map { $0 / divisor }
    }

    /// Returns the greatest common divisor of two numbers by Euclid's algorithm; the other number if one is 0.
    private static func greatestCommonDivisor(_ one: Int, _ other: Int) -> Int {
        var greater = one
        var rest = other
        while rest != 0 {
            let next = greater % rest
            greater = rest
            rest = next
        }
        return greater
    }
}
