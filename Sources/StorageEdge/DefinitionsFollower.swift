import Dispatch
import Storage
import StorageSQLite
import Synchronization

/// Follows the upstream's definitions on a thread of its own.
///
/// Definitions are activated only when the copy has everything that was committed before they were read: so a user who was
/// enrolled under the former ones is known before the new ones decide. The upstream enrolls nobody with former definitions
/// once there are new ones.
final class DefinitionsFollower: Sendable {
    private let upstream: Upstream
    private let applier: FeedApplier
    private let queue = DispatchQueue(label: "edge-definitions", qos: .userInitiated)
    /// Held while definitions are read and activated, so that older ones never follow newer ones.
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

    private func step(_ connection: UpstreamConnection) throws -> Bool {
        let wait = applier.hasDefinitions && upstream.isUp ? upstream.configuration.pollSeconds : 0
        // Read outside of the lock: who catches up does not wait for news.
        // They are of the generation that the follower has begun with.
        guard let generation = applier.generation else { return false }
        let askedAt = DispatchTime.now()
        guard let definitions = try read(of: generation, wait: wait, connection) else {
            return wait > 0 && askedAt + Upstream.shortestWait < .now()
        }
        return try activate(definitions, connection)
    }

    /// Activates what the upstream has now.
    ///
    /// - Throws: ``UpstreamError``, ``FeedApplier/Failure``, `StorageError`
    func catchUp(_ connection: UpstreamConnection) throws {
        guard let generation = applier.generation,
            let definitions = try read(of: generation, wait: 0, connection)
        else { return }
        _ = try activate(definitions, connection)
    }

    /// - Returns: `nil` if nothing has changed.
    private func read(
        of generation: Int64, wait: Int, _ connection: UpstreamConnection
    ) throws -> UpstreamDefinitions? {
        let known = applier.present
        let newest = known.definitions < 0 ? 0 : known.newestDatafile
        let path =
            "/edge/v1/definitions?after=\(known.definitions)&datafiles_after=\(newest)&wait=\(wait)"
            + "&generation=\(String(generation, radix: 16))"
        let result = Result { () throws(UpstreamError) in
            try connection.expect(.init(path: path, idleSeconds: upstream.idleSeconds(wait: wait)))
        }
        if case .failure(.refused(410, let detail)) = result { applier.forget(generation, detail) }
        let response = try result.get()
        return response.status == 200 ? try UpstreamDefinitions(response.body) : nil
    }

    /// - Returns: whether they are newer than those that the copy has.
    private func activate(_ definitions: UpstreamDefinitions, _ connection: UpstreamConnection) throws -> Bool {
        try order.withLock { _ in
            guard definitions.state.changes > applier.present.definitions else { return false }
            try applier.catchUp(to: definitions.feed, connection, upstream)
            try applier.apply(definitions)
            return true
        }
    }
}

extension FeedApplier {
    /// Applies the feed until the copy has everything up to a place; `nil` stands for its present end. While all users are
    /// copied there is nothing to wait for: decisions ask the upstream then.
    func catchUp(to place: FeedCursor?, _ connection: UpstreamConnection, _ upstream: Upstream) throws {
        while let position, place.map({ $0.epoch == position.epoch && $0.isBehind(position) }) ?? true {
            let askedAt = DispatchTime.now().uptimeNanoseconds
            let batch = try FeedBatch.read(after: position.text, limit: 10_000, wait: 0, connection, upstream)
            try apply(batch, askedAt: askedAt)
            // An end that does not move is the end, too.
            if batch.isComplete || batch.end == position { return }
        }
    }
}
