import Foundation

/// Delivers the queued events of one kind, and removes or postpones each according to the server's response.
///
/// Events are sent in batches. The server's verdict settles an event: the event is stored, refused or postponed. If the
/// response to a batch has no verdict on some events, these are sent again in halves, until the event that the server
/// cannot process is found. Each kind has its own instance, so that failures of one kind do not delay another.
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
        var pause: Pause?
        /// Whether the next run includes postponed events.
        var includesPostponed = false
        /// The number of consecutive batches without a settled event, over all runs.
        var failedBatches = 0
    }

    /// The reason why delivery stopped with events still queued.
    struct Failure: Sendable {
        var error: HoldfastError
        /// Whether the cause may be an event, rather than the server or the network.
        var mayBeOfAnEvent = false

        /// The pause that the server asked for; `nil` if it did not ask for one.
        var retryAfter: Duration? {
            if case .unavailable(_, let retryAfter) = error { retryAfter } else { nil }
        }
    }

    /// Maximum size of a batch in bytes.
    private static let batchBytes = 512 * 1024
    /// The number of consecutive batches without a settled event after which a run ends. A second batch is tried,
    /// because the first one may have failed because of its own events.
    private static let maximumFailedBatches = 2
    /// Upper bound of the exponent in the number of events that are postponed together: 2^10 is a full batch.
    private static let maximumDoublings = 10

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
        state.withLock { $0.includesPostponed = true }
    }

    /// Sends all due events, unless the server has asked for a pause. Must not be called concurrently.
    ///
    /// - Returns: why due events remain; `nil` if only events remain that were postponed one by one.
    func deliverAll() async -> Failure? {
        // The status stands for that of the response that asked for the pause.
        if let pause = beginRun() { return Failure(error: .unavailable(status: 503, retryAfter: pause)) }
        var failedBatches = 0
        while true {
            let events = queue.first(of: kind, atMost: batchSize, bytes: Self.batchBytes, at: clock.now)
            guard !events.isEmpty else { return queue.isClosed ? Failure(error: .destroyed) : nil }
            var hasSettled = false
            let failure = await deliver(events, &hasSettled)
            if hasSettled {
                failedBatches = 0
                state.withLock { $0.failedBatches = 0 }
            }
            guard let failure else { continue }
            if failure.mayBeOfAnEvent {
                postponeFirst(of: events, failure.error)
                failedBatches += 1
                if failedBatches < Self.maximumFailedBatches { continue }
            } else {
                notices.notify(queue.waiting(events), .postponed(failure.error))
            }
            if let retryAfter = failure.retryAfter {
                state.withLock { $0.pause = Pause(start: clock.now, duration: retryAfter) }
            }
            return failure
        }
    }

    /// Resumes postponed events if that was requested.
    ///
    /// - Returns: the rest of the pause that the server has asked for; `nil` if events may be sent.
    private func beginRun() -> Duration? {
        let (includesPostponed, pause) = state.withLock { state in
            defer { state.includesPostponed = false }
            return (state.includesPostponed, state.pause?.remaining(at: clock.now) ?? .zero)
        }
        if includesPostponed { queue.resume(kind) }
        return pause == .zero ? nil : pause
    }

    /// Postpones the first events of a batch, twice as many each time, so that later events are tried.
    private func postponeFirst(of events: [QueuedEvent], _ reason: HoldfastError) {
        let count = state.withLock { state in
            defer { state.failedBatches += 1 }
            return 1 << min(state.failedBatches, Self.maximumDoublings)
        }
        var reasons: [UInt64: HoldfastError] = [:]
        for event in events.prefix(count) { reasons[event.number] = reason }
        queue.postpone(reasons, of: kind, at: clock.now)
        notices.notify(queue.waiting(events), .postponed(reason))
    }

    /// Sends events in one request. Halves the events that the response does not settle, and sends each half, until the
    /// event without a verdict is found.
    ///
    /// - Parameter hasSettled: set once the server has settled an event of the batch. The server then works, so an
    ///   event that fails alone is itself the cause of the failure, and is postponed.
    private func deliver(_ events: [QueuedEvent], _ hasSettled: inout Bool) async -> Failure? {
        let settlements: [HoldfastServer.Settlement]
        do throws(HoldfastError) {
            settlements = try await server.deliver(kind, events.map(\.payload))
        } catch {
            return Failure(error: error)
        }
        if events.count == 1, case .open(let reason)? = settlements.first {
            guard hasSettled else { return Failure(error: reason, mayBeOfAnEvent: true) }
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

    // MARK: Verdicts

    /// Removes or postpones events according to the server's verdicts, and notifies observers.
    ///
    /// - Returns: the events without a verdict.
    private func settle(_ events: [QueuedEvent], _ settlements: [HoldfastServer.Settlement]) -> [QueuedEvent] {
        var open: [QueuedEvent] = []
        var outcomes: [(event: QueuedEvent, outcome: DeliveryNotice.Outcome)] = []
        for (event, settlement) in zip(events, settlements) {
            if let outcome = outcome(of: event, settlement) {
                outcomes.append((event, outcome))
            } else {
                open.append(event)
            }
        }
        var settled: [QueuedEvent] = []
        var reasons: [UInt64: HoldfastError] = [:]
        for (event, outcome) in outcomes {
            if case .postponed(let reason) = outcome { reasons[event.number] = reason } else { settled.append(event) }
        }
        queue.postpone(reasons, of: kind, at: clock.now)
        // Events that were dropped meanwhile, to make room, were already reported.
        let stillPostponed = queue.waiting(events.filter { reasons[$0.number] != nil })
        let toReport = Set((stillPostponed + queue.remove(settled)).map(\.number))
        for (event, outcome) in outcomes where toReport.contains(event.number) { notices.notify([event], outcome) }
        return open
    }

    /// - Returns: `nil` for an event without a verdict.
    private func outcome(
        of event: QueuedEvent, _ settlement: HoldfastServer.Settlement
    ) -> DeliveryNotice.Outcome? {
        switch settlement {
        case .stored:
            if let reason = queue.reasonToRepeat(event) { .postponed(reason) } else { .delivered }
        case .refused(let reason): .refused(reason: reason)
        case .postponed(let error): .postponed(error)
        case .open: nil
        }
    }
}
