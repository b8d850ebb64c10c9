package import Bucketing

/// The group to which a user belongs in a breakdown, for example "country: de". The value that the attribute had at the
/// first exposure determines the group.
///
/// A breakdown is a ``TrackedSeries`` that computes nothing from events. Each user has a total under the name of the
/// breakdown, and the value of this total is the index of the user's group. The totals of goals and other series are
/// tallied a second time by group, under names that contain the index; see ``name(of:)``.
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
    /// The maximum length of a value with a group of its own, in bytes. Longer values belong to ``other``.
    static let valueLimit = 255

    init(series: Int64, index: Int) {
        self.series = series
        self.index = index
    }

    /// Decodes the group from a user's total.
    ///
    /// - Parameter name: the name under which the total is kept.
    /// - Returns: `nil` for the total of a goal or of a series without groups.
    init?(_ name: Identifier, _ total: UserGoal) {
        guard let parsed = SeriesName(name), parsed.isGroup else { return nil }
        self.init(series: parsed.number, index: Int(exactly: total.afterValue) ?? Self.other)
    }

    /// The user's total that records the group.
    var total: UserGoal { UserGoal(afterCount: 1, afterValue: Double(index)) }

    /// The name under which ``total`` is kept.
    var totalName: Identifier { SeriesName(number: series, isGroup: true).identifier }

    /// The contribution of one user to the tally under ``usersName``. In this tally ``GoalTally/converted`` is the
    /// number of users in the group.
    static let user = UserGoal(afterCount: 1).tally

    /// The name under which the users of the group are tallied.
    var usersName: Identifier { Identifier("\(GroupNames(series).users.from)\(index)") }

    /// The name under which totals of a goal or another series are tallied for the users of the group.
    func name(of goal: Identifier) -> Identifier { Identifier("\(GroupNames(series).values(of: goal).from)\(index)") }
}

/// The names under which the groups of a breakdown are tallied, as ranges in the order of names. A range has all names
/// with a prefix. It ends at the prefix whose last character is the next one: `v` after `u`, U+0002 after U+0001.
///
/// - Users: U+0001, the number of the series, `u`, and the index of the group. Example: `\u{1}7u3`
/// - Totals of a goal: U+0001, the number of the series, `v`, the goal, U+0001, and the index. Example:
///   `\u{1}7vbuy\u{1}3`
package struct GroupNames: Sendable {
    /// A half-open range of names.
    package typealias Range = (from: Identifier, to: Identifier)

    private let prefix: String

    /// - Parameter series: the number of the breakdown's series.
    package init(_ series: Int64) {
        prefix = "\u{1}\(series)"
    }

    /// The range of the tallies of users.
    package var users: Range { (Identifier("\(prefix)u"), Identifier("\(prefix)v")) }

    /// The range of the tallies of a goal or another series. It may also contain names of a goal that begins in the
    /// same way; ``index(_:in:)`` returns `nil` for them.
    package func values(of goal: Identifier) -> Range {
        (Identifier("\(prefix)v\(goal)\u{1}"), Identifier("\(prefix)v\(goal)\u{2}"))
    }

    /// The range of all tallies of the breakdown.
    package var all: Range { (Identifier("\(prefix)u"), Identifier("\(prefix)w")) }

    /// Returns the index of the group in a name; `nil` if the name belongs to another goal.
    static func index(_ name: Identifier, in range: Range) -> Int? {
        guard name.string.hasPrefix(range.from.string) else { return nil }
        return Int(name.string.dropFirst(range.from.string.count))
    }
}

/// The tallies of an experiment for one goal or series, by the index of a ``BreakdownGroup``, from one snapshot.
public struct BreakdownTally: Sendable {
    /// The users by the index of their group.
    private var users: [Int: [Cohort: UserCounts]] = [:]
    /// The totals of the goal by the index of the group.
    private var goals: [Int: [(variationID: Identifier, day: Int64, tally: GoalTally)]] = [:]
    private let names: (users: GroupNames.Range, values: GroupNames.Range)

    /// - Parameters:
    ///   - series: the number of the breakdown's series.
    ///   - goal: the goal, or the name of the other series.
    package init(_ series: Int64, _ goal: Identifier) {
        names = (GroupNames(series).users, GroupNames(series).values(of: goal))
    }

    /// Adds a row of tallies. A row whose name is not one of ``GroupNames`` is skipped.
    package mutating func add(_ tally: GoalTally, _ variationID: Identifier, day: Int64, name: Identifier) {
        if let index = GroupNames.index(name, in: names.users) {
            let cohort = Cohort(variationID: variationID, period: AllocationPeriod.unknown, day: day)
            users[index, default: [:]][cohort, default: UserCounts()] += UserCounts(counted: tally.converted)
        } else if let index = GroupNames.index(name, in: names.values) {
            goals[index, default: []].append((variationID, day, tally))
        }
    }

    /// The indices of the groups that have counted users, in ascending order.
    public var indices: [Int] {
        users.filter { group in group.value.values.contains { $0.counted > 0 } }.keys.sorted()
    }

    /// Returns the tally of the group with this index.
    public func tally(of index: Int) -> ExperimentTally {
        ExperimentTally(users: (users[index] ?? [:]).map { ($0, $1) }, goals: goals[index] ?? [])
    }
}
