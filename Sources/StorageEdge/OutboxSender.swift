import Bucketing
import Dispatch
import JSON
import Storage
import StorageSQLite
import Synchronization

/// Sends what waits in the outbox, oldest first, on a thread of its own. Only while the copy is up to date: an erasure that
/// the copy does not know of yet must take the user's events with it.
final class OutboxSender: Sendable {
    private let upstream: Upstream
    private let applier: FeedApplier
    private let outbox: EventOutbox
    private let queue = DispatchQueue(label: "edge-outbox", qos: .userInitiated)
    private let wakes = DispatchSemaphore(value: 0)
    private let isAwake = Atomic<Bool>(false)
    let sent = Counter()
    let refused = Counter()
    /// How many entries one request has at most, and about how many bytes.
    private static let (entries, bytes) = (1_000, 512 << 10)

    init(_ upstream: Upstream, _ applier: FeedApplier, _ outbox: EventOutbox) {
        self.upstream = upstream
        self.applier = applier
        self.outbox = outbox
    }

    func start() {
        queue.async { [self] in run() }
    }

    /// Says that there may be something to send.
    func wake() {
        if !isAwake.exchange(true, ordering: .acquiringAndReleasing) { wakes.signal() }
    }

    func wait() {
        wake()
        queue.sync {}
    }

    private func run() {
        let connection = upstream.makeConnection()
        var backoff = Backoff()
        while !upstream.cancellation.isCancelled {
            wakes.wait()
            isAwake.store(false, ordering: .releasing)
            while !upstream.cancellation.isCancelled, upstream.isUp, applier.position != nil, applier.isComplete {
                do {
                    guard try sendNext(connection, at: Self.entries) else { break }
                    backoff.reset()
                } catch {
                    if let error = error as? UpstreamError { upstream.didFail(error) }
                    upstream.pause(seconds: backoff.next())
                }
            }
        }
    }

    /// - Returns: whether there was anything to send.
    private func sendNext(_ connection: UpstreamConnection, at limit: Int) throws -> Bool {
        let entries = try outbox.first(limit, bytes: Self.bytes)
        guard let last = entries.last else { return false }
        let request = UpstreamConnection.Request(
            method: "POST", path: "/edge/v1/events", fields: ["Content-Type: application/json"],
            body: Self.encode(entries, after: applier.position), seconds: upstream.configuration.timeout * 5)
        let answer = Result { () throws(UpstreamError) in try connection.expect(request) }
        switch answer {
        case .success: sent.add(entries.count)
        case .failure(.refused(409, _)):
            // An erasure is behind the copy's place: once it is applied, the user's events are gone.
            try applier.catchUp(to: nil, connection, upstream)
            return true
        case .failure(.refused(let status, let detail)) where Self.isForGood(status):
            // Which one of them it is shows when they are sent one by one.
            guard entries.count == 1 else { return try sendNext(connection, at: max(1, entries.count / 2)) }
            refused.add(1)
            upstream.configuration.report(.eventsRefused(count: 1, reason: detail))
        case .failure(let error): throw error
        }
        try outbox.remove(through: last.number)
        return true
    }

    /// Whether a refusal is of what was sent, whenever it is sent. 410 is of the place in the feed: the follower finds out.
    private static func isForGood(_ status: Int) -> Bool {
        (400..<500).contains(status) && ![401, 403, 404, 408, 410, 429].contains(status)
    }

    /// A body with entries as ``OutboxEntry`` encodes them: the user's id is added, which a merge may have changed.
    private static func encode(_ entries: [EventOutbox.Entry], after position: FeedCursor?) -> [UInt8] {
        var writer = JSONWriter(capacity: 256 * entries.count)
        writer.beginObject()
        writer.member("after", position?.text)
        writer.key("events")
        writer.beginArray()
        for entry in entries {
            guard let userID = entry.userID else { continue }
            writer.beginObject()
            writer.member("user_id", userID.string)
            // The members of an object, without its braces.
            writer.raw(entry.content)
            writer.endObject()
        }
        writer.endArray()
        writer.key("uses")
        writer.beginArray()
        for entry in entries where entry.userID == nil { writer.raw(entry.content) }
        writer.endArray()
        writer.endObject()
        return writer.finish()
    }
}

/// What waits in the outbox, as the upstream takes it.
enum OutboxEntry {
    /// - Returns: the members of a JSON object, all but the user's id.
    static func encode(_ event: UserEvent) -> [UInt8] {
        var writer = JSONWriter()
        switch event {
        case .exposure(let exposure):
            writer.member("kind", "exposure")
            writer.member("experiment_id", exposure.experimentID.string)
            writer.member("experiment_key", exposure.experimentKey.string)
            writer.member("variation_id", exposure.variationID.string)
            writer.member("happened_at", exposure.happenedAt)
            writer.member("is_chosen", exposure.isChosen)
            writer.member("sdk_key", exposure.sdkKey)
            writer.member("enrolls", exposure.enrollsWith != nil)
            writer.member("payload", String(decoding: exposure.payload, as: UTF8.self))
        case .goal(let goal):
            writer.member("kind", "goal")
            writer.member("goal", goal.goal.string)
            writer.key("value")
            writer.shortest(goal.value)
            writer.member("happened_at", goal.happenedAt)
            writer.member("received_at", goal.receivedAt)
            // By its id the upstream knows an event that it gets twice.
            writer.member("id", goal.senderID?.string ?? randomID())
            writer.member("sdk_key", goal.sdkKey)
            writer.member("payload", String(decoding: goal.payload, as: UTF8.self))
        }
        return writer.finish()
    }

    private static func randomID() -> String {
        let (high, low) = (UInt64.random(in: .min ... .max), UInt64.random(in: .min ... .max))
        return "edge-\(String(high, radix: 36))\(String(low, radix: 36))"
    }

    static func encode(_ use: LastUse) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("sdk_key", use.subject.sdkKey)
        writer.member("kind", use.subject.kind.rawValue)
        writer.member("key", use.subject.key.string)
        writer.member("variation", use.subject.variation.string)
        writer.member("day", use.day)
        writer.endObject()
        return writer.finish()
    }
}
