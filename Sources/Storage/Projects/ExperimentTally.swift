public import Bucketing
import Chronology

/// The users of one variation who were enrolled on one day under one allocation. Stores tally users by cohort.
public struct Cohort: Hashable, Sendable {
    public var variationID: Identifier
    /// The number of an ``AllocationPeriod``.
    public var period: Int64
    /// The UTC day of the first exposure, counted from 1970-01-01.
    public var day: Int64

    public init(variationID: Identifier, period: Int64, day: Int64) {
        self.variationID = variationID
        self.period = period
        self.day = day
    }
}

/// The numbers of users that results include and exclude, and the number of exposures that do not count.
public struct UserCounts: Sendable, Equatable {
    /// Users included in results.
    public var counted = 0
    /// Users excluded because they were exposed to several variations. Such a user is in the cohort of the first
    /// variation.
    public var multipleVariations = 0
    /// Users excluded because their variation was chosen for them, by an admin for example, instead of by chance.
    public var chosen = 0
    /// Exposures, including repeated ones, that happened while the experiment was not running.
    public var notRunning = 0

    public init(counted: Int = 0, multipleVariations: Int = 0, chosen: Int = 0, notRunning: Int = 0) {
        self.counted = counted
        self.multipleVariations = multipleVariations
        self.chosen = chosen
        self.notRunning = notRunning
    }

    public static func += (left: inout Self, right: Self) {
        left.counted += right.counted
        left.multipleVariations += right.multipleVariations
        left.chosen += right.chosen
        left.notRunning += right.notRunning
    }
}

/// The tallies of an experiment for one goal, from one snapshot: the number of users in each cohort, and the totals of
/// the goal by variation and day. Results are computed from sums over cohorts and days.
public struct ExperimentTally: Sendable {
    /// The users who were enrolled on one day: their number, and their totals of the goal, by variation.
    public struct Day: Sendable, Equatable {
        /// The UTC day, counted from 1970-01-01.
        public var day: Int64
        /// The variations with users of this day, in the byte order of their ids.
        public var variations: [VariationTally]

        public init(day: Int64, variations: [VariationTally]) {
            self.day = day
            self.variations = variations
        }

        /// The day as `2026-01-31`.
        public var date: String { Instant(day: day).date }
    }

    /// The allocation periods, in the order of ``AllocationPeriod/since``.
    public private(set) var periods: [AllocationPeriod]
    /// The number of users in each cohort. ``UserCounts/notRunning`` is 0.
    public private(set) var users: [(cohort: Cohort, counts: UserCounts)]
    /// The number of exposures that happened while the experiment was not running.
    public let notRunning: Int
    /// The totals of the goal.
    private let goals: [(variationID: Identifier, day: Int64, tally: GoalTally)]

    /// - Parameters:
    ///   - periods: in any order.
    ///   - users: the counts by cohort. Several elements may have the same cohort.
    ///   - goals: the totals of the goal. Several elements may have the same variation and day.
    public init(
        periods: [AllocationPeriod] = [], users: [(cohort: Cohort, counts: UserCounts)] = [],
        goals: [(variationID: Identifier, day: Int64, tally: GoalTally)] = []
    ) {
        self.periods = periods.sorted(by: AllocationPeriod.isBefore)
        notRunning = users.reduce(0) { $0 + $1.counts.notRunning }
        // Exposures that do not count have no allocation period, so they are taken out of the cohorts.
        self.users = users.compactMap { cohort, counts in
            guard counts.notRunning != 0 else { return (cohort, counts) }
            var users = counts
            users.notRunning = 0
            return users == UserCounts() ? nil : (cohort, users)
        }
        self.goals = goals
    }

    /// Returns the tallies of the users who were enrolled on these UTC days, counted from 1970-01-01.
    public func enrolled(on days: ClosedRange<Int64>) -> ExperimentTally {
        ExperimentTally(
            periods: periods, users: users.filter { days.contains($0.cohort.day) },
            goals: goals.filter { days.contains($0.day) })
    }

    /// The tally of each variation with users, summed over all days, in the byte order of variation ids.
    public var variations: [VariationTally] {
        Self.sum(users[...], goals[...])
    }

    /// The days with first exposures, in order. Days whose users were all erased are left out.
    public var days: [Day] {
        let users = Dictionary(grouping: users, by: \.cohort.day)
        let goals = Dictionary(grouping: goals, by: \.day)
        return users.keys.sorted().compactMap { day in
            let variations = Self.sum((users[day] ?? [])[...], (goals[day] ?? [])[...])
                .filter { $0.counted != 0 || $0.multipleVariations != 0 || $0.chosen != 0 }
            return variations.isEmpty ? nil : Day(day: day, variations: variations)
        }
    }

    /// The number of counted users of each variation, by the number of the allocation period.
    public var countedByPeriod: [Int64: [Identifier: Int]] {
        var counted: [Int64: [Identifier: Int]] = [:]
        for (cohort, counts) in users {
            counted[cohort.period, default: [:]][cohort.variationID, default: 0] += counts.counted
        }
        return counted
    }

    /// Returns the sums by variation. Totals of a variation without users are left out.
    private static func sum(
        _ users: ArraySlice<(cohort: Cohort, counts: UserCounts)>,
        _ goals: ArraySlice<(variationID: Identifier, day: Int64, tally: GoalTally)>
    ) -> [VariationTally] {
        var tallies: [Identifier: VariationTally] = [:]
        for (cohort, counts) in users {
            tallies[cohort.variationID, default: VariationTally(variationID: cohort.variationID)].users += counts
        }
        for (variationID, _, tally) in goals {
            guard let former = tallies[variationID]?.goal else { continue }
            tallies[variationID]?.goal = former + tally
        }
        return tallies.values.sorted { $0.variationID < $1.variationID }
    }
}
