import Bucketing
import Statistics
public import Storage

/// Compares how users are split into variations with the traffic allocation, for each period of it.
///
/// Users of each period are compared with its own allocation, and the evidence is combined: a change of weights is no
/// mismatch, and a loss in one period is still found. Only the variations that the experiment has now are compared.
public struct SampleRatioCheck: Sendable {
    /// A time in which the ratio of the variations stayed the same.
    public struct Period: Sendable {
        /// `nil` if it is not known under which allocation the users got their variations.
        public var since: Timestamp?
        /// The counted users of each of the experiment's variations, in their order.
        public var users: [Int]
        /// The expected share of each variation; `nil` if it is not known.
        public var shares: [Double]?
        /// Always valid; `nil` without users.
        public var pValue: Double?

        var hasUsers: Bool { users.contains { $0 > 0 } }
    }

    /// Without those before the first user.
    public let periods: [Period]
    /// The always-valid p-value of all periods together; `nil` without users.
    public let pValue: Double?
    /// The share of all counted users that the allocations of the periods give to each variation; `nil` if no allocation
    /// is known.
    public let expectedShares: [Double]?

    /// A p-value below this means that the split is broken. However often it is looked at, a correct split falls below it
    /// with a probability of at most this.
    static let threshold = 0.0005

    public var isMismatch: Bool { pValue.map { $0 < Self.threshold } ?? false }

    /// When the ratio of the variations was changed while users were enrolled.
    public var changes: [Timestamp] { periods.filter(\.hasUsers).dropFirst().compactMap(\.since) }

    /// Ranges of UTC days in which users were enrolled under one ratio of the variations, and the days on which it was
    /// changed, each alone. Users of different ranges are not compared with each other: a rate that differs from time to time
    /// is no effect.
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

    /// Periods in which the ratio of the variations stayed the same, and the shares that their users may have.
    struct Stratum: Sendable {
        var since: Timestamp?
        var numbers: [Int64]
        /// The shares of new users come first.
        var components: [[Double]]

        mutating func append(_ others: ArraySlice<[Double]>) {
            components += others
            if components.count > SampleRatio.componentLimit {
                components = [components[0]] + SampleRatio.covering(Array(components.dropFirst()))
            }
        }
    }

    /// - Parameter hasUsers: whether users may have been enrolled in the period with this number. How returning users may be
    ///   split is not asked for the others.
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
        return strata.sorted { ($0.since ?? 0, $0.numbers[0]) < ($1.since ?? 0, $1.numbers[0]) }
    }

    /// The shares in lowest terms.
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
