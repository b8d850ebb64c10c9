internal import CSystem
import Dispatch
internal import Synchronization

/// An HTTP/1.1 server: one event loop per core, each on its own thread, with its own listening socket and its own
/// instance of the application.
///
/// A ``Worker`` runs each loop. Workers share only the ``ConnectionBalance``; other threads reach a worker only by
/// submitting jobs to its loop.
public final class HTTPServer: Sendable {
    /// The address that the server listens on.
    public let address: SocketAddress
    private let workers: Mutex<[WorkerReference]>
    private let balance = ConnectionBalance()
    private let finished = DispatchGroup()

    /// Listens and starts to serve.
    ///
    /// - Parameter makeApplication: called once for each event loop, before the loop serves.
    /// - Throws: ``SocketAddressError``, ``SystemError``, or what `makeApplication` throws.
    public init(
        _ configuration: Configuration, makeApplication: (EventLoop) throws -> any Application
    ) throws {
        let prepared = try (0..<max(1, configuration.eventLoops)).map { index in
            let loop = try EventLoop(index: index)
            return (loop: loop, application: try makeApplication(loop))
        }
        let listeners = try Self.listen(configuration, count: prepared.count)
        address = try listeners[0].address()
        let balance = balance
        let references = zip(prepared, listeners).map { part, listener in
            WorkerReference(
                worker: Worker(
                    loop: part.loop, listener: listener, configuration: configuration, balance: balance,
                    application: part.application))
        }
        balance.begin(among: references)
        workers = Mutex(references)
        for reference in references { start(reference) }
    }

    /// Opens a listening socket for each event loop, all at one address, or none if one fails.
    private static func listen(_ configuration: Configuration, count: Int) throws -> [ListeningSocket] {
        var address = try SocketAddress(resolving: configuration.address)
        if address.port != 0, !configuration.sharesAddress { try ListeningSocket.requireFree(address) }
        var listeners: [ListeningSocket] = []
        do {
            for _ in 0..<count {
                let listener = try ListeningSocket(sharing: address, backlog: configuration.backlog)
                listeners.append(listener)
                // With port 0 the first socket gets the port that the others share.
                address = try listener.address()
            }
        } catch {
            for listener in listeners { listener.socket.close() }
            throw error
        }
        return listeners
    }

    /// Runs a worker on a thread of its own until it is drained.
    private func start(_ reference: WorkerReference) {
        let queue = DispatchQueue(label: "event-loop-\(reference.worker.loop.index)", qos: .userInitiated)
        queue.async(group: finished) {
            reference.worker.loop.adoptThread()
            do {
                try reference.worker.run()
            } catch {
                preconditionFailure("the event loop cannot continue: \(error)")
            }
        }
    }

    /// Stops accepting, completes the requests in progress, and closes all connections.
    ///
    /// - Parameter seconds: after this time, connections that are still open are cut.
    public func stop(within seconds: Double) {
        let deadline = SystemCall.monotonicNanoseconds() &+ seconds.nanoseconds
        balance.stop()
        for reference in workers.withLock({ $0 }) {
            reference.worker.loop.submit { reference.worker.drain(until: deadline) }
        }
    }

    /// Blocks until the server has stopped.
    public func wait() {
        finished.wait()
    }

    /// Collects a value from each event loop. Loops that have ended are left out.
    ///
    /// - Parameter read: returns the value; called on the thread of the loop.
    public func collect<Value: Sendable>(
        _ read: @escaping @Sendable (any Application, ConnectionMetrics) -> Value
    ) async -> [Value] {
        var values: [Value] = []
        for reference in workers.withLock({ $0 }) {
            let value: Value? = await withUnsafeContinuation { continuation in
                let isSubmitted = reference.worker.loop.submit {
                    continuation.resume(returning: read(reference.worker.application, reference.worker.metrics))
                }
                if !isSubmitted { continuation.resume(returning: nil) }
            }
            if let value { values.append(value) }
        }
        return values
    }

    /// The number of cores that this process may use.
    public static var availableCores: Int {
        max(1, Int(csystem_available_cores()))
    }
}

/// A reference to a worker that other threads may hold. Safe: they only submit jobs to the worker's loop, and the jobs
/// use the worker on the loop's thread.
struct WorkerReference: @unchecked Sendable {
    let worker: Worker
}
