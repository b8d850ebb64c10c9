import Bucketing
import Chronology

/// The merge of exposures, goal events and tallies. Both users are removed from the tallies, and the merged user is
/// added with totals that are computed anew from the stored events of both.
///
/// A part of the totals cannot be computed from stored events (``KeptTotals``): it is added from the former totals of
/// both users.
extension MergeRules {
    /// Whether the records that ``mergeEvents(of:into:_:)`` needs have been read.
    static func canMergeEvents(_ account: inout UserRecords, _ anonymous: inout UserRecords) -> Bool {
        guard !account.exposures.isEmpty || !anonymous.exposures.isEmpty else { return true }
        func parts(_ records: UserRecords) -> [UserRecords.Part] {
            // All events, because the sender's ids of old events must be compared, too.
            [.goalEvents(since: .distantPast)]
                + records.exposures.map { .totals(experimentID: $0.exposure.experimentID) }
        }
        return have(
            parts(account) + [.series(experimentIDs: experimentIDs(account, anonymous))], &account,
            parts(anonymous), &anonymous)
    }

    /// Returns the experiments to which either user was exposed, in the order of their ids.
    private static func experimentIDs(_ account: UserRecords, _ anonymous: UserRecords) -> [Identifier] {
        Set((account.exposures + anonymous.exposures).map(\.exposure.experimentID)).sorted()
    }

    /// Removes both users from the tallies and adds the merged user.
    ///
    /// - Parameter account: has the merged profile.
    static func mergeEvents(
        of anonymous: UserRecords, into account: inout UserRecords, _ tallies: inout TallyChanges
    ) {
        let series = account.series
        // Determined before the account gets the events of the anonymous user.
        let keptOfAccount = KeptTotals(of: account, series)
        let keptOfAnonymous = KeptTotals(of: anonymous, series)
        let senderIDs = Set(account.goalEvents.compactMap(\.senderID))
        let takenEvents = anonymous.goalEvents.filter { event in
            event.senderID.map { !senderIDs.contains($0) } ?? true
        }
        account.goalEvents += takenEvents
        for experimentID in experimentIDs(account, anonymous) {
            let own = Side(stored: account.exposure(to: experimentID), kept: keptOfAccount)
            let other = Side(stored: anonymous.exposure(to: experimentID), kept: keptOfAnonymous)
            guard let merged = mergedExposure(own, other, account) else { continue }
            // The account's results in this experiment do not change.
            let isSameExposure =
                other.stored == nil && merged.exposure.isChosen == own.stored?.exposure.isChosen
            if isSameExposure, takenEvents.isEmpty { continue }
            if let stored = own.stored {
                EventRules.removeFromTallies(stored, account, &tallies)
                account.write(.deleteTotals(experimentID: experimentID))
            }
            if let stored = other.stored { EventRules.removeFromTallies(stored, anonymous, &tallies) }
            // The groups of the user whose exposure counts, unless their breakdown is no longer tracked.
            let isOfAccount = own.stored?.exposure.happenedAt == merged.exposure.happenedAt
            let groups = (isOfAccount ? account : anonymous).groups(in: experimentID)
                .filter { group in series.contains { $0.number == group.series } }
            EventRules.putExposure(
                merged, groups, with: keptTotals(of: [own, other], merged.exposure, series),
                funnelTimes(of: [own, other], in: experimentID), in: &account, &tallies)
        }
    }

    /// One of the two users in one experiment.
    private struct Side {
        /// The user's exposure to the experiment; `nil` if there is none.
        let stored: StoredExposure?
        /// The totals of the user in all experiments that must be kept.
        let kept: KeptTotals
    }

    /// Returns the merged exposure to an experiment, which is the earlier one; `nil` if neither user has one.
    private static func mergedExposure(_ own: Side, _ other: Side, _ account: UserRecords) -> StoredExposure? {
        guard var merged = own.stored ?? other.stored else { return nil }
        if let own = own.stored, let other = other.stored {
            merged = other.exposure.happenedAt < own.exposure.happenedAt ? other : own
            merged.hasMultipleVariations =
                own.hasMultipleVariations || other.hasMultipleVariations
                || own.exposure.variationID != other.exposure.variationID
        }
        merged.exposure.userID = account.userID
        merged.exposure.isChosen = [own, other].compactMap(\.stored).contains { stored in
            stored.exposure.isChosen || EventRules.isChosen(stored.exposure, account)
        }
        return merged
    }

    /// Returns the times at which either user reached the steps of funnels, by the names of the steps.
    private static func funnelTimes(of sides: [Side], in experimentID: Identifier) -> [Identifier: [Instant]] {
        var times: [Identifier: [Instant]] = [:]
        for side in sides where side.stored != nil {
            for (key, time) in side.kept.funnelTimes where key.experimentID == experimentID {
                times[key.goal, default: []].append(time)
            }
        }
        return times
    }

    // MARK: Totals that do not come from stored events

    /// Returns the totals of the merged user that do not come from stored events.
    ///
    /// - Parameters:
    ///   - sides: the account, and then the anonymous user.
    ///   - exposure: the merged exposure.
    private static func keptTotals(
        of sides: [Side], _ exposure: Exposure, _ series: [TrackedSeries]
    ) -> [Identifier: UserGoal] {
        var totals: [Identifier: UserGoal] = [:]
        for side in sides {
            guard let stored = side.stored else { continue }
            let isMergedExposure = stored.exposure.happenedAt == exposure.happenedAt
            for (key, total) in side.kept.totals where key.experimentID == exposure.experimentID {
                let keepsBefore = keepsBefore(
                    key.goal, isMergedExposure: isMergedExposure, addingTo: totals[key.goal], series)
                totals[key.goal, default: UserGoal()].addKept(total, withBefore: keepsBefore)
            }
        }
        // While a series is being filled, both users may lack its covariate. It then comes from the attributes of the
        // request that caused the exposure.
        let filling = series.filter { $0.experimentID == exposure.experimentID && $0.state == .filling }
        for (name, total) in CovariateRules.given(exposure, filling) where totals[name]?.beforeCount ?? 0 == 0 {
            totals[name, default: UserGoal()].add(total)
        }
        return totals
    }

    /// Whether the "before" part of a kept total is added to the merged user's total.
    ///
    /// - Parameters:
    ///   - name: the goal, or the name of a series.
    ///   - isMergedExposure: whether the exposure of the total's user is the merged exposure. Totals of deleted events
    ///     are split at the exposure of their own user. If this exposure is the later one, it is unknown how many of
    ///     the events before it came before the merged exposure, too, so the part is dropped.
    ///   - former: the merged user's total so far; `nil` if there is none.
    private static func keepsBefore(
        _ name: Identifier, isMergedExposure: Bool, addingTo former: UserGoal?, _ series: [TrackedSeries]
    ) -> Bool {
        // The "before" part of a ratio is its denominator, which has nothing to do with the time of the exposure.
        if series.contains(where: { $0.isRatio && $0.names.contains(name) }) { return true }
        // The value of an attribute must not be added up. If both users have a value, that of the account counts.
        let isAttribute = SeriesName(name)?.hasAttribute == true
        if isAttribute, let former, former.beforeCount > 0 { return false }
        return isMergedExposure
    }
}

/// The parts of one user's totals that cannot be computed from the stored events.
private struct KeptTotals {
    /// Totals from events that retention has deleted, and from attributes. They are what is left of the stored totals
    /// after the stored events are subtracted. Funnels, breakdowns, and series that are no longer tracked are left out.
    private(set) var totals: [UserRecords.TotalKey: UserGoal]
    /// When the user reached the steps of funnels. The events by which the user reached them may have been deleted.
    let funnelTimes: [UserRecords.TotalKey: Instant]

    init(of records: UserRecords, _ series: [TrackedSeries]) {
        let names = Set(series.filter { !$0.isFunnel && !$0.hasGroups }.flatMap(\.names))
        totals = records.totals.filter { SeriesName($0.key.goal) == nil || names.contains($0.key.goal) }
        funnelTimes = records.funnelTimes
        for stored in records.exposures {
            subtractSeries(series, from: records.goalEvents, stored.exposure)
            subtractGoals(records.goalEvents, stored.exposure)
        }
        totals = totals.filter { $0.value.afterCount > 0 || $0.value.beforeCount > 0 }
    }

    /// Subtracts the stored events from the totals of series in the experiment of an exposure.
    private mutating func subtractSeries(
        _ series: [TrackedSeries], from events: [UserRecords.GoalValue], _ exposure: Exposure
    ) {
        for series in series where series.experimentID == exposure.experimentID && !series.isFunnel {
            let found = SeriesRules.totals(of: series, from: events, exposedAt: exposure.happenedAt)
            for (name, total) in found {
                totals[.init(experimentID: exposure.experimentID, goal: name)]?.subtract(total)
            }
        }
    }

    /// Subtracts the stored events from the totals of goals in the experiment of an exposure.
    private mutating func subtractGoals(_ events: [UserRecords.GoalValue], _ exposure: Exposure) {
        for event in events where event.happenedAt >= exposure.happenedAt - EventRules.lookBack {
            let key = UserRecords.TotalKey(experimentID: exposure.experimentID, goal: event.goal)
            totals[key]?.subtract(event.value, isAfter: event.happenedAt >= exposure.happenedAt)
        }
    }
}

extension UserGoal {
    /// Subtracts one event.
    ///
    /// - Parameter isAfter: whether the event happened at or after the first exposure.
    fileprivate mutating func subtract(_ value: Double, isAfter: Bool) {
        if isAfter {
            afterCount -= 1
            if value != 0 { valuedCount -= 1 }
            afterValue = DecimalSum.adding(-value, to: afterValue)
        } else {
            beforeCount -= 1
            beforeValue = DecimalSum.adding(-value, to: beforeValue)
        }
    }

    /// Subtracts another total of the same series.
    fileprivate mutating func subtract(_ other: UserGoal) {
        beforeCount -= other.beforeCount
        beforeValue = DecimalSum.adding(-other.beforeValue, to: beforeValue)
        afterCount -= other.afterCount
        afterValue = DecimalSum.adding(-other.afterValue, to: afterValue)
        valuedCount -= other.valuedCount
    }

    /// Adds a kept total. A part without events is skipped, because its value is only a rounding error.
    ///
    /// - Parameter withBefore: whether to add the part before the exposure as well.
    fileprivate mutating func addKept(_ kept: UserGoal, withBefore: Bool) {
        if kept.afterCount > 0 {
            afterCount += kept.afterCount
            afterValue = DecimalSum.adding(kept.afterValue, to: afterValue)
            // Negative if the total was stored by an earlier release, which did not keep this count.
            valuedCount += max(0, kept.valuedCount)
        }
        if withBefore, kept.beforeCount > 0 {
            beforeCount += kept.beforeCount
            beforeValue = DecimalSum.adding(kept.beforeValue, to: beforeValue)
        }
    }
}
