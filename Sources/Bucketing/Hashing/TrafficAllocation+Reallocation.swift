// Changes the shares of variations while users are enrolled. Users whose bucket value changes its owner would get
// another variation, so as few bucket values as possible do.

extension TrafficAllocation {
    /// How many of the 10,000 bucket values an entity should own.
    public struct Weight: Sendable, Equatable {
        public var entityID: Identifier
        public var weight: Int

        public init(entityID: Identifier, weight: Int) {
            self.entityID = entityID
            self.weight = weight
        }
    }

    /// Allocates consecutive ranges in the order of `weights`. The remaining bucket values belong to nobody.
    ///
    /// - Precondition: no weight is negative, no entity occurs twice, and the sum is at most 10,000.
    public init(weights: [Weight]) {
        precondition(weights.allSatisfy { $0.weight >= 0 })
        ranges = []
        var end = 0
        for share in weights where share.weight > 0 {
            end += share.weight
            ranges.append(Range(entityID: share.entityID, end: end))
        }
        precondition(end <= Bucketer.bucketCount)
    }

    /// Splits a percentage of the 10,000 bucket values by a ratio.
    ///
    /// Fractions are rounded by the largest remainder method; equal remainders favour the earlier entity.
    ///
    /// - Parameters:
    ///   - ratio: one number for each entity, finite and not negative. If all are 0, every weight is 0.
    ///   - traffic: the percentage to split, 0 to 100, rounded to hundredths. It is clamped to this range.
    ///   - least: the minimum weight of each entity, such as its present weight when the traffic grows. Without it,
    ///     rounding may take bucket values, and with them users, from an entity although the traffic grows (the Alabama
    ///     paradox). It is ignored if the sum exceeds the traffic.
    public static func weights(
        of entityIDs: [Identifier], ratio: [Double], traffic: Double, atLeast least: [Int]? = nil
    ) -> [Weight] {
        let total = (min(max(traffic, 0), 100) * Double(Bucketer.bucketCount) / 100).rounded()
        let sum = ratio.reduce(0, +)
        guard sum > 0 else { return entityIDs.map { Weight(entityID: $0, weight: 0) } }
        let none = ratio.map { _ in 0 }
        let least = least.flatMap { $0.reduce(0, +) <= Int(total) ? $0 : nil } ?? none
        let counts = counts(nearest: ratio.map { $0 / sum * total }, total: Int(total), atLeast: least)
        return zip(entityIDs, counts).map { Weight(entityID: $0, weight: $1) }
    }

    /// Rounds to whole numbers by the largest remainder method.
    ///
    /// - Parameters:
    ///   - exact: the numbers to round.
    ///   - total: the sum of the result.
    ///   - least: the minimum of each number. The sum must be at most `total`.
    private static func counts(nearest exact: [Double], total: Int, atLeast least: [Int]) -> [Int] {
        var counts = zip(exact, least).map { max(Int($0), $1) }
        var rest = total - counts.reduce(0, +)
        while rest != 0 {
            let sign = rest.signum()
            let candidates = counts.indices.filter { index in sign > 0 || counts[index] > least[index] }
                .sorted { left, right in
                    // The counts that are furthest below the exact numbers grow first; those furthest above shrink
                    // first.
                    let leftRemainder = exact[left] - Double(counts[left])
                    let rightRemainder = exact[right] - Double(counts[right])
                    if leftRemainder == rightRemainder { return left < right }
                    return sign > 0 ? leftRemainder > rightRemainder : leftRemainder < rightRemainder
                }
            guard !candidates.isEmpty else { return counts }
            for index in candidates.prefix(abs(rest)) { counts[index] += sign }
            rest = total - counts.reduce(0, +)
        }
        return counts
    }

    /// Returns an allocation with new weights in which as few bucket values as possible change their owner.
    ///
    /// Surplus bucket values go to entities with a deficit: first to the owners of the adjacent bucket values, so that
    /// ranges grow in place. Entities without a weight lose all their bucket values.
    ///
    /// - Precondition: as for ``init(weights:)``.
    public func reallocated(to weights: [Weight]) -> TrafficAllocation {
        // A shortcut: the general algorithm has the same result, but visits each bucket value several times.
        guard !ranges.isEmpty else { return TrafficAllocation(weights: weights) }
        var reallocation = Reallocation(from: self, to: weights)
        reallocation.transfer(.surplus, onlyToNeighbours: true)
        reallocation.transfer(.surplus, onlyToNeighbours: false)
        reallocation.transfer(.unowned, onlyToNeighbours: true)
        reallocation.transfer(.unowned, onlyToNeighbours: false)
        reallocation.releaseSurplus()
        return reallocation.allocation
    }
}

/// A reallocation in progress, with an owner for each bucket value.
private struct Reallocation {
    /// Which bucket values may be transferred.
    enum Supply {
        /// Bucket values of entities that own more than their weight.
        case surplus
        /// Bucket values that no entity owns.
        case unowned
    }

    private let entityIDs: [Identifier]
    /// The index of the owning entity, for each bucket value.
    private var owners: [Int?]
    /// How many bucket values each entity still lacks; negative if it owns too many.
    private var deficits: [Int]

    init(from allocation: TrafficAllocation, to weights: [TrafficAllocation.Weight]) {
        precondition(weights.allSatisfy { $0.weight >= 0 })
        precondition(weights.reduce(0) { $0 + $1.weight } <= Bucketer.bucketCount)
        entityIDs = weights.map(\.entityID)
        deficits = weights.map(\.weight)
        owners = []
        owners.reserveCapacity(Bucketer.bucketCount)
        for range in allocation.ranges where range.end > owners.count {
            let owner = entityIDs.firstIndex(of: range.entityID)
            let length = min(range.end, Bucketer.bucketCount) - owners.count
            owners.append(contentsOf: repeatElement(owner, count: length))
            if let owner { deficits[owner] -= length }
        }
        owners.append(contentsOf: repeatElement(nil, count: Bucketer.bucketCount - owners.count))
    }

    /// Transfers bucket values to entities with a deficit.
    ///
    /// - Parameter onlyToNeighbours: whether a bucket value may go only to the owner of the one before or after.
    mutating func transfer(_ supply: Supply, onlyToNeighbours: Bool) {
        // Most reallocations have either a surplus or a deficit. Without both there is nothing to do.
        guard deficits.contains(where: { $0 > 0 }), supply == .unowned || deficits.contains(where: { $0 < 0 }) else {
            return
        }
        if onlyToNeighbours {
            for value in 1..<owners.count { transfer(value, from: supply, to: owners[value - 1]) }
            for value in (0..<owners.count - 1).reversed() { transfer(value, from: supply, to: owners[value + 1]) }
        } else {
            for value in 0..<owners.count {
                guard let receiver = deficits.firstIndex(where: { $0 > 0 }) else { return }
                transfer(value, from: supply, to: receiver)
            }
        }
    }

    /// Transfers one bucket value if it is in the supply and the receiver has a deficit.
    private mutating func transfer(_ value: Int, from supply: Supply, to receiver: Int?) {
        guard let receiver, deficits[receiver] > 0 else { return }
        switch (supply, owners[value]) {
        case (.surplus, let owner?) where deficits[owner] < 0: deficits[owner] += 1
        case (.unowned, nil): break
        default: return
        }
        owners[value] = receiver
        deficits[receiver] -= 1
    }

    /// Frees the bucket values that no entity needs, from the highest down.
    mutating func releaseSurplus() {
        guard deficits.contains(where: { $0 < 0 }) else { return }
        for value in (0..<owners.count).reversed() {
            guard let owner = owners[value], deficits[owner] < 0 else { continue }
            owners[value] = nil
            deficits[owner] += 1
        }
    }

    /// Joins consecutive bucket values of one owner into a range. Unowned bucket values at the end need no range.
    var allocation: TrafficAllocation {
        var ranges: [TrafficAllocation.Range] = []
        var start = 0
        while start < owners.count {
            let owner = owners[start]
            var end = start + 1
            while end < owners.count, owners[end] == owner { end += 1 }
            ranges.append(TrafficAllocation.Range(entityID: owner.map { entityIDs[$0] } ?? "", end: end))
            start = end
        }
        if ranges.last?.entityID == "" { ranges.removeLast() }
        return TrafficAllocation(ranges: ranges)
    }
}
