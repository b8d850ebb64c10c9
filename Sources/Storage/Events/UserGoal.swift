/// The total of one user for one goal or ``TrackedSeries`` in one experiment: before the first exposure, and since
/// then.
public struct UserGoal: Sendable, Equatable {
    public var beforeCount: Int64
    public var beforeValue: Double
    public var afterCount: Int64
    public var afterValue: Double
    /// The number of events since the first exposure with a value other than 0.
    public var valuedCount: Int64

    public init(
        beforeCount: Int64 = 0, beforeValue: Double = 0, afterCount: Int64 = 0, afterValue: Double = 0,
        valuedCount: Int64 = 0
    ) {
        self.beforeCount = beforeCount
        self.beforeValue = beforeValue
        self.afterCount = afterCount
        self.afterValue = afterValue
        self.valuedCount = valuedCount
    }

    /// Adds the value of an event.
    ///
    /// - Parameter isAfter: whether the event happened at or after the first exposure.
    package mutating func add(_ value: Double, isAfter: Bool) {
        if isAfter {
            afterCount += 1
            if value != 0 { valuedCount += 1 }
            afterValue = DecimalSum.adding(value, to: afterValue)
        } else {
            beforeCount += 1
            beforeValue = DecimalSum.adding(value, to: beforeValue)
        }
    }

    /// Adds another total of the same goal.
    mutating func add(_ other: UserGoal) {
        beforeCount += other.beforeCount
        beforeValue = DecimalSum.adding(other.beforeValue, to: beforeValue)
        afterCount += other.afterCount
        afterValue = DecimalSum.adding(other.afterValue, to: afterValue)
        valuedCount += other.valuedCount
    }

    /// The user's contribution to the sums of a variation, if the total is that of a goal. For the total of a series
    /// see ``tally(of:)``.
    package var tally: GoalTally {
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
        tally.valued = Int(valuedCount)
        return tally
    }
}

/// Sums of amounts such as money, which senders write as decimal fractions, in one `Double`.
///
/// Rounding accumulates in a sum of decimal fractions: 0.1 added a thousand times gives 99.9999999999986. Each addition
/// therefore replaces a sum by the nearest decimal fraction with six digits after the point, if the two differ by no
/// more than the rounding of one addition. While the sum and its terms have at most six digits after the point and a
/// magnitude below ``limit``, sums are exact for any number of terms, also when terms are subtracted again.
enum DecimalSum {
    private static let scale: Double = 1e6
    /// The magnitude below which the distance between adjacent numbers is less than a quarter of the last digit. The
    /// rounding of two terms and of their sum then stays below half of the last digit.
    static let limit = 0x1p50 / scale

    /// Returns the sum with a value added.
    static func adding(_ value: Double, to sum: Double) -> Double {
        let plain = sum + value
        let magnitude = max(abs(sum), abs(value), abs(plain))
        guard magnitude < limit else { return plain }
        let decimal = (plain * scale).rounded() / scale
        return abs(plain - decimal) <= 2 * magnitude.ulp ? decimal : plain
    }
}
