import Foundation

/// The parts that all services of a client share: server, event queue and its delivery, disk cache, clock.
final class ClientCore: Sendable {
    let configuration: HoldfastConfiguration
    let clock: any HoldfastClock
    let server: HoldfastServer
    let cache: DiskCache
    let notices = DeliveryNotices()
    private let queue: DurableQueue
    private let deliveries: [EventKind: DeliverySchedule]
    /// The functions that cancel the tasks.
    private let tasks = Listeners<Void>()
    /// The functions that write the caches.
    private let saves = Listeners<Void>()
    /// Holds the lock on the directory; `nil` once the client is destroyed.
    private let lock: Locked<FileDescriptor?>
    private let anonymous = Locked(AnonymousUser())
    private let login = Locked<LoginEvent?>(nil)

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
        server = HoldfastServer(
            endpoint: configuration.endpoint, token: Locked(configuration.token), timeout: configuration.requestTimeout,
            transport: transport, clock: clock,
            skew: ClockSkew(cache.read(Self.skewName, as: Double.self) ?? 0) { [cache] in
                cache.write(Self.skewName, $0)
            })
        queue = try DurableQueue(
            path: configuration.directory.appendingPathComponent("queue.log").path,
            maximumCount: configuration.queueSize, maximumBytes: configuration.queueBytes)
        let logins = DeliverySchedule(
            kind: .login, queue: queue, server: server, notices: notices, configuration: configuration, clock: clock)
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

    /// Starts to deliver events. Those of earlier runs are sent at once.
    func startDelivering() {
        for schedule in deliveries.values { start { await schedule.run() } }
    }

    var isDestroyed: Bool { lock.withLock { $0 == nil } }

    /// Number of events in the queue.
    var waitingEvents: Int { queue.count }

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

    /// Starts a task that is cancelled with the token, at the latest when the client is destroyed.
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

    /// Registers a function that writes a cache. It is called some time after a change, when the app enters the
    /// background, where it may be ended, and when the client is destroyed.
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

    /// The outer lists are sent in parallel, the kinds of an inner list in sequence: an exposure may refer to the
    /// variation that an earlier save stores.
    private static let orderOfFlush: [[EventKind]] = [
        [.attributes], kindsWithExposures, [.goal], [.evaluationCounts],
    ]
    private static let kindsWithExposures: [EventKind] = [.save, .replacingSave, .exposure]

    /// Sends all queued events.
    ///
    /// - Throws: the reason why events are still queued, ``HoldfastError/cancelled`` when the calling task is cancelled;
    ///   delivery goes on.
    func flush() async throws(HoldfastError) {
        guard !isDestroyed else { throw .destroyed }
        let outcome = await value(within: nil, clock) { [self] in await sendAll() }
        guard let failure = outcome else { throw .cancelled }
        if let failure { throw failure }
    }

    private func sendAll() async -> HoldfastError? {
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
        // Last: a login waits for older events of all other kinds.
        let loginFailure = await deliveries[.login]?.flush()
        return failure ?? loginFailure
    }

    /// Longest time that an evaluation waits for exposures, so that it is in time after a stuck request, too.
    private static let exposurePatience = Duration.seconds(4)

    /// Sends queued exposures that name a variation by its key, as those of groups that were drawn on the device do. The
    /// server keeps such a group for a user who has none, so it must know the group before it evaluates the user.
    func sendNamedVariations() async {
        let isWanted = queue.containsUntried(.exposure) { payload in
            guard case .exposure(let exposure)? = HoldfastEvent(.exposure, payload) else { return false }
            return exposure.variationKey != nil
        }
        guard isWanted else { return }
        _ = await value(within: Self.exposurePatience, clock) { [deliveries] in
            for kind in Self.kindsWithExposures { _ = await deliveries[kind]?.send() }
        }
    }

    /// Returns the anonymous user whose login as this user is still queued; `nil` if there is none.
    func anonymousID(joining userID: String) -> String? {
        for case .login(let login) in waiting(.login) where login.userID.hasSameBytes(as: userID) {
            return login.anonymousID
        }
        return nil
    }

    private static let skewName = "clock.cache"
    private static let loginName = "login.cache"

    /// Queues a login, and remembers it over all runs.
    func enqueue(_ login: LoginEvent) {
        enqueue(.login(login))
        cache.write(Self.loginName, login)
        self.login.withLock { $0 = login }
        anonymous.withLock { user in
            user.isUsed = false
            cache.write(Self.anonymousUseName, String?.none)
        }
    }

    /// Returns the anonymous user who was the last to log in on this device, if that was as this user.
    func anonymousID(loggedInAs userID: String) -> String? {
        let last = login.withLock { login in
            if login == nil { login = cache.read(Self.loginName, as: LoginEvent.self) }
            return login
        }
        return last.flatMap { $0.userID.hasSameBytes(as: userID) ? $0.anonymousID : nil }
    }

    /// The anonymous user, as far as it was read from the cache.
    private struct AnonymousUser {
        var id: String?
        /// Whether anything was shown to or reported of this user since the last login.
        var isUsed: Bool?
    }

    private static let anonymousName = "anonymous.cache"
    private static let anonymousUseName = "anonymous-use.cache"
    /// The server merges only ids of this form for a token of scope `client`: nobody can guess one.
    private static let anonymousPrefix = "anonymous-"

    /// Returns the id of the anonymous user, or with `renewing` a new one.
    func anonymousID(renewing: Bool) -> String {
        anonymous.withLock { user in
            if !renewing, let known = user.id ?? cache.read(Self.anonymousName, as: String.self) {
                user.id = known
                return known
            }
            let new = Self.anonymousPrefix + UUID().uuidString.lowercased()
            cache.write(Self.anonymousName, new)
            user = AnonymousUser(id: new, isUsed: false)
            return new
        }
    }

    /// The id of the anonymous user if anything was shown to or reported of it, in any run since the last login.
    var usedAnonymousID: String? {
        let id = anonymousID(renewing: false)
        return anonymous.withLock { user in
            let isUsed = user.isUsed ?? (cache.read(Self.anonymousUseName, as: String?.self) == id)
            user.isUsed = isUsed
            return isUsed ? id : nil
        }
    }

    /// Notes that something is shown to or reported of a user, if that is the anonymous one: its login joins the two.
    func noteAnonymousUse(of userID: String) {
        guard userID.utf8.starts(with: Self.anonymousPrefix.utf8),
            userID.hasSameBytes(as: anonymousID(renewing: false)), usedAnonymousID == nil
        else { return }
        anonymous.withLock { user in
            cache.write(Self.anonymousUseName, userID)
            user.isUsed = true
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
