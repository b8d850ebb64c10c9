public import Bucketing

/// A change of one user's profile, applied atomically.
public struct ProfileChange: Sendable {
    public enum Operation: Sendable {
        /// Replaces the map. Stored overrides stay.
        case replace(ExperimentBucketMap)
        /// Sets the variation of each experiment in the map. Other experiments keep theirs, and stored overrides stay.
        case merge(ExperimentBucketMap, onConflict: ConflictRule)
        /// Stores decisions of this server, each unless the user has another variation by now.
        ///
        /// - Parameter decidedWith: the greatest datafile version, of all projects, that the decisions took into
        ///   account. If a newer one is active at the commit, nothing is stored and the change fails with
        ///   ``StorageError/staleDatafile``: a variation missing from an older datafile may exist in the newest.
        case assign([Proposal], decidedWith: Int64 = 0)
        /// Sets a variation on behalf of an admin. It stays until an admin removes it.
        case override(experimentID: Identifier, variationID: Identifier)
        /// Removes one assignment, even an override, on behalf of an admin.
        case remove(experimentID: Identifier)
        /// Erases everything stored about the user.
        case erase
    }

    /// Which of two saves of one experiment wins.
    public enum ConflictRule: Sendable {
        case replace
        case keep
    }

    /// A variation that this server decided on, given the profile as it read it.
    public struct Proposal: Sendable {
        public var experimentID: Identifier
        public var variationID: Identifier
        /// The stored variation that the decision had to discard because it is gone from the datafile, if any. The
        /// proposal is stored only if there is no assignment, or if the assignment is this one.
        public var replacing: Identifier?

        public init(experimentID: Identifier, variationID: Identifier, replacing: Identifier? = nil) {
            self.experimentID = experimentID
            self.variationID = variationID
            self.replacing = replacing
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

/// The result of a change, once it is durable.
public struct ProfileChangeResult: Sendable {
    /// Whether the profile existed before the change.
    public var existed: Bool
    /// Whether the change had an effect; otherwise nothing was written.
    public var changed: Bool
    /// The profile after the change; `nil` if there is none.
    public var profile: ProfileRecord?

    public init(existed: Bool, changed: Bool, profile: ProfileRecord?) {
        self.existed = existed
        self.changed = changed
        self.profile = profile
    }
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

/// Stores user profiles.
///
/// A change is atomic, durable when its completion reports success, and visible to every read that starts afterwards,
/// through any reader and in any process. A store that fails reports an error: `nil` only means "no profile".
public protocol ProfileStore: Sendable {
    /// Makes a reader for the exclusive use of one thread.
    ///
    /// - Throws: ``StorageError/unavailable(reason:)``, ``StorageError/closed``
    func makeReader() throws(StorageError) -> sending any ProfileReader

    /// Applies a change after those submitted earlier.
    ///
    /// - Parameter completion: called once, on any thread, after the change is durable or has failed. It must return
    ///   quickly.
    func submit(
        _ change: ProfileChange, completion: @escaping @Sendable (Result<ProfileChangeResult, StorageError>) -> Void
    )

    /// Applies changes in order, after those submitted earlier. A refused change does not affect the others.
    ///
    /// - Parameter completion: called once, with a result for each change in order, when all are durable or have
    ///   failed.
    func submit(
        _ changes: [ProfileChange],
        completion: @escaping @Sendable ([Result<ProfileChangeResult, StorageError>]) -> Void
    )

    /// Tests the store with a small durable write. After a failed write, the probe writes about as much as that one.
    func probe(completion: @escaping @Sendable (Result<Void, StorageError>) -> Void)

    /// Why writes fail; `nil` once a change or probe has written as much as the one that failed. Cheap.
    var writeFailure: StorageError? { get }

    /// Returns counters and gauges for metrics. Cheap.
    func statistics() -> StoreStatistics

    /// Refuses new changes, makes the submitted ones durable, and releases all resources except those of readers, each
    /// of which must be closed on its own thread. Blocks until done; do not call it from a completion.
    func close()
}

extension ProfileStore {
    /// The default, for stores whose probe detects every failure.
    public var writeFailure: StorageError? { nil }
}

/// Reads profiles on one thread.
///
/// A completion is called on that thread: before the method returns, or later by a store behind a network.
public protocol ProfileReader: AnyObject {
    /// Begins a batch of reads, none of which may be older than this call. Within the batch they may share one snapshot.
    func beginBatch()

    /// Ends the batch and releases its snapshot, before the thread waits.
    func endBatch()

    /// Reads the profile of a user; `nil` if there is none.
    func profile(of userID: Identifier, _ completion: @escaping (Result<ProfileRecord?, StorageError>) -> Void)

    /// Reads up to `limit` profiles after a user, in the byte order of user ids; fewer where some have expired.
    func profiles(
        after: Identifier?, limit: Int, _ completion: @escaping (Result<ProfilePage, StorageError>) -> Void)

    /// Hits and misses since the reader was made, and the size of its cache.
    var cacheStatistics: CacheStatistics { get }

    /// Releases all resources. Later reads fail with ``StorageError/closed``.
    func close()
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
