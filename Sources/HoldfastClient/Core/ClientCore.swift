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
    private let deliveries: [EventKind: DeliverySchedule]
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
        deliveries = Dictionary(
            uniqueKeysWithValues: EventKind.allCases.map { [queue, server, notices] kind in
                let schedule = DeliverySchedule(
                    kind: kind, queue: queue, server: server, notices: notices, configuration: configuration, clock: clock)
                return (kind, schedule)
            })
        for schedule in deliveries.values { start { await schedule.run() } }
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
                tellDropped(try queue.append(event.kind, payload))
            } catch {
                notices.tell(DeliveryNotice(event: event, outcome: .dropped(reason: error.text)))
                return false
            }
        } catch {
            notices.tell(DeliveryNotice(event: event, outcome: .dropped(reason: "\(error)")))
            return false
        }
        deliveries[event.kind]?.added()
        return true
    }

    /// Later: who adds an event may hold a lock that an observer takes.
    private func tellDropped(_ events: [QueuedEvent]) {
        guard !events.isEmpty else { return }
        Task { [notices] in
            notices.tell(events, .dropped(reason: "too many events wait, and this one was postponed longest"))
        }
    }

    /// Kinds that are sent beside each other, and after each other: an exposure may mean the variation that a save has yet
    /// to store.
    private static let orderOfFlush: [[EventKind]] = [[.attributes], [.save, .replacingSave, .exposure], [.goal]]

    /// Sends all that waits.
    ///
    /// - Throws: why events still wait.
    func flush() async throws(HoldfastError) {
        guard !isDestroyed else { throw .destroyed }
        let failure = await withTaskGroup(of: HoldfastError?.self) { [deliveries] group in
            for kinds in Self.orderOfFlush {
                group.addTask {
                    var failure: HoldfastError?
                    for kind in kinds {
                        let new = await deliveries[kind]?.flush()
                        failure = failure ?? new
                    }
                    return failure
                }
            }
            return await group.reduce(nil) { $0 ?? $1 }
        }
        if let failure { throw failure }
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
}

extension DurableQueue.Refusal {
    fileprivate var text: String {
        switch self {
        case .full: "too many events wait"
        case .failed(let error): "\(error)"
        }
    }
}
