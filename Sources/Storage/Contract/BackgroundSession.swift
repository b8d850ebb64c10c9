public import Dispatch

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#elseif canImport(Darwin)
    import Darwin
#endif

/// A serial queue as the executor of a session, and of tasks that use it.
public final class DispatchExecutor: StoreExecutor, TaskExecutor {
    private let queue: DispatchQueue

    public init(label: String, qos: DispatchQoS = .userInitiated) {
        queue = DispatchQueue(label: label, qos: qos)
    }

    @discardableResult
    public func submit(_ work: @escaping @Sendable () -> Void) -> Bool {
        queue.async(execute: work)
        return true
    }

    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        submit { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }

    public func watch(
        _ descriptor: Int32, _ ready: @escaping @Sendable () -> Void
    ) throws(StorageError) -> any DescriptorWatch {
        guard let watch = DispatchWatch(descriptor, on: queue, ready) else {
            throw .unavailable(reason: "no descriptor is left")
        }
        return watch
    }
}

/// A watch by Dispatch sources. They need a duplicate of the descriptor, which must stay open until they are cancelled.
private final class DispatchWatch: DescriptorWatch {
    private let descriptor: Int32
    private let queue: DispatchQueue
    private let ready: @Sendable () -> Void
    private let reading: any DispatchSourceRead
    private var writing: (any DispatchSourceWrite)?
    private var isCancelled = false

    init?(_ descriptor: Int32, on queue: DispatchQueue, _ ready: @escaping @Sendable () -> Void) {
        let copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        guard copy >= 0 else { return nil }
        self.descriptor = copy
        self.queue = queue
        self.ready = ready
        reading = DispatchSource.makeReadSource(fileDescriptor: copy, queue: queue)
        reading.setEventHandler(handler: ready)
        reading.setCancelHandler { close(copy) }
        reading.resume()
    }

    deinit {
        cancel()
    }

    var awaitsWriting: Bool {
        get { writing != nil }
        set {
            guard newValue != (writing != nil), !isCancelled else { return }
            writing?.cancel()
            writing = newValue ? makeWritingSource() : nil
        }
    }

    private func makeWritingSource() -> (any DispatchSourceWrite)? {
        let copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        guard copy >= 0 else { return nil }
        let source = DispatchSource.makeWriteSource(fileDescriptor: copy, queue: queue)
        source.setEventHandler(handler: ready)
        source.setCancelHandler { close(copy) }
        source.resume()
        return source
    }

    func cancel() {
        guard !isCancelled else { return }
        isCancelled = true
        writing?.cancel()
        writing = nil
        reading.cancel()
    }
}

/// A session on its own queue, for code outside event loops. Any thread may use it.
public final class BackgroundSession: @unchecked Sendable {
    // Safe: the session is used on the executor only.
    private let executor: DispatchExecutor
    private let session: any StoreSession

    /// - Parameter label: the name of the queue.
    public init(_ store: any Store, label: String, qos: DispatchQoS = .userInitiated) throws(StorageError) {
        executor = DispatchExecutor(label: label, qos: qos)
        session = try store.makeSession(on: executor)
    }

    /// Schedules work with the session, in FIFO order.
    public func run(_ work: @escaping @Sendable (any StoreSession) -> Void) {
        executor.submit { [self] in work(session) }
    }

    /// Runs asynchronous work with the session, begun in FIFO order, and returns its result. It goes on if the caller is
    /// cancelled.
    public func run<Value: Sendable, Failure: Error>(
        _ work: @escaping @Sendable (any StoreSession) async throws(Failure) -> Value
    ) async throws(Failure) -> Value {
        try await Task(executorPreference: executor) { () async -> Result<Value, Failure> in
            await Result.of { () throws(Failure) in try await work(self.session) }
        }.value.get()
    }

    /// Starts asynchronous work with the session, in FIFO order. Nobody waits for it.
    public func start(_ work: @escaping @Sendable (any StoreSession) async -> Void) {
        Task(executorPreference: executor) { await work(self.session) }
    }

    /// Runs an operation and blocks until it completes. Do not call it on an event loop, or from ``run(_:)``.
    public func wait<Value: Sendable>(
        _ operation: @escaping @Sendable (any StoreSession, @escaping Completion<Value>) -> Void
    ) throws(StorageError) -> Value {
        let outcome = Outcome<Value>()
        run { session in operation(session) { outcome.settle($0) } }
        return try outcome.wait().get()
    }

    /// Closes the session after the work scheduled so far. Blocks until done; do not call it from ``run(_:)``.
    public func close() {
        let isClosed = DispatchSemaphore(value: 0)
        run { session in
            session.close()
            isClosed.signal()
        }
        isClosed.wait()
    }
}

/// A result that another thread waits for.
package final class Outcome<Value: Sendable>: @unchecked Sendable {
    // Safe: written before the semaphore is signalled, and read after it.
    private var result: Result<Value, StorageError> = .failure(.closed)
    private let isSettled = DispatchSemaphore(value: 0)

    package init() {}

    package func settle(_ result: Result<Value, StorageError>) {
        self.result = result
        isSettled.signal()
    }

    package func wait() -> Result<Value, StorageError> {
        isSettled.wait()
        return result
    }
}

/// Carries a completion through other threads back to its executor, where it is called and released: what it refers to
/// belongs to the executor.
package final class PendingCompletion<Outcome>: @unchecked Sendable {
    // Safe: the completion is touched on the executor only, once.
    private var completion: ((Outcome) -> Void)?

    package init(_ completion: @escaping (Outcome) -> Void) {
        self.completion = completion
    }

    package func call(_ outcome: Outcome) {
        let completion = completion
        self.completion = nil
        completion?(outcome)
    }
}
