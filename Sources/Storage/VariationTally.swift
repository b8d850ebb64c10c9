public import Bucketing

/// How the users of one variation did for one goal.
public struct VariationTally: Sendable, Equatable {
    public var variationID: Identifier
    /// Users whom results count.
    public var counted = 0
    /// Users left out because they were exposed to other variations as well; counted with their first.
    public var crossed = 0
    /// Users left out because a variation was forced on them.
    public var forced = 0
    public var goal = GoalTally()

    public init(variationID: Identifier) {
        self.variationID = variationID
    }
}

/// Sums over the counted users of a variation: y is a user's value since the first exposure, x that from before.
public struct GoalTally: Sendable, Equatable {
    /// Events since the exposure.
    public var events = 0
    /// Users with an event since the exposure, before it, and both.
    public var converted = 0
    public var convertedBefore = 0
    public var convertedBoth = 0
    public var y = CompensatedSum.zero
    public var yy = CompensatedSum.zero
    public var x = CompensatedSum.zero
    public var xx = CompensatedSum.zero
    public var xy = CompensatedSum.zero

    public init() {}

    public static func + (left: Self, right: Self) -> Self {
        var sum = left
        sum.events += right.events
        sum.converted += right.converted
        sum.convertedBefore += right.convertedBefore
        sum.convertedBoth += right.convertedBoth
        sum.y = left.y + right.y
        sum.yy = left.yy + right.yy
        sum.x = left.x + right.x
        sum.xx = left.xx + right.xx
        sum.xy = left.xy + right.xy
        return sum
    }

    public static prefix func - (tally: Self) -> Self {
        var negative = tally
        negative.events = -tally.events
        negative.converted = -tally.converted
        negative.convertedBefore = -tally.convertedBefore
        negative.convertedBoth = -tally.convertedBoth
        negative.y = -tally.y
        negative.yy = -tally.yy
        negative.x = -tally.x
        negative.xx = -tally.xx
        negative.xy = -tally.xy
        return negative
    }
}
