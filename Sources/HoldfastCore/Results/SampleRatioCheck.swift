import Bucketing
import Statistics
public import Storage

/// Compares how users are split into variations with the traffic allocation, for each period of it.
///
/// Users of each period are compared with its own allocation, and the statistics are added up: a change of weights is no
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
        /// `nil` if there are too few users to tell.
        public var pValue: Double?
    }

    public let periods: [Period]
    /// The p-value of all periods together; `nil` if there are too few users in each.
    public let pValue: Double?
    /// The share of all counted users that the allocations of the periods give to each variation; `nil` if no allocation
    /// is known.
    public let expectedShares: [Double]?

    /// A p-value below this means that the split is broken. One correct split in a thousand raises a false alarm, at each
    /// look; the test is not sequential.
    static let threshold = 0.001

    public var isMismatch: Bool { pValue.map { $0 < Self.threshold } ?? false }

    /// When the ratio of the variations was changed.
    public var changes: [Timestamp] { periods.dropFirst().compactMap(\.since) }

    init(_ tally: ExperimentTally, of experiment: Experiment) {
        let variations = experiment.variations.map(\.id)
        let counted = tally.countedByPeriod
        var strata = Self.strata(tally.periods, variations)
        let known = Set(tally.periods.map(\.number))
        let others = counted.keys.filter { !known.contains($0) }
        if others.contains(where: { counted[$0]?.values.contains { $0 > 0 } ?? false }) {
            // Without any change of the ratio, all users got their variations under it.
            let shares = variations.map { Double(experiment.shares[$0] ?? 0) }
            let isKnown = strata.allSatisfy { Self.ratio($0.components[0]) == Self.ratio(shares) }
            strata.insert(Stratum(since: nil, numbers: others, components: isKnown ? [shares] : []), at: 0)
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
        periods = zip(zip(strata, users), test.tests).map { pair, test in
            Period(
                since: pair.0.since, users: pair.1, shares: pair.0.components.first.flatMap(Self.normalized),
                pValue: test?.pValue)
        }
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
    }

    static func strata(_ periods: [AllocationPeriod], _ variations: [Identifier]) -> [Stratum] {
        var strata: [Stratum] = []
        for (_, periods) in Dictionary(grouping: periods, by: \.sdkKey) {
            var last: Int?
            for (index, period) in periods.enumerated() {
                let components = EnrolledShares(variations).components(of: period, after: periods[..<index])
                if let last, ratio(strata[last].components[0]) == ratio(components[0]) {
                    strata[last].numbers.append(period.number)
                    strata[last].components += components.dropFirst()
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

/// How the users who are enrolled in a period may be split.
///
/// Bucket values are uniform among users who come for the first time. But of those who came before and did not take
/// part, only some bucket values are left; and those whose variation was removed have the bucket values of that
/// variation. When weights are changed together with the traffic, they are split in another ratio. How many users are
/// returning is not known, so the split of each period may be any mixture of these.
private struct EnrolledShares {
    private let variations: [Identifier]

    /// The number of earlier allocations whose combinations are considered one by one.
    private static let combined = 6

    init(_ variations: [Identifier]) {
        self.variations = variations
    }

    /// Returns the shares of new users, then those that returning users may have instead.
    func components(of period: AllocationPeriod, after earlier: ArraySlice<AllocationPeriod>) -> [[Double]] {
        let index = Dictionary(variations.enumerated().map { ($1, $0) }, uniquingKeysWith: { first, _ in first })
        let owners = Self.owners(period.allocation).map { $0.flatMap { index[$0] } }
        func shares(_ isIncluded: (Int) -> Bool) -> [Double] {
            var shares = [Double](repeating: 0, count: variations.count)
            for (value, owner) in owners.enumerated() {
                if let owner, isIncluded(value) { shares[owner] += 1 }
            }
            return shares
        }
        let all = shares { _ in true }
        var components = [all]
        func append(_ shares: [Double]) {
            let total = shares.reduce(0, +)
            let sum = all.reduce(0, +)
            // Another component with the ratio of new users makes no difference.
            let differs = zip(shares, all).contains { abs($0 * sum - $1 * total) > 1e-9 * sum * total }
            if total > 0, differs, !components.contains(shares) { components.append(shares) }
        }
        var enrolled: [[Bool]] = []
        for former in earlier.reversed() where former.allocation != period.allocation {
            let formerOwners = Self.owners(former.allocation)
            let present = Set(period.allocation.ranges.map(\.entityID))
            append(shares { value in formerOwners[value].map { !present.contains($0) } ?? false })
            let isEnrolled = formerOwners.map { $0 != nil }
            if !enrolled.contains(isEnrolled) { enrolled.append(isEnrolled) }
        }
        // The shares of the bucket values that were enrolled in the same earlier periods, a bit for each.
        var classes: [Int: [Double]] = [:]
        for (value, owner) in owners.enumerated() {
            guard let owner else { continue }
            let mask = enrolled.prefix(62).indices.reduce(0) { $0 | (enrolled[$1][value] ? 1 << $1 : 0) }
            classes[mask, default: all.map { _ in 0 }][owner] += 1
        }
        guard enrolled.count <= Self.combined else {
            // Any mixture of these covers all combinations.
            for mask in classes.keys.sorted() { append(classes[mask] ?? all) }
            return components
        }
        for seen in (0..<1 << enrolled.count).dropFirst() {
            let rest = classes.filter { $0.key & seen == 0 }.values
            append(all.indices.map { index in rest.reduce(0) { $0 + $1[index] } })
        }
        return components
    }

    /// The owner of each bucket value.
    private static func owners(_ allocation: TrafficAllocation) -> [Identifier?] {
        var owners: [Identifier?] = []
        owners.reserveCapacity(Bucketer.bucketCount)
        for range in allocation.ranges {
            let end = min(range.end, Bucketer.bucketCount)
            guard end > owners.count else { continue }
            let owner = range.entityID.string.isEmpty ? nil : range.entityID
            owners.append(contentsOf: repeatElement(owner, count: end - owners.count))
        }
        owners.append(contentsOf: repeatElement(nil, count: Bucketer.bucketCount - owners.count))
        return owners
    }
}
