public import Bucketing
public import Chronology

/// A series limited to the first days after each user's exposure, for example "revenue in the first 7 days". Such a
/// series is not tracked: its totals are computed from the stored events when results need them.
public struct ShortenedSeries: Sendable {
    private let series: TrackedSeries

    /// - Parameters:
    ///   - definition: the series to limit.
    ///   - span: the time after the first exposure in which events count.
    /// - Returns: `nil` if no event could count, because the window of the series begins later.
    public init?(_ definition: SeriesDefinition, first span: TimeSpan) {
        var definition = definition
        let end = min(definition.to ?? span, span)
        guard definition.from < end else { return nil }
        definition.to = end
        // Only the definition and the names are used. No store keeps this series, so it needs no number of its own.
        series = TrackedSeries(number: 0, sdkKey: "", experimentID: "", definition: definition)
    }

    /// The goals whose events count.
    package var goals: [Identifier] {
        switch series.definition.content {
        case .sum(let term, _): [term.goal]
        case .ratio(let first, let second): [first.goal, second.goal]
        case .funnel(let goals): goals
        case .breakdown, .periods: []
        }
    }

    /// Events no longer count from this time after the first exposure.
    package var end: TimeSpan { series.definition.to ?? .zero }

    /// Returns a user's contributions to the sums of a variation: one, or for a funnel one for each step. A
    /// contribution is `nil` if the user has no events that count.
    ///
    /// - Parameters:
    ///   - events: the events that ``StoreQuery/events(_:of:through:)`` has read, which lack those before the exposure.
    ///   - totals: the stored totals of the unlimited series. The covariate, which does not depend on the limit, is
    ///     taken from them.
    public func tallies(of participant: Participant, _ events: ParticipantEvents, totals: [UserGoal?]) -> [GoalTally?] {
        let userEvents = events.values[participant.userID] ?? []
        let found = Dictionary(
            uniqueKeysWithValues: SeriesRules.totals(of: series, from: userEvents, exposedAt: participant.exposedAt))
        return zip(series.names, totals).map { name, stored in
            var total = found[name]
            if case .sum = series.definition.content, let stored {
                total = total ?? UserGoal()
                total?.beforeCount = stored.beforeCount
                total?.beforeValue = stored.beforeValue
            }
            return total?.tally(of: name)
        }
    }
}

/// The events of users of an experiment since their first exposure.
public struct ParticipantEvents: Sendable {
    /// By the users' ids.
    package var values: [Identifier: [UserRecords.GoalValue]] = [:]

    public init() {}
}

extension StoreQuery<ParticipantEvents> {
    /// Reads the events that a series needs, for the users of one page.
    ///
    /// - Parameters:
    ///   - scan: the read of the page.
    ///   - last: the last user of the page.
    public static func events(_ series: ShortenedSeries, of scan: ParticipantScan, through last: Identifier) -> Self {
        Self(.participantEvents(series, scan, through: last)) { _ in
            let goals = Set(series.goals).sorted()
            let list = goals.indices.map { "$\($0 + 5)" }.joined(separator: ", ")
            let sql = """
                SELECT e.user_id, g.goal, g.value, g.happened_at FROM exposures e JOIN goal_events g ON g.user_id = e.user_id
                WHERE e.experiment_id = $1 AND e.user_id > $2 AND e.user_id <= $3 AND g.happened_at >= e.happened_at
                AND g.happened_at < e.happened_at + $4 AND g.goal IN (\(list)) ORDER BY g.number
                """
            let query = SQLQuery(
                "participant_events_\(goals.count)", sql,
                [
                    .text(scan.experimentID), .text(scan.after?.string ?? ""), .text(last),
                    .integer(series.end.milliseconds),
                ] + goals.map { .text($0) })
            var found = ParticipantEvents()
            let take: (any Row) -> Void = { row in
                let value = UserRecords.GoalValue(
                    goal: row.identifier(1), value: row.double(2), happenedAt: row.instant(3), senderID: nil)
                found.values[row.identifier(0), default: []].append(value)
            }
            return Reading([(query, take)]) { .value(found) }
        }
    }
}
