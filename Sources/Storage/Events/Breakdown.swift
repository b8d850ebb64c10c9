package import Bucketing

/// The group to which a user belongs in a breakdown, for example "country: de". The value that an attribute had at the
/// first exposure determines the group.
///
/// A breakdown is a ``TrackedSeries`` that computes nothing from events. Each user has a total under the name of the
/// breakdown, whose value is the index of the group. The totals of goals and other series are tallied a second time by
/// group, under names that contain the index; see ``name(of:)``.
public struct BreakdownGroup: Hashable, Sendable {
    /// The number of the breakdown's series.
    var series: Int64
    /// ``none``, the 1-based position in ``TrackedSeries/groupValues``, or ``other``.
    public var index: Int

    /// The maximum number of values with a group of their own.
    public static let limit = 20
    /// The group of users whose attribute had no value.
    public static let none = 0
    /// The group of all values that have no group of their own.
    public static let other = limit + 1
    /// The maximum length of a value with a group of its own, in bytes.
    static let valueLimit = 255

    init(series: Int64, index: Int) {
        self.series = series
        self.index = index
    }

    /// Decodes the group from a user's total.
    ///
    /// - Returns: `nil` for the total of a goal or of a series without groups.
    init?(_ name: Identifier, _ total: UserGoal) {
        guard let parsed = SeriesName(name), parsed.isGroup else { return nil }
        self.init(series: parsed.number, index: Int(exactly: total.afterValue) ?? Self.other)
    }

    /// The user's total, which keeps the group.
    var total: UserGoal { UserGoal(afterCount: 1, afterValue: Double(index)) }

    /// The name under which the total is kept.
    var totalName: Identifier { SeriesName(number: series, isGroup: true).identifier }

    /// The contribution of a user to the tally under ``usersName``. The number of converted users there is the number
    /// of users in the group.
    static let user = UserGoal(afterCount: 1).tally

    /// The name under which the users of the group are tallied.
    var usersName: Identifier { Identifier("\(GroupNames(series).users.from)\(index)") }

    /// The name under which totals of a goal or another series are tallied for the users of the group.
    func name(of goal: Identifier) -> Identifier { Identifier("\(GroupNames(series).values(of: goal).from)\(index)") }
}

/// The names under which the groups of a breakdown are tallied, as half-open ranges: U+0001, the number of the series,
/// `u` for users or `v` and a goal, and the index of the group.
package struct GroupNames: Sendable {
    package typealias Range = (from: Identifier, to: Identifier)

    private let prefix: String

    package init(_ series: Int64) {
        prefix = "\u{1}\(series)"
    }

    /// The range of the tallies of users.
    package var users: Range { (Identifier("\(prefix)u"), Identifier("\(prefix)v")) }

    /// The range of the tallies of a goal or another series. The range may contain names of other goals,
    /// which ``index(_:in:)`` skips.
    package func values(of goal: Identifier) -> Range {
        (Identifier("\(prefix)v\(goal)\u{1}"), Identifier("\(prefix)v\(goal)\u{2}"))
    }

    /// The range of all tallies of the breakdown.
    package var all: Range { (Identifier("\(prefix)u"), Identifier("\(prefix)w")) }

    /// Returns the index of the group in a name; `nil` if the name only happens to be in the range.
    static func index(_ name: Identifier, in range: Range) -> Int? {
        guard name.string.hasPrefix(range.from.string) else { return nil }
        return Int(name.string.dropFirst(range.from.string.count))
    }
}

/// The tallies of an experiment for one goal or series, by the index of a ``BreakdownGroup``, from one snapshot.
public struct BreakdownTally: Sendable {
    private var users: [Int: [Cohort: UserCounts]] = [:]
    private var goals: [Int: [(variationID: Identifier, day: Int64, tally: GoalTally)]] = [:]
    private let names: (users: GroupNames.Range, values: GroupNames.Range)

    package init(_ series: Int64, _ goal: Identifier) {
        names = (GroupNames(series).users, GroupNames(series).values(of: goal))
    }

    /// Adds the row with this name.
    package mutating func add(_ tally: GoalTally, _ variationID: Identifier, day: Int64, name: Identifier) {
        if let index = GroupNames.index(name, in: names.users) {
            let cohort = Cohort(variationID: variationID, period: AllocationPeriod.unknown, day: day)
            users[index, default: [:]][cohort, default: UserCounts()] += UserCounts(counted: tally.converted)
        } else if let index = GroupNames.index(name, in: names.values) {
            goals[index, default: []].append((variationID, day, tally))
        }
    }

    /// The groups that have users.
    public var indices: [Int] {
        users.filter { $0.value.values.contains { $0.counted > 0 } }.keys.sorted()
    }

    public func tally(of index: Int) -> ExperimentTally {
        ExperimentTally(users: (users[index] ?? [:]).map { ($0, $1) }, goals: goals[index] ?? [])
    }
}
