import Synchronization

/// When events of one kind are sent: as soon as a batch is full, else after the flush interval; after failures when the
/// back-off or the server says so.
final class DeliverySchedule: Sendable {
    private let kind: EventKind
    private let queue: DurableQueue
    private let delivery: Delivery
    private let sending: SingleFlight<Delivery.Failure?>
    private let batchSize: Int
    private let flushInterval: Duration
    private let clock: any HoldfastClock
    private let changed = Signal()
    /// Whether events wait for a batch to be full, so that only a full one is worth telling.
    private let isCollecting = Atomic(false)

    init(
        kind: EventKind, queue: DurableQueue, server: HoldfastServer, notices: DeliveryNotices,
        configuration: HoldfastConfiguration, clock: any HoldfastClock
    ) {
        self.kind = kind
        self.queue = queue
        self.clock = clock
        batchSize = configuration.batchSize
        flushInterval = configuration.flushInterval
        let delivery = Delivery(
            kind: kind, queue: queue, server: server, batchSize: configuration.batchSize, notices: notices, clock: clock)
        self.delivery = delivery
        sending = SingleFlight { await delivery.deliverAll() }
    }

    /// An event was added.
    func added() {
        if !isCollecting.load(ordering: .relaxed) || queue.untriedCount(of: kind) >= batchSize { changed.ring() }
    }

    /// Sends all that waits now, also what is postponed.
    ///
    /// - Returns: why events still wait.
    func flush() async -> HoldfastError? {
        delivery.resumePostponed()
        return await sending.run()?.error ?? queue.reasonToWait(of: kind)
    }

    /// Sends what is due whenever it is, until the task is cancelled.
    func run() async {
        var backoff = Backoff()
        while !Task.isCancelled {
            await untilDue()
            // More events make no difference to a server that cannot be reached.
            while !Task.isCancelled, let failure = await sending.run() {
                try? await clock.sleep(for: backoff.failed(retryAfter: failure.retryAfter))
            }
            backoff.succeeded()
        }
    }

    /// Returns when there is something to be sent and no reason to wait for more.
    private func untilDue() async {
        while !Task.isCancelled {
            let due = queue.first(of: kind, atMost: batchSize, bytes: .max, at: clock.now)
            let retry = queue.untilRetry(of: kind, at: clock.now)
            guard due.isEmpty else {
                // What was sent before has waited for long enough.
                guard due.count < batchSize, due.allSatisfy({ $0.postponement == nil }) else { return }
                isCollecting.store(true, ordering: .relaxed)
                await changed.wait(atMost: min(flushInterval, retry ?? flushInterval), clock) { [self] in
                    queue.untriedCount(of: kind) >= batchSize
                }
                return isCollecting.store(false, ordering: .relaxed)
            }
            if let retry { await changed.wait(atMost: retry, clock) } else { await changed.wait() }
        }
    }
}
