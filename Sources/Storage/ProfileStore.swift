public import Bucketing

/// Where user profiles are kept. Promises: a change is applied whole or not at all, is durable when its completion
/// is called with success, and is seen by every read that starts afterwards, on whatever reader and in whatever
/// process. A store that cannot answer says so with an error; `nil` only ever means that there is no profile.
public protocol ProfileStore: Sendable {
    /// A reader for the exclusive use of one thread.
    ///
    /// - Throws: ``StorageError/unavailable(reason:)``, ``StorageError/closed``
    func makeReader() throws(StorageError) -> sending any ProfileReader

    /// Applies a change after those submitted before it.
    ///
    /// - Parameter completion: called once, on a thread of the store's choice, after the change is durable or has
    ///   failed. It must return quickly.
    func submit(
        _ change: ProfileChange, completion: @escaping @Sendable (Result<ProfileChangeResult, StorageError>) -> Void
    )

    /// Applies changes in their order, after those submitted before them; one that is refused leaves the others be.
    ///
    /// - Parameter completion: called once, with a result for each change in the same order, when all are durable or
    ///   have failed.
    func submit(
        _ changes: [ProfileChange],
        completion: @escaping @Sendable ([Result<ProfileChangeResult, StorageError>]) -> Void
    )

    /// Writes a little, durably, to see whether the store works; after a write that failed, about as much as that would
    /// have written.
    func probe(completion: @escaping @Sendable (Result<Void, StorageError>) -> Void)

    /// Why a write failed; `nil` once as much has been written again, by whatever change or probe. Cheap.
    var writeFailure: StorageError? { get }

    /// Figures for metrics; cheap.
    func statistics() -> StoreStatistics

    /// Refuses new changes, makes those submitted durable, and lets go of all resources but the readers', which are
    /// closed each on its own thread. Blocks until done; not to be called from a completion.
    func close()
}

extension ProfileStore {
    /// For stores of which a probe shows all that can go wrong.
    public var writeFailure: StorageError? { nil }
}

/// Reads profiles on one thread.
///
/// The completions of a store on this machine are called before the method returns; those of a store behind a
/// network may be called later, on the same thread.
public protocol ProfileReader: AnyObject {
    /// Tells the reader that what it answers from now on must be as fresh as this moment. Called once for each
    /// batch of requests; between two calls the reader may answer from one snapshot.
    func beginBatch()

    /// Ends what `beginBatch` began, so that no snapshot is held while the thread waits.
    func endBatch()

    /// The profile of a user; `nil` when there is none.
    func profile(of userID: Identifier, _ completion: @escaping (Result<ProfileRecord?, StorageError>) -> Void)

    /// Up to `limit` profiles in the order of their user ids' bytes, starting after `after`; fewer where some have
    /// expired.
    func profiles(
        after: Identifier?, limit: Int, _ completion: @escaping (Result<ProfilePage, StorageError>) -> Void)

    /// Lookups answered from memory and those that were not, since the reader was made.
    var cacheStatistics: CacheStatistics { get }

    /// Lets go of all resources. What is asked afterwards is answered with ``StorageError/closed``.
    func close()
}

/// A part of all profiles.
public struct ProfilePage: Sendable {
    public var profiles: [(userID: Identifier, profile: ProfileRecord)]
    /// The user behind whom the next page begins; `nil`: there are no more.
    public var end: Identifier?

    public init(profiles: [(userID: Identifier, profile: ProfileRecord)], end: Identifier?) {
        self.profiles = profiles
        self.end = end
    }
}
