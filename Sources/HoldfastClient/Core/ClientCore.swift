import Foundation

/// The parts that all services of a client share: server, event queue and its delivery, disk cache, clock.
///
/// It owns the directory and all tasks of the client. ``destroy()`` ends the tasks, and releases the lock on the
/// directory. The anonymous user and the logins are in `ClientCore+Logins.swift`.
final class ClientCore: Sendable {
    let configuration: HoldfastConfiguration
    let clock: any HoldfastClock
    let server: HoldfastServer
    let cache: DiskCache
    /// Reports and counts the outcomes of deliveries.
    let notices = DeliveryNotices()
    private let queue: DurableQueue
    /// The delivery of each kind of events.
    private let deliveries: [EventKind: DeliverySchedule]
    /// Cancels the tasks: each task is a listener, whose `end` cancels it.
    private let tasks = Listeners<Void>()
    /// Writes the caches: the listeners are the functions that ``whenSaving(after:_:)`` has registered.
    private let saves = Listeners<Void>()
    /// Holds the lock on the directory; `nil` once the client is destroyed.
    private let lock: Locked<FileDescriptor?>
    /// The anonymous user of the device, whom `ClientCore+Logins.swift` reads and replaces.
    let anonymous = Locked(AnonymousUser())
    /// The last login on this device; `nil` until it is read from the cache.
    let lastLogin = Locked<LoginEvent?>(nil)

    /// - Throws: ``HoldfastError/invalidConfiguration(_:)``, ``HoldfastError/directoryInUse(_:)``,
    ///   ``HoldfastError/storage(_:)``.
    init(
        _ configuration: HoldfastConfiguration, transport: any HoldfastTransport, clock: any HoldfastClock
    ) throws(HoldfastError) {
        try configuration.check()
        self.configuration = configuration
        self.clock = clock
        cache = try DiskCache(directory: configuration.directory, logger: configuration.logger)
        let lock = try FileDescriptor(path: configuration.directory.appendingPathComponent("lock").path)
        guard lock.lock() else { throw .directoryInUse(configuration.directory.path) }
        self.lock = Locked(lock)
        let skew = ClockSkew(cache.read(Self.skewName, as: Double.self) ?? 0) { [cache] seconds in
            cache.write(Self.skewName, seconds)
        }
        server = HoldfastServer(
            endpoint: configuration.endpoint, token: Locked(configuration.token), timeout: configuration.requestTimeout,
            transport: transport, clock: clock, skew: skew)
        queue = try DurableQueue(
            path: configuration.directory.appendingPathComponent("queue.log").path,
            maximumCount: configuration.queueSize, maximumBytes: configuration.queueBytes)
        let logins = DeliverySchedule(
            kind: .login, queue: queue, server: server, notices: notices, configuration: configuration, clock: clock)
        // A login waits for older events of other kinds, so it may be due after each of their deliveries.
        var deliveries: [EventKind: DeliverySchedule] = [.login: logins]
        for kind in EventKind.allCases where kind != .login {
            deliveries[kind] = DeliverySchedule(
                kind: kind, queue: queue, server: server, notices: notices, configuration: configuration, clock: clock,
                afterSending: { logins.wake() })
        }
        self.deliveries = deliveries
        if let logger = configuration.logger { notices.observe { $0.log(to: logger) } }
        logLosses()
    }

    /// The file with the difference between the device's clock and the server's.
    private static let skewName = "clock.cache"

    /// Logs the events of earlier runs that could not be read.
    private func logLosses() {
        let losses = queue.losses
        if let file = losses.file {
            log(
                .error, "queued events lost: the file is damaged or of a later release, and was kept aside",
                ["file": file])
        }
        if losses.records > 0 {
            log(.error, "queued events lost: damaged, or of a later release", ["count": "\(losses.records)"])
        }
        if losses.end > 0 {
            log(.warning, "the file of the queue ended with an incomplete event", ["bytes": "\(losses.end)"])
        }
    }

    /// Starts to deliver events. Events of earlier runs are sent at once.
    func startDelivering() {
        for schedule in deliveries.values { start { await schedule.run() } }
    }

    /// Whether ``destroy()`` was called.
    var isDestroyed: Bool { lock.withLock { $0 == nil } }

    /// Number of events in the queue.
    var waitingEvents: Int { queue.count }

    /// The counts of delivery outcomes, and the content of the queue.
    var queueMetrics: QueueMetrics {
        var metrics = notices.metrics
        (metrics.waiting, metrics.waitingBytes, metrics.postponed) = queue.load
        let losses = queue.losses
        metrics.unreadable = losses.records + (losses.file == nil ? 0 : 1) + (losses.end == 0 ? 0 : 1)
        return metrics
    }

    /// Returns the queued events of a kind, oldest first.
    func waiting(_ kind: EventKind) -> [HoldfastEvent] {
        queue.all(of: kind).compactMap { HoldfastEvent($0.kind, $0.payload) }
    }

    func log(_ level: HoldfastLogLevel, _ message: String, _ metadata: [String: String] = [:]) {
        configuration.logger?(level, message, metadata)
    }

    /// Starts a task. It is cancelled by the returned token, at the latest when the client is destroyed.
    @discardableResult
    func start(_ work: @escaping @Sendable () async -> Void) -> ListenerToken {
        let task = Task { await work() }
        let registration = tasks.add({ _ in }) { task.cancel() }
        return ListenerToken {
            task.cancel()
            registration.cancel()
        }
    }

    /// The delay between a change of a cache and writing it, so that several changes are written together.
    private static let saveInterval = Duration.seconds(30)

    /// Registers a function that writes a cache. It is called 30 s after a change, when the app enters the background,
    /// because the system may then end the app, and when the client is destroyed.
    ///
    /// - Parameter changed: rung at each change of the cache.
    func whenSaving(after changed: Signal, _ work: @escaping @Sendable () -> Void) -> ListenerToken {
        let registration = saves.add { _ in work() }
        let task = start { [clock] in
            while !Task.isCancelled {
                await changed.wait()
                try? await clock.sleep(for: Self.saveInterval)
                work()
            }
        }
        return ListenerToken {
            registration.cancel()
            task.cancel()
        }
    }

    /// Writes the caches of all services.
    func save() { saves.notify(()) }

    /// Appends an event to the durable queue. If it cannot be stored, observers get a `dropped` notice.
    ///
    /// - Returns: whether the event was stored.
    @discardableResult
    func enqueue(_ event: HoldfastEvent) -> Bool {
        do throws(HoldfastError) {
            try add(event)
            return true
        } catch {
            return false
        }
    }

    /// Appends an event to the durable queue.
    ///
    /// - Throws: why it cannot be stored: ``HoldfastError/invalidArgument(_:)``, ``HoldfastError/storage(_:)``,
    ///   ``HoldfastError/destroyed``. Observers also get a `dropped` notice.
    func add(_ event: HoldfastEvent) throws(HoldfastError) {
        do throws(DurableQueue.Refusal) {
            let payload: [UInt8]
            do throws(HoldfastError) { payload = try event.encoded() } catch { throw .failed(error) }
            notifyDropped(try queue.append(event.kind, payload))
        } catch {
            notices.notify(DeliveryNotice(event: event, outcome: .dropped(reason: DropReason(error))))
            throw HoldfastError(error)
        }
        if let userID = event.userID { noteAnonymousUse(of: userID) }
        deliveries[event.kind]?.added()
    }

    /// Notifies in another task, because the caller may hold a lock that an observer takes.
    private func notifyDropped(_ events: [QueuedEvent]) {
        guard !events.isEmpty else { return }
        Task { [notices] in
            notices.notify(events, .dropped(reason: .replaced))
        }
    }

    /// The order in which ``flush()`` sends events. The outer lists are sent in parallel, the kinds of an inner list in
    /// sequence: an exposure may refer to the variation that an earlier save stores.
    private static let orderOfFlush: [[EventKind]] = [
        [.attributes], savesThenExposures, [.goal], [.evaluationCounts],
    ]
    private static let savesThenExposures: [EventKind] = [.save, .replacingSave, .exposure]

    /// Sends all queued events.
    ///
    /// - Throws: the reason why events are still queued. When the calling task is cancelled, throws
    ///   ``HoldfastError/cancelled``, and the delivery goes on.
    func flush() async throws(HoldfastError) {
        guard !isDestroyed else { throw .destroyed }
        let outcome = await value(within: nil, clock) { [self] in await sendAll() }
        guard let failure = outcome else { throw .cancelled }
        if let failure { throw failure }
    }

    /// - Returns: the first failure, after all kinds were tried.
    private func sendAll() async -> HoldfastError? {
        let failure = await withTaskGroup(of: HoldfastError?.self) { group in
            for kinds in Self.orderOfFlush {
                group.addTask { [self] in await sendInSequence(kinds) }
            }
            return await group.reduce(nil) { first, next in first ?? next }
        }
        // Logins are last, because a login waits for older events of other kinds.
        let loginFailure = await sendInSequence([.login])
        return failure ?? loginFailure
    }

    /// Sends the events of some kinds, one kind after the other.
    ///
    /// - Returns: the first failure; later kinds are tried nevertheless.
    private func sendInSequence(_ kinds: [EventKind]) async -> HoldfastError? {
        var first: HoldfastError?
        for kind in kinds {
            let failure = await deliveries[kind]?.flush()
            first = first ?? failure
        }
        return first
    }

    /// Longest time that an evaluation waits for exposures. A stuck request must not keep the flags from being fetched.
    private static let exposurePatience = Duration.seconds(4)

    /// Sends queued exposures that name a variation by its key. Such an exposure reports a group of a split test that
    /// was drawn on the device. The server keeps the drawn group if the user has no group yet. It must therefore have
    /// the exposure before it evaluates the user.
    func sendNamedVariations() async {
        let isWanted = queue.containsUntried(.exposure) { payload in
            guard case .exposure(let exposure)? = HoldfastEvent(.exposure, payload) else { return false }
            return exposure.variationKey != nil
        }
        guard isWanted else { return }
        _ = await value(within: Self.exposurePatience, clock) { [deliveries] in
            for kind in Self.savesThenExposures { _ = await deliveries[kind]?.send() }
        }
    }

    /// Cancels all tasks and releases the directory.
    func destroy() {
        guard !isDestroyed else { return }
        save()
        tasks.end()
        notices.endStreams()
        server.transport.close()
        queue.close()
        lock.withLock { lock in
            lock?.unlock()
            lock = nil
        }
    }
}

// MARK: - Refusals of the queue as errors

extension DropReason {
    fileprivate init(_ refusal: DurableQueue.Refusal) {
        switch refusal {
        case .full: self = .queueFull
        case .tooLong, .failed(.invalidArgument): self = .invalid(HoldfastError(refusal).localizedDescription)
        case .failed(let error): self = .storage(error.localizedDescription)
        }
    }
}

extension HoldfastError {
    fileprivate init(_ refusal: DurableQueue.Refusal) {
        self =
            switch refusal {
            case .full: .storage("the queue is full of events that were not sent yet")
            case .tooLong(let maximum): .invalidArgument("an event must have at most \(maximum) bytes as JSON")
            case .failed(let error): error
            }
    }
}
