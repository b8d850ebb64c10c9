import Bucketing
import Chronology
import Dispatch
import JSON
import Storage
import StorageSQLite
import Synchronization

/// Sends the entries of the outbox, oldest first, on a thread of its own. The upstream handles entries of users who
/// were erased, or merged into another, after the edge had accepted them.
final class OutboxSender: Sendable {
    private let upstream: Upstream
    private let applier: FeedApplier
    private let outbox: EventOutbox
    private let queue = DispatchQueue(label: "edge-outbox", qos: .userInitiated)
    private let wakes = DispatchSemaphore(value: 0)
    private let isAwake = Atomic<Bool>(false)
    let sent = Counter()
    let refused = Counter()
    let erased = Counter()
    let unassigned = Counter()
    /// The exposures of users without an assignment that were not reported yet, and when they may be.
    private let unreported = Mutex((count: 0, next: ContinuousClock.now))
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
            while !upstream.cancellation.isCancelled, upstream.isUp, applier.position != nil, applier.isComplete {
                do {
                    switch try sendNext(connection) {
                    case .nothing?: break
                    case .taken?:
                        backoff.reset()
                        continue
                    // The request would have the same result now. A pause prevents a busy loop.
                    case nil:
                        upstream.pause(seconds: backoff.next())
                        continue
                    }
                    break
                } catch {
                    if let error = error as? UpstreamError { upstream.didFail(error) }
                    upstream.pause(seconds: backoff.next())
                }
            }
        }
    }

    private enum Progress {
        case nothing, taken
    }

    /// - Returns: `nil` if entries wait, but none was accepted or refused.
    private func sendNext(_ connection: UpstreamConnection) throws -> Progress? {
        let entries = try outbox.first(Self.entries, bytes: Self.bytes)
        guard !entries.isEmpty else { return .nothing }
        let done = try send(entries, connection)
        guard !done.isEmpty else { return nil }
        try outbox.remove(done)
        return .taken
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
        var done = accepted
        var reasons: [String: Int] = [:]
        var withoutAssignment: [String] = []
        for refusal in refusals {
            guard let refusal = refusal.object, let number = refusal["entry"]?.integer, sentNumbers.contains(number)
            else { continue }
            done.append(number)
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
        return done
    }

    /// Apps may report them all the time, so a line for each would bury the log.
    private func reportUnassigned(_ count: Int, _ reason: String) {
        unassigned.add(count)
        let reported: Int? = unreported.withLock { state in
            state.count += count
            guard ContinuousClock.now >= state.next else { return nil }
            defer { state = (0, .now + .seconds(3_600)) }
            return state.count
        }
        guard let reported else { return }
        upstream.configuration.report(.exposuresUnassigned(count: reported, reason: reason))
    }

    /// A body with entries as ``OutboxEntry`` encodes them: the user's id is added, which a merge may have changed.
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

/// Encodes events for the outbox, in the format of the upstream's API.
enum OutboxEntry {
    /// - Parameter acceptedAt: when the edge accepted the event, by the upstream's clock or a little earlier.
    /// - Returns: the members of a JSON object, all but the user's id.
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
        let (high, low) = (UInt64.random(in: .min ... .max), UInt64.random(in: .min ... .max))
        return "edge-\(String(high, radix: 36))\(String(low, radix: 36))"
    }

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

/// Sends events directly to the upstream while the outbox cannot take them; all waiting events go in one request. They
/// count as stored when the upstream has confirmed them.
final class EventPassage: Sendable {
    private struct Job: Sendable {
        let entries: [(userID: Identifier?, content: [UInt8])]
        let report: @Sendable (Result<Void, StorageError>) -> Void
    }

    private let lanes: Lanes<Job>
    private static let (requests, batch) = (2, (jobs: 256, bytes: 512 << 10))

    init(_ upstream: Upstream, _ applier: FeedApplier, _ sender: OutboxSender) {
        lanes = Lanes(
            "edge-passage", count: Self.requests, limit: upstream.configuration.waitingRequests / Self.requests,
            batch: Self.batch, upstream, bytes: { $0.entries.reduce(64) { $0 + $1.content.count } }
        ) { jobs, connection in
            var entries: [EventOutbox.Entry] = []
            for job in jobs {
                for entry in job.entries {
                    entries.append(
                        .init(number: Int64(entries.count + 1), userID: entry.userID, content: entry.content))
                }
            }
            let result = Result { () throws(UpstreamError) in try sender.send(entries, connection) }
            if case .failure(let error) = result { upstream.didFail(error) }
            let done = Set((try? result.get()) ?? [])
            var number: Int64 = 0
            for job in jobs {
                let numbers = number + 1..<number + 1 + Int64(job.entries.count)
                number = numbers.upperBound - 1
                job.report(numbers.allSatisfy(done.contains) ? .success(()) : .failure(Self.failure(of: result)))
            }
        }
    }

    private static func failure(of result: Result<[Int64], UpstreamError>) -> StorageError {
        if case .failure(let error) = result, error.isUnknown { return .undecided }
        return .unavailable(reason: "neither the outbox nor the upstream takes events at present")
    }

    /// - Parameter report: called on any thread.
    func send(
        _ entries: [(userID: Identifier?, content: [UInt8])],
        _ report: @escaping @Sendable (Result<Void, StorageError>) -> Void
    ) {
        let key = entries.first?.userID?.hashValue ?? 0
        if !lanes.add(Job(entries: entries, report: report), key: key) { report(.failure(.overloaded)) }
    }

    func wait() { lanes.wait() }
}
