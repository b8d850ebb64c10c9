import Bucketing
import Statistics
import Storage

/// How the users who are enrolled in a period may be split.
///
/// Bucket values are uniform among users who come for the first time. But of those who came before and did not take
/// part, only some bucket values are left; and those whose variation was removed have the bucket values of that
/// variation. When weights are changed together with the traffic, they are split in another ratio. How many users are
/// returning is not known, so the split of each period may be any mixture of these.
///
/// The allocations of a project are added in their order. The time for each is bounded, however many there were before.
struct EnrolledShares {
    private let indices: [Identifier: Int]
    /// The bucket values that took part in none of the allocations of some combination of earlier ones.
    private var outside = DistinctSets()
    /// The bucket values that each variation had.
    private var former: [Identifier: DistinctSets] = [:]
    /// The number of sets that were compared with a variation or an allocation, so that tests can measure the work.
    private(set) var comparisons = 0

    /// The number of sets of bucket values that are kept. With more, every split counts as possible.
    static let limit = 256

    init(_ variations: [Identifier]) {
        indices = Dictionary(variations.enumerated().map { ($1, $0) }, uniquingKeysWith: { first, _ in first })
    }

    /// Returns the shares of new users, then those that returning users may have instead.
    mutating func components(of allocation: TrafficAllocation) -> [[Double]] {
        let owned = Self.owned(allocation)
        defer { add(owned) }
        let all = shares(of: .all, owned)
        var components = [all]
        var known: Set<[Double]> = [all]
        let sum = all.reduce(0, +)
        func append(_ shares: [Double]) {
            let total = shares.reduce(0, +)
            // Another component with the ratio of new users makes no difference.
            let differs = zip(shares, all).contains { abs($0 * sum - $1 * total) > 1e-9 * sum * total }
            if total > 0, differs, known.insert(shares).inserted { components.append(shares) }
        }
        let removed = former.filter { owned[$0.key] == nil }.sorted { $0.key < $1.key }.map(\.value)
        guard ([outside] + removed).allSatisfy({ !$0.isFull }) else {
            for index in all.indices where all[index] > 0 {
                append(all.indices.map { $0 == index ? 1 : 0 })
            }
            return components
        }
        for sets in [outside] + removed {
            for set in sets.elements { append(shares(of: set, owned)) }
        }
        guard components.count > SampleRatio.componentLimit else { return components }
        return [all] + SampleRatio.covering(Array(components.dropFirst()))
    }

    /// The number of bucket values of a set that each variation owns.
    private mutating func shares(of set: BucketSet, _ owned: [Identifier: BucketSet]) -> [Double] {
        var shares = [Double](repeating: 0, count: indices.count)
        for (id, values) in owned {
            comparisons += 1
            if let index = indices[id] { shares[index] = Double(values.count(in: set)) }
        }
        return shares
    }

    private mutating func add(_ owned: [Identifier: BucketSet]) {
        var rest = BucketSet.all
        for (id, values) in owned {
            rest = rest.subtracting(values)
            former[id, default: DistinctSets()].insert(values)
        }
        guard !outside.isFull else { return }
        comparisons += outside.elements.count
        for set in outside.elements { outside.insert(set.intersection(rest)) }
        outside.insert(rest)
    }

    /// The bucket values of each owner.
    private static func owned(_ allocation: TrafficAllocation) -> [Identifier: BucketSet] {
        var owned: [Identifier: BucketSet] = [:]
        var start = 0
        for range in allocation.ranges {
            let end = min(range.end, Bucketer.bucketCount)
            guard end > start else { continue }
            if !range.entityID.string.isEmpty { owned[range.entityID, default: BucketSet()].insert(start..<end) }
            start = end
        }
        return owned
    }
}

/// Different sets of bucket values, none empty.
private struct DistinctSets {
    private(set) var elements: [BucketSet] = []
    private var known: Set<BucketSet> = []
    /// Whether sets were left out.
    private(set) var isFull = false

    mutating func insert(_ set: BucketSet) {
        guard !set.isEmpty, !known.contains(set) else { return }
        guard elements.count < EnrolledShares.limit else {
            isFull = true
            return
        }
        known.insert(set)
        elements.append(set)
    }
}

/// A set of bucket values, a bit for each.
private struct BucketSet: Hashable {
    private var words = [UInt64](repeating: 0, count: (Bucketer.bucketCount + 63) / 64)

    static let all: BucketSet = {
        var all = BucketSet()
        all.insert(0..<Bucketer.bucketCount)
        return all
    }()

    var isEmpty: Bool { words.allSatisfy { $0 == 0 } }

    /// Returns the number of values that both sets have.
    func count(in other: BucketSet) -> Int {
        var count = 0
        for index in words.indices { count += (words[index] & other.words[index]).nonzeroBitCount }
        return count
    }

    mutating func insert(_ values: Range<Int>) {
        var value = values.lowerBound
        while value < values.upperBound {
            let end = min(values.upperBound, (value / 64 + 1) * 64)
            words[value / 64] |= (UInt64.max >> UInt64(64 - (end - value))) << UInt64(value % 64)
            value = end
        }
    }

    func intersection(_ other: BucketSet) -> BucketSet {
        var result = self
        for index in words.indices { result.words[index] &= other.words[index] }
        return result
    }

    func subtracting(_ other: BucketSet) -> BucketSet {
        var result = self
        for index in words.indices { result.words[index] &= ~other.words[index] }
        return result
    }
}
