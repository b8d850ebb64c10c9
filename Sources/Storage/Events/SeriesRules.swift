import Bucketing
import Chronology

/// The rules of ``TrackedSeries``: how a user's goal events become totals. Adding events one by one, in any order, has
/// the same result as computing the totals from all events at once.
///
/// Once a series is filled, a user without totals has no events that count. While the series is being filled, a user
/// without totals may also be one whom ``SeriesFiller`` has not reached yet. The user's totals are then computed from
/// the stored events, either in the transaction of a new event (``changes(by:_:_:)``) or by the filler
/// (``settle(_:in:_:)``). Whichever comes second finds the totals and does not compute them again.
enum SeriesRules {
    /// A total of a user that an event changes.
    struct Change {
        /// The user's exposure to the experiment of the series.
        var exposure: StoredExposure
        /// The name under which the total is kept; see ``TrackedSeries/names``.
        var name: Identifier
        /// The total before the event; `nil` if there was none.
        var former: UserGoal?
        /// The total after the event.
        var total: UserGoal
    }

    // MARK: One event

    /// Returns the totals that an event changes, and reads the user's groups along with them.
    ///
    /// - Parameters:
    ///   - event: an event that is not stored yet.
    ///   - exposures: the exposures for which the event may count. The series of their experiments must have been read.
    /// - Returns: `nil` if `records` lacks a part that is needed.
    static func changes(
        by event: GoalEvent, _ exposures: [StoredExposure], _ records: inout UserRecords
    ) -> [Change]? {
        // The series that use the event's goal, each with the exposure to its experiment.
        let concerned = exposures.flatMap { stored in
            records.series(of: stored.exposure.experimentID).filter { $0.definition.concerns(event.goal) }
                .map { (stored: stored, series: $0) }
        }
        let seriesKeys = concerned.flatMap { keys(of: $0.series) }
        let groupKeys = exposures.flatMap { records.groupKeys(in: $0.exposure.experimentID) }
        guard !seriesKeys.isEmpty || !groupKeys.isEmpty else { return [] }
        guard records.has([.someTotals(seriesKeys + groupKeys)]) else { return nil }
        let value = UserRecords.GoalValue(
            goal: event.goal, value: event.value, happenedAt: event.happenedAt, senderID: event.senderID)
        let neededTimes = concerned.compactMap { stored, series in
            firstNeededEvent(for: value, series, exposedAt: stored.exposure.happenedAt, records.totals)
        }
        if let first = neededTimes.min(), !records.has([.goalEvents(since: first)]) { return nil }
        return concerned.flatMap { stored, series in changes(by: value, series, stored, records) }
    }

    /// Returns the totals of one series that an event changes.
    private static func changes(
        by event: UserRecords.GoalValue, _ series: TrackedSeries, _ stored: StoredExposure, _ records: UserRecords
    ) -> [Change] {
        let formers = keys(of: series).map { records.totals[$0] }
        let totals = totals(after: event, series, stored.exposure, formers, records.goalEvents)
        return series.names.indices.compactMap { index -> Change? in
            guard let total = totals[index], total != formers[index] else { return nil }
            return Change(exposure: stored, name: series.names[index], former: formers[index], total: total)
        }
    }

    /// The keys of a user's totals of a series.
    private static func keys(of series: TrackedSeries) -> [UserRecords.TotalKey] {
        series.names.map { UserRecords.TotalKey(experimentID: series.experimentID, goal: $0) }
    }

    /// Returns the time of the first stored event on which the totals after a new event depend; `nil` if the totals
    /// depend on no stored event.
    private static func firstNeededEvent(
        for event: UserRecords.GoalValue, _ series: TrackedSeries, exposedAt first: Instant,
        _ totals: [UserRecords.TotalKey: UserGoal]
    ) -> Instant? {
        let formers = keys(of: series).map { totals[$0] }
        let hasNoTotal = formers.first.map { $0 == nil } ?? false
        let mustBeFilled = series.state == .filling && hasNoTotal
        guard case .funnel(let goals) = series.definition.content else {
            var total = UserGoal()
            let counts = add(event, to: &total, series.definition, exposedAt: first)
            // A total that exists needs only the new event. A total to be filled needs all events that count.
            return mustBeFilled && counts ? first - series.definition.lookBack : nil
        }
        guard series.definition.isInWindow(event.happenedAt - first), event.happenedAt >= first else { return nil }
        // A funnel that must be filled needs all events since the exposure.
        if mustBeFilled { return first }
        let times = formers.map { former in former.map { first + $0.time } }
        let changesFunnel = goals.indices.contains { step in
            let isPrecedingReached = step == 0 || (times[step - 1].map { $0 <= event.happenedAt } ?? false)
            let isEarlier = times[step].map { event.happenedAt < $0 } ?? true
            return goals[step] == event.goal && isPrecedingReached && isEarlier
        }
        // Events of the later steps may have arrived already, and count once this step is reached.
        return changesFunnel ? event.happenedAt : nil
    }

    /// Returns a user's totals of a series after a new event.
    ///
    /// - Parameters:
    ///   - formers: the total of each name before the event.
    ///   - stored: the stored events, from the time that ``firstNeededEvent(for:_:exposedAt:_:)`` returns.
    /// - Returns: the total of each name; `nil` where there is none.
    private static func totals(
        after event: UserRecords.GoalValue, _ series: TrackedSeries, _ exposure: Exposure, _ formers: [UserGoal?],
        _ stored: [UserRecords.GoalValue]
    ) -> [UserGoal?] {
        let first = exposure.happenedAt
        if case .funnel = series.definition.content {
            let reachedAt = formers.map { former in former.map { [first + $0.time] } ?? [] }
            let found = totals(of: series, from: stored + [event], exposedAt: first, reachedAt: reachedAt)
            return series.names.indices.map { $0 < found.count ? found[$0].total : formers[$0] }
        }
        // A series other than a funnel has one name.
        let former = formers[0]
        var total = former ?? UserGoal()
        guard add(event, to: &total, series.definition, exposedAt: first) else { return [former] }
        // Without a former total, the filler may not have reached the user. All stored events are then added up.
        guard former == nil, series.state == .filling else { return [total] }
        return [filled(series, from: stored + [event], exposure)[series.names[0]]]
    }

    // MARK: All events

    /// Computes a user's totals of a series.
    ///
    /// - Parameters:
    ///   - events: the user's events, in any order.
    ///   - reachedAt: for each step of a funnel, further times at which its goal was reached: by events that have been
    ///     deleted since, for example.
    /// - Returns: the totals that are not empty. A funnel has a total for each step that the user reached, in order.
    static func totals(
        of series: TrackedSeries, from events: [UserRecords.GoalValue], exposedAt first: Instant,
        reachedAt: [[Instant]] = []
    ) -> [(name: Identifier, total: UserGoal)] {
        if case .funnel(let goals) = series.definition.content {
            return steps(of: series, goals, from: events, exposedAt: first, reachedAt)
        }
        var total = UserGoal()
        var isEmpty = true
        for event in events where add(event, to: &total, series.definition, exposedAt: first) { isEmpty = false }
        return isEmpty ? [] : [(series.names[0], total)]
    }

    /// Computes a user's totals of the steps of a funnel. A step is reached by the first event of its goal after the
    /// preceding step. Its total has the time since the exposure in milliseconds as ``UserGoal/afterValue``.
    private static func steps(
        of series: TrackedSeries, _ goals: [Identifier], from events: [UserRecords.GoalValue],
        exposedAt first: Instant, _ reachedAt: [[Instant]]
    ) -> [(name: Identifier, total: UserGoal)] {
        var steps: [(name: Identifier, total: UserGoal)] = []
        var last = first
        for (step, (goal, name)) in zip(goals, series.names).enumerated() {
            let otherTimes = step < reachedAt.count ? reachedAt[step] : []
            let times = events.lazy.filter { $0.goal == goal }.map(\.happenedAt) + otherTimes
            let next = times.filter { $0 >= last && series.definition.isInWindow($0 - first) }.min()
            guard let next else { break }
            steps.append((name, UserGoal(afterCount: 1, afterValue: Double((next - first).milliseconds))))
            last = next
        }
        return steps
    }

    /// Adds an event to the total of a series other than a funnel.
    ///
    /// - Returns: whether the event counts.
    private static func add(
        _ event: UserRecords.GoalValue, to total: inout UserGoal, _ definition: SeriesDefinition,
        exposedAt first: Instant
    ) -> Bool {
        let isBefore = event.happenedAt < first
        switch definition.content {
        case .sum(let term, _):
            guard let value = term.value(of: event) else { return false }
            let counts =
                isBefore
                ? event.happenedAt >= first - definition.lookBack : definition.isInWindow(event.happenedAt - first)
            if counts { total.add(value, isAfter: !isBefore) }
            return counts
        case .ratio(let numerator, let denominator):
            guard !isBefore, definition.isInWindow(event.happenedAt - first) else { return false }
            let upper = numerator.value(of: event)
            let lower = denominator.value(of: event)
            // The "before" part of the total holds the denominator; see ``SeriesDefinition/Content/ratio(_:_:)``.
            if let upper { total.add(upper, isAfter: true) }
            if let lower { total.add(lower, isAfter: false) }
            return upper != nil || lower != nil
        case .funnel, .breakdown, .periods: return false
        }
    }

    /// Returns the time before the first exposure in which events count for any of the series, or for goals.
    static func lookBack(of series: [TrackedSeries]) -> TimeSpan {
        series.reduce(EventRules.lookBack) { max($0, $1.definition.lookBack) }
    }

    // MARK: Filling and deleting

    /// Stores a user's totals of the series that are being filled, and deletes the totals of series that are no longer
    /// tracked. Calling this function again changes nothing.
    ///
    /// - Returns: `false` if `records` lacks a part that is needed; nothing has changed then.
    static func settle(
        _ experimentID: Identifier, in records: inout UserRecords, _ tallies: inout TallyChanges
    ) -> Bool {
        let parts: [UserRecords.Part] = [
            .exposure(experimentID: experimentID), .series(experimentIDs: [experimentID]),
            .totals(experimentID: experimentID),
        ]
        guard records.has(parts) else { return false }
        // The user may have been erased or merged since the page of exposures was read.
        guard let stored = records.exposure(to: experimentID) else { return true }
        let series = records.series(of: experimentID)
        let totals = records.totals.filter { $0.key.experimentID == experimentID }
        let unfilled = series.filter { series in
            series.state == .filling && keys(of: series).allSatisfy { totals[$0] == nil }
        }
        let first = stored.exposure.happenedAt
        let lookBack = lookBack(of: unfilled)
        guard unfilled.isEmpty || records.has([.goalEvents(since: first - lookBack)]) else { return false }
        let kept = deleteUntrackedTotals(experimentID, totals, series, in: &records)
        let groups = kept.compactMap { BreakdownGroup($0.key.goal, $0.value) }
        for series in unfilled {
            for (name, total) in filled(series, from: records.goalEvents, stored.exposure) {
                EventRules.putTotal(total, of: name, stored, groups, in: &records, &tallies)
            }
        }
        return true
    }

    /// Deletes a user's totals of series that are no longer tracked. There is no write for single totals, so all totals
    /// in the experiment are deleted, and the others are stored again. The tallies of dropped series have been deleted
    /// already (``SharedRecords/Write/deleteSums(_:andSeries:)``).
    ///
    /// - Returns: the totals that stay.
    private static func deleteUntrackedTotals(
        _ experimentID: Identifier, _ totals: [UserRecords.TotalKey: UserGoal], _ series: [TrackedSeries],
        in records: inout UserRecords
    ) -> [UserRecords.TotalKey: UserGoal] {
        let tracked = Set(series.flatMap(\.names))
        let kept = totals.filter { SeriesName($0.key.goal) == nil || tracked.contains($0.key.goal) }
        guard kept.count < totals.count else { return totals }
        records.write(.deleteTotals(experimentID: experimentID))
        for (key, total) in kept { records.write(.putTotal(total, key)) }
        return kept
    }

    /// Returns the totals of a user who was exposed before the series was tracked. Stored attributes are not used,
    /// because their values at the exposure are unknown.
    private static func filled(
        _ series: TrackedSeries, from events: [UserRecords.GoalValue], _ exposure: Exposure
    ) -> [Identifier: UserGoal] {
        let found = totals(of: series, from: events, exposedAt: exposure.happenedAt)
        var totals = Dictionary(uniqueKeysWithValues: found)
        for (name, total) in CovariateRules.given(exposure, [series]) {
            totals[name, default: UserGoal()].add(total)
        }
        return totals
    }
}

extension SeriesDefinition.Term {
    /// Returns the contribution of an event to the term.
    ///
    /// - Returns: `nil` for an event of another goal.
    fileprivate func value(of event: UserRecords.GoalValue) -> Double? {
        guard event.goal == goal else { return nil }
        let value = measure == .count ? 1 : event.value
        return cap.map { min(value, $0) } ?? value
    }
}

extension UserGoal {
    /// The time from the first exposure to a step of a funnel, if this is the total of a step.
    fileprivate var time: TimeSpan { .milliseconds(Int64(exactly: afterValue.rounded()) ?? 0) }
}

extension UserRecords {
    /// Returns the series of an experiment. They must have been read.
    func series(of experimentID: Identifier) -> [TrackedSeries] {
        series.filter { $0.experimentID == experimentID }
    }

    /// The times at which the user reached the steps of funnels, by the names of the steps.
    var funnelTimes: [TotalKey: Instant] {
        var times: [TotalKey: Instant] = [:]
        for (key, total) in totals where SeriesName(key.goal)?.step != nil {
            guard let exposure = exposure(to: key.experimentID) else { continue }
            times[key] = exposure.exposure.happenedAt + total.time
        }
        return times
    }
}
