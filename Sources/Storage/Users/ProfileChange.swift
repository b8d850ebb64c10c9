public import Bucketing
public import Chronology

/// A change of one user's profile, applied atomically. ``ProfileRules`` define its effect on the profile, and
/// ``StoreRules`` its consequences for other records.
public struct ProfileChange: Sendable {
    /// The kind of change, with its parameters.
    public enum Operation: Sendable {
        /// Replaces the map. Stored overrides stay; their underlying assignments are replaced.
        case replace(ExperimentBucketMap)
        /// Sets the variation of each experiment in the map. Other experiments keep theirs. Stored overrides stay, and
        /// their underlying assignments are set.
        case save(ExperimentBucketMap, onConflict: ConflictRule)
        /// Stores assignments and overrides from another database, by experiment. Expired assignments are skipped. The
        /// operation then saves a map with the variations of other experiments, as ``save(_:onConflict:)`` does.
        case restore([Identifier: Assignment], saving: ExperimentBucketMap, onConflict: ConflictRule)
        /// Stores decisions of this server. A decision is not stored if the user has got another variation meanwhile,
        /// or if the profile has no room for it.
        ///
        /// - Parameter decidedWith: the newest datafile version of any project that the decisions took into account. If
        ///   a newer one is active at the commit, nothing is stored and the change fails with
        ///   ``StorageError/staleDatafile``, because a variation that is missing from an older datafile may exist in
        ///   the newest.
        /// - Parameter anonymousID: the id of the user's anonymous profile. If the user has no assignment in an
        ///   experiment, the user takes over the assignment that the anonymous profile has at the commit. Its source is
        ///   then ``Assignment/Source/merged``. The anonymous profile stays.
        case assign([Candidate], decidedWith: Int64 = 0, anonymousID: Identifier? = nil)
        /// Sets a variation on behalf of an admin. The override covers the user's assignment until the override expires
        /// or an admin removes it.
        case override(
            experimentID: Identifier, variationID: Identifier, reason: String? = nil, expiresAt: Instant? = nil)
        /// Removes the override on behalf of an admin, so that the underlying assignment counts again. If there is no
        /// override, removes the assignment.
        case remove(experimentID: Identifier)
        /// Erases everything stored about the user.
        case erase
        /// Erases everything stored about the user, but does not subtract the user from the tallies of results.
        case eraseKeepingTotals
    }

    /// The rule for a saved variation of an experiment in which the user has another variation.
    public enum ConflictRule: Sendable {
        /// The saved variation replaces the stored one.
        case replace
        /// The stored variation stays.
        case keep
    }

    /// A decision of this server to store. The profile may have changed since the decision was made.
    public struct Candidate: Sendable {
        public var experimentID: Identifier
        public var variationID: Identifier
        /// The stored variation that the decision discarded, because the datafile no longer has it; `nil` if there was
        /// none. The candidate is stored only if the user has no assignment at the commit, or still has this variation.
        public var replacing: Identifier?
        /// Whether the variation comes from the user's anonymous profile. Such a candidate is stored only if the
        /// anonymous profile still has the variation at the commit.
        public var isFromAnonymousProfile: Bool

        public init(
            experimentID: Identifier, variationID: Identifier, replacing: Identifier? = nil,
            isFromAnonymousProfile: Bool = false
        ) {
            self.experimentID = experimentID
            self.variationID = variationID
            self.replacing = replacing
            self.isFromAnonymousProfile = isFromAnonymousProfile
        }
    }

    /// Decides within the transaction whether a profile may be changed. The argument is the profile without expired
    /// assignments; `nil` if there is none.
    public typealias Condition = @Sendable (ProfileRecord?) -> Bool

    public var userID: Identifier
    public var operation: Operation
    /// If the condition does not hold, the change fails with ``StorageError/conditionFailed``; `nil` for an
    /// unconditional change.
    public var condition: Condition?

    public init(userID: Identifier, operation: Operation, condition: Condition? = nil) {
        self.userID = userID
        self.operation = operation
        self.condition = condition
    }
}

extension ProfileChange.Operation {
    /// Whether the operation erases the user.
    public var isErasure: Bool {
        switch self {
        case .erase, .eraseKeepingTotals: true
        case .replace, .save, .restore, .assign, .override, .remove: false
        }
    }

    /// Whether the operation restores an override in this experiment.
    func restoresOverride(in experimentID: Identifier) -> Bool {
        guard case .restore(let assignments, _, _) = self else { return false }
        return assignments[experimentID]?.source == .override
    }

    /// Whether the operation restores any override.
    var restoresOverrides: Bool {
        guard case .restore(let assignments, _, _) = self else { return false }
        return assignments.values.contains { $0.source == .override }
    }
}

/// Merges everything stored about an anonymous user into an account, atomically; see ``MergeRules``.
public struct ProfileMerge: Sendable {
    /// The account, which keeps its id.
    public var userID: Identifier
    /// The anonymous user, whose records are gone after the merge. Must differ from ``userID``.
    public var anonymousID: Identifier
    /// Which assignment or attribute stays if both users have one: with `keep` that of the account, with `replace` that
    /// of the anonymous user.
    public var conflictRule: ProfileChange.ConflictRule

    public init(userID: Identifier, anonymousID: Identifier, conflictRule: ProfileChange.ConflictRule = .keep) {
        self.userID = userID
        self.anonymousID = anonymousID
        self.conflictRule = conflictRule
    }
}

/// The result of a ``ProfileMerge``, once it is durable.
public struct ProfileMergeResult: Sendable {
    /// Whether anything was stored about the anonymous user. Otherwise the account has not changed.
    public var changed: Bool
    /// The account's profile after the merge; `nil` if there is none.
    public var profile: ProfileRecord?
}

/// The result of a change, once it is durable.
public struct ProfileChangeResult: Sendable {
    /// Whether the profile existed before the change.
    public var existed: Bool
    /// Whether the profile differs after the change.
    public var changed: Bool
    /// The profile after the change; `nil` if there is none.
    public var profile: ProfileRecord?
    /// The experiments whose decisions were not stored, because the profile has no room for them.
    public var refused: [Identifier]
    /// The numbers of records that an erasure has erased; `nil` for other changes.
    public var erased: ErasedRecords?

    public init(existed: Bool, changed: Bool, profile: ProfileRecord?, refused: [Identifier] = []) {
        self.existed = existed
        self.changed = changed
        self.profile = profile
        self.refused = refused
    }
}

/// The numbers of records that an erasure has erased, by kind.
public struct ErasedRecords: Sendable, Hashable {
    /// 1, or 0 if the user had no profile.
    public var profiles = 0
    /// Includes expired assignments that were still stored. 0 if the profile could not be decoded.
    public var assignments = 0
    /// The number of attributes with a value. 1 if the attributes could not be decoded.
    public var attributes = 0
    public var forcedVariations = 0
    public var exposures = 0
    public var goalEvents = 0
    public var stickyDocuments = 0
    /// The entries of the audit log that named the user. The entries stay, without anything that identifies the user.
    public var auditEntries = 0

    public init() {}

    /// Counts the records that are about the user.
    public init(_ records: UserRecords) {
        profiles = records.profile.exists ? 1 : 0
        if case .present(let profile) = records.profile { assignments = profile.count }
        switch records.attributes {
        case .absent: break
        case .present(let record): attributes = record.numbers.count
        case .damaged: attributes = 1
        }
        forcedVariations = records.forcedVariations.count
        exposures = records.exposures.count
        goalEvents = records.otherRecords.goalEvents.count
        stickyDocuments = records.stickyDocuments.count
        auditEntries = records.otherRecords.auditEntries.count
    }

    public var isEmpty: Bool { self == ErasedRecords() }
}

/// The outcome of applying ``ProfileRules`` to a change: the result, and the write that the store must perform.
public struct ProfileOutcome: Sendable {
    /// The write to perform. The result alone does not determine the write: erasing a profile whose assignments have
    /// all expired changes nothing visible, but must delete the stored record.
    public enum Effect: Sendable, Hashable {
        case none
        case put(ProfileRecord)
        case delete
    }

    public var result: ProfileChangeResult
    public var effect: Effect

    public init(result: ProfileChangeResult, effect: Effect) {
        self.result = result
        self.effect = effect
    }
}

/// One page of all profiles.
public struct ProfilePage: Sendable {
    public var profiles: [(userID: Identifier, profile: ProfileRecord)]
    /// The user after whom the next page begins; `nil` if this page is the last.
    public var end: Identifier?

    public init(profiles: [(userID: Identifier, profile: ProfileRecord)], end: Identifier?) {
        self.profiles = profiles
        self.end = end
    }
}
