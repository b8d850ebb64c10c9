import Bucketing
import Dispatch
import Glibc
import Storage
import StorageSQLite
import Synchronization

/// The one place that changes the copy: by lines of the upstream's feed, in their order, and by definitions.
///
/// Lines come from the follower and with the responses to changes, so some come twice: those that are not behind the
/// place that the copy has reached are skipped. The place is written in the transaction with them.
final class FeedApplier: Sendable {
    private let store: SQLiteStore
    private let outbox: EventOutbox
    private let state: Mutex<EdgeState>
    /// When the copy was last known to have everything, in monotonic nanoseconds; 0 for never.
    private let currentAsOf = Atomic<UInt64>(0)
    private let completeness: Atomic<Bool>
    private let definitionsAreKnown: Atomic<Bool>
    private let savedAt = Mutex(DispatchTime.now())
    /// A place that only lines of no interest led to is written this seldom.
    private static let savingSeconds = 10.0

    init(_ store: SQLiteStore, _ outbox: EventOutbox) throws(StorageError) {
        self.store = store
        self.outbox = outbox
        let stored = try store.edgeState()
        state = Mutex(stored)
        completeness = Atomic(stored.isComplete)
        definitionsAreKnown = Atomic(stored.definitions >= 0)
    }

    /// Whether the copy has been complete at some time, and there are definitions.
    var isComplete: Bool { completeness.load(ordering: .acquiring) && hasDefinitions }
    var hasDefinitions: Bool { definitionsAreKnown.load(ordering: .acquiring) }

    /// The place that the copy has reached; `nil` while there is none, or all users are being copied.
    var position: FeedCursor? { state.withLock { $0.copiedTo == nil ? $0.cursor : nil } }

    var present: EdgeState { state.withLock { $0 } }

    /// How long ago the copy was known to have everything, in seconds; `nil` if that was never so in this run.
    var lag: Double? {
        let time = currentAsOf.load(ordering: .acquiring)
        return time == 0 ? nil : Double(DispatchTime.now().uptimeNanoseconds &- time) / 1e9
    }

    /// - Parameter askedAt: when the upstream was asked, in monotonic nanoseconds.
    /// - Throws: ``Failure``
    func apply(_ batch: FeedBatch, askedAt: UInt64) throws(Failure) {
        guard let end = batch.end else { return }
        let result = state.withLock { state -> Result<Void, Failure> in
            Result { () throws(Failure) in try apply(batch, reaching: end, askedAt, &state) }
        }
        try result.get()
    }

    enum Failure: Error {
        /// The copy cannot go on from where it is.
        case needsCopy(String)
        case store(StorageError)
    }

    private func apply(
        _ batch: FeedBatch, reaching end: FeedCursor, _ askedAt: UInt64, _ state: inout EdgeState
    ) throws(Failure) {
        // While all users are copied, what happens since is read afterwards.
        guard let reached = state.cursor, state.copiedTo == nil else { return }
        guard end.epoch == reached.epoch else { throw .needsCopy("the upstream has another database") }
        var next = state
        let isNews = end.isBehind(reached)
        if isNews { next.cursor = end }
        next.isComplete = next.isComplete || batch.isComplete
        let lines = batch.lines.filter { $0.cursor.isBehind(reached) }
        let isDue = savedAt.withLock { $0 + Self.savingSeconds < .now() }
        if !lines.isEmpty || next.isComplete != state.isComplete || (isNews && isDue) {
            try write(lines, next)
            savedAt.withLock { $0 = .now() }
        }
        state = next
        if batch.isComplete { currentAsOf.max(askedAt, ordering: .acquiringAndReleasing) }
        completeness.store(next.isComplete, ordering: .releasing)
    }

    private func write(_ lines: [FeedBatch.Line], _ next: EdgeState) throws(Failure) {
        var users: [(userID: Identifier, changes: [MirroredChange])] = []
        var places: [Identifier: Int] = [:]
        for line in lines {
            if let place = places[line.userID] {
                users[place].changes.append(line.change)
            } else {
                places[line.userID] = users.count
                users.append((line.userID, [line.change]))
            }
        }
        do throws(StorageError) {
            // First, so that nothing of an erased user stays if the process ends in between.
            for line in lines {
                switch line.change {
                case .erasure: try outbox.erase(line.userID)
                case .merge: if let account = line.account { try outbox.move(line.userID, to: account) }
                case .assignment, .profile, .attributes: break
                }
            }
            try blocking { store.mirror(users, reaching: next, $0) }
        } catch {
            // The rest of the transaction may have been stored, which does no harm.
            if case .damaged(let reason) = error { throw .needsCopy(reason) }
            throw .store(error)
        }
    }

    // MARK: Copies of all users

    /// Begins a copy at a place in the feed.
    func beginCopy(at cursor: FeedCursor) throws(StorageError) {
        try change { ($0.cursor, $0.copiedTo) = (cursor, "") }
    }

    /// Gives up the place in the feed, so that all users and definitions are copied anew. What there is serves until then.
    func forgetPosition() throws(StorageError) {
        try change { ($0.cursor, $0.copiedTo, $0.definitions) = (nil, nil, -1) }
    }

    /// Stores users of the upstream, in the order of their ids.
    ///
    /// - Parameter isLast: whether there are no more.
    func copy(_ users: [MirroredUser], isLast: Bool) throws(StorageError) {
        let result = state.withLock { state -> Result<Void, StorageError> in
            guard let first = state.copiedTo else { return .success(()) }
            var next = state
            next.copiedTo = isLast ? nil : users.last?.userID ?? first
            let (last, reached) = (isLast ? nil : next.copiedTo, next)
            return Result { () throws(StorageError) in
                try blocking { store.replaceUsers(with: users, after: first, through: last, reaching: reached, $0) }
                state = reached
            }
        }
        try result.get()
    }

    private func change(_ body: (inout EdgeState) -> Void) throws(StorageError) {
        let result = state.withLock { state -> Result<Void, StorageError> in
            var next = state
            body(&next)
            let reached = next
            return Result { () throws(StorageError) in
                try blocking { store.put(reached, $0) }
                state = reached
            }
        }
        try result.get()
    }

    // MARK: Definitions

    /// Activates definitions. The copy must have everything up to the place that they name; see ``DefinitionsFollower``.
    func apply(_ definitions: UpstreamDefinitions) throws(StorageError) {
        let result = state.withLock { state -> Result<Void, StorageError> in
            var next = state
            let isWhole = next.definitions < 0
            (next.definitions, next.newestDatafile) = (definitions.state.changes, definitions.state.newestDatafile)
            let reached = next
            return Result { () throws(StorageError) in
                try blocking { store.mirror(definitions.state, isWhole: isWhole, reaching: reached, $0) }
                state = reached
            }
        }
        try result.get()
        definitionsAreKnown.store(true, ordering: .releasing)
    }
}

extension FeedCursor {
    /// Whether the place is behind another of the same feed.
    func isBehind(_ other: FeedCursor) -> Bool { (number, lines) > (other.number, other.lines) }
}

/// Waits for the store's writer, and longer if it has too much to do.
func blocking(
    _ operation: (@escaping @Sendable (Result<Void, StorageError>) -> Void) -> Void
) throws(StorageError) {
    while true {
        let outcome = Outcome<Void>()
        operation { outcome.settle($0) }
        let result = outcome.wait()
        guard case .failure(.overloaded) = result else { return try result.get() }
        usleep(10_000)
    }
}
