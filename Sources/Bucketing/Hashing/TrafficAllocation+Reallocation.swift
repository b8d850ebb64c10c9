extension TrafficAllocation {
    /// How many bucket values an entity shall have, of 10,000.
    public struct Weight: Sendable, Equatable {
        public var entityID: Identifier
        public var weight: Int

        public init(entityID: Identifier, weight: Int) {
            self.entityID = entityID
            self.weight = weight
        }
    }

    /// An allocation for entities in their order, the rest for nobody.
    ///
    /// - Precondition: no weight is negative, no entity occurs twice, and the sum is at most 10,000.
    public init(weights: [Weight]) {
        self = TrafficAllocation(ranges: []).reallocated(to: weights)
    }

    /// Splits a part of the 10,000 bucket values by a ratio; what does not come out even goes to those with the
    /// greatest remainders, the first of them first.
    ///
    /// - Parameters:
    ///   - ratio: one number for each entity, finite and not negative; if all are 0 nobody gets anything.
    ///   - traffic: the part to split, in percent, 0 to 100; rounded to hundredths.
    public static func weights(of entityIDs: [Identifier], ratio: [Double], traffic: Double) -> [Weight] {
        let total = (min(max(traffic, 0), 100) * Double(Bucketer.bucketCount) / 100).rounded()
        let sum = ratio.reduce(0, +)
        let exact = ratio.map { sum > 0 ? $0 / sum * total : 0 }
        var counts = exact.map { Int($0) }
        let rest = sum > 0 ? Int(total) - counts.reduce(0, +) : 0
        let byRemainder = exact.indices.filter { exact[$0] > Double(counts[$0]) }.sorted { left, right in
            let (one, other) = (exact[left] - Double(counts[left]), exact[right] - Double(counts[right]))
            return one == other ? left < right : one > other
        }
        for index in byRemainder.prefix(max(0, rest)) { counts[index] += 1 }
        return zip(entityIDs, counts).map { Weight(entityID: $0, weight: $1) }
    }

    /// The allocation with new weights in which as few bucket values as possible change their owner.
    ///
    /// What one entity loses goes to those that gain, first to its neighbours so that ranges grow in place.
    /// Entities without a weight lose all.
    ///
    /// - Precondition: as for ``init(weights:)``.
    public func reallocated(to weights: [Weight]) -> TrafficAllocation {
        var reallocation = Reallocation(from: self, to: weights)
        reallocation.hand(over: .surplus, onlyToNeighbours: true)
        reallocation.hand(over: .surplus, onlyToNeighbours: false)
        reallocation.hand(over: .unowned, onlyToNeighbours: true)
        reallocation.hand(over: .unowned, onlyToNeighbours: false)
        reallocation.releaseSurplus()
        return reallocation.allocation
    }
}

/// A reallocation in progress, bucket value by bucket value.
private struct Reallocation {
    enum Giver {
        case surplus
        case unowned
    }

    private let entityIDs: [Identifier]
    /// For each bucket value the index of its entity.
    private var owners: [Int?]
    /// For each entity how many bucket values it still has to gain; negative if it has to lose some.
    private var missing: [Int]

    init(from allocation: TrafficAllocation, to weights: [TrafficAllocation.Weight]) {
        precondition(weights.allSatisfy { $0.weight >= 0 })
        precondition(weights.reduce(0) { $0 + $1.weight } <= Bucketer.bucketCount)
        entityIDs = weights.map(\.entityID)
        missing = weights.map(\.weight)
        owners = []
        owners.reserveCapacity(Bucketer.bucketCount)
        for range in allocation.ranges where range.end > owners.count {
            let owner = entityIDs.firstIndex(of: range.entityID)
            let length = min(range.end, Bucketer.bucketCount) - owners.count
            owners.append(contentsOf: repeatElement(owner, count: length))
            if let owner { missing[owner] -= length }
        }
        owners.append(contentsOf: repeatElement(nil, count: Bucketer.bucketCount - owners.count))
    }

    mutating func hand(over giver: Giver, onlyToNeighbours: Bool) {
        if onlyToNeighbours {
            for place in owners.indices.dropFirst() {
                hand(place, giver: giver, to: owners[place - 1])
            }
            for place in owners.indices.dropLast().reversed() {
                hand(place, giver: giver, to: owners[place + 1])
            }
        } else {
            for place in owners.indices {
                guard let gainer = missing.firstIndex(where: { $0 > 0 }) else { return }
                hand(place, giver: giver, to: gainer)
            }
        }
    }

    private mutating func hand(_ place: Int, giver: Giver, to gainer: Int?) {
        guard let gainer, missing[gainer] > 0 else { return }
        switch (giver, owners[place]) {
        case (.surplus, let owner?) where missing[owner] < 0: missing[owner] += 1
        case (.unowned, nil): break
        default: return
        }
        owners[place] = gainer
        missing[gainer] -= 1
    }

    /// Takes what nobody gains from the ends of those that have too much.
    mutating func releaseSurplus() {
        for place in owners.indices.reversed() {
            guard let owner = owners[place], missing[owner] < 0 else { continue }
            owners[place] = nil
            missing[owner] += 1
        }
    }

    /// Neighbouring places of one owner as one range; the places at the end that nobody has are left out.
    var allocation: TrafficAllocation {
        var ranges: [TrafficAllocation.Range] = []
        for (place, owner) in owners.enumerated() {
            let id = owner.map { entityIDs[$0] } ?? ""
            if let last = ranges.indices.last, ranges[last].entityID == id {
                ranges[last].end = place + 1
            } else {
                ranges.append(TrafficAllocation.Range(entityID: id, end: place + 1))
            }
        }
        if ranges.last?.entityID == "" { ranges.removeLast() }
        return TrafficAllocation(ranges: ranges)
    }
}
