import Bucketing
import Chronology
import Dispatch
import JSON
import Storage
import StorageSQLite
import Synchronization

/// Sends the entries of the outbox to the upstream, oldest first, on a thread of its own.
///
/// An entry stays in the outbox until the upstream has accepted it or refused it for good. If the user was erased after
/// the edge had accepted the entry, the upstream drops the entry. If the user was merged into an account since, the
/// upstream counts the entry for the account.
///
/// ```
/// append → wake → run → sendAll → sendNext: outbox.first → send → outbox.remove
/// ```
final class OutboxSender: Sendable {
    private let upstream: Upstream
    private let applier: FeedApplier
    private let outbox: EventOutbox
    private let queue = DispatchQueue(label: "edge-outbox", qos: .userInitiated)
    /// The thread waits for this semaphore while it has nothing to send.
    private let wakes = DispatchSemaphore(value: 0)
    /// Whether ``wakes`` was signalled since the thread last woke. Many new entries then cause only one signal.
    private let isAwake = Atomic<Bool>(false)
    /// The number of entries that the upstream has accepted.
    let sent = Counter()
    /// The number of entries that the upstream has refused for good.
    let refused = Counter()
    /// The number of entries that the upstream has dropped, because their users were erased.
    let erased = Counter()
    /// The number of exposures that name no variation and whose users have no assignment at the upstream either.
    let unassigned = Counter()
    /// The number of ``unassigned`` exposures since the last report to operators, and when the next report may follow.
    private let unreported = Mutex((count: 0, nextReport: ContinuousClock.now))
    /// The minimum time between two reports of unassigned exposures.
    private static let reportInterval = Duration.seconds(3_600)
    /// The maximum number of entries in a request.
    private static let entries = 1_000
    /// The factor by which the time limit of a request with events exceeds ``EdgeConfiguration/timeout``, because the
    /// upstream stores up to a thousand events before it responds.
    private static let timeoutFactor = 5.0
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

    /// Blocks until the sender has ended, after ``Upstream/close()``.
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

    /// Sends entries until none waits, or until the upstream is away.
    ///
    /// Nothing is sent while the copy has no position or is incomplete. Each request names the position. The upstream
    /// thereby notices if its database was replaced by an older one.
    private func sendAll(_ connection: UpstreamConnection, _ backoff: inout Backoff) {
        while !upstream.cancellation.isCancelled, upstream.isUp, applier.position != nil, applier.isComplete {
            do {
                switch try sendNext(connection) {
                case .nothingWaits: return
                case .sent: backoff.reset()
                // The same request would have the same result at once. The pause prevents a busy loop.
                case .noneSettled: upstream.pause(seconds: backoff.next())
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
        case noneSettled
    }

    /// Sends the oldest entries. Removes the entries that the upstream has accepted or refused from the outbox.
    private func sendNext(_ connection: UpstreamConnection) throws -> Progress {
        let entries = try outbox.first(Self.entries, bytes: Self.bytes)
        guard !entries.isEmpty else { return .nothingWaits }
        let settled = try send(entries, connection)
        guard !settled.isEmpty else { return .noneSettled }
        try outbox.remove(settled)
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
                seconds: upstream.configuration.timeout * Self.timeoutFactor))
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

    /// Counts refusals, and reports them to operators, one report for each reason.
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

    /// Reports exposures of users without an assignment, at most once an hour: apps may send such exposures all the
    /// time, and a line for each would bury the log.
    private func reportUnassigned(_ count: Int, _ reason: String) {
        unassigned.add(count)
        let reported: Int? = unreported.withLock { state in
            state.count += count
            guard ContinuousClock.now >= state.nextReport else { return nil }
            defer { state = (0, ContinuousClock.now + Self.reportInterval) }
            return state.count
        }
        guard let reported else { return }
        upstream.configuration.report(.exposuresUnassigned(count: reported, reason: reason))
    }

    /// Encodes the body of a request: events with the ids of their users, and last uses, which have none.
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
            // See ``OutboxEntry`` for the content.
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
