public struct BucketingResult: Sendable, Equatable {
    public var hash: UInt32
    /// 0..<10000.
    public var bucketValue: Int
    /// The variation (or the experiment of a group) at that place; `nil` if nobody has it.
    public var entityID: Identifier?
}
