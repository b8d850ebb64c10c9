internal import CSystem
import Dispatch
internal import Synchronization
import Glibc

/// An HTTP/1.1 server: one event loop for each core, each on a thread that Dispatch lends, with its own listening
/// socket and its own instance of the application.
public final class HTTPServer: Sendable {
    /// Where it listens.
    public let address: SocketAddress
    private let workers: Mutex<[WorkerReference]>
    private let balance = ConnectionBalance()
    private let finished = DispatchGroup()

    /// Listens and begins to serve.
    ///
    /// - Parameter makeApplication: called once for each event loop, before it serves.
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
        let references = zip(prepared, listeners).map { prepared, listener in
            WorkerReference(
                worker: Worker(
                    loop: prepared.loop, listener: listener, configuration: configuration, balance: balance,
                    application: prepared.application))
        }
        balance.begin(among: references)
        workers = Mutex(references)
        for reference in references { start(reference) }
    }

    /// A listening socket for each event loop, all at one address; none if one fails.
    private static func listen(_ configuration: Configuration, count: Int) throws -> [ListeningSocket] {
        var address = try SocketAddress(resolving: configuration.address)
        if address.port != 0, !configuration.sharesAddress { try ListeningSocket.assureFree(address) }
        var listeners: [ListeningSocket] = []
        do {
            for _ in 0..<count {
                let listener = try ListeningSocket(sharing: address, backlog: configuration.backlog)
                listeners.append(listener)
                address = try listener.address()
            }
        } catch {
            for listener in listeners { listener.socket.close() }
            throw error
        }
        return listeners
    }

    private func start(_ reference: WorkerReference) {
        let queue = DispatchQueue(label: "event-loop-\(reference.worker.loop.index)", qos: .userInitiated)
        queue.async(group: finished) {
            reference.worker.loop.adoptThread()
            do {
                try reference.worker.run()
            } catch {
                preconditionFailure("an event loop cannot go on: \(error)")
            }
        }
    }

    /// Stops accepting, lets requests in progress be answered, and closes all connections.
    ///
    /// - Parameter seconds: after this time what is still open is closed as it is.
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

    /// Collects something from each event loop's application, on its thread, and hands over all when they are there.
    /// A loop that has ended is left out.
    ///
    /// - Parameter completion: called on the thread of one of the loops, or the caller's.
    public func collect<Value: Sendable>(
        _ take: @escaping @Sendable (any Application, ConnectionStatistics) -> Value,
        completion: @escaping @Sendable ([Value]) -> Void
    ) {
        let references = workers.withLock { $0 }
        let collected = Collected<Value>(expected: references.count, completion: completion)
        for reference in references {
            let isTaken = reference.worker.loop.submit {
                collected.add(take(reference.worker.application, reference.worker.statistics))
            }
            if !isTaken { collected.add(nil) }
        }
    }

    /// The cores that this process may use.
    public static var availableCores: Int {
        max(1, Int(csystem_available_cores()))
    }
}

/// A worker as other threads hold it. Safe: they only submit to its loop, and name the worker in what they submit.
struct WorkerReference: @unchecked Sendable {
    let worker: Worker
}

/// Counts what has been collected.
private final class Collected<Value: Sendable>: Sendable {
    private struct State {
        var values: [Value] = []
        var missing: Int
    }

    private let state: Mutex<State>
    private let completion: @Sendable ([Value]) -> Void

    init(expected: Int, completion: @escaping @Sendable ([Value]) -> Void) {
        state = Mutex(State(missing: expected))
        self.completion = completion
    }

    /// - Parameter value: `nil` from one that has nothing to give.
    func add(_ value: Value?) {
        let all = state.withLock { state in
            if let value { state.values.append(value) }
            state.missing -= 1
            return state.missing == 0 ? state.values : nil
        }
        if let all { completion(all) }
    }
}
