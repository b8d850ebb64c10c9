import Dispatch
import Storage
import StorageSQLite
import Synchronization

/// Follows the upstream's definitions on a serial queue of its own.
///
/// Before it activates new definitions, it applies the feed up to the moment at which the upstream has read them. The
/// edge then knows all users whom the former definitions have enrolled, and the upstream no longer enrolls users by
/// them.
final class DefinitionsFollower: Sendable {
    private let upstream: Upstream
    private let applier: FeedApplier
    private let queue = DispatchQueue(label: "edge-definitions", qos: .userInitiated)
    /// Held while definitions are activated, so that older ones never follow newer ones.
    private let order = Mutex(())

    init(_ upstream: Upstream, _ applier: FeedApplier) {
        self.upstream = upstream
        self.applier = applier
    }

    func start() {
        queue.async { [self] in upstream.follow(step) }
    }

    func wait() {
        queue.sync {}
    }

    /// Waits for new definitions and activates them.
    ///
    /// - Returns: whether there was progress; see ``Upstream/follow(_:)``. There was if there are new definitions, or
    ///   if the upstream has waited before it responded that there are none.
    private func step(_ connection: UpstreamConnection) throws -> Bool {
        let wait = applier.hasDefinitions && upstream.isUp ? upstream.configuration.pollSeconds : 0
        // Reads without holding `order`, because the upstream may hold the request until there are new definitions, and
        // `catchUp` must not wait for that. The generation is determined before the request, so that definitions of
        // another generation are not activated.
        guard let generation = applier.generation else { return false }
        let askedAt = DispatchTime.now()
        guard let change = try read(of: generation, wait: wait, connection) else {
            return wait > 0 && askedAt + Upstream.shortestWait < .now()
        }
        return try activate(change, connection) != .known
    }

    /// Activates the current definitions of the upstream, without waiting for new ones.
    ///
    /// - Throws: ``UpstreamError``, ``FeedApplier/Failure``, `StorageError`
    func catchUp(_ connection: UpstreamConnection) throws {
        while let generation = applier.generation, let change = try read(of: generation, wait: 0, connection) {
            if try activate(change, connection) != .outdated { return }
        }
    }

    /// Definitions that the upstream has sent, as the difference to those of the copy.
    private struct Change {
        let definitions: UpstreamDefinitions
        /// The state of the copy when the definitions were requested.
        let former: EdgeState
    }

    /// The result of activating a change.
    private enum Activation {
        case done
        /// The copy has these definitions already.
        case known
        /// The copy has got other definitions since the change was requested, so the difference does not apply.
        case outdated
    }

    /// Requests the definitions that have changed.
    ///
    /// - Parameters:
    ///   - generation: the epoch of the feed that the copy follows. The upstream refuses another one with 410.
    ///   - wait: how long the upstream may wait for new definitions, in seconds.
    /// - Returns: `nil` if nothing has changed.
    private func read(
        of generation: Int64, wait: Int, _ connection: UpstreamConnection
    ) throws -> Change? {
        let known = applier.present
        let (changes, newest) = known.needsAllDefinitions ? (-1, 0) : (known.definitions, known.newestDatafile)
        let path =
            "/edge/v1/definitions?after=\(changes)&datafiles_after=\(newest)&elements_after=\(newest)&wait=\(wait)"
            + "&generation=\(String(generation, radix: 16))"
        let result = Result { () throws(UpstreamError) in
            try connection.expect(.init(path: path, idleSeconds: upstream.idleSeconds(wait: wait)))
        }
        if case .failure(.refused(410, let detail)) = result { applier.forget(generation, detail) }
        let response = try result.get()
        guard response.status == 200 else { return nil }
        return Change(definitions: try UpstreamDefinitions(response.body), former: known)
    }

    /// Applies the feed up to the definitions, and activates them.
    private func activate(_ change: Change, _ connection: UpstreamConnection) throws -> Activation {
        try order.withLock { _ in
            let present = applier.present
            guard present.hasDefinitions(of: change.former) else { return .outdated }
            guard present.needsAllDefinitions || change.definitions.state.changes > present.definitions else {
                return .known
            }
            try applier.catchUp(to: change.definitions.feed, connection, upstream)
            return try applier.apply(change.definitions, since: change.former) ? .done : .outdated
        }
    }
}

extension FeedApplier {
    /// Applies the feed until the copy has reached a position. While all users are being copied it returns at once,
    /// because decisions then ask the upstream.
    ///
    /// - Parameter target: the position to reach; `nil` for the current end of the feed.
    func catchUp(to target: FeedCursor?, _ connection: UpstreamConnection, _ upstream: Upstream) throws {
        while let position, target.map({ $0.epoch == position.epoch && $0.isAfter(position) }) ?? true {
            let askedAt = DispatchTime.now().uptimeNanoseconds
            let batch = try FeedBatch.read(after: position.text, limit: 10_000, wait: 0, connection, upstream)
            try apply(batch, askedAt: askedAt)
            // A batch that does not advance counts as the end, too. Otherwise the loop might never end.
            if batch.isComplete || batch.end == position { return }
        }
    }
}
