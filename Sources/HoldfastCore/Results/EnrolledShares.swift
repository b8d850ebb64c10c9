import Bucketing
import Statistics
import Storage

/// The possible splits of the users who are enrolled in a period.
///
/// Bucket values are uniform among new users. Returning users who were not enrolled before have only some of the bucket
/// values, and users whose variation was removed have the bucket values of that variation. When weights are changed
/// together with the traffic, these users are split in another ratio. The number of returning users is unknown, so the
/// split of each period may be any mixture of these ratios.
///
/// The allocations of a project must be added in their order. The time per allocation is bounded.
struct EnrolledShares {
    private let indices: [Identifier: Int]
    /// Sets of bucket values: for each combination of earlier allocations, the values that none of them has assigned.
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

    /// Returns the shares of new users, followed by the possible shares of returning users if these are requested.
    mutating func components(of allocation: TrafficAllocation, returning: Bool = true) -> [[Double]] {
        let allocated = ranges(allocation)
        let owners = Set(allocated.map(\.id))
        defer { add(allocated, of: owners) }
        let ranges = allocated.map { (index: indices[$0.id], values: $0.values) }
        let all = shares(of: .all, ranges)
        guard returning else { return [all] }
        var components = [all]
        var known: Set<[Double]> = [all]
        let sum = all.reduce(0, +)
        func append(_ shares: [Double]) {
            let total = shares.reduce(0, +)
            // A component with the same ratio as new users adds nothing.
            let differs = zip(shares, all).contains { abs($0 * sum - $1 * total) > 1e-9 * sum * total }
            if total > 0, differs, known.insert(shares).inserted { components.append(shares) }
        }
        let removed = former.filter { !owners.contains($0.key) }.sorted { $0.key < $1.key }.map(\.value)
        guard ([outside] + removed).allSatisfy({ !$0.isFull }) else {
            for index in all.indices where all[index] > 0 {
                append(all.indices.map { $0 == index ? 1 : 0 })
            }
            return components
        }
        for sets in [outside] + removed {
            for set in sets.elements { append(shares(of: set, ranges)) }
        }
        guard components.count > SampleRatio.componentLimit else { return components }
        return [all] + SampleRatio.covering(Array(components.dropFirst()))
    }

    /// Returns the number of bucket values of a set that each variation owns.
    private mutating func shares(of set: CountedSet, _ ranges: [OwnedRange]) -> [Double] {
        var shares = [Double](repeating: 0, count: indices.count)
        comparisons += indices.count
        for (index, values) in ranges {
            if let index { shares[index] += Double(set.count(in: values)) }
        }
        return shares
    }

    private mutating func add(_ allocated: [(id: Identifier, values: Range<Int>)], of owners: Set<Identifier>) {
        for id in owners where former[id]?.isFull != true {
            former[id, default: DistinctSets()].insert(BucketSet(allocated.lazy.filter { $0.id == id }.map(\.values)))
        }
        guard !outside.isFull else { return }
        let rest = BucketSet.all.subtracting(BucketSet(allocated.lazy.map(\.values)))
        // The sets are closed under intersection, so a set that is already present adds nothing.
        guard !rest.isEmpty, !outside.contains(rest) else { return }
        comparisons += outside.elements.count
        for element in outside.elements where !element.set.isSubset(of: rest) {
            outside.insert(element.set.intersection(rest))
        }
        outside.insert(rest)
    }

    /// A range of bucket values with an owner, and the owner's index if it is one of the variations.
    private typealias OwnedRange = (index: Int?, values: Range<Int>)

    private func ranges(_ allocation: TrafficAllocation) -> [(id: Identifier, values: Range<Int>)] {
        var ranges: [(id: Identifier, values: Range<Int>)] = []
        var start = 0
        for range in allocation.ranges {
            let end = min(range.end, Bucketer.bucketCount)
            guard end > start else { continue }
            if !range.entityID.string.isEmpty { ranges.append((range.entityID, start..<end)) }
            start = end
        }
        return ranges
    }
}

/// Different sets of bucket values, none empty.
private struct DistinctSets {
    private(set) var elements: [CountedSet] = []
    private var known: Set<BucketSet> = []
    /// Whether sets were left out.
    private(set) var isFull = false

    func contains(_ set: BucketSet) -> Bool { known.contains(set) }

    mutating func insert(_ set: BucketSet) {
        guard !set.isEmpty, !isFull, known.insert(set).inserted else { return }
        isFull = known.count > EnrolledShares.limit
        if !isFull { elements.append(CountedSet(set)) }
    }
}

/// A set of bucket values that counts the values in a range in constant time.
private struct CountedSet {
    let set: BucketSet
    /// The number of values before each word; the last element is the number of all values.
    private let before: [Int32]

    static let all = CountedSet(.all)

    init(_ set: BucketSet) {
        self.set = set
        before = set.words.reduce(into: [0]) { $0.append($0[$0.count - 1] + Int32($1.nonzeroBitCount)) }
    }

    func count(in values: Range<Int>) -> Int { count(below: values.upperBound) - count(below: values.lowerBound) }

    private func count(below value: Int) -> Int {
        let (word, bit) = value.quotientAndRemainder(dividingBy: 64)
        guard bit > 0 else { return Int(before[word]) }
        return Int(before[word]) + (set.words[word] & ((1 << UInt64(bit)) - 1)).nonzeroBitCount
    }
}

/// A set of bucket values, a bit for each.
private struct BucketSet: Hashable {
    fileprivate private(set) var words = [UInt64](repeating: 0, count: (Bucketer.bucketCount + 63) / 64)

    static let all = BucketSet([0..<Bucketer.bucketCount])

    init(_ ranges: some Sequence<Range<Int>>) {
        for range in ranges { insert(range) }
    }

    var isEmpty: Bool { words.allSatisfy { $0 == 0 } }

    /// A few operations for each word; the standard hash of all words would take most of the time of results.
    func hash(into hasher: inout Hasher) {
        hasher.combine(words.reduce(0) { ($0 ^ $1) &* 0x9E37_79B9_7F4A_7C15 ^ ($0 &>> 29) })
    }

    private mutating func insert(_ values: Range<Int>) {
        var value = values.lowerBound
        while value < values.upperBound {
            let end = min(values.upperBound, (value / 64 + 1) * 64)
            words[value / 64] |= (UInt64.max >> UInt64(64 - (end - value))) << UInt64(value % 64)
            value = end
        }
    }

    func isSubset(of other: BucketSet) -> Bool {
        words.indices.allSatisfy { words[$0] & ~other.words[$0] == 0 }
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
