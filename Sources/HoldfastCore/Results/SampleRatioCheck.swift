import Bucketing
public import Chronology
import Definitions
import Statistics
import Storage

/// Compares the split of users into variations with the traffic allocation.
///
/// The users of each allocation period are compared with its own allocation, and the evidence is combined. A change of
/// weights is therefore not a mismatch, and a loss of users in a single period is still detected. Only the current
/// variations of the experiment are compared.
public struct SampleRatioCheck: Sendable {
    /// A period in which the ratio of the variations did not change.
    public struct Period: Sendable {
        /// The begin of the period; `nil` if the allocation under which the users got their variations is unknown.
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
    /// The share of all counted users that the allocations of the periods give to each variation; `nil` if no allocation
    /// is known.
    public let expectedShares: [Double]?

    /// A p-value below this threshold means that the split is broken. It is also the maximum probability that a correct
    /// split ever falls below it, at any number of looks.
    static let threshold = 0.0005

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
        let used = Set(counted.filter { $0.value.values.contains { $0 > 0 } }.keys)
        let others = Array(used.subtracting(tally.periods.map(\.number)))
        var strata = Self.strata(tally.periods, variations) { !others.isEmpty || used.contains($0) }
        if !others.isEmpty {
            // Without any change of the ratio, all users got their variations under it. A variation that had users before
            // periods were known, and has no traffic now, shows that there was a change.
            let shares = variations.map { Double(experiment.shares[$0] ?? 0) }
            let hadTraffic = variations.map { id in others.contains { counted[$0]?[id] ?? 0 > 0 } }
            let isKnown =
                strata.allSatisfy { Self.ratio($0.components[0]) == Self.ratio(shares) }
                && !zip(shares, hadTraffic).contains { $0 == 0 && $1 }
            if isKnown, !strata.isEmpty {
                strata[0].numbers += others
            } else {
                strata.insert(Stratum(since: nil, numbers: others, components: isKnown ? [shares] : []), at: 0)
            }
        }
        let users = strata.map { stratum in
            variations.map { id in stratum.numbers.reduce(0) { $0 + (counted[$1]?[id] ?? 0) } }
        }
        self.init(strata, users: users)
    }

    /// - Parameter users: the counted users of each variation, for each stratum.
    init(_ strata: [Stratum], users: [[Int]]) {
        let test = SampleRatio(
            zip(strata, users).map { SampleRatio.Period(counts: $1, expected: $0.components) })
        let all = zip(zip(strata, users), test.tests).map { pair, test in
            Period(
                since: pair.0.since, users: pair.1, shares: pair.0.components.first.flatMap(Self.normalized),
                pValue: test?.pValue)
        }
        periods = Array(all.dropFirst(all.firstIndex(where: \.hasUsers) ?? max(0, all.count - 1)))
        pValue = test.pValue
        expectedShares = Self.expectedShares(periods)
    }

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

    private static func normalized(_ shares: [Double]) -> [Double]? {
        let sum = shares.reduce(0, +)
        return sum > 0 ? shares.map { $0 / sum } : nil
    }

    // MARK: Periods with the same ratio

    /// Periods in which the ratio of the variations did not change, and the possible shares of their users.
    struct Stratum: Sendable {
        var since: Instant?
        var numbers: [Int64]
        /// The possible shares; those of new users come first.
        var components: [[Double]]

        mutating func append(_ others: ArraySlice<[Double]>) {
            components += others
            if components.count > SampleRatio.componentLimit {
                components = [components[0]] + SampleRatio.covering(Array(components.dropFirst()))
            }
        }
    }

    /// - Parameter hasUsers: returns whether users may have been enrolled in the period with this number. For other
    ///   periods the possible splits of returning users are not computed.
    static func strata(
        _ periods: [AllocationPeriod], _ variations: [Identifier], hasUsers: (Int64) -> Bool = { _ in true }
    ) -> [Stratum] {
        var strata: [Stratum] = []
        for (_, periods) in Dictionary(grouping: periods, by: \.sdkKey) {
            var enrolled = EnrolledShares(variations)
            var last: Int?
            for period in periods {
                let components = enrolled.components(of: period.allocation, returning: hasUsers(period.number))
                if let last, ratio(strata[last].components[0]) == ratio(components[0]) {
                    strata[last].numbers.append(period.number)
                    strata[last].append(components.dropFirst())
                } else {
                    last = strata.count
                    strata.append(Stratum(since: period.since, numbers: [period.number], components: components))
                }
            }
        }
        return strata.sorted { ($0.since ?? .epoch, $0.numbers[0]) < ($1.since ?? .epoch, $1.numbers[0]) }
    }

    /// Returns the shares as whole numbers in lowest terms.
    private static func ratio(_ shares: [Double]) -> [Int] {
        let shares = shares.map { Int($0) }
        let divisor = shares.reduce(0) { left, right in
            var (left, right) = (left, right)
            while right != 0 { (left, right) = (right, left % right) }
            return left
        }
        return divisor == 0 ? shares : shares.map { $0 / divisor }
    }
}
