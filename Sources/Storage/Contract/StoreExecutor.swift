public import Dispatch

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#elseif canImport(Darwin)
    import Darwin
#endif

/// Runs work one piece at a time: an event loop, or a ``DispatchExecutor``.
public protocol StoreExecutor: AnyObject, Sendable {
    /// Schedules work, in FIFO order. Any thread may call it.
    ///
    /// - Returns: `false` if the executor has stopped. The work then never runs.
    @discardableResult
    func submit(_ work: @escaping @Sendable () -> Void) -> Bool

    /// Watches a descriptor, such as the socket of a database.
    ///
    /// - Parameters:
    ///   - descriptor: the descriptor. Its owner may close it at any time, because the executor watches a duplicate.
    ///   - ready: called on the executor as long as the descriptor is readable or has failed (level-triggered), and as
    ///     long as it is writable if ``DescriptorWatch/awaitsWriting`` is set. Never called after the watch is
    ///     cancelled.
    /// - Returns: a watch for reading. Only code on the executor may use it.
    /// - Throws: ``StorageError/unavailable(reason:)`` if the process has too many open descriptors, or if the executor
    ///   cannot watch descriptors.
    func watch(
        _ descriptor: Int32, _ ready: @escaping @Sendable () -> Void
    ) throws(StorageError) -> any DescriptorWatch
}

extension StoreExecutor {
    /// The default, for executors of stores that need no descriptors.
    public func watch(
        _ descriptor: Int32, _ ready: @escaping @Sendable () -> Void
    ) throws(StorageError) -> any DescriptorWatch {
        throw .unavailable(reason: "this executor does not watch descriptors")
    }
}

/// A descriptor that an executor watches.
public protocol DescriptorWatch: AnyObject {
    /// Whether to report that the descriptor is writable, in addition to readable.
    var awaitsWriting: Bool { get set }

    /// Ends the watch.
    func cancel()
}

/// A serial Dispatch queue as the executor of a session, and of the tasks that use the session.
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

/// A watch by Dispatch sources. A source needs its descriptor to stay open until the source is cancelled, so each
/// source has a duplicate of its own, which it closes.
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
