/// The total of one user for one goal or ``TrackedSeries`` in one experiment. It has two parts: events before the first
/// exposure, and events since then. Some series use the parts otherwise; see ``SeriesDefinition/Content``.
public struct UserGoal: Sendable, Equatable {
    /// The number of events before the first exposure.
    public var beforeCount: Int64
    /// The sum of their values.
    public var beforeValue: Double
    /// The number of events since the first exposure.
    public var afterCount: Int64
    /// The sum of their values.
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

    /// Adds another total of the same goal or series.
    mutating func add(_ other: UserGoal) {
        beforeCount += other.beforeCount
        beforeValue = DecimalSum.adding(other.beforeValue, to: beforeValue)
        afterCount += other.afterCount
        afterValue = DecimalSum.adding(other.afterValue, to: afterValue)
        valuedCount += other.valuedCount
    }

    /// The user's contribution to the sums of a variation, if this is the total of a goal. ``tally(of:)`` covers series
    /// as well.
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
/// therefore replaces the sum by the nearest decimal fraction with six digits after the point, if the two differ by no
/// more than the rounding of one addition. Sums are then exact for any number of terms, even if terms are subtracted
/// again, as long as the sum and its terms have at most six digits after the point and a magnitude below ``limit``.
enum DecimalSum {
    /// 10 to the power of the number of digits after the point.
    private static let scale: Double = 1e6
    /// About 1.1e9. Below this magnitude, adjacent numbers differ by less than a quarter of the sixth digit after the
    /// point, so the rounding of two terms and of their sum stays below half of this digit.
    static let limit = 0x1p50 / scale

    /// Returns the sum with a value added.
    static func adding(_ value: Double, to sum: Double) -> Double {
        let plain = sum + value
        let magnitude = max(abs(sum), abs(value), abs(plain))
        guard magnitude < limit else { return plain }
        let decimal = (plain * scale).rounded() / scale
        // Four roundings contribute to the difference: of both terms, of their sum, and of `decimal`. Each is at most
        // half a unit in the last place.
        return abs(plain - decimal) <= 2 * magnitude.ulp ? decimal : plain
    }
}
