import Foundation
import Synchronization

/// What the ways to use the library share: the server, the queue of events and who sends them, the cache, the clock.
final class ClientCore: Sendable {
    let configuration: HoldfastConfiguration
    let clock: any HoldfastClock
    let server: HoldfastServer
    let cache: DiskCache
    let notices = DeliveryNotices()
    private let queue: DurableQueue
    private let delivery: SingleFlight<Delivery.Failure?>
    private let queueChanged = Signal()
    private let running = Mutex<[Task<Void, Never>]>([])
    private let endings = Mutex<[@Sendable () -> Void]>([])
    /// The lock on the directory; `nil` when the client was destroyed.
    private let lock: Mutex<FileDescriptor?>

    /// - Throws: ``HoldfastError/invalidConfiguration(_:)``, ``HoldfastError/directoryInUse(_:)``,
    ///   ``HoldfastError/storage(_:)``.
    init(
        _ configuration: HoldfastConfiguration, transport: any HoldfastTransport, clock: any HoldfastClock
    ) throws(HoldfastError) {
        try configuration.check()
        self.configuration = configuration
        self.clock = clock
        cache = try DiskCache(directory: configuration.directory)
        let lock = try FileDescriptor(path: configuration.directory.appendingPathComponent("lock").path)
        guard lock.lock() else { throw .directoryInUse(configuration.directory.path) }
        self.lock = Mutex(lock)
        server = HoldfastServer(
            endpoint: configuration.endpoint, token: configuration.token, timeout: configuration.requestTimeout,
            transport: transport)
        queue = try DurableQueue(
            path: configuration.directory.appendingPathComponent("queue.log").path,
            maximumCount: configuration.queueSize, maximumBytes: configuration.queueBytes)
        let sender = Delivery(
            queue: queue, server: server, batchSize: configuration.batchSize, notices: notices, clock: clock)
        delivery = SingleFlight { await sender.deliverAll() }
        start { [queue, queueChanged, delivery] in
            await Self.deliver(queue, queueChanged, delivery, configuration, clock)
        }
    }

    var isDestroyed: Bool { lock.withLock { $0 == nil } }

    /// Events that wait to be sent.
    var waitingEvents: Int { queue.count }

    /// The events of a kind that wait, the oldest first.
    func waiting(_ kind: EventKind) -> [HoldfastEvent] {
        queue.all(of: kind).compactMap { HoldfastEvent($0.kind, $0.payload) }
    }

    /// Runs work until the client is destroyed.
    func start(_ work: @escaping @Sendable () async -> Void) {
        let task = Task { await work() }
        running.withLock { $0.append(task) }
    }

    /// Has work done when the client is destroyed.
    func beforeDestroy(_ work: @escaping @Sendable () -> Void) {
        endings.withLock { $0.append(work) }
    }

    /// Keeps an event until the server has it. What cannot be kept is told to observers.
    ///
    /// - Returns: whether it is kept.
    @discardableResult
    func enqueue(_ event: HoldfastEvent) -> Bool {
        do throws(HoldfastError) {
            let payload = try event.encoded()
            do throws(DurableQueue.Refusal) {
                try queue.append(event.kind, payload)
            } catch {
                notices.tell(DeliveryNotice(event: event, outcome: .dropped(reason: error.text)))
                return false
            }
        } catch {
            notices.tell(DeliveryNotice(event: event, outcome: .dropped(reason: "\(error)")))
            return false
        }
        let count = queue.count
        if count == 1 || count >= configuration.batchSize { queueChanged.ring() }
        return true
    }

    /// Sends all that waits.
    ///
    /// - Throws: why events still wait.
    func flush() async throws(HoldfastError) {
        guard !isDestroyed else { throw .destroyed }
        if let failure = await delivery.run() { throw failure.error }
    }

    /// Ends all work, and lets go of the directory.
    func destroy() {
        guard !isDestroyed else { return }
        for work in endings.withLock({ $0 }) { work() }
        for task in running.withLock({ $0 }) { task.cancel() }
        server.transport.close()
        queue.close()
        lock.withLock { $0 = nil }
    }

    /// Sends events as soon as a batch is full, else after the flush interval, until the task is cancelled.
    private static func deliver(
        _ queue: DurableQueue, _ changed: Signal, _ delivery: SingleFlight<Delivery.Failure?>,
        _ configuration: HoldfastConfiguration, _ clock: any HoldfastClock
    ) async {
        var backoff = Backoff()
        while !Task.isCancelled {
            if queue.count == 0 {
                await changed.wait()
                continue
            }
            await changed.wait(atMost: configuration.flushInterval, clock) { queue.count >= configuration.batchSize }
            // More events make no difference to a server that cannot be reached.
            while !Task.isCancelled, let failure = await delivery.run() {
                try? await clock.sleep(for: backoff.failed(retryAfter: failure.retryAfter))
            }
            backoff.succeeded()
        }
    }
}

extension DurableQueue.Refusal {
    fileprivate var text: String {
        switch self {
        case .full: "too many events wait"
        case .failed(let error): "\(error)"
        }
    }
}
