public import Bucketing

/// One thing to do to one user's profile. A store applies it whole or not at all, in one transaction.
public struct ProfileChange: Sendable {
    public enum Operation: Sendable {
        /// The map becomes this one; overrides that are stored stay.
        case replace(ExperimentBucketMap)
        /// Each experiment of the map gets its variation, others keep theirs; overrides that are stored stay.
        case merge(ExperimentBucketMap, onConflict: ConflictRule)
        /// Decisions of this server: each is stored unless the user has another variation by now.
        ///
        /// - Parameter decidedWith: the version of the newest datafile, of all projects, that the decisions could
        ///   take into account. If it is not the newest at the commit, nothing is stored and the change fails with
        ///   ``StorageError/staleDatafile``: what an older datafile does not list need not be gone.
        case assign([Proposal], decidedWith: Int64 = 0)
        /// An admin sets one variation, which then stays until an admin removes it.
        case override(experimentID: Identifier, variationID: Identifier)
        /// An admin removes one assignment, an override too.
        case remove(experimentID: Identifier)
        /// All that is stored of the user goes.
        case erase
    }

    /// Which of two saves for one experiment wins.
    public enum ConflictRule: Sendable {
        case replace
        case keep
    }

    /// A variation this server decided for, given what it had read of the profile.
    public struct Proposal: Sendable {
        public var experimentID: Identifier
        public var variationID: Identifier
        /// The stored variation that the decision found and could not use (it is gone from the datafile), if any.
        /// The proposal is stored only if there is no assignment, or if it is this one.
        public var replacing: Identifier?

        public init(experimentID: Identifier, variationID: Identifier, replacing: Identifier? = nil) {
            self.experimentID = experimentID
            self.variationID = variationID
            self.replacing = replacing
        }
    }

    /// Whether a change may be made of a profile as it is; `nil`: there is none. Asked within the transaction.
    public typealias Condition = @Sendable (ProfileRecord?) -> Bool

    public var userID: Identifier
    public var operation: Operation
    /// `nil`: the change is made in any case.
    public var condition: Condition?

    public init(userID: Identifier, operation: Operation, condition: Condition? = nil) {
        self.userID = userID
        self.operation = operation
        self.condition = condition
    }
}

/// What a store answers to a change that it has made durable.
public struct ProfileChangeResult: Sendable {
    /// Whether there was a profile before the change.
    public var existed: Bool
    /// Whether the change changed anything; nothing was written otherwise.
    public var changed: Bool
    /// The profile as it now is; `nil` when there is none.
    public var profile: ProfileRecord?

    public init(existed: Bool, changed: Bool, profile: ProfileRecord?) {
        self.existed = existed
        self.changed = changed
        self.profile = profile
    }
}
