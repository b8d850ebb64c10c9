import Bucketing
import Chronology

/// The rules of exposures: the first exposure of a user to an experiment is stored with the user's totals, and the user
/// is added to the tallies of the variation.
extension EventRules {
    /// Stores an exposure that counts, if it is the user's first one or changes the stored one.
    ///
    /// - Returns: `nil` if `records` lacks a part that is needed; nothing has changed then.
    static func recordExposure(
        _ exposure: Exposure, in records: inout UserRecords, _ tallies: inout TallyChanges
    ) -> EventOutcome? {
        guard let stored = records.exposure(to: exposure.experimentID) else {
            return insert(exposure, in: &records, &tallies)
        }
        var next = stored
        if exposure.happenedAt < stored.exposure.happenedAt { next.exposure = exposure }
        // Stores do not keep these two members, so they must not count as a difference to the stored exposure.
        next.exposure.active = nil
        next.exposure.enrollsWith = nil
        next.exposure.isChosen = stored.exposure.isChosen || exposure.isChosen
        next.hasMultipleVariations = stored.hasMultipleVariations || exposure.variationID != stored.exposure.variationID
        let isSame = next.exposure == stored.exposure && next.hasMultipleVariations == stored.hasMultipleVariations
        guard !isSame else { return .repeated }
        return replace(stored, next, in: &records, &tallies) ? .stored : nil
    }

    /// Stores the exposure of a user who has no stored exposure to the experiment.
    ///
    /// - Returns: `nil` if `records` lacks a part that is needed; nothing has changed then.
    private static func insert(
        _ exposure: Exposure, in records: inout UserRecords, _ tallies: inout TallyChanges
    ) -> EventOutcome? {
        var parts = partsToPut(exposure)
        if !exposure.isChosen { parts += [.profile, .forcedVariations] }
        guard records.has(parts + AllocationRules.parts(exposure)), hasOlderEvents(exposure, &records) else {
            return nil
        }
        var exposure = exposure
        exposure.isChosen = exposure.isChosen || isChosen(exposure, records)
        guard let covariates = CovariateRules.covariates(at: exposure, in: &records),
            let groups = exposure.isChosen ? [] : BreakdownRules.groups(of: exposure, in: &records)
        else { return nil }
        let period = AllocationRules.period(of: exposure, in: &records)
        let periodGroups = exposure.isChosen ? [] : records.periodGroups(in: exposure.experimentID, period)
        exposure.active = nil
        exposure.enrollsWith = nil
        putExposure(
            StoredExposure(number: 0, exposure: exposure, hasMultipleVariations: false, period: period),
            groups + periodGroups, with: covariates, in: &records, &tallies)
        return .stored
    }

    /// Whether an admin has chosen the variation of an exposure, by an override in the profile or by a forced
    /// variation.
    static func isChosen(_ exposure: Exposure, _ records: UserRecords) -> Bool {
        if case .present(let profile) = records.profile,
            profile[exposure.experimentID]?.visible(at: exposure.happenedAt)?.source == .override
        {
            return true
        }
        return records.forcedVariations.contains {
            $0.sdkKey == exposure.sdkKey && $0.experimentKey == exposure.experimentKey
        }
    }

    /// The parts that ``putExposure(_:_:with:_:in:_:)`` needs.
    private static func partsToPut(_ exposure: Exposure) -> [UserRecords.Part] {
        [.goalEvents(since: exposure.happenedAt - lookBack), .series(experimentIDs: [exposure.experimentID])]
    }

    /// Whether `records` has the older events that series need if they look back longer than ``lookBack``.
    private static func hasOlderEvents(_ exposure: Exposure, _ records: inout UserRecords) -> Bool {
        let longest = SeriesRules.lookBack(of: records.series(of: exposure.experimentID))
        return longest == lookBack || records.has([.goalEvents(since: exposure.happenedAt - longest)])
    }

    /// Stores an exposure, computes the user's totals from the stored events, and adds the user to the tallies.
    ///
    /// - Parameters:
    ///   - groups: the user's groups in breakdowns, which depend on the attributes at the exposure.
    ///   - others: totals by goal and series that do not come from stored events: covariates, and totals of events that
    ///     retention has deleted. They are added to the computed totals.
    ///   - times: when the user reached the steps of funnels, by the names of the steps, including steps that were
    ///     reached by deleted events.
    static func putExposure(
        _ stored: StoredExposure, _ groups: [BreakdownGroup], with others: [Identifier: UserGoal] = [:],
        _ times: [Identifier: [Instant]] = [:], in records: inout UserRecords, _ tallies: inout TallyChanges
    ) {
        let exposure = stored.exposure
        records.write(.putExposure(stored))
        tallies.addUsers(1, stored)
        for group in groups {
            records.write(.putTotal(group.total, .init(experimentID: exposure.experimentID, goal: group.totalName)))
            if stored.isCounted { tallies.add(BreakdownGroup.user, exposure, group.usersName) }
        }
        var totals = others
        for event in records.goalEvents where event.happenedAt >= exposure.happenedAt - lookBack {
            totals[event.goal, default: UserGoal()].add(event.value, isAfter: event.happenedAt >= exposure.happenedAt)
        }
        for series in records.series(of: exposure.experimentID) {
            let reachedAt = series.names.map { times[$0] ?? [] }
            let found = SeriesRules.totals(
                of: series, from: records.goalEvents, exposedAt: exposure.happenedAt, reachedAt: reachedAt)
            for (name, total) in found { totals[name, default: UserGoal()].add(total) }
        }
        for (name, total) in totals { putTotal(total, of: name, stored, groups, in: &records, &tallies) }
    }

    /// Replaces an exposure. If its time has changed, the totals before and since the exposure are computed again.
    ///
    /// - Returns: `false` if `records` lacks a part that is needed; nothing has changed then.
    private static func replace(
        _ stored: StoredExposure, _ next: StoredExposure, in records: inout UserRecords, _ tallies: inout TallyChanges
    ) -> Bool {
        let isMoved = next.exposure.happenedAt != stored.exposure.happenedAt
        var parts = partsToRemove([stored])
        if isMoved { parts += partsToPut(next.exposure) }
        guard records.has(parts), !isMoved || hasOlderEvents(next.exposure, &records),
            let covariates = isMoved ? CovariateRules.covariates(at: next.exposure, in: &records) : [:],
            let groups = isMoved && next.isCounted ? BreakdownRules.groups(of: next.exposure, in: &records) : []
        else { return false }
        removeFromTallies(stored, records, &tallies)
        if isMoved {
            records.write(.deleteTotals(experimentID: stored.exposure.experimentID))
            let periodGroups = next.isCounted ? records.periodGroups(in: next.exposure.experimentID, next.period) : []
            putExposure(next, groups + periodGroups, with: covariates, in: &records, &tallies)
        } else {
            // Only a flag has changed, which excludes the user from results. The user's own totals stay.
            records.write(.putExposure(next))
            tallies.addUsers(1, next)
        }
        return true
    }

    /// The parts that ``removeFromTallies(_:_:_:)`` needs.
    private static func partsToRemove(_ exposures: [StoredExposure]) -> [UserRecords.Part] {
        exposures.filter(\.isCounted).map { .totals(experimentID: $0.exposure.experimentID) }
    }

    /// Removes the user from the tallies of the experiment to which the user was exposed.
    static func removeFromTallies(_ stored: StoredExposure, _ records: UserRecords, _ tallies: inout TallyChanges) {
        tallies.addUsers(-1, stored)
        guard stored.isCounted else { return }
        let groups = records.groups(in: stored.exposure.experimentID)
        for (key, total) in records.totals where key.experimentID == stored.exposure.experimentID {
            if let group = BreakdownGroup(key.goal, total) {
                tallies.add(-BreakdownGroup.user, stored.exposure, group.usersName)
            } else {
                tallies.add(-total.tally(of: key.goal), stored.exposure, key.goal, groups)
            }
        }
    }

    // MARK: Consequences of other changes

    /// Whether `records` has the parts that are needed to ``exclude(_:in:_:)`` these exposures.
    static func canExclude(_ exposures: [StoredExposure], _ records: inout UserRecords) -> Bool {
        records.has(partsToRemove(exposures))
    }

    /// Excludes the user from the results of an experiment, because an admin has chosen the user's variation.
    static func exclude(_ stored: StoredExposure, in records: inout UserRecords, _ tallies: inout TallyChanges) {
        guard !stored.exposure.isChosen else { return }
        var next = stored
        next.exposure.isChosen = true
        // Succeeds, because ``canExclude(_:_:)`` has found all parts.
        _ = replace(stored, next, in: &records, &tallies)
    }

    /// Removes an erased user from all tallies. The store deletes the records.
    static func erase(_ records: UserRecords, _ tallies: inout TallyChanges) {
        for stored in records.exposures { removeFromTallies(stored, records, &tallies) }
    }
}
