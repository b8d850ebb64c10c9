import Bucketing
public import Chronology

/// The rules of merging an anonymous user into an account, for example at login. Nothing is counted twice. Nothing is
/// lost except overrides and forced variations of the anonymous user, which only an admin may give (``TakeoverRules``):
///
/// - Assignments: where both have one, the ``ProfileMerge/conflictRule`` decides. An assignment that the account takes
///   over becomes ``Assignment/Source/merged``, keeps its `assignedAt`, and is renewed as by a save.
/// - Overrides: those of the account stay, and cover the assignments that it takes over. Those of the anonymous user
///   end.
/// - Exposures: for each experiment the earlier exposure counts. If the two have different variations, the user counts
///   as exposed to several variations.
/// - Goal events: the account gets all, except those whose sender's id it has already.
/// - Attributes: by the conflict rule, each independently.
/// - Variations forced for a test: those of the account stay. Those of the anonymous user end.
/// - Entries of the audit log about the anonymous user become the account's.
/// - Sticky documents stay as they are: the SDKs that use them look for the document of each attribute.
///
/// Nothing else stays under the anonymous id. Later data with this id begins a new profile, which the next merge takes
/// over. Repeating a merge therefore changes nothing. Events that an edge accepted before the merge and sends later
/// count for the account (``RemovedUser``).
public struct MergeRules: Sendable {
    public var profiles: ProfileRules

    public init(profiles: ProfileRules) {
        self.profiles = profiles
    }

    /// Applies a merge. The store performs the writes of `account` first, then those of `anonymous`.
    ///
    /// - Returns: `nil` if `account` or `anonymous` lacks records that must be read first; nothing has changed then.
    /// - Throws: ``StorageError/tooManyAssignments(limit:)``, ``StorageError/damaged(reason:)``
    public func apply(
        _ merge: ProfileMerge, by author: Author, to account: inout UserRecords, _ anonymous: inout UserRecords,
        at now: Instant, _ tallies: inout TallyChanges
    ) throws(StorageError) -> ProfileMergeResult? {
        let parts: [UserRecords.Part] = [.profile, .attributes, .forcedVariations, .exposures, .otherRecords]
        guard Self.have(parts, &account, parts, &anonymous) else { return nil }
        let storedAccount = try account.profile.get()
        let storedAnonymous = try anonymous.profile.get()
        let former = storedAccount?.visible(at: now)
        let isKnown =
            storedAnonymous != nil || !anonymous.forcedVariations.isEmpty || !anonymous.exposures.isEmpty
            || anonymous.attributes.exists || !anonymous.otherRecords.isEmpty
        guard isKnown else {
            // Events that arrive later from an edge still count for the account.
            anonymous.write(.noteRemoval(into: account.userID))
            return ProfileMergeResult(changed: false, profile: former)
        }
        guard Self.canMergeEvents(&account, &anonymous) else { return nil }
        let attributes = (own: try account.attributes.get(), other: try anonymous.attributes.get())
        guard attributes.other == nil || account.has([.definedAttributes]) else { return nil }
        let profile = try self.profile(former, storedAnonymous?.visible(at: now), merge.conflictRule, at: now)

        // From here on, nothing throws.
        if let profile, profile != former {
            account.write(.putProfile(profile, replacing: storedAccount))
            account.profile = .present(profile)
        }
        let mergedAttributes = Self.attributes(
            attributes.own, attributes.other, merge.conflictRule, defined: account.definedAttributes)
        if let merged = mergedAttributes, merged != attributes.own {
            let changed = merged.numbers.filter { merged[$0] != attributes.own?[$0] }
            account.write(.putAttributes(merged, changed: changed))
        }
        account.write(.takeOver(anonymous.userID))
        Self.mergeEvents(of: anonymous, into: &account, &tallies)
        let note = AuditNote(merge, from: former, to: profile, ending: storedAnonymous?.visible(at: now))
        account.write(.recordAudit(note, author))
        if storedAnonymous != nil { anonymous.write(.deleteProfile(replacing: storedAnonymous)) }
        anonymous.write(.eraseOtherRecords)
        anonymous.write(.noteRemoval(into: account.userID))
        return ProfileMergeResult(changed: true, profile: profile)
    }

    /// Whether the parts of both users have been read. Both are checked in any case, so that all missing parts are read
    /// in one round trip.
    private static func have(
        _ accountParts: [UserRecords.Part], _ account: inout UserRecords, _ anonymousParts: [UserRecords.Part],
        _ anonymous: inout UserRecords
    ) -> Bool {
        let hasAccount = account.has(accountParts)
        let hasAnonymous = anonymous.has(anonymousParts)
        return hasAccount && hasAnonymous
    }

    // MARK: Assignments, attributes

    /// Returns the merged profile.
    ///
    /// - Parameters:
    ///   - account: without expired assignments.
    ///   - anonymous: without expired assignments.
    private func profile(
        _ account: ProfileRecord?, _ anonymous: ProfileRecord?, _ rule: ProfileChange.ConflictRule, at now: Instant
    ) throws(StorageError) -> ProfileRecord? {
        guard let anonymous else { return account }
        var draft = ProfileDraft(account, at: now, room: anonymous.count)
        for entry in anonymous.entries {
            guard let other = TakeoverRules.assignment(anonymous.assignment(of: entry)) else { continue }
            let experimentID = anonymous.experimentID(of: entry)
            draft.updateBeneath(experimentID) { assignment, _ in
                if let own = assignment, rule == .keep || own.variationID == other.variationID { return }
                assignment = profiles.takenOver(other, in: experimentID, at: now)
            }
        }
        let merged = draft.record
        try profiles.expectRoom(for: merged, replacing: account)
        return merged
    }

    /// Returns the merged attributes.
    ///
    /// - Parameter defined: the attributes of the schema. Values of a deleted attribute are not taken over: the account
    ///   may have been cleaned of them already.
    private static func attributes(
        _ account: AttributeRecord?, _ anonymous: AttributeRecord?, _ rule: ProfileChange.ConflictRule,
        defined: [UInt32: Identifier]
    ) -> AttributeRecord? {
        guard let anonymous else { return account }
        var updates: [UInt32: AttributeUpdate] = [:]
        for number in anonymous.numbers where defined[number] != nil {
            guard rule == .replace || account?[number] == nil, let value = anonymous[number] else { continue }
            updates[number] = .set(value)
        }
        return updates.isEmpty ? account : (account ?? .empty).applying(updates) { _ in }
    }

    // MARK: Exposures and goal events

    /// Whether the records that ``mergeEvents(of:into:_:)`` needs have been read.
    private static func canMergeEvents(_ account: inout UserRecords, _ anonymous: inout UserRecords) -> Bool {
        guard !account.exposures.isEmpty || !anonymous.exposures.isEmpty else { return true }
        func parts(_ records: UserRecords) -> [UserRecords.Part] {
            // All events, because the sender's ids of old ones must be compared, too.
            [.goalEvents(since: .distantPast)]
                + records.exposures.map { .totals(experimentID: $0.exposure.experimentID) }
        }
        let experimentIDs = Set((account.exposures + anonymous.exposures).map(\.exposure.experimentID)).sorted()
        return have(
            parts(account) + [.series(experimentIDs: experimentIDs)], &account, parts(anonymous), &anonymous)
    }

    /// The parts of a user's totals that cannot be computed from the stored events.
    private struct KeptTotals {
        /// Totals from events that retention has deleted, and from attributes; see ``MergeRules/deletedTotals(_:_:)``.
        let totals: [UserRecords.TotalKey: UserGoal]
        /// When the user reached the steps of funnels.
        let funnelTimes: [UserRecords.TotalKey: Instant]

        init(of records: UserRecords, _ series: [TrackedSeries]) {
            totals = MergeRules.deletedTotals(records, series)
            funnelTimes = records.funnelTimes
        }
    }

    /// One of the two users in one experiment.
    private struct Side {
        /// The user's exposure to the experiment; `nil` if there is none.
        let stored: StoredExposure?
        let kept: KeptTotals
    }

    /// Removes both users from the tallies and adds the merged user.
    ///
    /// - Parameter account: has the merged profile.
    private static func mergeEvents(
        of anonymous: UserRecords, into account: inout UserRecords, _ tallies: inout TallyChanges
    ) {
        let series = account.series
        // Determined before the account gets the events of the anonymous user.
        let keptOfAccount = KeptTotals(of: account, series)
        let keptOfAnonymous = KeptTotals(of: anonymous, series)
        let senderIDs = Set(account.goalEvents.compactMap(\.senderID))
        let taken = anonymous.goalEvents.filter { event in event.senderID.map { !senderIDs.contains($0) } ?? true }
        account.goalEvents += taken
        for experimentID in Set((account.exposures + anonymous.exposures).map(\.exposure.experimentID)).sorted() {
            let own = account.exposure(to: experimentID)
            let other = anonymous.exposure(to: experimentID)
            guard let merged = merged(own, other, account) else { continue }
            let isSame = other == nil && merged.exposure.isChosen == own?.exposure.isChosen
            if isSame, taken.isEmpty { continue }
            if let own {
                EventRules.remove(own, account, &tallies)
                account.write(.deleteTotals(experimentID: experimentID))
            }
            if let other { EventRules.remove(other, anonymous, &tallies) }
            let sides = [Side(stored: own, kept: keptOfAccount), Side(stored: other, kept: keptOfAnonymous)]
            // The groups of the user whose exposure counts, as far as their breakdowns are still tracked.
            let isOfAccount = own?.exposure.happenedAt == merged.exposure.happenedAt
            let groups = (isOfAccount ? account : anonymous).groups(in: experimentID)
                .filter { group in series.contains { $0.number == group.series } }
            EventRules.put(
                merged, groups, with: keptTotals(of: sides, merged.exposure, series),
                funnelTimes(of: sides, in: experimentID), in: &account, &tallies)
        }
    }

    /// Returns the totals of the merged user that do not come from stored events.
    ///
    /// - Parameter exposure: the merged exposure.
    private static func keptTotals(
        of sides: [Side], _ exposure: Exposure, _ series: [TrackedSeries]
    ) -> [Identifier: UserGoal] {
        let ratios = Set(series.filter(\.isRatio).flatMap(\.names))
        var totals: [Identifier: UserGoal] = [:]
        for side in sides {
            guard let stored = side.stored else { continue }
            for (key, total) in side.kept.totals where key.experimentID == exposure.experimentID {
                // The totals of deleted events are split at the exposure of their own user. If this exposure is the
                // later one, it is unknown how many of the events "before" it came before the merged exposure, so these
                // are dropped. A total from an attribute is its value at the exposure, which must not be added twice.
                let isFirst = stored.exposure.happenedAt == exposure.happenedAt
                let isKnown = (totals[key.goal]?.beforeCount ?? 0) > 0 && SeriesName(key.goal)?.hasAttribute == true
                totals[key.goal, default: UserGoal()].add(
                    total, withBefore: isFirst && !isKnown || ratios.contains(key.goal))
            }
        }
        // Covariates from the attributes of the request that caused the exposure, where neither user has one yet.
        let filling = series.filter { $0.experimentID == exposure.experimentID && $0.state == .filling }
        for (name, total) in CovariateRules.given(exposure, filling) where totals[name]?.beforeCount ?? 0 == 0 {
            totals[name, default: UserGoal()].add(total)
        }
        return totals
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

    /// Merges the exposures of both users to one experiment; `nil` if there are none. The earlier one counts.
    private static func merged(
        _ own: StoredExposure?, _ other: StoredExposure?, _ account: UserRecords
    ) -> StoredExposure? {
        guard var merged = own ?? other else { return nil }
        if let own, let other {
            merged = other.exposure.happenedAt < own.exposure.happenedAt ? other : own
            merged.hasMultipleVariations =
                own.hasMultipleVariations || other.hasMultipleVariations
                || own.exposure.variationID != other.exposure.variationID
        }
        merged.exposure.userID = account.userID
        merged.exposure.isChosen = [own, other].contains { stored in
            stored.map { $0.exposure.isChosen || EventRules.isChosen($0.exposure, account) } ?? false
        }
        return merged
    }

    /// Returns the parts of a user's totals that cannot be computed from the stored events: those from events that
    /// retention has deleted, and those from attributes. Funnels, breakdowns, and series that are no longer tracked are
    /// left out.
    private static func deletedTotals(
        _ records: UserRecords, _ series: [TrackedSeries]
    ) -> [UserRecords.TotalKey: UserGoal] {
        let names = Set(series.filter { !$0.isFunnel && !$0.hasGroups }.flatMap(\.names))
        var deleted = records.totals.filter { SeriesName($0.key.goal) == nil || names.contains($0.key.goal) }
        for exposure in records.exposures.lazy.map(\.exposure) {
            for series in series where series.experimentID == exposure.experimentID && !series.isFunnel {
                let found = SeriesRules.totals(
                    of: series, from: records.goalEvents, exposedAt: exposure.happenedAt)
                for (name, total) in found {
                    deleted[.init(experimentID: exposure.experimentID, goal: name)]?.subtract(total)
                }
            }
        }
        for event in records.goalEvents {
            for exposure in records.exposures.lazy.map(\.exposure)
            where event.happenedAt >= exposure.happenedAt - EventRules.lookBack {
                let key = UserRecords.TotalKey(experimentID: exposure.experimentID, goal: event.goal)
                deleted[key]?.subtract(event.value, isAfter: event.happenedAt >= exposure.happenedAt)
            }
        }
        return deleted.filter { $0.value.afterCount > 0 || $0.value.beforeCount > 0 }
    }
}

extension UserGoal {
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

    fileprivate mutating func subtract(_ other: UserGoal) {
        beforeCount -= other.beforeCount
        beforeValue = DecimalSum.adding(-other.beforeValue, to: beforeValue)
        afterCount -= other.afterCount
        afterValue = DecimalSum.adding(-other.afterValue, to: afterValue)
        valuedCount -= other.valuedCount
    }

    /// Adds a total of deleted events. If their count is 0, the value is only a rounding error and is ignored.
    ///
    /// - Parameter withBefore: whether to add the part before the exposure as well.
    fileprivate mutating func add(_ deleted: UserGoal, withBefore: Bool) {
        if deleted.afterCount > 0 {
            afterCount += deleted.afterCount
            afterValue = DecimalSum.adding(deleted.afterValue, to: afterValue)
            // Negative if an earlier release, which did not keep this count, stored the total.
            valuedCount += max(0, deleted.valuedCount)
        }
        if withBefore, deleted.beforeCount > 0 {
            beforeCount += deleted.beforeCount
            beforeValue = DecimalSum.adding(deleted.beforeValue, to: beforeValue)
        }
    }
}
