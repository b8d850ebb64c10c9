import Bucketing
public import Chronology

/// The rules of merging an anonymous user into an account, for example at login. Nothing is counted twice. Nothing is
/// lost except overrides and forced variations of the anonymous user, because only an admin may give these to a user
/// (``TakeoverRules``):
///
/// - **Assignments**: if both users have one in an experiment, the ``ProfileMerge/conflictRule`` decides. An assignment
///   that the account takes over becomes ``Assignment/Source/merged``, keeps its `assignedAt`, and is renewed as by a
///   save.
/// - **Overrides** of the account stay, and cover the assignments that the account takes over. Overrides of the
///   anonymous user end.
/// - **Exposures**: for each experiment the earlier exposure counts. If the two exposures have different variations,
///   the user counts as exposed to several variations.
/// - **Goal events**: the account gets all of them, except events with a sender's id that an event of the account also
///   has.
/// - **Attributes**: the conflict rule decides for each attribute that both users have.
/// - **Forced variations** of the account stay. Forced variations of the anonymous user end.
/// - **Entries of the audit log** about the anonymous user become entries about the account.
/// - **Sticky documents** of both users stay, because SDKs with such documents read the document of each attribute.
///
/// Nothing else stays under the anonymous id. Later data with this id begins a new profile, which the next merge takes
/// over. Repeating a merge therefore changes nothing. Events that an edge accepted before the merge and sends later
/// count for the account (``RemovedUser``).
///
/// The rules of exposures, goal events and tallies are in `MergeRules+Events.swift`.
public struct MergeRules: Sendable {
    public var profiles: ProfileRules

    public init(profiles: ProfileRules) {
        self.profiles = profiles
    }

    /// Applies a merge. The store performs the writes of `account` first, then those of `anonymous`.
    ///
    /// - Returns: `nil` if `account` or `anonymous` lacks a part that is needed; nothing has changed then.
    /// - Throws: ``StorageError/tooManyAssignments(limit:)`` if the merged profile exceeds the limit,
    ///   ``StorageError/damaged(reason:)`` if a profile or attributes cannot be decoded. Nothing has changed then.
    public func apply(
        _ merge: ProfileMerge, by author: Author, to account: inout UserRecords, _ anonymous: inout UserRecords,
        at now: Instant, _ tallies: inout TallyChanges
    ) throws(StorageError) -> ProfileMergeResult? {
        let parts: [UserRecords.Part] = [.profile, .attributes, .forcedVariations, .exposures, .otherRecords]
        guard Self.have(parts, &account, parts, &anonymous) else { return nil }
        let storedAccount = try account.profile.get()
        let storedAnonymous = try anonymous.profile.get()
        let former = storedAccount?.visible(at: now)
        let ending = storedAnonymous?.visible(at: now)
        guard Self.hasRecords(anonymous) else {
            // The merge is recorded nevertheless: events of the anonymous user that an edge sends later then count for
            // the account.
            anonymous.write(.noteRemoval(into: account.userID))
            return ProfileMergeResult(changed: false, profile: former)
        }
        guard Self.canMergeEvents(&account, &anonymous) else { return nil }
        let ownAttributes = try account.attributes.get()
        let otherAttributes = try anonymous.attributes.get()
        guard otherAttributes == nil || account.has([.definedAttributes]) else { return nil }
        let profile = try self.profile(former, ending, merge.conflictRule, at: now)

        // From here on, nothing throws.
        if let profile, profile != former {
            account.write(.putProfile(profile, replacing: storedAccount))
            account.profile = .present(profile)
        }
        let attributes = Self.attributes(
            ownAttributes, otherAttributes, merge.conflictRule, defined: account.definedAttributes)
        if let attributes, attributes != ownAttributes {
            let changed = attributes.numbers.filter { attributes[$0] != ownAttributes?[$0] }
            account.write(.putAttributes(attributes, changed: changed))
        }
        account.write(.takeOver(anonymous.userID))
        Self.mergeEvents(of: anonymous, into: &account, &tallies)
        account.write(.recordAudit(AuditNote(merge, from: former, to: profile, ending: ending), author))
        if storedAnonymous != nil { anonymous.write(.deleteProfile(replacing: storedAnonymous)) }
        anonymous.write(.eraseOtherRecords)
        anonymous.write(.noteRemoval(into: account.userID))
        return ProfileMergeResult(changed: true, profile: profile)
    }

    /// Whether anything is stored about a user, apart from sticky documents, which a merge does not change.
    private static func hasRecords(_ records: UserRecords) -> Bool {
        records.profile.exists || !records.forcedVariations.isEmpty || !records.exposures.isEmpty
            || records.attributes.exists || !records.otherRecords.isEmpty
    }

    /// Whether the parts of both users have been read. Both users are always checked, so that the store reads all
    /// missing parts in one round trip.
    static func have(
        _ accountParts: [UserRecords.Part], _ account: inout UserRecords, _ anonymousParts: [UserRecords.Part],
        _ anonymous: inout UserRecords
    ) -> Bool {
        let hasAccount = account.has(accountParts)
        let hasAnonymous = anonymous.has(anonymousParts)
        return hasAccount && hasAnonymous
    }

    // MARK: Assignments and attributes

    /// Returns the merged profile; `nil` if neither user has one.
    ///
    /// - Parameters:
    ///   - account: the profile of the account without expired assignments.
    ///   - anonymous: the profile of the anonymous user without expired assignments.
    /// - Throws: ``StorageError/tooManyAssignments(limit:)``
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

    /// Returns the merged attributes; `nil` if neither user has any.
    ///
    /// - Parameter defined: the attributes of the schema. Values of a deleted attribute are not taken over, because the
    ///   background deletion of these values may have passed the account already.
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
}
