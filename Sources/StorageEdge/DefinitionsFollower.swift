import Dispatch
import Storage
import StorageSQLite
import Synchronization

/// Follows the upstream's definitions on a serial queue of its own.
///
/// Before it activates new definitions, it applies the feed up to the moment at which the upstream has read these
/// definitions. The edge then knows all users whom the former definitions have enrolled: from that moment on, the
/// upstream enrolls nobody by the former definitions.
final class DefinitionsFollower: Sendable {
    private let upstream: Upstream
    private let applier: FeedApplier
    private let queue = DispatchQueue(label: "edge-definitions", qos: .userInitiated)
    /// Locked while definitions are activated, so that older definitions never replace newer ones.
    private let activationLock = Mutex(())

    init(_ upstream: Upstream, _ applier: FeedApplier) {
        self.upstream = upstream
        self.applier = applier
    }

    func start() {
        queue.async { [self] in upstream.follow(step) }
    }

    /// Blocks until the follower has ended, after ``Upstream/close()``.
    func wait() {
        queue.sync {}
    }

    /// Waits for new definitions and activates them.
    ///
    /// - Returns: whether there was progress; see ``Upstream/follow(_:)``. It is progress if there are new definitions,
    ///   or if the upstream held the request for some time before it responded that there are none.
    private func step(_ connection: UpstreamConnection) throws -> Bool {
        let wait = applier.hasDefinitions && upstream.isUp ? upstream.configuration.pollSeconds : 0
        // Reads without `activationLock`: the upstream may hold the request until there are new definitions, and
        // `catchUp` must not wait for that. The generation is read before the request, so that definitions of another
        // generation are not activated.
        guard let generation = applier.generation else { return false }
        let askedAt = DispatchTime.now()
        guard let change = try readChange(of: generation, wait: wait, connection) else {
            return wait > 0 && askedAt + Upstream.shortestWait < .now()
        }
        return try activate(change, connection) != .unchanged
    }

    /// Activates the current definitions of the upstream, without waiting for new ones.
    ///
    /// - Throws: ``UpstreamError`` if the upstream does not respond; ``FeedApplier/Failure`` and `StorageError` if the
    ///   copy cannot be written, or must begin anew.
    func catchUp(_ connection: UpstreamConnection) throws {
        while let generation = applier.generation, let change = try readChange(of: generation, wait: 0, connection) {
            // After `outdated`, the difference to the present definitions must be requested.
            if try activate(change, connection) != .outdated { return }
        }
    }

    /// Definitions that the upstream has sent, as the difference to the definitions of the copy.
    private struct Change {
        let definitions: UpstreamDefinitions
        /// The state of the copy when the definitions were requested, to which the difference applies.
        let former: EdgeState
    }

    /// The result of activating a change.
    private enum Activation {
        case activated
        /// The copy had these definitions already.
        case unchanged
        /// The copy has got other definitions since the change was requested, so the difference does not apply.
        case outdated
    }

    /// Requests the definitions that have changed since those of the copy.
    ///
    /// - Parameters:
    ///   - generation: the epoch of the feed that the copy follows. The upstream refuses another one with 410.
    ///   - wait: how long the upstream may wait for new definitions, in seconds.
    /// - Returns: `nil` if nothing has changed.
    private func readChange(
        of generation: Int64, wait: Int, _ connection: UpstreamConnection
    ) throws -> Change? {
        let former = applier.present
        // The number -1 of changes and the version 0 of a datafile request all definitions.
        let changes = former.needsAllDefinitions ? -1 : former.definitions
        let newest = former.needsAllDefinitions ? 0 : former.newestDatafile
        let path =
            "/edge/v1/definitions?after=\(changes)&datafiles_after=\(newest)&elements_after=\(newest)&wait=\(wait)"
            + "&generation=\(String(generation, radix: 16))"
        let result = Result { () throws(UpstreamError) in
            try connection.expect(.init(path: path, idleSeconds: upstream.idleSeconds(wait: wait)))
        }
        if case .failure(.refused(410, let detail)) = result { applier.forget(generation, detail) }
        let response = try result.get()
        guard response.status == 200 else { return nil }
        return Change(definitions: try UpstreamDefinitions(response.body), former: former)
    }

    /// Applies the feed up to the definitions, and activates them.
    private func activate(_ change: Change, _ connection: UpstreamConnection) throws -> Activation {
        try activationLock.withLock { _ in
            let present = applier.present
            guard present.hasDefinitions(of: change.former) else { return .outdated }
            let isNewer = change.definitions.state.changes > present.definitions
            guard present.needsAllDefinitions || isNewer else { return .unchanged }
            try applier.catchUp(to: change.definitions.feed, connection, upstream)
            return try applier.apply(change.definitions, since: change.former) ? .activated : .outdated
        }
    }
}
