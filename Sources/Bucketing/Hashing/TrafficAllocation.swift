public import JSON

/// Divides the bucket values among variations, or among the experiments of a group: consecutive ranges, each given by
/// its end.
public struct TrafficAllocation: Sendable, Equatable {
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
}

extension TrafficAllocation {
    /// The JSON of a datafile: `[{"entityId": …, "endOfRange": …}, …]`.
    public var json: JSONValue {
        .array(ranges.map { ["entityId": .string($0.entityID.string), "endOfRange": .integer(Int64($0.end))] })
    }

    /// Parses the JSON of a datafile.
    ///
    /// - Throws: ``DatafileError`` with every wrong member, its pointer starting at `/trafficAllocation`.
    public init(json value: JSONValue) throws(DatafileError) {
        var reader = DatafileReader()
        let member = "trafficAllocation"
        let allocation = reader.trafficAllocation(
            of: DatafileReader.Node(
                value: .object(JSONObject(.init(key: member, value: value))), pointer: JSONPointer())
        )
        guard reader.problems.isEmpty else { throw DatafileError(problems: reader.problems) }
        self = allocation
    }
}
