public import Bucketing

/// Where Holdfast keeps everything. A store opens sessions, through which all reads and changes go.
///
/// To add a store, conform to this protocol and ``StoreSession``, apply the rules in `Rules/`, and run the contract
/// suites in `Tests/TestSupport` against it.
public protocol Store: AnyObject, Sendable {
    /// The rules that the store applies to profiles.
    var rules: ProfileRules { get }

    /// Whether it is a copy of another server's, which alone does what is due in the background: steps of schedules and
    /// ramps, warnings, sums of series.
    var isCopy: Bool { get }

    /// The time of the database, for everything that is stored.
    var clock: StoreClock { get }

    /// Opens a session.
    ///
    /// - Parameter executor: where the session is used and where its completions are called.
    /// - Throws: ``StorageError/unavailable(reason:)``, ``StorageError/closed``
    func makeSession(on executor: any StoreExecutor) throws(StorageError) -> sending any StoreSession

    /// Tests the store with a small durable write. After a failed write, the probe writes about as much as that one.
    func probe() async throws(StorageError)

    /// Tests whether lookups work, whatever becomes of writes.
    func probeReads() async throws(StorageError)

    /// Why lookups fail; `nil` once they work again. Cheap.
    var readFailure: StorageError? { get }

    /// Why writes fail; `nil` once a change or probe has written as much as the one that failed. Cheap.
    var writeFailure: StorageError? { get }

    /// Why acknowledged writes may be missing in the database that ``close()`` has left; `nil` if none are.
    var closeFailure: StorageError? { get }

    /// Returns counters and gauges. Cheap.
    func metrics() -> StoreMetrics

    /// Registers a function to be called when any process has changed projects, attributes or segments, and when the
    /// notification begins.
    ///
    /// - Parameter changed: called on any thread.
    /// - Returns: `nil` if the store does not notify, so that its users must poll.
    func watchProjects(_ changed: @escaping @Sendable () -> Void) -> (any ProjectWatch)?

    /// Refuses new changes, makes the submitted ones durable, and releases all resources except those of sessions, each
    /// of which must be closed on its executor. Blocks until done; do not call it from a completion.
    func close()
}

extension Store {
    /// The default.
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

/// The notification of a store's changes.
public protocol ProjectWatch: AnyObject, Sendable {
    /// Whether changes are notified at present. Cheap.
    var isActive: Bool { get }

    /// Ends the notification.
    func cancel()
}

/// Runs work one piece at a time: an event loop, or a ``DispatchExecutor``.
public protocol StoreExecutor: AnyObject, Sendable {
    /// Schedules work, in FIFO order. Any thread may call it.
    ///
    /// - Returns: `false` if the executor has stopped, so the work will not run.
    @discardableResult
    func submit(_ work: @escaping @Sendable () -> Void) -> Bool

    /// Watches a descriptor, such as the socket of a database.
    ///
    /// - Parameters:
    ///   - descriptor: the executor watches a duplicate, so its owner may close it at any time.
    ///   - ready: called on the executor when the descriptor is readable or has failed and, if asked for, when it is
    ///     writable; again and again until the cause is gone. Never after the watch is cancelled.
    /// - Returns: a watch that waits for the descriptor to be readable. Only code on the executor may use it.
    /// - Throws: ``StorageError/unavailable(reason:)``
    func watch(
        _ descriptor: Int32, _ ready: @escaping @Sendable () -> Void
    ) throws(StorageError) -> any DescriptorWatch
}

extension StoreExecutor {
    /// The default, for executors of stores that need no descriptors.
    public func watch(
        _ descriptor: Int32, _ ready: @escaping @Sendable () -> Void
    ) throws(StorageError) -> any DescriptorWatch {
        throw .unavailable(reason: "this executor does not watch descriptors")
    }
}

/// A descriptor that an executor watches.
public protocol DescriptorWatch: AnyObject {
    /// Whether to report that the descriptor is writable, too.
    var awaitsWriting: Bool { get set }

    /// Ends the watch.
    func cancel()
}

/// Reports the result of an operation: called once, on the session's executor, before the operation's call returns or
/// later. It is dropped if the executor has stopped.
public typealias Completion<Value> = (Result<Value, StorageError>) -> Void

/// The use of a store by one executor. Only code that runs on the executor may use a session.
///
/// A change is atomic, durable when its completion reports success, and visible to every read that starts afterwards,
/// through any session and in any process. A session's changes are applied in the order in which they are submitted. A
/// store that fails reports an error: `nil` only means that there is nothing.
public protocol StoreSession: AnyObject {
    /// Reads the profile of a user; `nil` if there is none.
    func profile(of userID: Identifier, _ completion: @escaping Completion<ProfileRecord?>)

    /// Reads the attributes of a user; `nil` if there are none.
    func attributes(of userID: Identifier, _ completion: @escaping Completion<AttributeRecord?>)

    /// Reads anything else.
    func read<Value>(_ query: StoreQuery<Value>, _ completion: @escaping Completion<Value>)

    /// Applies a change of a profile.
    ///
    /// - Parameter author: the admin whose change the audit log records. Erasing a user also removes the user's id and
    ///   the values before and after from existing entries. `nil` for a change that is not recorded.
    func submit(_ change: ProfileChange, by author: Author?, _ completion: @escaping Completion<ProfileChangeResult>)

    /// Applies changes of profiles in order. A refused change does not affect the others.
    ///
    /// - Parameters:
    ///   - author: as in ``submit(_:by:_:)-(ProfileChange,_,_)``
    ///   - completion: called with a result for each change in order, when all are durable or have failed.
    func submit(
        _ changes: [ProfileChange], by author: Author?,
        _ completion: @escaping ([Result<ProfileChangeResult, StorageError>]) -> Void)

    /// Stores events in order, in one transaction. Events of a user whom another process has erased since they were
    /// received are dropped: they count as stored before the erasure. Events that are ``EventOutcome/outdated`` do not
    /// affect the others.
    ///
    /// - Parameter completion: called with the outcome of each event once all are durable, or once all have failed.
    func record(_ events: [ReceivedEvent], _ completion: @escaping Completion<[EventOutcome]>)

    /// Makes other changes of users in order. A refused change does not affect the others.
    ///
    /// - Parameter completion: called with a result for each change in order, when all are durable or have failed.
    func write<Value>(
        _ changes: [UserChange<Value>], _ completion: @escaping ([Result<Value, StorageError>]) -> Void)

    /// Makes a change of what all users share.
    func write<Value>(_ change: SharedChange<Value>, _ completion: @escaping Completion<Value>)

    /// Opens in advance what lookups need, such as connections, so that a failure shows before the first lookup.
    ///
    /// - Throws: ``StorageError/unavailable(reason:)``, ``StorageError/closed``
    func prepareLookups() throws(StorageError)

    /// Begins a batch of lookups, none of which may be older than this call. Within the batch they may share one
    /// snapshot, or one message over the network.
    func beginBatch()

    /// Ends the batch and releases its snapshot, before the executor waits.
    func endBatch()

    /// Rises when a lookup shows that another process may have changed projects, attributes or segments. So whoever looks
    /// a user up and then compares this number knows whether there may be definitions, or a forced variation, that are
    /// acknowledged and not yet read. Cheap; stays 0 in stores that cannot tell.
    var projectNotices: UInt64 { get }

    /// Hits and misses since the session was opened, and the size of its cache.
    var cacheMetrics: CacheMetrics { get }

    /// Releases all resources. Later reads fail with ``StorageError/closed``.
    func close()
}

extension StoreSession {
    /// The default.
    public var projectNotices: UInt64 { 0 }
}

/// Why a database cannot be opened.
public struct DatabaseError: Error, Sendable, CustomStringConvertible {
    public let description: String
    /// Whether opening it again fails, too, until somebody corrects the configuration or the database.
    public let isPermanent: Bool

    /// - Parameter database: the path or the address, without secrets.
    public init(_ database: String, _ reason: String, isPermanent: Bool = false) {
        description = "the database \(database) cannot be used: \(reason)"
        self.isPermanent = isPermanent
    }
}

/// Why a store refused or failed an operation.
public enum StorageError: Error, Hashable, Sendable {
    /// The change would make the profile exceed its assignment limit. Nothing was stored.
    case tooManyAssignments(limit: Int)
    /// The profile does not meet the change's ``ProfileChange/condition``. Nothing was stored.
    case conditionFailed
    /// Too many writes are waiting. Nothing was stored; the caller may retry.
    case overloaded
    /// The store failed: disk full, locked, unreadable… Nothing was acknowledged.
    case unavailable(reason: String)
    /// The decision did not use the newest datafile at the commit. Nothing was stored; the caller should decide again
    /// with the newest one.
    case staleDatafile
    /// The stored data of this user is unreadable; other users are not affected. Nothing was acknowledged.
    case damaged(reason: String)
    /// The user was erased while the change waited for its transaction. Nothing was stored; the caller may retry.
    case erased
    /// A text of the request contains NUL, which no store keeps. Nothing was stored.
    case unstorable
    /// The store is read-only at present. Nothing was stored; the caller may retry later.
    case readOnly
    /// The store is a copy, and its upstream, which would decide, does not respond. Nothing was stored; the caller may retry
    /// later.
    case away
    /// The store is a copy, and its upstream has not responded completely: the change was made or not.
    case undecided
    /// The store is closed or closing.
    case closed
}

extension StorageError {
    /// Whether the error concerns this user only, so that the operation may succeed for others.
    public var concernsOneUser: Bool {
        switch self {
        case .tooManyAssignments, .conditionFailed, .damaged, .erased, .unstorable: true
        case .overloaded, .unavailable, .staleDatafile, .readOnly, .away, .undecided, .closed: false
        }
    }
}

extension StorageError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .tooManyAssignments(let limit):
            "a profile must have at most \(limit) assignments; the change adds too many"
        case .conditionFailed: "the profile does not meet the condition of the change"
        case .overloaded: "too many writes are waiting; try again later"
        case .staleDatafile: "the decision must use the active datafile; it used another"
        case .unavailable(let reason), .damaged(let reason): reason
        case .erased: "the user was erased during the change"
        case .unstorable: "a text must not contain NUL"
        case .readOnly: "the store is read-only"
        case .away: "the upstream does not respond"
        case .undecided: "the upstream has not responded completely"
        case .closed: "the store is closed"
        }
    }
}
