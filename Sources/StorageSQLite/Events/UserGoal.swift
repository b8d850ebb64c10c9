import Storage

/// What one user did for one goal before and since the first exposure to one experiment.
struct UserGoal: Equatable {
    var beforeCount: Int64 = 0
    var beforeValue = 0.0
    var afterCount: Int64 = 0
    var afterValue = 0.0

    mutating func add(_ value: Double, isAfter: Bool) {
        if isAfter {
            afterCount += 1
            afterValue += value
        } else {
            beforeCount += 1
            beforeValue += value
        }
    }

    /// The user's part in the sums of a variation.
    var tally: GoalTally {
        var tally = GoalTally()
        tally.events = Int(afterCount)
        tally.converted = afterCount > 0 ? 1 : 0
        tally.convertedBefore = beforeCount > 0 ? 1 : 0
        tally.convertedBoth = afterCount > 0 && beforeCount > 0 ? 1 : 0
        tally.y = CompensatedSum(afterValue)
        tally.yy = CompensatedSum(product: afterValue, afterValue)
        tally.x = CompensatedSum(beforeValue)
        tally.xx = CompensatedSum(product: beforeValue, beforeValue)
        tally.xy = CompensatedSum(product: beforeValue, afterValue)
        return tally
    }
}
