import Bucketing
import Statistics
import Storage

/// The possible splits of the users who are enrolled in an allocation period, for the test of the sample ratio.
///
/// A new user has every bucket value with the same probability, so new users are split as the allocation says. Two
/// kinds of returning users are split in other ratios:
/// - Users whom no earlier allocation has enrolled. They have only bucket values that the earlier allocations left
///   unassigned. Example: an allocation gives the values 0 to 4,999 to A and B in equal parts, and the next allocation
///   gives 0 to 7,499 to A and the rest to B. Only returning users with values from 5,000 on are enrolled by the next
///   allocation. Half of them get A, instead of three quarters.
/// - Users whose variation was removed. They have the bucket values of that variation.
///
/// The number of returning users is unknown, so the users of a period may be split in any mixture of these ratios. The
/// ratios are called the components of the mixture.
///
/// The allocations of a project must be added in order. The time per allocation is bounded.
struct EnrolledShares {
    /// The indices of the variations, by id.
    private let indices: [Identifier: Int]
    /// For each combination of earlier allocations, the bucket values that none of them has assigned. A returning user
    /// may have been there during any combination of allocations.
    private var unassigned = DistinctSets()
    /// The sets of bucket values that each variation had in earlier allocations.
    private var former: [Identifier: DistinctSets] = [:]
    /// The number of sets that were compared with a variation or an allocation, so that tests can measure the work.
    private(set) var comparisons = 0

    /// The maximum number of different sets of bucket values that are kept. It bounds the time per allocation. If there
    /// are more sets, every split counts as possible.
    static let limit = 256

    init(_ variations: [Identifier]) {
        indices = Dictionary(variations.enumerated().map { ($1, $0) }, uniquingKeysWith: { first, _ in first })
    }

    /// Adds the next allocation.
    ///
    /// - Parameter returning: whether the splits of returning users are requested.
    /// - Returns: the components, as the number of bucket values of each variation. The component of new users is the
    ///   first.
    mutating func components(of allocation: TrafficAllocation, returning: Bool = true) -> [[Double]] {
        let ranges = ownedRanges(allocation)
        let owners = Set(ranges.map(\.owner))
        defer { add(ranges, of: owners) }
        let ofNewUsers = shares(of: .all, ranges)
        guard returning else { return [ofNewUsers] }
        var components = Components(ofNewUsers: ofNewUsers)
        let ofRemovedVariations = former.filter { !owners.contains($0.key) }.sorted { $0.key < $1.key }.map(\.value)
        let setsOfReturningUsers = [unassigned] + ofRemovedVariations
        guard setsOfReturningUsers.allSatisfy({ !$0.isFull }) else {
            components.appendExtremes()
            return components.all
        }
        for sets in setsOfReturningUsers {
            for set in sets.elements { components.append(shares(of: set, ranges)) }
        }
        return components.limited
    }

    /// The different components of a period.
    private struct Components {
        /// The component of new users is the first.
        private(set) var all: [[Double]]
        private var known: Set<[Double]>
        private let ofNewUsers: [Double]

        init(ofNewUsers: [Double]) {
            self.ofNewUsers = ofNewUsers
            all = [ofNewUsers]
            known = [ofNewUsers]
        }

        /// Appends a component, unless it is empty or known, or has the same ratio as new users.
        mutating func append(_ shares: [Double]) {
            let total = shares.reduce(0, +)
            let totalOfNewUsers = ofNewUsers.reduce(0, +)
            // Two ratios are equal if the shares, divided by their totals, are equal except for rounding.
            let differs = zip(shares, ofNewUsers).contains { share, newShare in
                abs(share * totalOfNewUsers - newShare * total) > 1e-9 * totalOfNewUsers * total
            }
            if total > 0, differs, known.insert(shares).inserted { all.append(shares) }
        }

        /// Appends the components in which one variation has all users. Every split is a mixture of them.
        mutating func appendExtremes() {
            for index in ofNewUsers.indices where ofNewUsers[index] > 0 {
                append(ofNewUsers.indices.map { $0 == index ? 1 : 0 })
            }
        }

        /// The components. If there are more than ``Statistics/SampleRatio/componentLimit``, returns fewer components,
        /// whose mixtures include all of them.
        var limited: [[Double]] {
            guard all.count > SampleRatio.componentLimit else { return all }
            return [ofNewUsers] + SampleRatio.covering(Array(all.dropFirst()))
        }
    }

    /// Returns the number of bucket values of a set that each variation owns.
    private mutating func shares(of set: CountedSet, _ ranges: [OwnedRange]) -> [Double] {
        var shares = [Double](repeating: 0, count: indices.count)
        comparisons += indices.count
        for range in ranges {
            if let index = range.index { shares[index] += Double(set.count(in: range.values)) }
        }
        return shares
    }

    /// Remembers the bucket values of each owner, and the bucket values that the allocation leaves unassigned.
    private mutating func add(_ ranges: [OwnedRange], of owners: Set<Identifier>) {
        for id in owners where former[id]?.isFull != true {
            former[id, default: DistinctSets()].insert(BucketSet(ranges.lazy.filter { $0.owner == id }.map(\.values)))
        }
        guard !unassigned.isFull else { return }
        let rest = BucketSet.all.subtracting(BucketSet(ranges.lazy.map(\.values)))
        // The sets are closed under intersection, so a set that is already present adds nothing.
        guard !rest.isEmpty, !unassigned.contains(rest) else { return }
        comparisons += unassigned.elements.count
        for element in unassigned.elements where !element.set.isSubset(of: rest) {
            unassigned.insert(element.set.intersection(rest))
        }
        unassigned.insert(rest)
    }

    /// A range of bucket values that an allocation gives to a variation.
    private struct OwnedRange {
        let owner: Identifier
        /// The index of the owner, if it is one of the experiment's current variations.
        let index: Int?
        let values: Range<Int>
    }

    /// Returns the ranges of bucket values that an allocation gives to variations. The end of each range is the start
    /// of the next.
    private func ownedRanges(_ allocation: TrafficAllocation) -> [OwnedRange] {
        var ranges: [OwnedRange] = []
        var start = 0
        for range in allocation.ranges {
            let end = min(range.end, Bucketer.bucketCount)
            guard end > start else { continue }
            if !range.entityID.string.isEmpty {
                ranges.append(OwnedRange(owner: range.entityID, index: indices[range.entityID], values: start..<end))
            }
            start = end
        }
        return ranges
    }
}

/// Different sets of bucket values without the empty set: at most ``EnrolledShares/limit``.
private struct DistinctSets {
    private(set) var elements: [CountedSet] = []
    private var known: Set<BucketSet> = []
    /// Whether the limit is reached, so that a set was left out.
    private(set) var isFull = false

    func contains(_ set: BucketSet) -> Bool { known.contains(set) }

    mutating func insert(_ set: BucketSet) {
        guard !set.isEmpty, !isFull, known.insert(set).inserted else { return }
        isFull = known.count > EnrolledShares.limit
        if !isFull { elements.append(CountedSet(set)) }
    }
}

/// A set of bucket values that counts its values in any range in constant time.
private struct CountedSet {
    let set: BucketSet
    /// The number of values before each word; the last element is the number of all values.
    private let before: [Int32]

    static let all = CountedSet(.all)

    init(_ set: BucketSet) {
        self.set = set
        var before: [Int32] = [0]
        var count: Int32 = 0
        for word in set.words {
            count += Int32(word.nonzeroBitCount)
            before.append(count)
        }
        self.before = before
    }

    func count(in values: Range<Int>) -> Int { count(below: values.upperBound) - count(below: values.lowerBound) }

    private func count(below value: Int) -> Int {
        let (word, bit) = value.quotientAndRemainder(dividingBy: 64)
        guard bit > 0 else { return Int(before[word]) }
        return Int(before[word]) + (set.words[word] & ((1 << UInt64(bit)) - 1)).nonzeroBitCount
    }
}

/// A set of bucket values as a bit map: the bit `value % 64` of the word `value / 64`.
private struct BucketSet: Hashable {
    fileprivate private(set) var words = [UInt64](repeating: 0, count: (Bucketer.bucketCount + 63) / 64)

    static let all = BucketSet([0..<Bucketer.bucketCount])

    init(_ ranges: some Sequence<Range<Int>>) {
        for range in ranges { insert(range) }
    }

    var isEmpty: Bool { words.allSatisfy { $0 == 0 } }

    /// Mixes the words with a few operations each, because hashing each word with `Hasher` would take most of the time
    /// of results. The factor is 2^64 divided by the golden ratio, which spreads the bits of a word over the hash
    /// (Fibonacci hashing).
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
