import Bucketing
public import Chronology

/// The rules of exposures and goal events: which events are stored, and how the tallies of variations change. The
/// tallies do not depend on the order in which events arrive.
///
/// - **Exposures**: for each user and experiment the first exposure is stored. An exposure that happened earlier than
///   the stored one replaces it. A later exposure only shows whether the user was exposed to several variations.
/// - **Goal events**: each event is stored. It adds to the user's total (``UserGoal``) in each experiment to which the
///   user was exposed, either "before" or "since" the exposure, and to the totals of ``TrackedSeries``.
/// - **Tallies** (``TallyChanges``): when a user's total changes, the difference is added to the sums of the user's
///   variation. The sums exclude users who were exposed to several variations, and users whose variation was chosen for
///   them.
///
/// An exposure counts only if the experiment was running when the exposure happened; see ``StatusRules``. Other
/// exposures are only counted (``UserCounts/notRunning``): they do not enroll the user, are not the first exposure, and
/// do not count as another variation.
///
/// The entry point is ``apply(_:to:_:_:at:)``. The rules of exposures are in `EventRules+Exposures.swift`.
public enum EventRules {
    /// Whether a value can be tallied: 0, or a magnitude from 1e-15 to 1e15. The squares, sums or quotients of other
    /// values may exceed the range of `Double`.
    public static func isUsable(value: Double) -> Bool {
        value == 0 || (1e-15...1e15).contains(abs(value))
    }

    /// The maximum age of an event when it is received. Older events are refused.
    public static let maximumAge = TimeSpan.days(7)
    /// How far a sender's clock may be ahead of this server's clock. An event in this span counts as happening now.
    public static let maximumLead = TimeSpan.minutes(5)
    /// The time before the first exposure in which goal events count as "before".
    public static let lookBack = TimeSpan.days(14)
    /// The maximum ``SeriesDefinition/lookBack`` of a series, which replaces ``lookBack`` there.
    public static let longestLookBack = TimeSpan.days(60)
    /// The minimum retention of events. As long as an exposure that happened before the stored one may arrive, the
    /// events around it are needed: the totals before and since the exposure are then computed again.
    public static let minimumRetention = maximumAge + lookBack + .days(1)

    /// Applies an event.
    ///
    /// - Parameter profiles: the rules by which an exposure enrolls a user.
    /// - Returns: the outcome; `nil` if `records` lacks a part that is needed. Nothing has changed then.
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
        case .exposure(let exposure): return apply(exposure, to: &records, &tallies, profiles, at: now)
        }
    }

    // MARK: Enrollment

    /// Applies an exposure, and enrolls its user if the exposure asks for it; see ``Exposure/enrollsWith``.
    private static func apply(
        _ exposure: Exposure, to records: inout UserRecords, _ tallies: inout TallyChanges, _ profiles: ProfileRules,
        at now: Instant
    ) -> EventOutcome? {
        // All parts at once, so that a store behind a network needs one round trip.
        guard records.has(firstParts(exposure)) else { return nil }
        guard exposure.isImported || StatusRules.wasRunning(exposure, records.statuses) else {
            tallies.addNotRunning(exposure)
            return .notRunning
        }
        switch enrollment(exposure, profiles, &records, at: now) {
        case .lacksRecords: return nil
        case .outdated: return .outdated
        case .notEnrolled: return recordExposure(exposure, in: &records, &tallies)
        case .enrolled(let profile, let version):
            let former = records.profile
            // The allocation period of the exposure depends on the assignment.
            records.profile = .present(profile)
            guard let outcome = recordExposure(exposure, in: &records, &tallies) else {
                records.profile = former
                return nil
            }
            records.write(.putProfile(profile, replacing: try? former.get()))
            records.write(.expectNewestDatafile(version))
            return outcome
        }
    }

    /// The parts that determine whether an exposure counts and whether it enrolls the user.
    private static func firstParts(_ exposure: Exposure) -> [UserRecords.Part] {
        let id = exposure.experimentID
        let parts: [UserRecords.Part] = [.statuses(experimentID: id), .exposure(experimentID: id)]
        return exposure.enrollsWith == nil || exposure.isChosen ? parts : parts + enrollmentParts
    }

    private static let enrollmentParts: [UserRecords.Part] = [.profile, .forcedVariations]

    /// Whether an exposure enrolls its user.
    private enum Enrollment {
        /// A part is needed that has not been read.
        case lacksRecords
        /// The variation was determined with a datafile that is no longer the newest.
        case outdated
        case notEnrolled
        /// The profile with the new assignment, and the version of the datafile with which the variation was
        /// determined.
        case enrolled(ProfileRecord, Int64)
    }

    /// Determines whether an exposure enrolls the user. It does if its variation was chosen by chance, and if the user
    /// has no assignment and no forced variation.
    private static func enrollment(
        _ exposure: Exposure, _ profiles: ProfileRules, _ records: inout UserRecords, at now: Instant
    ) -> Enrollment {
        guard let version = exposure.enrollsWith, !exposure.isChosen else { return .notEnrolled }
        guard records.has(enrollmentParts) else { return .lacksRecords }
        // A user with a damaged profile is not enrolled, but the exposure still counts.
        if case .damaged = records.profile { return .notEnrolled }
        let profile = profiles.enrolled(
            exposure.variationID, in: exposure.experimentID, since: exposure.happenedAt, try? records.profile.get(),
            at: now)
        guard !isChosen(exposure, records), let profile else { return .notEnrolled }
        guard records.has([.newestDatafile]) else { return .lacksRecords }
        return records.newestDatafile == version ? .enrolled(profile, version) : .outdated
    }

    // MARK: Goal events

    /// Stores a goal event, and adds it to the totals in the experiments to which the user was exposed.
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
            putTotal(total, replacing: former, of: event.goal, stored, groups(stored), in: &records, &tallies)
        }
        for change in seriesChanges {
            let stored = change.exposure
            putTotal(
                change.total, replacing: change.former, of: change.name, stored, groups(stored), in: &records, &tallies)
        }
        return .stored
    }

    /// Stores a user's total of a goal or series, and adds the difference to the tallies of the variation and of the
    /// user's groups.
    ///
    /// - Parameters:
    ///   - former: the total that the tallies contain; `nil` if there is none.
    ///   - name: the goal, or the name of the series.
    ///   - stored: the exposure to the experiment.
    static func putTotal(
        _ total: UserGoal, replacing former: UserGoal? = nil, of name: Identifier, _ stored: StoredExposure,
        _ groups: [BreakdownGroup], in records: inout UserRecords, _ tallies: inout TallyChanges
    ) {
        let exposure = stored.exposure
        records.write(.putTotal(total, .init(experimentID: exposure.experimentID, goal: name)))
        guard stored.isCounted else { return }
        let tally = total.tally(of: name)
        tallies.add(former.map { tally + -$0.tally(of: name) } ?? tally, exposure, name, groups)
    }
}
