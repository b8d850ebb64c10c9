public import Bucketing

/// A database in which Holdfast keeps users, projects, events and the audit log. All reads and changes go through
/// sessions: each event loop and each background task opens a ``StoreSession``.
///
/// To add a store, conform to this protocol and to ``StoreSession``. Changes carry the rules that the store must apply
/// in its transactions (``UserChange``, ``SharedChange``), and reads carry the SQL to execute (``StoreQuery``). The
/// suites `StoreContract` in `Tests/TestSupport` test the promises of every store.
public protocol Store: AnyObject, Sendable {
    /// The limits and lifetimes of assignments that the store applies to profiles.
    var rules: ProfileRules { get }

    /// Whether the store is a copy of another server's store. The other server alone does the background work: the
    /// steps of schedules and ramps, warnings, and the totals of metric series.
    var isCopy: Bool { get }

    /// The time of the database. All stored times come from this clock.
    var clock: StoreClock { get }

    /// Opens a session.
    ///
    /// - Parameter executor: runs all code that uses the session, and the session's completions.
    /// - Throws: ``StorageError/unavailable(reason:)``, ``StorageError/closed``
    func makeSession(on executor: any StoreExecutor) throws(StorageError) -> sending any StoreSession

    /// Tests the store with a small durable write. After a failed write, the probe writes about as much as the failed
    /// write. It then succeeds only once the failed write would fit on the disk.
    ///
    /// - Throws: ``StorageError/unavailable(reason:)``, ``StorageError/closed``
    func probe() async throws(StorageError)

    /// Tests whether lookups work, even if writes fail.
    ///
    /// - Throws: ``StorageError/unavailable(reason:)``, ``StorageError/closed``
    func probeReads() async throws(StorageError)

    /// Why lookups fail; `nil` once they work again. Cheap.
    var readFailure: StorageError? { get }

    /// Why writes fail; `nil` once a change or probe has written as much as the failed write. Cheap.
    var writeFailure: StorageError? { get }

    /// Why acknowledged writes may be missing in the database after ``close()``; `nil` if none are missing.
    var closeFailure: StorageError? { get }

    /// Returns counters and gauges. Cheap.
    func metrics() -> StoreMetrics

    /// Registers a function to be called when any process has changed projects, attributes or segments.
    ///
    /// - Parameter changed: called on any thread. Also called when the notification begins, because earlier changes
    ///   were not notified.
    /// - Returns: `nil` if the store cannot notify. The caller must then poll.
    func watchProjects(_ changed: @escaping @Sendable () -> Void) -> (any ProjectWatch)?

    /// Refuses new changes, makes the submitted changes durable, and releases all resources except those of sessions.
    /// Each session must be closed on its executor. Blocks until done; do not call this function from a completion.
    func close()
}

extension Store {
    /// The default, for stores that are not copies.
    public var isCopy: Bool { false }

    /// The default, for stores that do not notify.
    public func watchProjects(_ changed: @escaping @Sendable () -> Void) -> (any ProjectWatch)? { nil }

    /// The default, for stores that can be read only while they can be written.
    public func probeReads() async throws(StorageError) { try await probe() }

    /// The defaults, for stores whose probes detect every failure.
    public var readFailure: StorageError? { nil }
    public var writeFailure: StorageError? { nil }
    public var closeFailure: StorageError? { nil }
}

/// Receives the result of an operation. It is called once, on the session's executor, either before the call of the
/// operation returns or later. It is never called if the executor has stopped.
public typealias Completion<Value> = (Result<Value, StorageError>) -> Void

/// The access of one executor to a store. Only code that runs on the executor may use a session.
///
/// A change is atomic, durable when its completion reports success, and visible to every read that starts afterwards,
/// through any session and in any process. A session's changes are applied in the order in which they are submitted. A
/// store that fails reports an error: `nil` only means that nothing is stored.
public protocol StoreSession: AnyObject {
    /// Reads the profile of a user; `nil` if there is none.
    func profile(of userID: Identifier, _ completion: @escaping Completion<ProfileRecord?>)

    /// Reads the attributes of a user; `nil` if there are none.
    func attributes(of userID: Identifier, _ completion: @escaping Completion<AttributeRecord?>)

    /// Reads anything other than a user's profile or attributes, which caches may serve.
    func read<Value>(_ query: StoreQuery<Value>, _ completion: @escaping Completion<Value>)

    /// Applies a change of a profile.
    ///
    /// - Parameter author: the admin whom the audit log names as the author; `nil` for a change that is not recorded.
    ///   If the change erases the user, existing audit entries lose the user's id and the values before and after.
    func submit(_ change: ProfileChange, by author: Author?, _ completion: @escaping Completion<ProfileChangeResult>)

    /// Applies changes of profiles in order. A refused change does not affect the others.
    ///
    /// - Parameters:
    ///   - author: as in ``submit(_:by:_:)-(ProfileChange,_,_)``
    ///   - completion: called with a result for each change in order, when all are durable or have failed.
    func submit(
        _ changes: [ProfileChange], by author: Author?,
        _ completion: @escaping ([Result<ProfileChangeResult, StorageError>]) -> Void)

    /// Stores events in order, in one transaction. If another process has erased the user of an event since the event
    /// was received, the event is dropped and counts as ``EventOutcome/stored``: the erasure would have deleted it. An
    /// ``EventOutcome/outdated`` event does not affect the others.
    ///
    /// - Parameter completion: called with the outcome of each event once all are durable, or once all have failed.
    func record(_ events: [ReceivedEvent], _ completion: @escaping Completion<[EventOutcome]>)

    /// Makes other changes of users in order, such as merges. A refused change does not affect the others.
    ///
    /// - Parameter completion: called with a result for each change in order, when all are durable or have failed.
    func write<Value>(
        _ changes: [UserChange<Value>], _ completion: @escaping ([Result<Value, StorageError>]) -> Void)

    /// Makes a change of data that all users share, such as projects, or of a sticky document.
    func write<Value>(_ change: SharedChange<Value>, _ completion: @escaping Completion<Value>)

    /// Opens the resources of lookups in advance, such as connections. A failure then shows before the first lookup.
    ///
    /// - Throws: ``StorageError/unavailable(reason:)``, ``StorageError/closed``
    func prepareLookups() throws(StorageError)

    /// Begins a batch of lookups. The lookups of a batch may share one snapshot, or one message over the network. The
    /// snapshot must not be older than this call.
    func beginBatch()

    /// Ends the batch and releases its snapshot. The executor calls it before it waits for events, so that no snapshot
    /// stays open meanwhile.
    func endBatch()

    /// A counter that rises when a lookup shows that another process may have changed projects, attributes or segments.
    /// If the counter has risen after the lookup of a user, the caller must read the definitions and forced variations
    /// again before it decides. Cheap. Stays 0 in stores that do not notice such changes.
    var projectNotices: UInt64 { get }

    /// The hits and misses of the session's cache since the session was opened, and the size of the cache.
    var cacheMetrics: CacheMetrics { get }

    /// Releases all resources. Later reads fail with ``StorageError/closed``.
    func close()
}

extension StoreSession {
    /// The default, for stores that do not notice changes by other processes.
    public var projectNotices: UInt64 { 0 }
}

/// A registration by ``Store/watchProjects(_:)``.
public protocol ProjectWatch: AnyObject, Sendable {
    /// Whether changes are notified at present. Cheap.
    var isActive: Bool { get }

    /// Ends the notification.
    func cancel()
}
