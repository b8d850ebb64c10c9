import Bucketing
import Dispatch
import Glibc
import Storage
import StorageSQLite
import Synchronization

/// Writes the copy of an edge: users, from the lines of the upstream's feed, and definitions. No other type writes the
/// copy.
///
/// Lines come from the ``Follower`` and with the responses to changes (``Enroller``), so some lines come twice. The
/// copy has a position in the feed, which is written in the same transaction as the lines before it. Lines up to the
/// position are skipped.
///
/// The ``EdgeState`` records how far the copy follows the upstream:
///
/// 1. A new copy notes the current end of the feed as its position (``beginCopy(_:_:)``).
/// 2. All users are copied (``copy(_:isLast:)``).
/// 3. The lines after the position are applied (``apply(_:askedAt:)``).
/// 4. If the feed does not continue at the position, the copy begins anew (``forget(_:_:)``).
///
/// A feed that was begun anew has another *generation*. The generation is the epoch of the feed's cursors.
final class FeedApplier: Sendable {
    enum Failure: Error {
        /// The copy cannot continue from its position; all users must be copied again.
        case needsCopy(String)
        case store(StorageError)
    }

    private let store: SQLiteStore
    private let identity: UpstreamIdentity
    private let report: @Sendable (EdgeEvent) -> Void
    /// The state of the copy. It is locked during each write, so that there is one write at a time.
    private let state: Mutex<EdgeState>
    /// When the copy was last known to be up to date, in monotonic nanoseconds; 0 for never.
    private let currentAsOf = Atomic<UInt64>(0)
    /// When the position was last written.
    private let savedAt = Mutex(DispatchTime.now())
    /// The minimum time between two writes of the position if there are no lines to apply, in seconds. The position
    /// then only saves work after a restart, so it is not worth a commit for each response.
    private static let savingSeconds = 10.0
    // These are copies of parts of the state. Lookups read them without waiting for a write, which locks the state.

    /// Whether the last attempt to write the copy has failed.
    private let failsToWrite = Atomic<Bool>(false)
    /// ``EdgeState/isComplete`` of the state.
    private let completeness: Atomic<Bool>
    /// Whether the copy has definitions, perhaps of a former generation.
    private let definitionsAreKnown: Atomic<Bool>

    /// - Parameter stored: the state in the file.
    init(
        _ store: SQLiteStore, _ identity: UpstreamIdentity, _ stored: EdgeState,
        report: @escaping @Sendable (EdgeEvent) -> Void
    ) {
        self.store = store
        self.identity = identity
        self.report = report
        state = Mutex(stored)
        completeness = Atomic(stored.isComplete)
        definitionsAreKnown = Atomic(stored.definitions >= 0)
    }

    /// Whether the copy has been complete at some time, and has definitions. It can then serve without the upstream.
    var isComplete: Bool { completeness.load(ordering: .acquiring) && hasDefinitions }
    /// Whether the copy has definitions, perhaps of a former generation.
    var hasDefinitions: Bool { definitionsAreKnown.load(ordering: .acquiring) }

    /// The position in the feed that the copy has reached; `nil` before the first copy, and while all users are being
    /// copied.
    var position: FeedCursor? { state.withLock { $0.copiedTo == nil ? $0.cursor : nil } }

    /// The epoch of the upstream's feed that the copy follows; `nil` if the copy follows no feed. While all users are
    /// being copied, the copy follows a feed already.
    var generation: Int64? { state.withLock { $0.cursor?.epoch } }

    /// The ``generation`` if the definitions of the copy belong to it; otherwise `nil`. Decisions with definitions of
    /// another generation must not be stored.
    var decidingGeneration: Int64? { state.withLock { $0.definitions < 0 ? nil : $0.cursor?.epoch } }

    /// The present state of the copy.
    var present: EdgeState { state.withLock { $0 } }

    /// Whether the last attempt to write the copy has failed, so that it lacks later changes.
    var lacksWrites: Bool { failsToWrite.load(ordering: .relaxed) }

    /// The seconds since the copy was last known to be up to date; `nil` if it has not been in this run.
    var lag: Double? {
        let time = currentAsOf.load(ordering: .acquiring)
        return time == 0 ? nil : Double(DispatchTime.now().uptimeNanoseconds &- time) / 1e9
    }

    /// Applies lines of the feed.
    ///
    /// - Parameter askedAt: when the request was sent, in monotonic nanoseconds.
    /// - Throws: ``Failure/needsCopy(_:)`` if the feed does not continue at the copy's position or the copy is damaged;
    ///   ``Failure/store(_:)`` if the copy cannot be written.
    func apply(_ batch: FeedBatch, askedAt: UInt64) throws(Failure) {
        guard let end = batch.end else { return }
        let result = state.withLock { state -> Result<Void, Failure> in
            Result { () throws(Failure) in try apply(batch, reaching: end, askedAt, &state) }
        }
        try result.get()
    }

    private func apply(
        _ batch: FeedBatch, reaching end: FeedCursor, _ askedAt: UInt64, _ state: inout EdgeState
    ) throws(Failure) {
        // While all users are being copied, no lines are applied. Afterwards they are read again, from the position at
        // which the copy began.
        guard let reached = state.cursor, state.copiedTo == nil else { return }
        guard end.epoch == reached.epoch else { throw .needsCopy("the upstream has another generation") }
        var next = state
        let advances = end.isAfter(reached)
        if advances { next.cursor = end }
        next.isComplete = next.isComplete || batch.isComplete
        let lines = batch.lines.filter { $0.cursor.isAfter(reached) }
        let positionIsDue = advances && savedAt.withLock { $0 + Self.savingSeconds < .now() }
        if !lines.isEmpty || next.isComplete != state.isComplete || positionIsDue {
            try write(lines, next, &state)
            savedAt.withLock { $0 = .now() }
        }
        // The write has updated these two in `state`.
        next.upstreamID = state.upstreamID
        next.clockOffset = state.clockOffset
        state = next
        // The batch has everything that the upstream had when it got the request. It may have got more since.
        if batch.isComplete { currentAsOf.max(askedAt, ordering: .acquiringAndReleasing) }
        completeness.store(next.isComplete, ordering: .releasing)
    }

    /// Writes lines, grouped by user, and the next state in one transaction.
    private func write(_ lines: [FeedBatch.Line], _ next: EdgeState, _ state: inout EdgeState) throws(Failure) {
        var users: [(userID: Identifier, changes: [MirroredChange])] = []
        var indices: [Identifier: Int] = [:]
        for line in lines {
            if let index = indices[line.userID] {
                users[index].changes.append(line.change)
            } else {
                indices[line.userID] = users.count
                users.append((line.userID, [line.change]))
            }
        }
        do throws(StorageError) {
            try write(next, to: &state) { state throws(StorageError) in try store.mirror(users, reaching: state) }
                .get()
        } catch {
            // The lines are applied again later. Applying a line twice changes nothing.
            if case .damaged(let reason) = error { throw .needsCopy(reason) }
            throw .store(error)
        }
    }

    // MARK: Copies of all users

    /// Begins a copy of all users at the current end of the feed, unless one is in progress or complete.
    ///
    /// - Returns: whether this call has begun a copy.
    func beginCopy(_ connection: UpstreamConnection, _ upstream: Upstream) throws -> Bool {
        guard generation == nil,
            let cursor = try FeedBatch.read(after: "now", limit: 0, wait: 0, connection, upstream).end
        else { return false }
        return try change { state in
            guard state.cursor == nil else { return }
            state.cursor = cursor
            state.copiedTo = ""
        }
    }

    /// Stops following a generation of the feed, so that the follower copies all users and definitions again. Until
    /// then the old copy serves lookups while the upstream is away.
    ///
    /// - Parameters:
    ///   - generation: the generation to stop following; `nil` for any. Nothing happens if the copy follows another
    ///     generation by now.
    ///   - reason: for operators.
    func forget(_ generation: Int64?, _ reason: String) {
        let isFollowed = try? change { state in
            guard state.cursor != nil, generation == nil || generation == state.cursor?.epoch else { return }
            state.cursor = nil
            state.copiedTo = nil
            // -1 makes ``DefinitionsFollower`` request all definitions.
            state.definitions = -1
        }
        // If the write failed, the next refusal of the upstream tries again.
        guard isFollowed == true else { return }
        currentAsOf.store(0, ordering: .releasing)
        report(.copyBegins(reason: reason))
    }

    /// Stores the next users of a copy, in the order of their ids. Does nothing if no copy is in progress.
    ///
    /// - Parameter isLast: whether these are the last users, so that the copy of all users is complete.
    func copy(_ users: [MirroredUser], isLast: Bool) throws(StorageError) {
        let result = state.withLock { state -> Result<Void, StorageError> in
            guard let first = state.copiedTo else { return .success(()) }
            var next = state
            next.copiedTo = isLast ? nil : users.last?.userID ?? first
            let last = isLast ? nil : next.copiedTo
            return write(next, to: &state) { state throws(StorageError) in
                try store.replaceUsers(with: users, after: first, through: last, reaching: state)
            }
        }
        try result.get()
    }

    /// Changes and writes the state, but no users.
    ///
    /// - Returns: whether the body has changed the state.
    private func change(_ body: (inout EdgeState) -> Void) throws(StorageError) -> Bool {
        let result = state.withLock { state -> Result<Bool, StorageError> in
            var next = state
            body(&next)
            guard next != state else { return .success(false) }
            return write(next, to: &state) { state throws(StorageError) in try store.put(state) }.map { true }
        }
        return try result.get()
    }

    /// Writes to the store, and updates the state if that succeeds.
    ///
    /// - Parameters:
    ///   - next: the state after the write. The current identity and clock offset of the upstream are added.
    ///   - operation: writes the state that it is given, with users or definitions.
    private func write(
        _ next: EdgeState, to state: inout EdgeState, _ operation: (EdgeState) throws(StorageError) -> Void
    ) -> Result<Void, StorageError> {
        let reached = next.adding(identity)
        var result = Result { () throws(StorageError) in try operation(reached) }
        // Too many changes wait for the store's writer. The lines or users of this write must not be skipped, so the
        // write is tried again, every 10 ms.
        while case .failure(.overloaded) = result {
            usleep(10_000)
            result = Result { () throws(StorageError) in try operation(reached) }
        }
        switch result {
        case .success:
            state = reached
            failsToWrite.store(false, ordering: .relaxed)
        // Other errors, such as damage, do not mean that the file cannot be written.
        case .failure(.unavailable): failsToWrite.store(true, ordering: .relaxed)
        case .failure: break
        }
        return result
    }

    // MARK: Definitions

    /// Activates definitions. The copy must have applied the feed up to ``UpstreamDefinitions/feed``; see
    /// ``DefinitionsFollower``.
    ///
    /// - Parameter former: the state of the copy when the definitions were requested. The definitions are the
    ///   difference to this state.
    /// - Returns: `false` if the copy has other definitions by now; nothing was written then.
    /// - Throws: ``Failure/needsCopy(_:)`` if the definitions are of another generation; ``Failure/store(_:)`` if the
    ///   copy cannot be written.
    func apply(_ definitions: UpstreamDefinitions, since former: EdgeState) throws(Failure) -> Bool {
        let result = state.withLock { state -> Result<Bool, Failure> in
            guard state.cursor?.epoch == definitions.feed.epoch else {
                return .failure(.needsCopy("the definitions are of another generation"))
            }
            guard state.hasDefinitions(of: former) else { return .success(false) }
            var next = state
            let isWhole = next.needsAllDefinitions
            next.hasParts = true
            next.definitions = definitions.state.changes
            next.newestDatafile = definitions.state.newestDatafile
            return write(next, to: &state) { state throws(StorageError) in
                try store.mirror(definitions.state, isWhole: isWhole, reaching: state)
            }.map { true }.mapError { .store($0) }
        }
        guard try result.get() else { return false }
        definitionsAreKnown.store(true, ordering: .releasing)
        return true
    }
}

extension FeedApplier {
    /// Reads and applies the feed until the copy has reached a position. While all users are being copied, returns at
    /// once: until the copy is complete, lookups ask the upstream.
    ///
    /// - Parameter target: the position to reach; `nil` for the current end of the feed.
    /// - Throws: ``UpstreamError`` if the upstream does not respond; ``Failure``, see ``apply(_:askedAt:)``.
    func catchUp(to target: FeedCursor?, _ connection: UpstreamConnection, _ upstream: Upstream) throws {
        func isBehindTarget(_ position: FeedCursor) -> Bool {
            guard let target else { return true }
            return target.epoch == position.epoch && target.isAfter(position)
        }
        while let position, isBehindTarget(position) {
            let askedAt = DispatchTime.now().uptimeNanoseconds
            let batch = try FeedBatch.read(
                after: position.text, limit: FeedBatch.mostLines, wait: 0, connection, upstream)
            try apply(batch, askedAt: askedAt)
            // A batch that does not advance counts as the end, too. Otherwise the loop might never end.
            if batch.isComplete || batch.end == position { return }
        }
    }
}

extension EdgeState {
    /// Returns the state with the upstream's identity and clock offset.
    fileprivate func adding(_ identity: UpstreamIdentity) -> EdgeState {
        var state = self
        state.upstreamID = identity.upstreamID
        state.clockOffset = identity.clockOffset
        return state
    }
}

extension FeedCursor {
    /// Whether the position comes after another one in the same feed.
    func isAfter(_ other: FeedCursor) -> Bool { (number, lines) > (other.number, other.lines) }
}
