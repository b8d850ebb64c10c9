/// Who has which bucket values: ranges that follow one another, each up to its end.
public struct TrafficAllocation: Sendable, Equatable {
    public struct Range: Sendable, Equatable {
        /// A variation, or an experiment of a group; empty for nobody.
        public var entityID: Identifier
        /// The first bucket value that no longer belongs to the range.
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

    /// The owner of a bucket value: that of the first range that ends beyond it. `nil` for nobody.
    public func entity(at bucketValue: Int) -> Identifier? {
        for range in ranges where bucketValue < range.end {
            return range.entityID.string.isEmpty ? nil : range.entityID
        }
        return nil
    }
}
