import Bucketing
public import Chronology

/// The rules of changes that concern several records of a user. Erasures, overrides and forced variations have
/// consequences for exposures and tallies, and admins' changes have audit entries.
///
/// Saves and assignments concern only the profile. A store may apply them by ``ProfileRules`` directly; see
/// ``ProfileChange/concernsProfileOnly``.
public struct StoreRules: Sendable {
    public var profiles: ProfileRules

    public init(profiles: ProfileRules = ProfileRules()) {
        self.profiles = profiles
    }

    /// Applies a change of a profile with all its consequences.
    ///
    /// - Parameter author: the author of the audit entries; `nil` for a change that is not recorded in the audit log.
    /// - Returns: `nil` if `records` lacks a part that is needed; nothing has changed then.
    /// - Throws: the errors of ``ProfileRules``, and ``StorageError/damaged(reason:)`` if the profile cannot be decoded
    ///   and the change is not an erasure.
    public func apply(
        _ change: ProfileChange, by author: Author?, to records: inout UserRecords, at now: Instant,
        _ tallies: inout TallyChanges
    ) throws(StorageError) -> ProfileChangeResult? {
        guard records.has(Self.parts(change.operation)) else { return nil }
        let excluded = Self.excluded(by: change.operation, records)
        guard EventRules.canExclude(excluded, &records) else { return nil }
        let stored = try Self.storedProfile(for: change.operation, records)
        let outcome = try profiles.apply(change, to: stored, by: author?.name, at: now)
        switch outcome.effect {
        case .none: break
        case .put(let record): records.write(.putProfile(record, replacing: stored))
        case .delete: records.write(.deleteProfile(replacing: stored))
        }
        var result = outcome.result
        switch change.operation {
        case .erase:
            EventRules.erase(records, &tallies)
            result.erased = Self.eraseOtherRecords(&records)
        case .eraseKeepingTotals:
            result.erased = Self.eraseOtherRecords(&records)
        case .override, .restore:
            for stored in excluded { EventRules.exclude(stored, in: &records, &tallies) }
        case .replace, .save, .assign, .remove: break
        }
        // A change without effect has no audit entry. An erasure may have erased only audit entries, without a write.
        let hasEffect = !records.writes.isEmpty || result.erased?.isEmpty == false
        if let author, hasEffect {
            for note in AuditNote.notes(change, from: stored?.visible(at: now), to: outcome.result.profile) {
                records.write(.recordAudit(note, author))
            }
        }
        // Recorded even if nothing is stored about the user, because changes of the user may wait in another process,
        // or events at an edge; see ``ErasureRules``.
        if change.operation.isErasure { records.write(.noteRemoval(into: nil)) }
        return result
    }

    /// Requests the erasure of everything except the profile.
    ///
    /// - Returns: the numbers of erased records, including the profile.
    private static func eraseOtherRecords(_ records: inout UserRecords) -> ErasedRecords {
        let isEmpty =
            records.forcedVariations.isEmpty && records.exposures.isEmpty && !records.attributes.exists
            && records.otherRecords.isEmpty
        if !isEmpty { records.write(.eraseOtherRecords) }
        if !records.stickyDocuments.isEmpty { records.write(.eraseStickyDocuments) }
        var erased = ErasedRecords(records)
        erased.auditEntries += records.otherRecords.mergesIntoOthers
        return erased
    }

    /// Returns the parts of the user's records that an operation needs.
    private static func parts(_ operation: ProfileChange.Operation) -> [UserRecords.Part] {
        switch operation {
        case .erase, .eraseKeepingTotals: UserRecords.everything
        case .override(let experimentID, _, _, _): [.profile, .exposure(experimentID: experimentID)]
        case .restore: [.profile, .exposures]
        case .replace, .save, .assign, .remove: [.profile]
        }
    }

    /// Returns the exposures that results no longer count after the change: all exposures of an erased user, and the
    /// exposures to experiments in which an admin chooses the variation.
    private static func excluded(by operation: ProfileChange.Operation, _ records: UserRecords) -> [StoredExposure] {
        switch operation {
        case .erase: records.exposures
        case .override(let experimentID, _, _, _): records.exposure(to: experimentID).map { [$0] } ?? []
        case .restore: records.exposures.filter { operation.restoresOverride(in: $0.exposure.experimentID) }
        case .replace, .save, .assign, .remove, .eraseKeepingTotals: []
        }
    }

    /// Returns the stored profile, including expired assignments; `nil` if there is none.
    private static func storedProfile(
        for operation: ProfileChange.Operation, _ records: UserRecords
    ) throws(StorageError) -> ProfileRecord? {
        // An unreadable profile can still be erased. It counts as one without assignments.
        if operation.isErasure, case .damaged = records.profile { return .empty }
        return try records.profile.get()
    }

    // MARK: Forced variations

    /// The result of ``force(_:experimentKey:sdkKey:by:in:_:)``.
    struct Forcing {
        /// The key of the variation that was forced before; `nil` if there was none.
        let formerKey: Identifier?
    }

    /// Forces a variation on a user for a test, or with `nil` removes the forced variation.
    ///
    /// - Returns: `nil` if `records` lacks a part that is needed; nothing has changed then.
    static func force(
        _ variationKey: Identifier?, experimentKey: Identifier, sdkKey: String, by author: Author,
        in records: inout UserRecords, _ tallies: inout TallyChanges
    ) -> Forcing? {
        guard records.has(variationKey == nil ? [.forcedVariations] : [.forcedVariations, .exposures]) else {
            return nil
        }
        // Results do not count a user whose variation is or was forced.
        var excluded: [StoredExposure] = []
        if variationKey != nil {
            excluded = records.exposures.filter { stored in
                stored.exposure.experimentKey == experimentKey && stored.exposure.sdkKey == sdkKey
            }
        }
        guard EventRules.canExclude(excluded, &records) else { return nil }
        let former = records.forcedVariations.first { $0.experimentKey == experimentKey && $0.sdkKey == sdkKey }
        if former?.variationKey != variationKey {
            if let variationKey {
                let forced = ForcedVariation(
                    sdkKey: sdkKey, userID: records.userID, experimentKey: experimentKey, variationKey: variationKey)
                records.write(.putForcedVariation(forced))
            } else if let former {
                records.write(.deleteForcedVariation(former))
            }
            let note = AuditNote(
                forcing: variationKey, replacing: former?.variationKey, experimentKey: experimentKey, sdkKey: sdkKey,
                userID: records.userID)
            records.write(.recordAudit(note, author))
        }
        for stored in excluded { EventRules.exclude(stored, in: &records, &tallies) }
        return Forcing(formerKey: former?.variationKey)
    }
}

extension ProfileChange {
    /// Whether ``ProfileRules`` cover the change: it has no consequences outside the profile, and is not recorded in
    /// the audit log.
    public var concernsProfileOnly: Bool {
        switch operation {
        case .replace, .save, .assign: true
        case .restore: !operation.restoresOverrides
        case .override, .remove, .erase, .eraseKeepingTotals: false
        }
    }
}
