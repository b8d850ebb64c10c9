internal import CSystem
import Glibc
internal import Synchronization

/// A thread that waits for sockets, deadlines and jobs of other threads. Other threads only use ``submit(_:)`` and
/// ``coalescingWakeUps(_:)``; everything else is confined to the loop's thread.
///
/// The loop does not run by itself. A ``Worker`` repeats these steps on the loop's thread:
///
/// ```
/// wait(atMost:now:)      until a socket is ready, a deadline has passed, or a job was submitted
///                        (the worker receives bytes and parses requests)
/// runJobs()              the jobs of other threads
/// callWatches()          the closures of watched descriptors that are ready
///                        (the worker calls handlers and sends responses)
/// ```
///
/// Asynchronous work of ``start(_:)`` runs on the same thread: the loop is its task executor.
public final class EventLoop: @unchecked Sendable {
    // Safe to share: other threads use only the jobs and the wake-up descriptor, which are guarded.

    /// The index among the server's loops, from 0.
    public let index: Int

    var selector: Selector
    var deadlines = DeadlineQueue()
    private let queue = Mutex(JobQueue())
    private let hasJobs = Atomic<Bool>(false)
    private let isAsleep = Atomic<Bool>(false)
    private let wakeDescriptor: Int32
    /// The watches of other modules' descriptors, by token.
    private var watches: [UInt64: Watch] = [:]
    /// The watches whose descriptors are ready in this iteration.
    private var readyWatches: [Watch] = []
    /// The number of the last watch. No number is used twice, so that a stale event cannot name a newer watch.
    private var lastWatchNumber: UInt64 = 0
    /// Whether a task runs at present.
    private var isRunningTask = false
    /// Tasks that may continue as soon as the running task is suspended.
    private var waitingTasks: [UnownedJob] = []
    /// The loop's thread as `pthread_t`; 0 before ``adoptThread()``.
    private let thread = Atomic<UInt>(0)

    /// The submitted jobs that have not run.
    private struct JobQueue {
        var jobs: [@Sendable () -> Void] = []
        var isClosed = false
    }

    /// The token of the descriptor by which other threads wake the loop.
    static let wakeToken = UInt64.max
    /// Tokens of watches have this bit; tokens of connections do not.
    private static let watchBit: UInt64 = 1 << 63

    package init(index: Int) throws(SystemError) {
        self.index = index
        selector = try Selector()
        wakeDescriptor = try SystemCall.check("eventfd") { csystem_eventfd() }
        try selector.add(wakeDescriptor, token: Self.wakeToken)
    }

    deinit {
        selector.close()
        _ = Glibc.close(wakeDescriptor)
    }

    /// Makes the calling thread the loop's thread.
    package func adoptThread() {
        thread.store(UInt(pthread_self()), ordering: .relaxed)
    }

    /// Whether the caller runs on the loop's thread.
    public var isCurrent: Bool {
        @inline(__always) get { thread.load(ordering: .relaxed) == UInt(pthread_self()) }
    }

    // MARK: Jobs

    /// Schedules work on the loop's thread, in FIFO order. The work runs in a batch of the application, before the
    /// handlers of requests that arrive later.
    ///
    /// - Returns: `false` if the loop has ended, so the work will not run.
    @discardableResult
    public func submit(_ job: @escaping @Sendable () -> Void) -> Bool {
        let isAccepted = queue.withLock { queue in
            if !queue.isClosed { queue.jobs.append(job) }
            return !queue.isClosed
        }
        guard isAccepted else { return false }
        hasJobs.store(true, ordering: .sequentiallyConsistent)
        if let pending = PendingWakeUps.current {
            pending.add(self)
        } else {
            wakeIfAsleep()
        }
        return true
    }

    /// Runs work that submits many jobs, and wakes each loop only once, at the end. Without this, a loop would wake for
    /// the first job and often go to sleep again before the second one.
    public static func coalescingWakeUps(_ work: () -> Void) {
        let pending = PendingWakeUps()
        PendingWakeUps.current = pending
        work()
        PendingWakeUps.current = nil
        for loop in pending.loops { loop.wakeIfAsleep() }
    }

    /// Runs the jobs submitted so far.
    package func runJobs() {
        guard hasJobs.exchange(false, ordering: .sequentiallyConsistent) else { return }
        for job in takeJobs() { job() }
    }

    /// Runs the remaining jobs, and refuses all later ones.
    package func close() {
        while case let jobs = takeJobs(closingIfEmpty: true), !jobs.isEmpty {
            for job in jobs { job() }
        }
    }

    /// Removes and returns the submitted jobs.
    ///
    /// - Parameter closingIfEmpty: whether to refuse further jobs if there are none.
    private func takeJobs(closingIfEmpty: Bool = false) -> [@Sendable () -> Void] {
        queue.withLock { queue in
            if closingIfEmpty, queue.jobs.isEmpty { queue.isClosed = true }
            defer { queue.jobs = [] }
            return queue.jobs
        }
    }

    // MARK: Tasks

    /// Begins asynchronous work at once. Call it on the loop's thread. The work runs on this thread only, even if other
    /// threads complete the operations that it awaits.
    @discardableResult
    public func start(_ work: @escaping () async -> Void) -> Task<Void, Never> {
        // Safe: the loop executes the task, on its thread only.
        nonisolated(unsafe) let work = work
        return runTask { Task.immediate(executorPreference: self) { await work() } }
    }

    /// Runs a task until it is suspended, and then the tasks that became ready meanwhile. A task that becomes ready
    /// waits, because one task must not run within another.
    private func runTask<Result>(_ run: () -> Result) -> Result {
        guard !isRunningTask else { return run() }
        isRunningTask = true
        defer { isRunningTask = false }
        let result = run()
        while !waitingTasks.isEmpty {
            let tasks = waitingTasks
            waitingTasks.removeAll(keepingCapacity: true)
            for task in tasks { task.runSynchronously(on: asUnownedTaskExecutor()) }
        }
        return result
    }

    // MARK: Watched descriptors

    /// Watches a descriptor that another module owns, such as the socket of a database. Call it on the loop's thread.
    ///
    /// - Parameter onReady: called in each batch of the application in which the descriptor is readable, has failed,
    ///   or, with ``Watch/awaitsWriting``, is writable.
    /// - Returns: a watch of a duplicate of the descriptor, so that the owner may close the descriptor at any time.
    public func watch(
        descriptor: Int32, _ onReady: @escaping () -> Void
    ) throws(SystemError) -> Watch {
        let copy = try SystemCall.check("fcntl") { fcntl(descriptor, F_DUPFD_CLOEXEC, 0) }
        lastWatchNumber += 1
        let token = Self.watchBit | lastWatchNumber
        do {
            try selector.add(copy, token: token)
        } catch {
            _ = Glibc.close(copy)
            throw error
        }
        let watch = Watch(loop: self, descriptor: copy, token: token, onReady: onReady)
        watches[token] = watch
        return watch
    }

    /// Notes that a watched descriptor is ready. Ignores a stale event of a watch that was cancelled.
    func noteReady(_ token: UInt64) {
        if let watch = watches[token] { readyWatches.append(watch) }
    }

    fileprivate func remove(_ watch: Watch) {
        watches[watch.token] = nil
        selector.remove(watch.descriptor)
    }

    /// Whether there are jobs to run, or watched descriptors are ready.
    var hasWork: Bool { !readyWatches.isEmpty || hasJobs.load(ordering: .sequentiallyConsistent) }

    /// Calls the closures of the watches that are ready.
    func callWatches() {
        let watches = readyWatches
        readyWatches.removeAll(keepingCapacity: true)
        for watch in watches { watch.call() }
    }

    // MARK: Waiting

    /// Waits for events, until the next deadline at the latest.
    ///
    /// - Parameter limit: the longest wait in milliseconds; -1 for no limit.
    /// - Returns: the number of events in the selector.
    func wait(atMost limit: Int32, now: UInt64) throws(SystemError) -> Int {
        var milliseconds = limit
        if let next = deadlines.next {
            // Rounded up, so that the deadline has passed when the loop wakes.
            let remaining = next > now ? (next - now) / 1_000_000 + 1 : 0
            // A minute at most, so that the number fits into 32 bits. Waking without an event does no harm.
            let capped = Int32(clamping: min(remaining, 60_000))
            milliseconds = limit < 0 ? capped : min(limit, capped)
        }
        // Sets `isAsleep` before it checks for jobs, so that a thread that submits a job in between wakes the loop.
        isAsleep.store(true, ordering: .sequentiallyConsistent)
        if hasJobs.load(ordering: .sequentiallyConsistent) { milliseconds = 0 }
        defer { isAsleep.store(false, ordering: .sequentiallyConsistent) }
        return try selector.wait(milliseconds: milliseconds)
    }

    /// Waits for jobs and watched descriptors, and runs the work. For tests, which drive a loop without a ``Worker``.
    ///
    /// - Parameters:
    ///   - limit: the longest wait in milliseconds.
    ///   - application: the application in whose batch the work runs.
    package func runWork(waitingAtMost limit: Int32, in application: any Application) throws(SystemError) {
        let count = try wait(atMost: limit, now: SystemCall.monotonicNanoseconds())
        for index in 0..<count {
            let token = selector.event(index).token
            if token == Self.wakeToken { clearWakeUp() } else { noteReady(token) }
        }
        application.beginBatch()
        runJobs()
        callWatches()
        application.endBatch()
    }

    private func wakeIfAsleep() {
        guard isAsleep.exchange(false, ordering: .sequentiallyConsistent) else { return }
        var one: UInt64 = 1
        // A full counter means that a wake-up is already pending.
        _ = write(wakeDescriptor, &one, 8)
    }

    func clearWakeUp() {
        var count: UInt64 = 0
        _ = read(wakeDescriptor, &count, 8)
    }
}

/// The loop executes the tasks of ``start(_:)``.
extension EventLoop: TaskExecutor {
    /// Continues a task that is no longer suspended.
    ///
    /// On the loop's thread the task continues at once, or after the running task. From another thread it continues as
    /// a job; if the loop has ended, it never continues.
    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        guard isCurrent else {
            submit { self.resume(job) }
            return
        }
        if isRunningTask { waitingTasks.append(job) } else { resume(job) }
    }

    private func resume(_ job: UnownedJob) {
        runTask { job.runSynchronously(on: asUnownedTaskExecutor()) }
    }
}

extension EventLoop {
    /// A descriptor that an event loop watches for another module. Used on the loop's thread only.
    public final class Watch {
        let descriptor: Int32
        let token: UInt64
        private weak var loop: EventLoop?
        /// The closure to call; `nil` once the watch has ended.
        private var onReady: (() -> Void)?

        fileprivate init(loop: EventLoop, descriptor: Int32, token: UInt64, onReady: @escaping () -> Void) {
            self.loop = loop
            self.descriptor = descriptor
            self.token = token
            self.onReady = onReady
        }

        deinit {
            cancel()
        }

        /// Whether to report that the descriptor is writable, too.
        public var awaitsWriting = false {
            didSet {
                guard awaitsWriting != oldValue, onReady != nil else { return }
                try? loop?.selector.modify(descriptor, token: token, reading: true, writing: awaitsWriting)
            }
        }

        fileprivate func call() {
            onReady?()
        }

        /// Ends the watch. The closure is not called any more, even if an event is pending.
        public func cancel() {
            guard onReady != nil else { return }
            onReady = nil
            loop?.remove(self)
            _ = Glibc.close(descriptor)
        }
    }
}

/// The loops to wake at the end of ``EventLoop/coalescingWakeUps(_:)``.
private final class PendingWakeUps {
    private(set) var loops: [EventLoop] = []

    func add(_ loop: EventLoop) {
        if !loops.contains(where: { $0 === loop }) { loops.append(loop) }
    }

    /// Swift has no thread-local variables; this is POSIX's.
    private static let key: pthread_key_t = {
        var key = pthread_key_t()
        pthread_key_create(&key, nil)
        return key
    }()

    /// The pending wake-ups of the current thread; `nil` outside of `coalescingWakeUps`, which keeps the object alive.
    static var current: PendingWakeUps? {
        get { pthread_getspecific(key).map { Unmanaged<PendingWakeUps>.fromOpaque($0).takeUnretainedValue() } }
        set { pthread_setspecific(key, newValue.map { Unmanaged.passUnretained($0).toOpaque() }) }
    }
}
