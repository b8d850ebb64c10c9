public import Dispatch

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

/// A result for which another thread blocks.
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

/// Carries a completion through other threads back to its executor, where it is called and released. The completion
/// must not be released on another thread, because the objects that it captures belong to the executor.
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
