import Glibc
internal import Synchronization

/// One event loop with its listening socket, its connections and its application. A turn has four parts, in this
/// order: receive all that has arrived; run what other threads have submitted; handle requests; send answers. So
/// every request is handled with the knowledge of everything that was acknowledged before it was received.
final class Worker {
    let loop: EventLoop
    let configuration: HTTPServer.Configuration
    let application: any Application
    var statistics = ConnectionStatistics()
    /// Monotonic nanoseconds at the beginning of the turn.
    private(set) var now = SystemCall.monotonicNanoseconds()

    private let listener: ListeningSocket
    private let balance: ConnectionBalance
    /// Connections that it has or is about to be given.
    let load = Atomic<Int>(0)
    private var connections: [Int32: Connection] = [:]
    private var generation: UInt32 = 0
    private var active: [Connection] = []
    private var scratch = ByteBuffer(capacity: 64 * 1024)
    private var dateCache = DateCache()
    private var requests: UInt64 = 0
    /// Requests that were answered as soon as they were handled in this turn.
    private var answered = 0
    /// When the last answer was written.
    private var lastAnswer: UInt64 = 0
    /// Whether the turn before took so long that what came meanwhile has waited for too long already.
    private(set) var isBehind = false
    private let longestTurn: UInt64
    /// What its connections hold of bodies that have come in part.
    var unfinishedBodyBytes = 0
    private let mostUnfinishedBodyBytes: Int
    private let idPrefix = UInt32.random(in: 1...UInt32.max)
    private var isAccepting = true
    private var isDraining = false
    private var drainDeadline = UInt64.max

    private static let listenerToken = UInt64.max - 1
    private static let acceptToken = UInt64.max - 2

    init(
        loop: EventLoop, listener: ListeningSocket, configuration: HTTPServer.Configuration,
        balance: ConnectionBalance, application: any Application
    ) {
        self.loop = loop
        self.listener = listener
        self.configuration = configuration
        self.balance = balance
        self.application = application
        longestTurn = configuration.limits.turnSeconds.nanoseconds
        let share = configuration.limits.unfinishedBodyBytes / max(1, configuration.eventLoops)
        // One body that is within its limit is always taken.
        mostUnfinishedBodyBytes = max(share, configuration.limits.headerBytes + configuration.limits.bodyBytes)
    }

    var date: [UInt8] { dateCache.line }

    var hasRoomForBodies: Bool { unfinishedBodyBytes <= mostUnfinishedBodyBytes }

    /// Runs until the server is stopped and the last connection is gone.
    func run() throws(SystemError) {
        try loop.selector.add(listener.socket.descriptor, token: Self.listenerToken)
        while !(isDraining && load.load(ordering: .sequentiallyConsistent) == 0) {
            try turn()
        }
        loop.closeMailbox()
        application.stop()
    }

    private func turn() throws(SystemError) {
        let count = try loop.wait(atMost: active.isEmpty ? -1 : 0, now: now)
        isBehind = lastAnswer > now && lastAnswer - now > longestTurn
        now = SystemCall.monotonicNanoseconds()
        dateCache.refresh()
        for index in 0..<count { take(loop.selector.event(index)) }
        expireDeadlines()
        loop.runMail()
        serveActive()
    }

    private func take(_ event: Selector.Event) {
        switch event.token {
        case EventLoop.wakeToken:
            loop.clearWakeUp()
        case Self.listenerToken:
            // No more than this in one turn, so that connections that are there are served meanwhile.
            accept(atMost: 64)
        default:
            guard let connection = connections[Int32(truncatingIfNeeded: event.token)], connection.token == event.token
            else { return }
            if event.isReadable { connection.receive() }
            if event.isWritable { activate(connection) }
        }
    }

    private func serveActive() {
        guard !active.isEmpty else { return }
        let batch = active
        active.removeAll(keepingCapacity: true)
        answered = 0
        application.beginBatch()
        for connection in batch { connection.process() }
        application.endBatch()
        for connection in batch {
            connection.isActive = false
            connection.flush()
        }
        // A loop that always finds more to do would keep its core until the kernel's next tick, for milliseconds, though
        // others wait for it. With requests that wait for a commit alone it will soon have nothing to do by itself.
        if answered > 0 { sched_yield() }
    }

    /// Has a connection served in this turn, or in the next one if this turn's have been chosen.
    func activate(_ connection: Connection) {
        guard !connection.isActive else { return }
        connection.isActive = true
        active.append(connection)
    }

    // MARK: Receiving

    /// Small requests on many connections share one buffer to be received into; a body that takes several turns is
    /// received into its own.
    func receive(from socket: Socket, into input: inout ByteBuffer) throws(SystemError) -> SystemCall.Outcome {
        guard input.isEmpty else {
            input.reserve(max(16 * 1024, min(input.count, 256 * 1024)))
            return try socket.receive(into: &input, atMost: 256 * 1024)
        }
        let outcome = try socket.receive(into: &scratch, atMost: 64 * 1024)
        input.append(scratch.readableBytes)
        scratch.consume(scratch.count)
        return outcome
    }

    func nextRequestID() -> RequestID {
        requests &+= 1
        return .generated(loop: idPrefix, count: requests)
    }

    func completed(_ request: PendingRequest, _ status: Status, _ peer: IPAddress) {
        answered += 1
        let end = SystemCall.monotonicNanoseconds()
        lastAnswer = end
        application.requestWasAnswered(
            RequestSummary(
                route: request.route, method: request.method, status: status, nanoseconds: end &- request.startedAt,
                id: request.id, bytes: request.sentBytes, peer: peer, target: request.target,
                forwardedFor: request.forwardedFor, caller: request.caller))
    }

    /// The answer to a request that is not handled because the event loop is behind.
    func refusalForLackOfTime() -> Response {
        response(to: RequestFailure(.serviceUnavailable, "the server is overloaded; nothing was done; try again later"))
    }

    func response(to failure: RequestFailure) -> Response {
        if failure.status == .serviceUnavailable { statistics.overloaded &+= 1 }
        return application.response(to: failure)
    }

    // MARK: Accepting

    private func accept(atMost limit: Int) {
        guard isAccepting else { return }
        for _ in 0..<limit {
            do throws(SystemError) {
                guard let (socket, peer) = try listener.accept() else { return }
                distribute(socket, peer)
            } catch {
                guard !error.isOfThePeer else { continue }
                application.report(.acceptFailed(error))
                return pauseAccepting()
            }
        }
    }

    /// Has a connection served here, or by a loop that has fewer: the kernel gives them out at random.
    private func distribute(_ socket: Socket, _ peer: IPAddress) {
        guard balance.admits(atMost: configuration.limits.connections) else {
            statistics.refused &+= 1
            application.report(.connectionRefused)
            return refuse(socket)
        }
        guard let chosen = balance.choose(from: self) else { return admit(socket, peer) }
        chosen.worker.loop.submit { chosen.worker.admit(socket, peer) }
    }

    private func refuse(_ socket: Socket) {
        let request = PendingRequest(refused: nextRequestID(), at: now)
        let failure = RequestFailure(.serviceUnavailable, "the server has no free connection; try again later")
        var answer = OutputQueue()
        _ = ResponseEncoder.encode(application.response(to: failure), to: request, date: date, into: &answer)
        socket.refuse(with: &answer)
    }

    private func admit(_ socket: Socket, _ peer: IPAddress) {
        generation = generation == 0x7FFF_FFFF ? 0 : generation + 1
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
        statistics.accepted &+= 1
        statistics.open += 1
        activate(connection)
        if isDraining { connection.drain() }
    }

    /// When descriptors or memory are used up, accepting again at once would only turn in a circle.
    private func pauseAccepting() {
        guard isAccepting else { return }
        isAccepting = false
        try? loop.selector.modify(
            listener.socket.descriptor, token: Self.listenerToken, reading: false, writing: false)
        loop.deadlines.insert(.init(time: now &+ 100_000_000, token: Self.acceptToken))
    }

    private func resumeAccepting() {
        guard !isDraining else { return }
        isAccepting = true
        try? loop.selector.modify(listener.socket.descriptor, token: Self.listenerToken, reading: true, writing: false)
    }

    func remove(_ connection: Connection) {
        let descriptor = Int32(truncatingIfNeeded: connection.token)
        guard connections.removeValue(forKey: descriptor) != nil else { return }
        statistics.open -= 1
        balance.remove(from: self)
    }

    private func expireDeadlines() {
        while let entry = loop.deadlines.popExpired(now: now) {
            if entry.token == Self.acceptToken {
                resumeAccepting()
            } else if let connection = connections[Int32(truncatingIfNeeded: entry.token)],
                connection.token == entry.token
            {
                connection.deadlineCameUp(entry.time)
            }
        }
        if now >= drainDeadline { cutOff() }
    }

    // MARK: Stopping

    /// Closes what is still open, and reports whose requests have not been answered.
    private func cutOff() {
        var unanswered = 0
        for connection in connections.values {
            if let (id, route) = connection.unsentStream {
                application.report(.streamCutOff(id, route: route))
            } else if connection.isBusy {
                unanswered += 1
            }
            connection.close()
        }
        if unanswered > 0 { application.report(.connectionsCutOff(unanswered)) }
    }

    /// Takes no new connection, and ends those that are there when they have been answered.
    ///
    /// - Parameter deadline: monotonic nanoseconds at which those that are still open are closed.
    func drain(until deadline: UInt64) {
        guard !isDraining else { return }
        accept(atMost: Int(max(0, configuration.backlog)))
        isDraining = true
        isAccepting = false
        drainDeadline = deadline
        // Closing the descriptor takes it out of the selector too.
        listener.socket.close()
        loop.deadlines.insert(.init(time: deadline, token: Self.acceptToken))
        for connection in connections.values { connection.drain() }
    }
}
