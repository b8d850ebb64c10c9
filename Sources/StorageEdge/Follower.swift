import Bucketing
import Dispatch
import JSON
import Storage
import StorageSQLite

/// Follows the upstream's feed on a queue of its own.
///
/// If the copy has no position in the feed, the follower first notes the current end of the feed and copies all users.
/// Then it repeatedly requests the lines after the copy's position, with long polls.
final class Follower: Sendable {
    private let upstream: Upstream
    private let applier: FeedApplier
    /// The maximum number of users that one transaction stores.
    private static let users = 4_000
    /// The maximum time in seconds for which the upstream may send nothing while all users are being copied.
    private static let idleSeconds = 10
    private let queue = DispatchQueue(label: "edge-feed", qos: .userInitiated)
    /// Called on the follower's thread whenever the copy is up to date.
    private let didCatchUp: @Sendable () -> Void

    init(_ upstream: Upstream, _ applier: FeedApplier, didCatchUp: @escaping @Sendable () -> Void) {
        self.upstream = upstream
        self.applier = applier
        self.didCatchUp = didCatchUp
    }

    func start() {
        queue.async { [self] in upstream.follow(step) }
    }

    /// Blocks until the follower has ended, after ``Upstream/close()``.
    func wait() {
        queue.sync {}
    }

    /// Advances the copy. If the feed does not continue at the copy's position, makes the copy begin anew.
    ///
    /// - Returns: whether there was progress; see ``Upstream/follow(_:)``.
    private func step(_ connection: UpstreamConnection) throws -> Bool {
        let generation = applier.generation
        do {
            return try advance(connection)
        } catch UpstreamError.refused(410, _) {
            applier.forget(generation, "the upstream's feed does not have what follows the copy")
            return false
        } catch FeedApplier.Failure.needsCopy(let reason) {
            applier.forget(generation, reason)
            return false
        } catch let error as UpstreamError {
            // Other errors are reported as an upstream that is away (``Upstream/didFail(_:)``).
            if case .malformed = error { report(error) }
            throw error
        } catch {
            report(error)
            throw error
        }
    }

    /// Reports to operators that the copy cannot follow the feed.
    private func report(_ error: any Error) {
        guard !upstream.cancellation.isCancelled else { return }
        upstream.configuration.report(.copyFails(reason: "\(error)"))
    }

    /// Copies all users if necessary, and then applies the next lines of the feed.
    ///
    /// - Returns: whether there was progress. There was if the copy has advanced, or if the upstream has held a request
    ///   that asked for it. A request that did not ask for it is progress once the copy is up to date, because the next
    ///   request asks for it.
    private func advance(_ connection: UpstreamConnection) throws -> Bool {
        let isNew = !applier.present.isComplete
        if try applier.beginCopy(connection, upstream) {
            upstream.didRespond()
            if isNew { upstream.configuration.report(.copyBegins(reason: "the file is new")) }
        }
        if applier.present.copiedTo != nil { try copyUsers(connection) }
        guard let position = applier.position else { return false }
        // An upstream that was away is not asked to wait, so that its return is noticed at once.
        let wait = upstream.isUp && applier.lag != nil ? upstream.configuration.pollSeconds : 0
        let askedAt = DispatchTime.now().uptimeNanoseconds
        let batch = try FeedBatch.read(
            after: position.text, limit: FeedBatch.mostLines, wait: wait, connection, upstream)
        try applier.apply(batch, askedAt: askedAt)
        upstream.didRespond()
        if batch.isComplete { didCatchUp() }
        let waited = DispatchTime.now().uptimeNanoseconds &- askedAt
        let upstreamHeldRequest = waited > UInt64(Upstream.shortestWait * 1e9)
        return batch.end != position || upstreamHeldRequest || (wait == 0 && batch.isComplete)
    }

    // MARK: All users

    /// Copies all users from the last copied one on, which may take several requests.
    private func copyUsers(_ connection: UpstreamConnection) throws {
        var copied = 0
        while let last = applier.present.copiedTo { copied += try copyUsers(after: last, connection) }
        upstream.configuration.report(.copyEnds(users: copied))
    }

    /// Copies the users of one response.
    ///
    /// - Parameter last: the last user that was copied; empty to begin.
    /// - Returns: the number of users.
    private func copyUsers(after last: Identifier, _ connection: UpstreamConnection) throws -> Int {
        let path = "/edge/v1/users" + (last.string.isEmpty ? "" : "?after=\(last.string.percentEncoded)")
        let request = UpstreamConnection.Request(path: path, idleSeconds: Self.idleSeconds)
        var page = UserPage(upstream, CopyWriter(applier), size: Self.users)
        var malformed: UpstreamError?
        let received = Result { () throws(UpstreamError) in
            try connection.lines(of: request) { line in
                do throws(UpstreamError) {
                    page.take(try UserLine(line))
                    return true
                } catch {
                    malformed = error
                    return false
                }
            }
        }
        // Even if the response is incomplete, its users are written, so that the next request continues after them.
        try page.writer.finish()
        if let malformed { throw malformed }
        try received.get()
        guard page.hasEnded else { throw UpstreamError.noResponse("the copy of all users ended early") }
        return page.copied
    }
}

/// The users of one response, which are written in transactions of a fixed size.
private struct UserPage {
    private let upstream: Upstream
    let writer: CopyWriter
    /// The number of users that one transaction stores.
    private let size: Int
    /// The number of users so far.
    private(set) var copied = 0
    /// Whether the line that ends the response has arrived.
    private(set) var hasEnded = false
    /// The users of the next transaction.
    private var users: [MirroredUser] = []

    init(_ upstream: Upstream, _ writer: CopyWriter, size: Int) {
        self.upstream = upstream
        self.writer = writer
        self.size = size
        users.reserveCapacity(size)
    }

    /// Takes a line. Schedules a write once there are enough users, and at the end of the response.
    mutating func take(_ line: UserLine) {
        switch line {
        case .user(let user):
            copied += 1
            users.append(user)
            guard users.count == size else { return }
            // A copy of many users takes long, so the contact is noted before the response has ended.
            upstream.didRespond()
            writer.write(users, isLast: false)
            users.removeAll(keepingCapacity: true)
        // A user whose records the upstream cannot decode is left out.
        case .damaged: break
        case .end(let last):
            hasEnded = true
            writer.write(users, isLast: last == nil)
        }
    }
}

/// Stores users on a queue of its own while the next users arrive.
private final class CopyWriter: @unchecked Sendable {
    // Safe: the state is read only after waiting for the work on the queue that wrote it.
    private let applier: FeedApplier
    private let queue = DispatchQueue(label: "edge-copy", qos: .userInitiated)
    /// Limits the writes that are in progress or wait to two, so that users do not arrive faster than they are stored.
    private let room = DispatchSemaphore(value: 2)
    private var failure: StorageError?

    init(_ applier: FeedApplier) {
        self.applier = applier
    }

    /// Schedules a write. Blocks while two others are in progress or wait.
    func write(_ users: [MirroredUser], isLast: Bool) {
        room.wait()
        queue.async { [self] in
            defer { room.signal() }
            guard failure == nil else { return }
            do throws(StorageError) {
                try applier.copy(users, isLast: isLast)
            } catch {
                failure = error
            }
        }
    }

    /// Waits for the writes.
    ///
    /// - Throws: the error of the first write that has failed.
    func finish() throws(StorageError) {
        if let failure = queue.sync(execute: { failure }) { throw failure }
    }
}

extension FeedBatch {
    /// Requests lines of the feed.
    ///
    /// - Parameters:
    ///   - after: a ``FeedCursor/text``, or `now` for the current end of the feed.
    ///   - limit: the maximum number of lines.
    ///   - wait: how long the upstream may wait for a line, in seconds.
    static func read(
        after: String, limit: Int, wait: Int, _ connection: UpstreamConnection, _ upstream: Upstream
    ) throws(UpstreamError) -> FeedBatch {
        let path = "/edge/v1/feed?after=\(after)&limit=\(limit)&wait=\(wait)&kinds=\(kinds)"
        return try FeedBatch(
            try connection.expect(.init(path: path, idleSeconds: upstream.idleSeconds(wait: wait))).body)
    }
}
