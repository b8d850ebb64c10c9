import Glibc
internal import Synchronization
import Tracing

/// One event loop with its listening socket, its connections and its application. Confined to the loop's thread, except
/// for ``load``.
///
/// Each iteration receives the bytes that have arrived, runs the jobs of other threads, calls the handlers, and sends
/// the responses, in this order. So a handler sees every write that was acknowledged before its request was received.
///
/// An event or a deadline names its connection by a token: the connection's generation in the upper 32 bits, and its
/// descriptor in the lower ones.
final class Worker {
    let loop: EventLoop
    let configuration: HTTPServer.Configuration
    let application: any Application
    /// A copy of the application's router, so that a request need not access it through the protocol.
    let router: Router
    private let tracer: Tracer?
    var metrics = ConnectionMetrics()
    /// The start of the iteration in monotonic nanoseconds.
    private(set) var now = SystemCall.monotonicNanoseconds()
    /// The buffer that connections without unhandled input share for receiving.
    var receiveBuffer = ByteBuffer(capacity: 64 * 1024)
    /// Bytes that the connections hold of incomplete bodies.
    var unfinishedBodyBytes = 0
    /// The number of connections that this worker serves, or that another worker is about to hand over to it. Other
    /// threads read and change it.
    let load = Atomic<Int>(0)

    private let listener: ListeningSocket
    private let balance: ConnectionBalance
    /// The open connections by descriptor.
    private var connections: [Int32: Connection] = [:]
    /// The generation of the last connection. It distinguishes connections whose descriptors are the same.
    private var generation: UInt32 = 0
    /// The connections to serve in this iteration.
    private var active: [Connection] = []
    private var dateCache = DateCache()
    /// The number of request ids that this worker has generated.
    private var generatedIDs: UInt64 = 0
    /// The number of responses that were written in this iteration, except those written by jobs; see ``serve()``.
    private var writtenResponses = 0
    /// When the last response was written, in monotonic nanoseconds.
    private var lastResponse: UInt64 = 0
    /// Whether the previous iteration took longer than ``Limits/loopDelaySeconds``. The requests that arrived during it
    /// are then refused, except on vital routes.
    private(set) var isBehind = false
    /// ``Limits/loopDelaySeconds`` in nanoseconds.
    private let longestIteration: UInt64
    /// This worker's share of ``Limits/unfinishedBodyBytes``.
    private let mostUnfinishedBodyBytes: Int
    /// Distinguishes the request ids of this worker from those of others.
    private let idPrefix = UInt32.random(in: 1...UInt32.max)
    private var isAccepting = true
    private var isDraining = false
    private var drainDeadline = UInt64.max

    private static let listenerToken = UInt64.max - 1
    /// The token of the worker's own deadlines: the end of a pause in accepting, and the end of draining.
    private static let deadlineToken = UInt64.max - 2
    /// Generations end here, because the token's highest bit marks the watches of the loop.
    private static let lastGeneration: UInt32 = 0x7FFF_FFFF
    /// Connections accepted in one iteration, so that open ones are served in between.
    private static let acceptsPerIteration = 64
    /// How long accepting pauses after an error, in nanoseconds.
    private static let acceptPause: UInt64 = 100_000_000

    init(
        loop: EventLoop, listener: ListeningSocket, configuration: HTTPServer.Configuration,
        balance: ConnectionBalance, application: any Application
    ) {
        self.loop = loop
        self.listener = listener
        self.configuration = configuration
        self.balance = balance
        self.application = application
        router = application.router
        tracer = application.tracer
        longestIteration = configuration.limits.loopDelaySeconds.nanoseconds
        let share = configuration.limits.unfinishedBodyBytes / max(1, configuration.eventLoops)
        // A single body within its limit always has room.
        mostUnfinishedBodyBytes = max(share, configuration.limits.headerBytes + configuration.limits.bodyBytes)
    }

    var date: [UInt8] { dateCache.line }

    var hasRoomForBodies: Bool { unfinishedBodyBytes <= mostUnfinishedBodyBytes }

    // MARK: The loop

    /// Runs until the server is stopped and the last connection is closed.
    func run() throws(SystemError) {
        try loop.selector.add(listener.socket.descriptor, token: Self.listenerToken)
        while !(isDraining && load.load(ordering: .sequentiallyConsistent) == 0) {
            try runIteration()
        }
        loop.close()
        application.stop()
    }

    private func runIteration() throws(SystemError) {
        let count = try loop.wait(atMost: active.isEmpty ? -1 : 0, now: now)
        // `now` is still the start of the previous iteration.
        isBehind = lastResponse > now && lastResponse - now > longestIteration
        now = SystemCall.monotonicNanoseconds()
        dateCache.refresh()
        for index in 0..<count { handle(loop.selector.event(index)) }
        handleDeadlines()
        serve()
    }

    private func handle(_ event: Selector.Event) {
        switch event.token {
        case EventLoop.wakeToken:
            loop.clearWakeUp()
        case Self.listenerToken:
            accept(atMost: Self.acceptsPerIteration)
        default:
            guard let connection = connection(event.token) else { return loop.noteReady(event.token) }
            if event.isReadable { connection.receive() }
            if event.hasHungUp { connection.hangUp() }
            if event.isWritable { activate(connection) }
        }
    }

    /// Runs the jobs of other threads, the closures of watched descriptors, and then the handlers, all in one batch of
    /// the application. Sends the responses at the end.
    private func serve() {
        guard !active.isEmpty || loop.hasWork else { return }
        application.beginBatch()
        loop.runJobs()
        writtenResponses = 0
        loop.callWatches()
        let batch = active
        active.removeAll(keepingCapacity: true)
        for connection in batch { connection.handleRequests() }
        application.endBatch()
        for connection in batch {
            connection.isActive = false
            connection.flush()
        }
        // A loop that always finds work would keep its core until the kernel's next tick, milliseconds later. So it
        // yields the core to other threads, such as the writer of the store. A loop whose requests all wait for a
        // commit, which is reported by a job, goes to sleep anyway and need not yield.
        if writtenResponses > 0 { sched_yield() }
    }

    /// Serves a connection in this iteration, or in the next one if this iteration's handlers already run.
    func activate(_ connection: Connection) {
        guard !connection.isActive else { return }
        connection.isActive = true
        active.append(connection)
    }

    private func handleDeadlines() {
        while let entry = loop.deadlines.popExpired(now: now) {
            if entry.token == Self.deadlineToken {
                resumeAccepting()
            } else {
                connection(entry.token)?.deadlinePassed(entry.time)
            }
        }
        if now >= drainDeadline { cutOff() }
    }

    // MARK: Requests

    func nextRequestID() -> RequestID {
        generatedIDs &+= 1
        return .generated(loop: idPrefix, count: generatedIDs)
    }

    @inline(__always)
    func requestCompleted(_ summary: consuming RequestSummary, from peer: IPAddress) {
        writtenResponses += 1
        lastResponse = SystemCall.monotonicNanoseconds()
        summary.nanoseconds = lastResponse &- summary.startedAt
        summary.peer = peer
        application.requestCompleted(summary)
    }

    /// Begins the span of a request; `nil` if nothing is traced.
    ///
    /// - Parameter route: the index in the route table; `nil` if none matched.
    @inline(__always)
    func beginSpan(of head: RequestHead, in bytes: UnsafeRawBufferPointer, route: Int?) -> Span? {
        guard let tracer else { return nil }
        return tracer.begin(
            traceparent: head.joinedValue(of: "traceparent", in: bytes),
            state: head.joinedValue(of: "tracestate", in: bytes),
            isQuiet: route.map { router.routes[$0].isVital } ?? false)
    }

    /// The response to a request that is refused because the event loop lags behind.
    func overloadResponse(route: Int) -> Response {
        let failure = RequestFailure(
            .serviceUnavailable, "the server is overloaded; nothing was done; try again later")
        return response(to: failure, at: .route(route))
    }

    func response(to failure: RequestFailure, at location: RequestFailure.Location) -> Response {
        if failure.status == .serviceUnavailable { metrics.overloaded &+= 1 }
        return application.response(to: failure, at: location)
    }

    // MARK: Connections

    /// Returns the connection with a token; `nil` if the connection is closed, so that the event is stale.
    private func connection(_ token: UInt64) -> Connection? {
        guard let connection = connections[Int32(truncatingIfNeeded: token)], connection.token == token else {
            return nil
        }
        return connection
    }

    private func accept(atMost limit: Int) {
        guard isAccepting else { return }
        for _ in 0..<limit {
            do throws(SystemError) {
                guard let (socket, peer) = try listener.accept() else { return }
                distribute(socket, peer)
            } catch {
                guard !error.concernsOnlyThePeer else { continue }
                application.report(.acceptFailed(error))
                return pauseAccepting()
            }
        }
    }

    /// Admits a connection here or at a loop with fewer connections: the kernel distributes them at random.
    private func distribute(_ socket: Socket, _ peer: IPAddress) {
        guard balance.countConnection(limit: configuration.limits.connections) else {
            metrics.refused &+= 1
            application.report(.connectionRefused)
            return refuse(socket)
        }
        guard let chosen = balance.chooseWorker(acceptedBy: self) else { return admit(socket, peer) }
        chosen.worker.loop.submit { chosen.worker.admit(socket, peer) }
    }

    /// Responds with 503 and closes the socket.
    private func refuse(_ socket: Socket) {
        let request = PendingRequest(
            refused: nextRequestID(), at: now, fields: application.fields(origin: nil, route: nil))
        let failure = RequestFailure(.serviceUnavailable, "the server has no free connection; try again later")
        let response = application.response(to: failure, at: .none)
        var output = OutputQueue()
        _ = ResponseEncoder.encode(response, to: request, date: date, into: &output)
        socket.refuse(with: &output)
    }

    /// Begins to serve a connection that the balance has counted for this worker.
    private func admit(_ socket: Socket, _ peer: IPAddress) {
        generation = generation == Self.lastGeneration ? 0 : generation + 1
        let token = UInt64(generation) << 32 | UInt64(UInt32(bitPattern: socket.descriptor))
        let connection = Connection(socket: socket, peer: peer, worker: self, token: token)
        do throws(SystemError) {
            try loop.selector.add(socket.descriptor, token: token)
        } catch {
            balance.remove(from: self)
            application.report(.acceptFailed(error))
            return socket.close()
        }
        connections[socket.descriptor] = connection
        metrics.accepted &+= 1
        metrics.open += 1
        activate(connection)
        if isDraining { connection.drain() }
    }

    func remove(_ connection: Connection) {
        let descriptor = Int32(truncatingIfNeeded: connection.token)
        guard connections.removeValue(forKey: descriptor) != nil else { return }
        metrics.open -= 1
        balance.remove(from: self)
    }

    /// Stops accepting for a moment. Without descriptors or memory, retrying at once would only spin.
    private func pauseAccepting() {
        guard isAccepting else { return }
        isAccepting = false
        try? loop.selector.modify(
            listener.socket.descriptor, token: Self.listenerToken, reading: false, writing: false)
        loop.deadlines.insert(.init(time: now &+ Self.acceptPause, token: Self.deadlineToken))
    }

    private func resumeAccepting() {
        guard !isDraining else { return }
        isAccepting = true
        try? loop.selector.modify(listener.socket.descriptor, token: Self.listenerToken, reading: true, writing: false)
    }

    // MARK: Stopping

    /// Accepts no further connections, and closes the open ones after their responses.
    ///
    /// - Parameter deadline: monotonic nanoseconds at which connections that are still open are closed.
    func drain(until deadline: UInt64) {
        guard !isDraining else { return }
        // Serve the connections that the kernel has already established.
        accept(atMost: Int(max(0, configuration.backlog)))
        isDraining = true
        isAccepting = false
        drainDeadline = deadline
        // Closing the descriptor also removes it from the selector.
        listener.socket.close()
        loop.deadlines.insert(.init(time: deadline, token: Self.deadlineToken))
        for connection in connections.values { connection.drain() }
    }

    /// Closes the remaining connections, and reports the connections whose responses are incomplete.
    private func cutOff() {
        var waiting = 0
        for connection in connections.values {
            if let (id, route) = connection.machine.responses.unsentStream {
                application.report(.streamCutOff(id, route: route))
            } else if connection.isBusy {
                waiting += 1
            }
            connection.close()
        }
        if waiting > 0 { application.report(.connectionsCutOff(waiting)) }
    }
}
