import Foundation

/// Delivers the queued events of one kind, and removes or postpones each according to the server's response. Each kind
/// has its own instance, so that one kind's failures do not delay another.
final class Delivery: Sendable {
    private let kind: EventKind
    private let queue: DurableQueue
    private let server: HoldfastServer
    private let batchSize: Int
    private let notices: DeliveryNotices
    private let clock: any HoldfastClock
    private let state = Locked(State())

    private struct State {
        /// The pause that the server asked for (`Retry-After`).
        var rest: Rest?
        /// Whether the next run includes postponed events.
        var resumes = false
        /// The number of consecutive batches without a settled event.
        var vainBatches = 0
    }

    /// The reason why delivery stopped with events still queued.
    struct Failure: Sendable {
        var error: HoldfastError
        /// Whether the events themselves may be the cause, rather than the server or the network.
        var mayBeTheEvents = false

        var retryAfter: Duration? {
            if case .unavailable(_, let retryAfter) = error { retryAfter } else { nil }
        }
    }

    /// Maximum size of a batch in bytes.
    private static let batchBytes = 512 * 1024
    /// Number of consecutive batches without a settled event after which delivery pauses.
    private static let patience = 2

    init(
        kind: EventKind, queue: DurableQueue, server: HoldfastServer, batchSize: Int, notices: DeliveryNotices,
        clock: any HoldfastClock
    ) {
        self.kind = kind
        self.queue = queue
        self.server = server
        self.batchSize = batchSize
        self.notices = notices
        self.clock = clock
    }

    /// Makes the next call of ``deliverAll()`` include postponed events.
    func resumePostponed() {
        state.withLock { $0.resumes = true }
    }

    /// Sends all due events unless the server asked for a pause. Must not be called concurrently.
    ///
    /// - Returns: the reason why due events remain; `nil` if only individually postponed events remain.
    func deliverAll() async -> Failure? {
        let (resumes, left) = state.withLock { state in
            defer { state.resumes = false }
            return (state.resumes, state.rest?.left(at: clock.now) ?? .zero)
        }
        if resumes { queue.resume(kind) }
        guard left == .zero else { return Failure(error: .unavailable(status: 503, retryAfter: left)) }
        var patience = Self.patience
        while true {
            let events = queue.first(of: kind, atMost: batchSize, bytes: Self.batchBytes, at: clock.now)
            guard !events.isEmpty else { return queue.isClosed ? Failure(error: .destroyed) : nil }
            var hasSettled = false
            let failure = await deliver(events, &hasSettled)
            if hasSettled {
                patience = Self.patience
                state.withLock { $0.vainBatches = 0 }
            }
            guard let failure else { continue }
            if failure.mayBeTheEvents {
                postponeSome(of: events, failure.error)
                patience -= 1
                if patience > 0 { continue }
            } else {
                notices.notify(queue.waiting(events), .postponed(failure.error))
            }
            if let retryAfter = failure.retryAfter {
                state.withLock { $0.rest = Rest(start: clock.now, duration: retryAfter) }
            }
            return failure
        }
    }

    /// Postpones the first events of a batch, twice as many each time, so that later events are tried.
    private func postponeSome(of events: [QueuedEvent], _ reason: HoldfastError) {
        let count = state.withLock { state in
            defer { state.vainBatches += 1 }
            return 1 << min(state.vainBatches, 10)
        }
        let some = Array(events.prefix(count))
        queue.postpone(some.reduce(into: [:]) { $0[$1.number] = reason }, of: kind, at: clock.now)
        notices.notify(queue.waiting(events), .postponed(reason))
    }

    /// Sends events in one request and bisects those that the response does not settle, until the rejected event is
    /// found.
    ///
    /// - Parameter hasSettled: whether the server has settled an event of the batch. If so, an event that fails alone is
    ///   itself the cause of the failure.
    private func deliver(_ events: [QueuedEvent], _ hasSettled: inout Bool) async -> Failure? {
        let settlements: [HoldfastServer.Settlement]
        do throws(HoldfastError) {
            settlements = try await server.deliver(kind, events.map(\.payload))
        } catch {
            return Failure(error: error)
        }
        if events.count == 1, case .open(let reason)? = settlements.first {
            guard hasSettled else { return Failure(error: reason, mayBeTheEvents: true) }
            _ = settle(events, [.postponed(reason)])
            return nil
        }
        let open = settle(events, settlements)
        guard open.count == events.count else {
            hasSettled = true
            return open.isEmpty ? nil : await deliver(open, &hasSettled)
        }
        let middle = open.count / 2
        if let failure = await deliver(Array(open[..<middle]), &hasSettled) { return failure }
        return await deliver(Array(open[middle...]), &hasSettled)
    }

    /// - Returns: the events that the response does not settle.
    private func settle(_ events: [QueuedEvent], _ settlements: [HoldfastServer.Settlement]) -> [QueuedEvent] {
        var open: [QueuedEvent] = []
        var settled: [QueuedEvent] = []
        var postponed: [UInt64: HoldfastError] = [:]
        var outcomes: [(event: QueuedEvent, outcome: DeliveryNotice.Outcome)] = []
        for (event, settlement) in zip(events, settlements) {
            switch settlement {
            case .stored:
                if let reason = queue.reasonToRepeat(event) {
                    postponed[event.number] = reason
                    outcomes.append((event, .postponed(reason)))
                } else {
                    settled.append(event)
                    outcomes.append((event, .delivered))
                }
            case .refused(let reason):
                settled.append(event)
                outcomes.append((event, .refused(reason: reason)))
            case .postponed(let error):
                postponed[event.number] = error
                outcomes.append((event, .postponed(error)))
            case .open:
                open.append(event)
            }
        }
        queue.postpone(postponed, of: kind, at: clock.now)
        // Events that were dropped meanwhile, to make room, were already reported.
        let waiting = queue.waiting(events.filter { postponed[$0.number] != nil })
        let reported = Set((waiting + queue.remove(settled)).map(\.number))
        for (event, outcome) in outcomes where reported.contains(event.number) { notices.notify([event], outcome) }
        return open
    }
}
