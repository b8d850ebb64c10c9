public import Bucketing
import Chronology

/// Counts and sums over the users of one variation, for one goal.
public struct VariationTally: Sendable, Equatable {
    public var variationID: Identifier
    public var users = UserCounts()
    public var goal = GoalTally()

    public init(variationID: Identifier) {
        self.variationID = variationID
    }

    /// See ``UserCounts/counted``.
    public var counted: Int {
        get { users.counted }
        set { users.counted = newValue }
    }

    /// See ``UserCounts/multipleVariations``.
    public var multipleVariations: Int {
        get { users.multipleVariations }
        set { users.multipleVariations = newValue }
    }

    /// See ``UserCounts/chosen``.
    public var chosen: Int {
        get { users.chosen }
        set { users.chosen = newValue }
    }
}

/// Counts and sums over the counted users of a variation. Means, variances and covariances are computed from them. In
/// the names of the sums, `y` is a user's value since the first exposure, and `x` is the user's value before it.
public struct GoalTally: Sendable, Equatable {
    /// The number of events since the first exposure.
    public var events = 0
    /// The number of users with an event since the first exposure.
    public var converted = 0
    /// The number of users with an event before the first exposure.
    public var convertedBefore = 0
    /// The number of users with an event both before and since the first exposure.
    public var convertedBoth = 0
    /// The sum of the values since the first exposure.
    public var y = CompensatedSum.zero
    /// The sum of the squares of these values.
    public var yy = CompensatedSum.zero
    /// The sum of the values before the first exposure.
    public var x = CompensatedSum.zero
    /// The sum of the squares of these values.
    public var xx = CompensatedSum.zero
    /// The sum of the products of each user's two values.
    public var xy = CompensatedSum.zero
    /// The number of events since the first exposure with a value other than 0; 0 for a series.
    public var valued = 0

    public init() {}

    /// Whether any event had a value, even if the values add up to 0. Tallies of earlier releases lack ``valued``, so
    /// the sum of squares is checked as well.
    public var hasValues: Bool { valued > 0 || yy.value > 0 }

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
        sum.valued += right.valued
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
        negative.valued = -tally.valued
        return negative
    }
}

extension StoredExposure {
    /// Returns the counts for a number of users with these ``StoredExposure/flags``: counted, or excluded for a reason.
    static func users(flags: Int64, _ number: Int = 1) -> UserCounts {
        if flags & Int64(chosen) != 0 { return UserCounts(chosen: number) }
        if flags & Int64(multipleVariations) != 0 { return UserCounts(multipleVariations: number) }
        return UserCounts(counted: number)
    }
}

/// The changes that one transaction makes to the tallies of variations. They are collected, so that each row is written
/// once.
///
/// Users are tallied by variation, allocation period and day of enrollment. Totals of goals are tallied by variation
/// and day. The key of a row depends only on the stored exposure, so a user is later subtracted from the row to which
/// the user was added.
public struct TallyChanges: Sendable {
    /// The key of a row of user counts.
    public struct Users: Hashable, Sendable {
        public var experimentID: Identifier
        public var cohort: Cohort
    }

    /// The key of a row of sums.
    public struct Goal: Hashable, Sendable {
        public var experimentID: Identifier
        public var goal: Identifier
        public var variationID: Identifier
        /// The UTC day on which the users were enrolled.
        public var day: Int64
    }

    /// The numbers to add to the user counts.
    public private(set) var users: [Users: UserCounts] = [:]
    /// The numbers to add to the sums of goals and series.
    public private(set) var goals: [Goal: GoalTally] = [:]

    public init() {}

    public var isEmpty: Bool { users.isEmpty && goals.isEmpty }

    /// Adds a number of users with this exposure. A negative number removes users.
    mutating func addUsers(_ number: Int, _ stored: StoredExposure) {
        let exposure = stored.exposure
        let cohort = Cohort(
            variationID: exposure.variationID, period: stored.period, day: exposure.happenedAt.day)
        let counts = StoredExposure.users(flags: Int64(stored.flags), number)
        users[Users(experimentID: exposure.experimentID, cohort: cohort), default: UserCounts()] += counts
    }

    /// Counts an exposure that happened while the experiment was not running.
    mutating func addNotRunning(_ exposure: Exposure) {
        let cohort = Cohort(
            variationID: exposure.variationID, period: AllocationPeriod.unknown, day: exposure.happenedAt.day)
        let key = Users(experimentID: exposure.experimentID, cohort: cohort)
        users[key, default: UserCounts()].notRunning += 1
    }

    /// Adds to the sums of a goal or series, for the exposure's variation and day, and once more for each of the user's
    /// groups.
    mutating func add(_ tally: GoalTally, _ exposure: Exposure, _ goal: Identifier, _ groups: [BreakdownGroup]) {
        add(tally, exposure, goal)
        for group in groups { add(tally, exposure, group.name(of: goal)) }
    }

    /// Adds to the sums under one name, for the exposure's variation and day.
    mutating func add(_ tally: GoalTally, _ exposure: Exposure, _ goal: Identifier) {
        let key = Goal(
            experimentID: exposure.experimentID, goal: goal, variationID: exposure.variationID,
            day: exposure.happenedAt.day)
        goals[key] = goals[key].map { $0 + tally } ?? tally
    }
}

/// A sum as an unevaluated sum of two numbers ("double-double"), with a precision of about 106 bits. With this
/// precision a value that is added and later subtracted leaves no residue, and variances can be computed from sums of
/// squares without cancellation.
///
/// Sources: Knuth, The Art of Computer Programming, volume 2, section 4.2.2 (the exact error of a sum); Dekker, "A
/// floating-point technique for extending the available precision", 1971 (products and quotients).
public struct CompensatedSum: Sendable, Equatable {
    /// The sum, rounded to one number.
    public private(set) var value: Double
    /// The rounding error of ``value``, at most half a unit in its last place.
    public private(set) var rest: Double

    public static let zero = CompensatedSum(0)

    public init(_ value: Double, rest: Double = 0) {
        self.value = value
        self.rest = rest
    }

    /// The exact product of two numbers.
    public init(product left: Double, _ right: Double) {
        value = left * right
        rest = (-value).addingProduct(left, right)
    }

    /// The exact sum of two numbers.
    private init(exactly left: Double, plus right: Double) {
        value = left + right
        let rounded = value - left
        rest = (left - (value - rounded)) + (right - rounded)
    }

    public static func + (left: Self, right: Self) -> Self {
        let high = Self(exactly: left.value, plus: right.value)
        let low = Self(exactly: left.rest, plus: right.rest)
        let sum = Self(exactly: high.value, plus: high.rest + low.value)
        return Self(exactly: sum.value, plus: sum.rest + low.rest)
    }

    public static prefix func - (sum: Self) -> Self {
        Self(-sum.value, rest: -sum.rest)
    }

    public static func - (left: Self, right: Self) -> Self {
        left + -right
    }

    public static func * (left: Self, right: Self) -> Self {
        let product = Self(product: left.value, right.value)
        return Self(exactly: product.value, plus: product.rest + (left.value * right.rest + left.rest * right.value))
    }

    public static func / (left: Self, right: Double) -> Self {
        let quotient = left.value / right
        let remainder = left - Self(product: quotient, right)
        return Self(exactly: quotient, plus: remainder.value / right)
    }
}
