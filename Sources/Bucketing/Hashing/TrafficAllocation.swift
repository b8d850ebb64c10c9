public import JSON

/// Divides the bucket values among variations, or among the experiments of a group: consecutive ranges, each given by
/// its end.
///
///     [{"entityId": "a", "endOfRange": 5000}, {"entityId": "b", "endOfRange": 9000}]
///     0..<5000: a    5000..<9000: b    9000..<10000: nobody
public struct TrafficAllocation: Sendable, Equatable {
    /// The bucket values from the end of the range before to ``end``.
    public struct Range: Sendable, Equatable {
        /// The id of a variation, or of an experiment of a group; empty if nobody gets the range.
        public var entityID: Identifier
        /// The first bucket value beyond the range.
        public var end: Int

        public init(entityID: Identifier, end: Int) {
            self.entityID = entityID
            self.end = end
        }
    }

    public var ranges: [Range]

    public init(ranges: [Range]) {
        self.ranges = ranges
    }

    /// Returns the owner of a bucket value: the entity of the first range that ends beyond it; `nil` if there is none.
    public func entity(at bucketValue: Int) -> Identifier? {
        for range in ranges where bucketValue < range.end {
            return range.entityID.string.isEmpty ? nil : range.entityID
        }
        return nil
    }

    /// The entity that owns every bucket value, if one does.
    var entityOfAll: Identifier? {
        shares.first { !$0.key.string.isEmpty && $0.value >= Bucketer.bucketCount }?.key
    }
}

extension TrafficAllocation {
    /// Each entity's share of the bucket values, in hundredths of a percent.
    public var shares: [Identifier: Int] {
        var shares: [Identifier: Int] = [:]
        var start = 0
        for range in ranges {
            shares[range.entityID, default: 0] += max(0, range.end - start)
            start = max(start, range.end)
        }
        return shares
    }
}

extension TrafficAllocation {
    /// Returns an allocation of all bucket values to variations: with the shares of another allocation, or else in the
    /// ratio of their weights if each has one, or else in equal parts.
    ///
    /// - Parameter weights: the weights of the variations that have one, in the order of the variations. Ignored unless
    ///   there is one for each variation, and all are finite and not negative.
    public static func dividing(
        _ variationIDs: [Identifier], _ weights: [Double], like other: TrafficAllocation
    ) -> TrafficAllocation {
        let ids = variationIDs.uniqued()
        let shares = other.shares
        let sharesOfOther = ids.map { Double(shares[$0] ?? 0) }
        let areWeightsUsable = weights.count == ids.count && weights.allSatisfy { $0 >= 0 && $0.isFinite }
        let ratio: [Double]
        if sharesOfOther.contains(where: { $0 > 0 }) {
            ratio = sharesOfOther
        } else if areWeightsUsable, weights.contains(where: { $0 > 0 }) {
            ratio = weights
        } else {
            ratio = ids.map { _ in 1 }
        }
        return TrafficAllocation(weights: Self.weights(of: ids, ratio: ratio, traffic: 100))
    }

    /// The JSON of a datafile: `[{"entityId": …, "endOfRange": …}, …]`.
    public var json: JSONValue {
        .array(ranges.map { ["entityId": .string($0.entityID.string), "endOfRange": .integer(Int64($0.end))] })
    }

    /// Parses the JSON of a datafile.
    ///
    /// - Throws: ``DatafileError`` with every wrong member, its pointer starting at `/trafficAllocation`.
    public init(json value: JSONValue) throws(DatafileError) {
        var reader = MemberReader()
        let member = "trafficAllocation"
        let allocation = reader.trafficAllocation(
            of: MemberReader.Node(
                value: .object(JSONObject(.init(key: member, value: value))), pointer: JSONPointer())
        )
        guard reader.problems.isEmpty else { throw DatafileError(problems: reader.problems) }
        self = allocation
    }
}
