import Bucketing
public import Chronology

/// The rules of exposures and goal events: which of them are stored, and how the tallies of variations change. The
/// tallies do not depend on the order in which events arrive.
///
/// - **Exposures**: for each user and experiment the first exposure is stored. A later one only shows whether the user
///   was exposed to several variations; one that happened earlier replaces the stored one.
/// - **Goal events**: each is stored. It adds to the user's total (``UserGoal``) in each experiment to which the user
///   was exposed, either "before" or "since" the exposure, and to the totals of ``TrackedSeries``.
/// - **Tallies** (``TallyChanges``): when a user's total changes, the difference is added to the sums of the user's
///   variation. Users who were exposed to several variations, or whose variation was chosen for them, are not in the
///   sums.
///
/// An exposure counts only if the experiment was running when it happened; see ``StatusRules``. Of other exposures only
/// the number is kept: they do not enroll the user, are not the first exposure, and do not count as another variation.
public enum EventRules {
    /// Whether a value can be tallied: 0, or a magnitude from 1e-15 to 1e15. With other values, squares, sums or
    /// quotients may exceed the range of `Double`.
    public static func isUsable(value: Double) -> Bool {
        value == 0 || (1e-15...1e15).contains(abs(value))
    }

    /// The maximum age of an event when it is received; older ones are refused.
    public static let maximumAge = TimeSpan.days(7)
    /// How far a sender's clock may be ahead of this server's; such an event counts as happening now.
    public static let maximumLead = TimeSpan.minutes(5)
    /// The time before the first exposure in which goal events count as "before".
    public static let lookBack = TimeSpan.days(14)
    /// The longest time that a series may use instead of ``lookBack``.
    public static let longestLookBack = TimeSpan.days(60)
    /// The minimum retention of events. An exposure that happened before the stored exposure may still arrive. The
    /// totals before and since the exposure are then computed again, from the stored events.
    public static let minimumRetention = maximumAge + lookBack + .days(1)

    /// Applies an event.
    ///
    /// - Parameter profiles: the rules by which an exposure enrolls a user.
    /// - Returns: `nil` if `records` lacks a part that is needed; nothing has changed then. ``EventOutcome/removed``
    ///   for an event that an edge accepted before its user was removed.
    public static func apply(
        _ event: UserEvent, to records: inout UserRecords, _ tallies: inout TallyChanges, _ profiles: ProfileRules,
        at now: Instant
    ) -> EventOutcome? {
        if let acceptedAt = event.acceptedAt {
            guard records.has([.removals(since: acceptedAt)]) else { return nil }
            guard RemovedUser.first(since: acceptedAt, of: records.removals) == nil else { return .removed }
        }
        switch event {
        case .goal(let event): return apply(event, to: &records, &tallies)
        case .exposure(let exposure):
            // All parts at once, so that a store behind a network needs one round trip.
            guard records.has(firstParts(exposure)) else { return nil }
            guard exposure.isImported || StatusRules.wasRunning(exposure, records.statuses) else {
                tallies.addNotRunning(exposure)
                return .notRunning
            }
            switch enrollment(exposure, profiles, &records, at: now) {
            case .lacksRecords: return nil
            case .outdated: return .outdated
            case .none: return apply(exposure, to: &records, &tallies)
            case .enrolls(let profile, let version):
                let former = records.profile
                // The allocation period of the exposure depends on the assignment.
                records.profile = .present(profile)
                guard let outcome = apply(exposure, to: &records, &tallies) else {
                    records.profile = former
                    return nil
                }
                records.write(.putProfile(profile, replacing: try? former.get()))
                records.write(.expectNewestDatafile(version))
                return outcome
            }
        }
    }

    /// The parts that decide whether an exposure counts and enrolls the user.
    private static func firstParts(_ exposure: Exposure) -> [UserRecords.Part] {
        let id = exposure.experimentID
        let parts: [UserRecords.Part] = [.statuses(experimentID: id), .exposure(experimentID: id)]
        return exposure.enrollsWith == nil || exposure.isChosen ? parts : parts + enrollmentParts
    }

    // MARK: Enrollment

    private static let enrollmentParts: [UserRecords.Part] = [.profile, .forcedVariations]

    /// Whether an exposure enrolls its user.
    private enum Enrollment {
        case lacksRecords
        /// The variation was determined with a datafile that is no longer the newest.
        case outdated
        case none
        /// The profile with the new assignment, and the version of the datafile with which the variation was
        /// determined.
        case enrolls(ProfileRecord, Int64)
    }

    /// Determines whether an exposure enrolls the user: the variation was chosen by chance, and the user has no
    /// assignment.
    private static func enrollment(
        _ exposure: Exposure, _ profiles: ProfileRules, _ records: inout UserRecords, at now: Instant
    ) -> Enrollment {
        guard let version = exposure.enrollsWith, !exposure.isChosen else { return .none }
        guard records.has(enrollmentParts) else { return .lacksRecords }
        // A user with a damaged profile is not enrolled, but the exposure still counts.
        if case .damaged = records.profile { return .none }
        let profile = profiles.enrolled(
            exposure.variationID, in: exposure.experimentID, since: exposure.happenedAt, try? records.profile.get(),
            at: now)
        guard !isChosen(exposure, records), let profile else { return .none }
        guard records.has([.newestDatafile]) else { return .lacksRecords }
        return records.newestDatafile == version ? .enrolls(profile, version) : .outdated
    }

    // MARK: Goal events

    private static func apply(
        _ event: GoalEvent, to records: inout UserRecords, _ tallies: inout TallyChanges
    ) -> EventOutcome? {
        var parts = [UserRecords.Part.exposures]
        if let senderID = event.senderID { parts.append(.goalEvent(senderID: senderID)) }
        guard records.has(parts) else { return nil }
        if let senderID = event.senderID, records.senderIDs.contains(senderID) { return .repeated }
        // The exposures for which the event may count, at least in a series.
        let exposures = records.exposures.filter { event.happenedAt >= $0.exposure.happenedAt - longestLookBack }
        let experimentIDs = exposures.map(\.exposure.experimentID)
        let keys = experimentIDs.map { UserRecords.TotalKey(experimentID: $0, goal: event.goal) }
        guard exposures.isEmpty || records.has([.someTotals(keys), .series(experimentIDs: experimentIDs)]),
            let seriesChanges = SeriesRules.changes(by: event, exposures, &records)
        else { return nil }
        records.write(.insertGoalEvent(event))
        func groups(_ stored: StoredExposure) -> [BreakdownGroup] {
            records.series.isEmpty ? [] : records.groups(in: stored.exposure.experimentID)
        }
        for stored in exposures where event.happenedAt >= stored.exposure.happenedAt - lookBack {
            let exposure = stored.exposure
            let key = UserRecords.TotalKey(experimentID: exposure.experimentID, goal: event.goal)
            let former = records.totals[key]
            var total = former ?? UserGoal()
            total.add(event.value, isAfter: event.happenedAt >= exposure.happenedAt)
            put(total, replacing: former, of: event.goal, stored, groups(stored), in: &records, &tallies)
        }
        for change in seriesChanges {
            let stored = change.exposure
            put(
                change.total, replacing: change.former, of: change.name, stored, groups(stored), in: &records, &tallies)
        }
        return .stored
    }

    /// Stores a user's total of a goal or series, and adds the difference to the tallies of the variation and of the
    /// user's groups.
    static func put(
        _ total: UserGoal, replacing former: UserGoal? = nil, of name: Identifier, _ stored: StoredExposure,
        _ groups: [BreakdownGroup], in records: inout UserRecords, _ tallies: inout TallyChanges
    ) {
        let exposure = stored.exposure
        records.write(.putTotal(total, .init(experimentID: exposure.experimentID, goal: name)))
        guard stored.isCounted else { return }
        let tally = total.tally(of: name)
        tallies.add(former.map { tally + -$0.tally(of: name) } ?? tally, exposure, name, groups)
    }

    // MARK: Exposures

    private static func apply(
        _ exposure: Exposure, to records: inout UserRecords, _ tallies: inout TallyChanges
    ) -> EventOutcome? {
        guard let stored = records.exposure(to: exposure.experimentID) else {
            return insert(exposure, in: &records, &tallies)
        }
        var next = stored
        if exposure.happenedAt < stored.exposure.happenedAt { next.exposure = exposure }
        next.exposure.active = nil
        next.exposure.enrollsWith = nil
        next.exposure.isChosen = stored.exposure.isChosen || exposure.isChosen
        next.hasMultipleVariations = stored.hasMultipleVariations || exposure.variationID != stored.exposure.variationID
        let isSame = next.exposure == stored.exposure && next.hasMultipleVariations == stored.hasMultipleVariations
        guard !isSame else { return .repeated }
        return replace(stored, next, in: &records, &tallies) ? .stored : nil
    }

    /// Stores the first exposure to arrive of a user to an experiment.
    ///
    /// - Returns: `nil` if `records` lacks a part that is needed; nothing has changed then.
    private static func insert(
        _ exposure: Exposure, in records: inout UserRecords, _ tallies: inout TallyChanges
    ) -> EventOutcome? {
        var parts = partsToPut(exposure)
        if !exposure.isChosen { parts += [.profile, .forcedVariations] }
        guard records.has(parts + AllocationRules.parts(exposure)), hasLookBack(exposure, &records) else { return nil }
        var exposure = exposure
        exposure.isChosen = exposure.isChosen || isChosen(exposure, records)
        guard let covariates = CovariateRules.covariates(at: exposure, in: &records),
            let groups = exposure.isChosen ? [] : BreakdownRules.groups(of: exposure, in: &records)
        else { return nil }
        let period = AllocationRules.period(of: exposure, in: &records)
        let periodGroups = exposure.isChosen ? [] : records.periodGroups(in: exposure.experimentID, period)
        exposure.active = nil
        exposure.enrollsWith = nil
        put(
            StoredExposure(number: 0, exposure: exposure, hasMultipleVariations: false, period: period),
            groups + periodGroups, with: covariates, in: &records, &tallies)
        return .stored
    }

    /// Whether an admin has chosen the variation, by an override in the profile or by forcing it for a test.
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

    /// The parts that are needed to compute the totals of an exposure.
    private static func partsToPut(_ exposure: Exposure) -> [UserRecords.Part] {
        [.goalEvents(since: exposure.happenedAt - lookBack), .series(experimentIDs: [exposure.experimentID])]
    }

    /// Whether `records` has the older events that are needed by series with a longer look-back than goals have.
    private static func hasLookBack(_ exposure: Exposure, _ records: inout UserRecords) -> Bool {
        let longest = SeriesRules.lookBack(of: records.series(of: exposure.experimentID))
        return longest == lookBack || records.has([.goalEvents(since: exposure.happenedAt - longest)])
    }

    /// Stores an exposure with the user's totals, computed from the stored events, and adds the user to the tallies.
    ///
    /// - Parameters:
    ///   - groups: the user's groups in breakdowns, which the exposure determines.
    ///   - others: totals by goal and series that do not come from stored events: covariates, and totals of events that
    ///     retention has deleted.
    ///   - times: when the user reached the steps of funnels, by the names of the steps.
    static func put(
        _ stored: StoredExposure, _ groups: [BreakdownGroup], with others: [Identifier: UserGoal] = [:],
        _ times: [Identifier: [Instant]] = [:], in records: inout UserRecords, _ tallies: inout TallyChanges
    ) {
        let exposure = stored.exposure
        records.write(.putExposure(stored))
        tallies.add(1, stored)
        for group in groups {
            records.write(.putTotal(group.total, .init(experimentID: exposure.experimentID, goal: group.totalName)))
            if stored.isCounted { tallies.add(BreakdownGroup.user, exposure, group.usersName) }
        }
        var totals = others
        for event in records.goalEvents where event.happenedAt >= exposure.happenedAt - lookBack {
            totals[event.goal, default: UserGoal()].add(event.value, isAfter: event.happenedAt >= exposure.happenedAt)
        }
        for series in records.series(of: exposure.experimentID) {
            let known = series.names.map { times[$0] ?? [] }
            let found = SeriesRules.totals(
                of: series, from: records.goalEvents, exposedAt: exposure.happenedAt, known: known)
            for (name, total) in found { totals[name, default: UserGoal()].add(total) }
        }
        for (name, total) in totals { put(total, of: name, stored, groups, in: &records, &tallies) }
    }

    /// Replaces an exposure. If the time has changed, the totals before and since the exposure are computed again.
    ///
    /// - Returns: `false` if `records` lacks a part that is needed; nothing has changed then.
    private static func replace(
        _ stored: StoredExposure, _ next: StoredExposure, in records: inout UserRecords, _ tallies: inout TallyChanges
    ) -> Bool {
        let isMoved = next.exposure.happenedAt != stored.exposure.happenedAt
        var parts = partsToRemove([stored])
        if isMoved { parts += partsToPut(next.exposure) }
        guard records.has(parts), !isMoved || hasLookBack(next.exposure, &records),
            let covariates = isMoved ? CovariateRules.covariates(at: next.exposure, in: &records) : [:],
            let groups = isMoved && next.isCounted ? BreakdownRules.groups(of: next.exposure, in: &records) : []
        else { return false }
        remove(stored, records, &tallies)
        if isMoved {
            records.write(.deleteTotals(experimentID: stored.exposure.experimentID))
            let periodGroups = next.isCounted ? records.periodGroups(in: next.exposure.experimentID, next.period) : []
            put(next, groups + periodGroups, with: covariates, in: &records, &tallies)
        } else {
            // Only a flag has changed, and the user no longer counts because of it. The totals stay.
            records.write(.putExposure(next))
            tallies.add(1, next)
        }
        return true
    }

    /// The totals that are needed to remove users from the tallies.
    private static func partsToRemove(_ exposures: [StoredExposure]) -> [UserRecords.Part] {
        exposures.filter(\.isCounted).map { .totals(experimentID: $0.exposure.experimentID) }
    }

    /// Removes the user from the tallies of a variation.
    static func remove(_ stored: StoredExposure, _ records: UserRecords, _ tallies: inout TallyChanges) {
        tallies.add(-1, stored)
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

    // MARK: Cascades of other changes

    /// Whether `records` has the parts that are needed to exclude these exposures.
    static func canExclude(_ exposures: [StoredExposure], _ records: inout UserRecords) -> Bool {
        records.has(partsToRemove(exposures))
    }

    /// Excludes the user from the results of an experiment, because an admin has chosen the user's variation.
    static func exclude(_ stored: StoredExposure, in records: inout UserRecords, _ tallies: inout TallyChanges) {
        guard !stored.exposure.isChosen else { return }
        var next = stored
        next.exposure.isChosen = true
        _ = replace(stored, next, in: &records, &tallies)
    }

    /// Removes an erased user from all tallies; the store deletes the records.
    static func erase(_ records: UserRecords, _ tallies: inout TallyChanges) {
        for stored in records.exposures { remove(stored, records, &tallies) }
    }
}
