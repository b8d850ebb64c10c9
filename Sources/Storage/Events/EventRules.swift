import Bucketing
public import Chronology

/// The rules of exposures and goal events: which are stored, and how the tallies of variations change. The tallies do
/// not depend on the order in which events arrive.
///
/// An exposure counts if the experiment was running when it happened; see ``StatusRules``. For other exposures only
/// their number is kept: they do not enroll the user, are not the first exposure, and do not count as another
/// variation.
public enum EventRules {
    /// Whether a value can be tallied: 0, or a magnitude from 1e-15 to 1e15. Squares, sums or quotients of other values
    /// may exceed the range of `Double`.
    public static func isUsable(value: Double) -> Bool {
        value == 0 || (1e-15...1e15).contains(abs(value))
    }

    /// The maximum age of an event when it is received; older ones are refused.
    public static let maximumAge = TimeSpan.days(7)
    /// How far a sender's clock may be ahead of this server's; such an event counts as happening now.
    public static let maximumLead = TimeSpan.minutes(5)
    /// The time before the first exposure in which goal events count as "before".
    public static let lookBack = TimeSpan.days(14)
    /// The maximum time before the first exposure that a series may use instead of ``lookBack``.
    public static let longestLookBack = TimeSpan.days(60)
    /// The minimum retention of events. An exposure that happened before the stored one may still arrive; the totals
    /// before and since the exposure are then computed from the stored events again.
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

    private static func firstParts(_ exposure: Exposure) -> [UserRecords.Part] {
        let id = exposure.experimentID
        let parts: [UserRecords.Part] = [.statuses(experimentID: id), .exposure(experimentID: id)]
        return exposure.enrollsWith == nil || exposure.isChosen ? parts : parts + enrollmentParts
    }

    // MARK: Enrollment

    private static let enrollmentParts: [UserRecords.Part] = [.profile, .forcedVariations]

    private enum Enrollment {
        case lacksRecords
        case outdated
        case none
        /// The profile with the new assignment, and the version of the datafile that has the variation.
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
        let exposures = records.exposures.filter { event.happenedAt >= $0.exposure.happenedAt - longestLookBack }
        let experimentIDs = exposures.map(\.exposure.experimentID)
        let keys = experimentIDs.map { UserRecords.TotalKey(experimentID: $0, goal: event.goal) }
        guard exposures.isEmpty || records.has([.someTotals(keys), .series(experimentIDs: experimentIDs)]),
            let changes = SeriesRules.changes(by: event, exposures, &records)
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
        for change in changes {
            let stored = change.exposure
            put(
                change.total, replacing: change.former, of: change.name, stored, groups(stored), in: &records, &tallies)
        }
        return .stored
    }

    /// Stores a user's total of a goal or series, and adds the difference to the tallies of the variation and of the user's
    /// groups.
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
            var parts = partsToPut(exposure)
            if !exposure.isChosen { parts += [.profile, .forcedVariations] }
            guard records.has(parts + AllocationRules.parts(exposure)), hasLookBack(exposure, &records) else {
                return nil
            }
            var exposure = exposure
            exposure.isChosen = exposure.isChosen || isChosen(exposure, records)
            guard let covariates = CovariateRules.covariates(at: exposure, in: &records),
                let groups = exposure.isChosen ? [] : BreakdownRules.groups(of: exposure, in: &records)
            else { return nil }
            let period = AllocationRules.period(of: exposure, in: &records)
            let periods = exposure.isChosen ? [] : records.periodGroups(in: exposure.experimentID, period)
            (exposure.active, exposure.enrollsWith) = (nil, nil)
            put(
                StoredExposure(number: 0, exposure: exposure, hasMultipleVariations: false, period: period),
                groups + periods, with: covariates, in: &records, &tallies)
            return .stored
        }
        var next = stored
        if exposure.happenedAt < stored.exposure.happenedAt { next.exposure = exposure }
        (next.exposure.active, next.exposure.enrollsWith) = (nil, nil)
        next.exposure.isChosen = stored.exposure.isChosen || exposure.isChosen
        next.hasMultipleVariations = stored.hasMultipleVariations || exposure.variationID != stored.exposure.variationID
        let isSame = next.exposure == stored.exposure && next.hasMultipleVariations == stored.hasMultipleVariations
        guard !isSame else { return .repeated }
        return replace(stored, next, in: &records, &tallies) ? .stored : nil
    }

    /// Whether an admin has chosen the variation, in the profile or for a test.
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

    private static func partsToPut(_ exposure: Exposure) -> [UserRecords.Part] {
        [.goalEvents(since: exposure.happenedAt - lookBack), .series(experimentIDs: [exposure.experimentID])]
    }

    /// Whether `records` has the older events that are needed by series that look back longer than goals do.
    private static func hasLookBack(_ exposure: Exposure, _ records: inout UserRecords) -> Bool {
        let longest = SeriesRules.lookBack(of: records.series(of: exposure.experimentID))
        return longest == lookBack || records.has([.goalEvents(since: exposure.happenedAt - longest)])
    }

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
            let periods = next.isCounted ? records.periodGroups(in: next.exposure.experimentID, next.period) : []
            put(next, groups + periods, with: covariates, in: &records, &tallies)
        } else {
            // Only a flag has changed, by which the user no longer counts. The totals stay.
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

    /// Excludes the user from results, because a variation was forced on the user.
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

/// The total of one user for one goal, before and since the first exposure to one experiment.
public struct UserGoal: Sendable, Equatable {
    public var beforeCount: Int64
    public var beforeValue: Double
    public var afterCount: Int64
    public var afterValue: Double
    /// The number of events since the first exposure with a value other than 0.
    public var valuedCount: Int64

    public init(
        beforeCount: Int64 = 0, beforeValue: Double = 0, afterCount: Int64 = 0, afterValue: Double = 0,
        valuedCount: Int64 = 0
    ) {
        self.beforeCount = beforeCount
        self.beforeValue = beforeValue
        self.afterCount = afterCount
        self.afterValue = afterValue
        self.valuedCount = valuedCount
    }

    package mutating func add(_ value: Double, isAfter: Bool) {
        if isAfter {
            afterCount += 1
            if value != 0 { valuedCount += 1 }
            afterValue = DecimalSum.adding(value, to: afterValue)
        } else {
            beforeCount += 1
            beforeValue = DecimalSum.adding(value, to: beforeValue)
        }
    }

    mutating func add(_ other: UserGoal) {
        beforeCount += other.beforeCount
        beforeValue = DecimalSum.adding(other.beforeValue, to: beforeValue)
        afterCount += other.afterCount
        afterValue = DecimalSum.adding(other.afterValue, to: afterValue)
        valuedCount += other.valuedCount
    }

    /// The user's contribution to the sums of a variation, of a goal's own total.
    package var tally: GoalTally {
        var tally = GoalTally()
        tally.events = Int(afterCount)
        tally.converted = afterCount > 0 ? 1 : 0
        tally.convertedBefore = beforeCount > 0 ? 1 : 0
        tally.convertedBoth = afterCount > 0 && beforeCount > 0 ? 1 : 0
        tally.y = CompensatedSum(afterValue)
        tally.yy = CompensatedSum(product: afterValue, afterValue)
        tally.x = CompensatedSum(beforeValue)
        tally.xx = CompensatedSum(product: beforeValue, beforeValue)
        tally.xy = CompensatedSum(product: beforeValue, afterValue)
        tally.valued = Int(valuedCount)
        return tally
    }
}

/// Sums of amounts such as money, which senders write as decimal fractions, in one `Double`.
///
/// Rounding accumulates in a sum of decimal fractions: 0.1 added a thousand times gives 99.9999999999986. If a sum
/// differs from a decimal fraction of six digits by no more than the rounding of one addition, it is therefore replaced
/// by that fraction. While sum and terms have at most six digits after the point and a magnitude below ``limit``, sums
/// are exact for any number of terms, also when terms are subtracted.
enum DecimalSum {
    private static let scale: Double = 1e6
    /// The magnitude below which the distance between adjacent numbers is less than a quarter of the last digit. The
    /// rounding of two terms and of their sum then stays below half of the last digit.
    static let limit = 0x1p50 / scale

    static func adding(_ value: Double, to sum: Double) -> Double {
        let plain = sum + value
        let magnitude = max(abs(sum), abs(value), abs(plain))
        guard magnitude < limit else { return plain }
        let decimal = (plain * scale).rounded() / scale
        return abs(plain - decimal) <= 2 * magnitude.ulp ? decimal : plain
    }
}
