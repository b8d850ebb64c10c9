import Bucketing
import Chronology

/// The rules of ``TrackedSeries``: how a user's goal events become totals. Adding events one by one, in any order, has
/// the same result as computing the totals from all events at once.
///
/// Once a series is filled, a user without totals has no events that count. While the series is being filled, such a
/// user may not have been processed yet. The totals are then computed from the stored events, either by the transaction
/// of a new event (``changes(by:_:_:)``) or by ``SeriesFiller`` (``settle(_:in:_:)``), whichever comes first; the other
/// finds them.
enum SeriesRules {
    /// A total of a user that an event changes.
    struct Change {
        var exposure: StoredExposure
        /// The name of the series' total.
        var name: Identifier
        /// The total before the event; `nil` if there was none.
        var former: UserGoal?
        /// The total after the event.
        var total: UserGoal
    }

    // MARK: One event

    /// Returns the totals that an event changes.
    ///
    /// - Parameters:
    ///   - event: an event that is not stored yet.
    ///   - exposures: the exposures for which the event may count. `records` must have their series; afterwards it has
    ///     the user's groups, too.
    /// - Returns: `nil` if `records` lacks a part that is needed.
    static func changes(
        by event: GoalEvent, _ exposures: [StoredExposure], _ records: inout UserRecords
    ) -> [Change]? {
        // The series that use the event's goal, each with the exposure to its experiment.
        let concerned = exposures.flatMap { stored in
            records.series(of: stored.exposure.experimentID).filter { $0.definition.concerns(event.goal) }
                .map { (stored: stored, series: $0) }
        }
        let own = concerned.flatMap { keys(of: $0.series) }
        let groups = exposures.flatMap { records.groupKeys(in: $0.exposure.experimentID) }
        guard !own.isEmpty || !groups.isEmpty else { return [] }
        guard records.has([.someTotals(own + groups)]) else { return nil }
        let value = UserRecords.GoalValue(
            goal: event.goal, value: event.value, happenedAt: event.happenedAt, senderID: event.senderID)
        let needed = concerned.compactMap { stored, series in
            firstNeeded(for: value, series, exposedAt: stored.exposure.happenedAt, records.totals)
        }
        if let first = needed.min(), !records.has([.goalEvents(since: first)]) { return nil }
        return concerned.flatMap { stored, series -> [Change] in
            let formers = keys(of: series).map { records.totals[$0] }
            let totals = totals(after: value, series, stored.exposure, formers, records.goalEvents)
            return series.names.indices.compactMap { index -> Change? in
                guard let total = totals[index], total != formers[index] else { return nil }
                return Change(
                    exposure: stored, name: series.names[index], former: formers[index], total: total)
            }
        }
    }

    /// The keys of a user's totals of a series.
    private static func keys(of series: TrackedSeries) -> [UserRecords.TotalKey] {
        series.names.map { UserRecords.TotalKey(experimentID: series.experimentID, goal: $0) }
    }

    /// The time of the first stored event on which the totals after a new event depend; `nil` if they depend on none.
    private static func firstNeeded(
        for event: UserRecords.GoalValue, _ series: TrackedSeries, exposedAt first: Instant,
        _ totals: [UserRecords.TotalKey: UserGoal]
    ) -> Instant? {
        let formers = keys(of: series).map { totals[$0] }
        let isOpen = series.state == .filling && formers.first.map { $0 == nil } ?? false
        guard case .funnel(let goals) = series.definition.content else {
            var total = UserGoal()
            return isOpen && add(event, to: &total, series.definition, exposedAt: first)
                ? first - series.definition.lookBack : nil
        }
        guard series.definition.isInWindow(event.happenedAt - first), event.happenedAt >= first else { return nil }
        if isOpen { return first }
        let times = formers.map { former in former.map { first + $0.time } }
        let changesFunnel = goals.indices.contains { step in
            let isReached = step == 0 || times[step - 1].map { $0 <= event.happenedAt } ?? false
            let isEarlier = times[step].map { event.happenedAt < $0 } ?? true
            return goals[step] == event.goal && isReached && isEarlier
        }
        // Events of the later steps may have arrived already.
        return changesFunnel ? event.happenedAt : nil
    }

    /// Returns a user's totals of a series after a new event.
    ///
    /// - Parameters:
    ///   - formers: the total of each name before the event.
    ///   - stored: the stored events, from the time that ``firstNeeded(for:_:exposedAt:_:)`` returns.
    /// - Returns: the total of each name; `nil` where there is none.
    private static func totals(
        after event: UserRecords.GoalValue, _ series: TrackedSeries, _ exposure: Exposure, _ formers: [UserGoal?],
        _ stored: [UserRecords.GoalValue]
    ) -> [UserGoal?] {
        let first = exposure.happenedAt
        if case .funnel = series.definition.content {
            let known = formers.map { $0.map { [first + $0.time] } ?? [] }
            let found = totals(of: series, from: stored + [event], exposedAt: first, known: known)
            return series.names.indices.map { $0 < found.count ? found[$0].total : formers[$0] }
        }
        let former = formers[0]
        var total = former ?? UserGoal()
        guard add(event, to: &total, series.definition, exposedAt: first) else { return [former] }
        guard former == nil, series.state == .filling else { return [total] }
        return [filled(series, from: stored + [event], exposure)[series.names[0]]]
    }

    // MARK: All events

    /// Computes a user's totals.
    ///
    /// - Parameters:
    ///   - events: the user's events, in any order.
    ///   - known: for each step of a funnel, the times at which its goal was reached, including those of deleted
    ///     events.
    /// - Returns: the totals that are not empty. A funnel has a total for each step that the user reached, in order.
    static func totals(
        of series: TrackedSeries, from events: [UserRecords.GoalValue], exposedAt first: Instant,
        known: [[Instant]] = []
    ) -> [(name: Identifier, total: UserGoal)] {
        let definition = series.definition
        guard case .funnel(let goals) = definition.content else {
            var total = UserGoal()
            var isEmpty = true
            for event in events where add(event, to: &total, definition, exposedAt: first) { isEmpty = false }
            return isEmpty ? [] : [(series.names[0], total)]
        }
        var steps: [(name: Identifier, total: UserGoal)] = []
        var last = first
        for (step, (goal, name)) in zip(goals, series.names).enumerated() {
            let times =
                events.lazy.filter { $0.goal == goal }.map(\.happenedAt) + (step < known.count ? known[step] : [])
            let next = times.filter { $0 >= last && definition.isInWindow($0 - first) }.min()
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

    /// Stores a user's totals of the series that are being filled, and deletes those of series that are no longer
    /// tracked. Repeating it changes nothing.
    ///
    /// - Returns: `nil` if `records` lacks a part that is needed; nothing has changed then.
    static func settle(
        _ experimentID: Identifier, in records: inout UserRecords, _ tallies: inout TallyChanges
    ) -> Void? {
        let parts: [UserRecords.Part] = [
            .exposure(experimentID: experimentID), .series(experimentIDs: [experimentID]),
            .totals(experimentID: experimentID),
        ]
        guard records.has(parts) else { return nil }
        guard let stored = records.exposure(to: experimentID) else { return () }
        let series = records.series(of: experimentID)
        let totals = records.totals.filter { $0.key.experimentID == experimentID }
        let open = series.filter { $0.state == .filling && keys(of: $0).allSatisfy { totals[$0] == nil } }
        let first = stored.exposure.happenedAt
        let lookBack = lookBack(of: open)
        guard open.isEmpty || records.has([.goalEvents(since: first - lookBack)]) else { return nil }
        let tracked = Set(series.flatMap(\.names))
        let kept = totals.filter { SeriesName($0.key.goal) == nil || tracked.contains($0.key.goal) }
        if kept.count < totals.count {
            records.write(.deleteTotals(experimentID: experimentID))
            for (key, total) in kept { records.write(.putTotal(total, key)) }
        }
        let groups = kept.compactMap { BreakdownGroup($0.key.goal, $0.value) }
        for series in open {
            for (name, total) in filled(series, from: records.goalEvents, stored.exposure) {
                EventRules.put(total, of: name, stored, groups, in: &records, &tallies)
            }
        }
        return ()
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
    /// The time from the first exposure to the step, if the total is that of a funnel's step.
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
