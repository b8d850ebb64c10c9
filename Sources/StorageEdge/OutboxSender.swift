import Bucketing
import Chronology
import Dispatch
import JSON
import Storage
import StorageSQLite
import Synchronization

/// Sends the entries of the outbox to the upstream, oldest first, on a thread of its own. An entry stays in the outbox
/// until the upstream has accepted it or refused it for good.
///
/// If the user of an entry was erased or merged into another after the edge had accepted the entry, the upstream drops
/// the entry or counts it for the account.
final class OutboxSender: Sendable {
    private let upstream: Upstream
    private let applier: FeedApplier
    private let outbox: EventOutbox
    private let queue = DispatchQueue(label: "edge-outbox", qos: .userInitiated)
    private let wakes = DispatchSemaphore(value: 0)
    private let isAwake = Atomic<Bool>(false)
    /// The number of entries that the upstream has accepted.
    let sent = Counter()
    /// The number of entries that the upstream has refused for good.
    let refused = Counter()
    /// The number of entries that the upstream has dropped, because their users were erased.
    let erased = Counter()
    /// The number of exposures without a variation, of users who have no assignment at the upstream either.
    let unassigned = Counter()
    /// The number of these exposures that are not reported to operators yet, and when they may be reported.
    private let unreported = Mutex((count: 0, next: ContinuousClock.now))
    private static let reportInterval = Duration.seconds(3_600)
    /// The maximum number of entries in a request.
    private static let entries = 1_000
    /// About the maximum size of the entries in a request, in bytes.
    private static let bytes = 512 << 10

    init(_ upstream: Upstream, _ applier: FeedApplier, _ outbox: EventOutbox) {
        self.upstream = upstream
        self.applier = applier
        self.outbox = outbox
    }

    func start() {
        queue.async { [self] in run() }
    }

    /// Signals that there may be entries to send.
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
            sendAll(connection, &backoff)
        }
    }

    /// Sends entries until none waits, or until the upstream is away or the copy is not complete.
    private func sendAll(_ connection: UpstreamConnection, _ backoff: inout Backoff) {
        while !upstream.cancellation.isCancelled, upstream.isUp, applier.position != nil, applier.isComplete {
            do {
                switch try sendNext(connection) {
                case .nothingWaits: return
                case .sent: backoff.reset()
                // The request would have the same result now. A pause prevents a busy loop.
                case .noneDone: upstream.pause(seconds: backoff.next())
                }
            } catch {
                if let error = error as? UpstreamError { upstream.didFail(error) }
                upstream.pause(seconds: backoff.next())
            }
        }
    }

    private enum Progress {
        case nothingWaits
        case sent
        /// Entries wait, but the upstream has neither accepted nor refused any.
        case noneDone
    }

    /// Sends the oldest entries, and removes those that are done from the outbox.
    private func sendNext(_ connection: UpstreamConnection) throws -> Progress {
        let entries = try outbox.first(Self.entries, bytes: Self.bytes)
        guard !entries.isEmpty else { return .nothingWaits }
        let done = try send(entries, connection)
        guard !done.isEmpty else { return .noneDone }
        try outbox.remove(done)
        return .sent
    }

    /// Sends entries in one request.
    ///
    /// - Returns: the numbers of the entries that the upstream has accepted or refused for good.
    /// - Throws: ``UpstreamError`` if the upstream has stored nothing, or if the outcome is unknown.
    func send(_ entries: [EventOutbox.Entry], _ connection: UpstreamConnection) throws(UpstreamError) -> [Int64] {
        let response = try connection.expect(
            UpstreamConnection.Request(
                method: "POST", path: "/edge/v1/events", fields: ["Content-Type: application/json"],
                body: Self.encode(entries, after: applier.position, applier.generation),
                seconds: upstream.configuration.timeout * 5))
        let object = (try? JSONParser().parse(response.body))?.object
        guard let taken = object?["taken"]?.array, let refusals = object?["refused"]?.array else {
            throw .malformed("a response to events must name the entries that are taken and refused")
        }
        let sentNumbers = Set(entries.map(\.number))
        let accepted = taken.compactMap(\.integer).filter(sentNumbers.contains)
        sent.add(accepted.count)
        erased.add(Int(clamping: max(0, object?["erased"]?.integer ?? 0)))
        return accepted + report(refusals, of: sentNumbers)
    }

    /// Counts refusals, and reports them to operators.
    ///
    /// - Returns: the numbers of the refused entries.
    private func report(_ refusals: [JSONValue], of sentNumbers: Set<Int64>) -> [Int64] {
        var numbers: [Int64] = []
        var reasons: [String: Int] = [:]
        var withoutAssignment: [String] = []
        for refusal in refusals {
            guard let refusal = refusal.object, let number = refusal["entry"]?.integer, sentNumbers.contains(number)
            else { continue }
            numbers.append(number)
            let reason = refusal["reason"]?.string ?? "it gives no reason"
            if refusal["unassigned"]?.bool == true {
                withoutAssignment.append(reason)
            } else {
                reasons[reason, default: 0] += 1
            }
        }
        for (reason, count) in reasons {
            refused.add(count)
            upstream.configuration.report(.eventsRefused(count: count, reason: reason))
        }
        if let reason = withoutAssignment.first { reportUnassigned(withoutAssignment.count, reason) }
        return numbers
    }

    /// Reports exposures of users without an assignment, at most once an hour. Apps may send them all the time, and a
    /// line for each would bury the log.
    private func reportUnassigned(_ count: Int, _ reason: String) {
        unassigned.add(count)
        let reported: Int? = unreported.withLock { state in
            state.count += count
            guard ContinuousClock.now >= state.next else { return nil }
            defer { state = (0, ContinuousClock.now + Self.reportInterval) }
            return state.count
        }
        guard let reported else { return }
        upstream.configuration.report(.exposuresUnassigned(count: reported, reason: reason))
    }

    /// Encodes the body of a request. The ``OutboxEntry`` content of an entry lacks the user's id, because a merge may
    /// change it while the entry waits; it is added here.
    private static func encode(
        _ entries: [EventOutbox.Entry], after position: FeedCursor?, _ generation: Int64?
    ) -> [UInt8] {
        var writer = JSONWriter(capacity: 256 * entries.count)
        writer.beginObject()
        writer.member("after", position?.text)
        writer.member("generation", generation.map { String($0, radix: 16) })
        writer.key("events")
        writer.beginArray()
        for entry in entries {
            guard let userID = entry.userID else { continue }
            writer.beginObject()
            writer.member("entry", entry.number)
            writer.member("user_id", userID.string)
            // The content has the members of an object, without its braces.
            writer.raw(entry.content)
            writer.endObject()
        }
        writer.endArray()
        writer.key("uses")
        writer.beginArray()
        for entry in entries where entry.userID == nil {
            writer.beginObject()
            writer.member("entry", entry.number)
            writer.raw(entry.content)
            writer.endObject()
        }
        writer.endArray()
        writer.endObject()
        return writer.finish()
    }
}

/// Encodes events and last uses for the outbox, as the upstream's `/edge/v1/events` expects them.
enum OutboxEntry {
    /// Encodes an event.
    ///
    /// - Parameter acceptedAt: when the edge accepted the event, by the upstream's clock, or a little earlier.
    /// - Returns: the members of a JSON object without braces, all but the user's id.
    static func encode(_ event: UserEvent, acceptedAt: Instant) -> [UInt8] {
        var writer = JSONWriter()
        writer.member("accepted_at", acceptedAt.milliseconds)
        switch event {
        case .exposure(let exposure):
            writer.member("kind", "exposure")
            writer.member("experiment_id", exposure.experimentID.string)
            writer.member("experiment_key", exposure.experimentKey.string)
            // Without a variation the upstream uses the user's assignment.
            if !exposure.variationID.string.isEmpty { writer.member("variation_id", exposure.variationID.string) }
            writer.member("happened_at", exposure.happenedAt.milliseconds)
            writer.member("is_chosen", exposure.isChosen)
            writer.member("sdk_key", exposure.sdkKey)
            writer.member("enrolls", exposure.enrollsWith != nil)
            writer.member("payload", String(decoding: exposure.payload, as: UTF8.self))
        case .goal(let goal):
            writer.member("kind", "goal")
            writer.member("goal", goal.goal.string)
            writer.key("value")
            writer.shortest(goal.value)
            writer.member("happened_at", goal.happenedAt.milliseconds)
            writer.member("received_at", goal.receivedAt.milliseconds)
            // The id lets the upstream recognize an event that it receives twice.
            writer.member("id", goal.senderID?.string ?? randomID())
            writer.member("sdk_key", goal.sdkKey)
            writer.member("payload", String(decoding: goal.payload, as: UTF8.self))
        }
        return writer.finish()
    }

    private static func randomID() -> String {
        let high = UInt64.random(in: .min ... .max)
        let low = UInt64.random(in: .min ... .max)
        return "edge-\(String(high, radix: 36))\(String(low, radix: 36))"
    }

    /// Encodes a last use, which belongs to no user.
    static func encode(_ use: LastUse) -> [UInt8] {
        var writer = JSONWriter()
        writer.member("sdk_key", use.subject.sdkKey)
        writer.member("kind", use.subject.kind.rawValue)
        writer.member("key", use.subject.key.string)
        writer.member("variation", use.subject.variation.string)
        writer.member("day", use.day)
        return writer.finish()
    }
}
