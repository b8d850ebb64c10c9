public import Bucketing

/// A change of one user's profile, applied atomically.
public struct ProfileChange: Sendable {
    public enum Operation: Sendable {
        /// Replaces the map. Stored overrides stay; their underlying assignments are replaced.
        case replace(ExperimentBucketMap)
        /// Sets the variation of each experiment in the map. Other experiments keep theirs. Stored overrides stay, and
        /// their underlying assignments are set.
        case save(ExperimentBucketMap, onConflict: ConflictRule)
        /// Stores assignments and overrides as another database had them, by experiment, unless they have expired; then
        /// saves a map of other experiments.
        case restore([Identifier: Assignment], saving: ExperimentBucketMap, onConflict: ConflictRule)
        /// Stores decisions of this server, each unless the user has another variation by now, or the profile has no
        /// room for it.
        ///
        /// - Parameter decidedWith: the greatest datafile version, of all projects, that the decisions took into
        ///   account. If a newer one is active at the commit, nothing is stored and the change fails with
        ///   ``StorageError/staleDatafile``: a variation missing from an older datafile may exist in the newest.
        /// - Parameter anonymousID: the user's anonymous profile, whose assignment counts where the user has none. The
        ///   change stores it as ``Assignment/Source/merged``, as it is at the commit; the anonymous profile stays.
        case assign([Candidate], decidedWith: Int64 = 0, anonymousID: Identifier? = nil)
        /// Sets a variation on behalf of an admin, over the assignment that the user has. It stays until it expires or
        /// an admin removes it.
        case override(
            experimentID: Identifier, variationID: Identifier, reason: String? = nil, expiresAt: Timestamp? = nil)
        /// Removes an override, so that the underlying assignment comes back, or else the assignment, on behalf of an
        /// admin.
        case remove(experimentID: Identifier)
        /// Erases everything stored about the user.
        case erase
        /// Erases everything stored about the user, and leaves the tallies of results as they are.
        case eraseKeepingTotals
    }

    /// Which of two saves of one experiment wins.
    public enum ConflictRule: Sendable {
        case replace
        case keep
    }

    /// A variation that this server decided on, given the profile as it read it.
    public struct Candidate: Sendable {
        public var experimentID: Identifier
        public var variationID: Identifier
        /// The stored variation that the decision had to discard because it is gone from the datafile, if any. The
        /// candidate is stored only if there is no assignment, or if the assignment is this one.
        public var replacing: Identifier?
        /// Whether the variation is that of the user's anonymous profile. If that has none at the commit, nothing is
        /// stored; nor if it has another one, whether or not the decision saw one.
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

    /// Decides within the transaction whether a profile may be changed; `nil` stands for no profile.
    public typealias Condition = @Sendable (ProfileRecord?) -> Bool

    public var userID: Identifier
    public var operation: Operation
    /// `nil` makes the change unconditional.
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

    /// Whether the operation sets this override.
    func restoresOverride(in experimentID: Identifier) -> Bool {
        guard case .restore(let assignments, _, _) = self else { return false }
        return assignments[experimentID]?.source == .override
    }

    /// Whether the operation sets overrides that another database had.
    var restoresOverrides: Bool {
        guard case .restore(let assignments, _, _) = self else { return false }
        return assignments.values.contains { $0.source == .override }
    }
}

/// Merges everything stored about an anonymous user into an account, atomically; see ``MergeRules``.
public struct ProfileMerge: Sendable {
    /// The account, which keeps its id.
    public var userID: Identifier
    /// The anonymous user, of whom nothing is left after the merge. Differs from ``userID``.
    public var anonymousID: Identifier
    /// Whose assignments and attributes win where both have one: with `keep` the account's, with `replace` the
    /// anonymous user's.
    public var conflictRule: ProfileChange.ConflictRule

    public init(userID: Identifier, anonymousID: Identifier, conflictRule: ProfileChange.ConflictRule = .keep) {
        self.userID = userID
        self.anonymousID = anonymousID
        self.conflictRule = conflictRule
    }
}

/// The result of a ``ProfileMerge``, once it is durable.
public struct ProfileMergeResult: Sendable {
    /// Whether anything was stored about the anonymous user; otherwise nothing was written.
    public var changed: Bool
    /// The account's profile after the merge; `nil` if there is none.
    public var profile: ProfileRecord?
}

/// The result of a change, once it is durable.
public struct ProfileChangeResult: Sendable {
    /// Whether the profile existed before the change.
    public var existed: Bool
    /// Whether the change had an effect; otherwise nothing was written.
    public var changed: Bool
    /// The profile after the change; `nil` if there is none.
    public var profile: ProfileRecord?
    /// The experiments whose proposals were not stored because the profile has no room for them.
    public var refused: [Identifier]
    /// What an erasure has erased; `nil` for other changes.
    public var erased: ErasedRecords?

    public init(existed: Bool, changed: Bool, profile: ProfileRecord?, refused: [Identifier] = []) {
        self.existed = existed
        self.changed = changed
        self.profile = profile
        self.refused = refused
    }
}

/// How much an erasure has erased of each kind.
public struct ErasedRecords: Sendable, Hashable {
    /// 1, or 0 if the user had no profile.
    public var profiles = 0
    /// Includes expired ones that were still stored; 0 if the profile was unreadable.
    public var assignments = 0
    /// 1 if they were unreadable.
    public var attributes = 0
    public var forcedVariations = 0
    public var exposures = 0
    public var goalEvents = 0
    public var stickyDocuments = 0
    /// The entries of the audit log that named the user. They stay, without anything that identifies the user.
    public var auditEntries = 0

    public init() {}

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

/// What ``ProfileRules`` made of a change: its result, and what the store must write.
public struct ProfileOutcome: Sendable {
    /// What to write. The result does not always tell: erasing a profile whose assignments have all expired has no
    /// visible effect, yet must delete the stored record.
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
