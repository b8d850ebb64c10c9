public import Bucketing

/// How far to look for the users of a segment.
public enum SegmentScan: Sendable {
    /// Some users after this one, from the first with `nil`.
    case users(after: Identifier?)
    /// All users, who are only counted.
    case size
}

/// What a look through the users found.
public struct SegmentPage: Sendable {
    /// The users of the segment in the order of their ids' bytes; empty where they were only counted, and where there
    /// are none any more.
    public var userIDs: [Identifier] = []
    /// The user whom the look reached; `nil` at the end of all users.
    public var last: Identifier?
    /// Users of the segment that were found.
    public var matches = 0
    /// Users that were looked at.
    public var examined = 0

    public init() {}
}
