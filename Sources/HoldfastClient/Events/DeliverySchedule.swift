import Foundation

/// Decides when the events of one kind are delivered. Events of an earlier run are delivered at once, new events when a
/// batch is full or after the flush interval. After a failure, the next attempt follows after the back-off or the
/// server's `Retry-After`.
final class DeliverySchedule: Sendable {
    private let kind: EventKind
    private let queue: DurableQueue
    private let delivery: Delivery
    /// Runs the delivery, once at a time.
    private let sending: SingleFlight<Delivery.Failure?>
    private let batchSize: Int
    private let flushInterval: Duration
    private let clock: any HoldfastClock
    /// Whether an earlier run has left events.
    private let hasFormerEvents: Bool
    /// Rung when events may have become due.
    private let eventsChanged = Signal()
    /// Rung after each attempt to send that succeeds, so that it ends a back-off.
    private let recovered = Signal()
    /// Whether the last attempt to send has failed.
    private let isFailing = SharedFlag(false)
    /// Whether the schedule waits for a full batch, so that ``added()`` need not ring earlier.
    private let isCollecting = SharedFlag(false)

    /// - Parameter afterSending: called after each attempt to send.
    init(
        kind: EventKind, queue: DurableQueue, server: HoldfastServer, notices: DeliveryNotices,
        configuration: HoldfastConfiguration, clock: any HoldfastClock,
        afterSending: @escaping @Sendable () -> Void = {}
    ) {
        self.kind = kind
        self.queue = queue
        self.clock = clock
        batchSize = configuration.batchSize
        flushInterval = configuration.flushInterval
        hasFormerEvents = queue.untriedCount(of: kind) > 0
        let delivery = Delivery(
            kind: kind, queue: queue, server: server, batchSize: configuration.batchSize, notices: notices, clock: clock
        )
        self.delivery = delivery
        sending = SingleFlight { [isFailing, recovered] in
            let failure = await delivery.deliverAll()
            isFailing.isSet = failure != nil
            if failure == nil { recovered.ring() }
            afterSending()
            return failure
        }
    }

    /// Checks for due events. Call it when events may have become due.
    func wake() {
        eventsChanged.ring()
    }

    /// Considers a new event. Call it after an event was added to the queue.
    func added() {
        if !isCollecting.isSet || queue.untriedCount(of: kind) >= batchSize { eventsChanged.ring() }
    }

    /// Sends all events that are due now.
    ///
    /// - Returns: the reason why due events are still queued.
    @discardableResult
    func send() async -> Delivery.Failure? { await sending.run() }

    /// Sends all queued events now, including postponed ones.
    ///
    /// - Returns: the reason why events are still queued.
    func flush() async -> HoldfastError? {
        delivery.resumePostponed()
        return await send()?.error ?? queue.reasonToWait(of: kind)
    }

    /// Delivers events as they become due, until the task is cancelled.
    func run() async {
        var backoff = Backoff()
        var isDue = hasFormerEvents
        while !Task.isCancelled {
            if !isDue { await untilDue() }
            isDue = false
            // A new event does not end the back-off, because the server is still unreachable. A successful flush ends
            // it.
            while !Task.isCancelled, let failure = await send() {
                await recovered.wait(atMost: backoff.failed(retryAfter: failure.retryAfter), clock) { [isFailing] in
                    !isFailing.isSet
                }
                if !isFailing.isSet { backoff.succeeded() }
            }
            backoff.succeeded()
        }
    }

    /// Returns when a batch is full, or when the flush interval of a batch is over.
    private func untilDue() async {
        while !Task.isCancelled {
            let due = queue.first(of: kind, atMost: batchSize, bytes: .max, at: clock.now)
            let retry = queue.untilRetry(of: kind, at: clock.now)
            guard due.isEmpty else {
                // Retries do not wait for the batch to fill, nor do logins.
                let hasRetry = due.contains { $0.postponement != nil }
                guard kind != .login, due.count < batchSize, !hasRetry else { return }
                isCollecting.isSet = true
                await eventsChanged.wait(atMost: min(flushInterval, retry ?? flushInterval), clock) { [self] in
                    queue.untriedCount(of: kind) >= batchSize
                }
                isCollecting.isSet = false
                return
            }
            if let retry { await eventsChanged.wait(atMost: retry, clock) } else { await eventsChanged.wait() }
        }
    }
}
