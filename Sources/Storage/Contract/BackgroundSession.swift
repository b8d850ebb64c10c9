public import Dispatch

/// A session on a queue of its own, for code outside event loops. Any thread may use it.
public final class BackgroundSession: @unchecked Sendable {
    // Safe: the session is used on the executor only.
    private let executor: DispatchExecutor
    private let session: any StoreSession

    /// - Parameter label: the name of the queue.
    /// - Throws: the errors of ``Store/makeSession(on:)``
    public init(_ store: any Store, label: String, qos: DispatchQoS = .userInitiated) throws(StorageError) {
        executor = DispatchExecutor(label: label, qos: qos)
        session = try store.makeSession(on: executor)
    }

    /// Schedules work with the session, in FIFO order.
    public func run(_ work: @escaping @Sendable (any StoreSession) -> Void) {
        executor.submit { [self] in work(session) }
    }

    /// Runs asynchronous work with the session and returns its result. Pieces of work begin in FIFO order. The work
    /// continues if the caller is cancelled.
    public func run<Value: Sendable, Failure: Error>(
        _ work: @escaping @Sendable (any StoreSession) async throws(Failure) -> Value
    ) async throws(Failure) -> Value {
        try await Task(executorPreference: executor) { () async -> Result<Value, Failure> in
            await Result.of { () throws(Failure) in try await work(self.session) }
        }.value.get()
    }

    /// Starts asynchronous work with the session without waiting for it. Pieces of work begin in FIFO order.
    public func start(_ work: @escaping @Sendable (any StoreSession) async -> Void) {
        Task(executorPreference: executor) { await work(self.session) }
    }

    /// Runs an operation and blocks until it completes. Do not call this function on an event loop, because it blocks,
    /// or from ``run(_:)``, because it would wait for itself.
    ///
    /// - Throws: the error that the operation reports.
    public func wait<Value: Sendable>(
        _ operation: @escaping @Sendable (any StoreSession, @escaping Completion<Value>) -> Void
    ) throws(StorageError) -> Value {
        let outcome = Outcome<Value>()
        run { session in operation(session) { outcome.settle($0) } }
        return try outcome.wait().get()
    }

    /// Closes the session after the work scheduled so far. Blocks until done; do not call this function from
    /// ``run(_:)``.
    public func close() {
        let isClosed = DispatchSemaphore(value: 0)
        run { session in
            session.close()
            isClosed.signal()
        }
        isClosed.wait()
    }
}

/// A result that one thread sets once, and for which another thread blocks.
package final class Outcome<Value: Sendable>: @unchecked Sendable {
    // Safe: written before the semaphore is signalled, and read after the wait for it.
    private var result: Result<Value, StorageError> = .failure(.closed)
    private let isSettled = DispatchSemaphore(value: 0)

    package init() {}

    /// Sets the result.
    package func settle(_ result: Result<Value, StorageError>) {
        self.result = result
        isSettled.signal()
    }

    /// Blocks until the result is set, and returns it.
    package func wait() -> Result<Value, StorageError> {
        isSettled.wait()
        return result
    }
}

/// Carries a completion through other threads back to its executor, where it is called and released. The completion
/// must not be released on another thread, because the objects that it captures belong to the executor.
package final class PendingCompletion<Outcome>: @unchecked Sendable {
    // Safe: the completion is touched on the executor only, once.
    private var completion: ((Outcome) -> Void)?

    package init(_ completion: @escaping (Outcome) -> Void) {
        self.completion = completion
    }

    /// Calls the completion and releases it. Must be called on the executor.
    package func call(_ outcome: Outcome) {
        let completion = completion
        self.completion = nil
        completion?(outcome)
    }
}
