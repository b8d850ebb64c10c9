/// The socket's part of one connection: moves bytes between the socket and the machine, and requests between the
/// machine and the handlers. Belongs to its worker's thread.
final class Connection {
    let worker: Worker
    let token: UInt64
    var loop: EventLoop { worker.loop }

    private let socket: Socket
    private let peer: IPAddress
    private var machine: ConnectionMachine
    private var receiver: (any BodyReceiver)?
    /// The number of the request whose body the receiver takes.
    private var receiverSequence: UInt64 = 0
    /// What the worker counts of a body that this connection holds in part.
    private var countedBodyBytes = 0
    private var state = State.open
    private var isReading = true
    private var isWriting = false
    /// Whether the turn ended before all was handled that had been received.
    private var isUnfinished = false
    /// When the peer last took something, or its answer began to wait for room.
    private var lastWrite: UInt64
    /// The deadline that the worker's queue has for this connection.
    private var scheduledDeadline = UInt64.max
    /// Whether it stands in the worker's list of connections with something to do.
    var isActive = false

    private enum State {
        case open
        /// All is sent; what the peer still sends is thrown away until it ends or the time is over.
        case lingering(until: UInt64)
        case closed
    }

    init(socket: Socket, peer: IPAddress, worker: Worker, token: UInt64) {
        self.socket = socket
        self.peer = peer
        self.worker = worker
        self.token = token
        machine = ConnectionMachine(limits: worker.configuration.limits, now: worker.now)
        lastWrite = worker.now
    }

    var isClosed: Bool {
        if case .closed = state { return true }
        return false
    }

    // MARK: Receiving

    /// Takes what has arrived. Handlers run later in the turn, in `process`.
    func receive() {
        guard !isClosed else { return }
        do throws(SystemError) {
            switch try worker.receive(from: socket, into: &machine.input) {
            case .wouldBlock:
                break
            case .done(0):
                machine.inputEnded()
                if case .lingering = state { return close() }
            case .done(let count):
                worker.statistics.bytesReceived &+= UInt64(count)
                if case .lingering = state { machine.input.consume(machine.input.count) }
            }
            worker.activate(self)
        } catch {
            close()
        }
    }

    // MARK: Handling

    /// Steps of one connection in one turn; each request takes at least two. Others have their turn then.
    private static let stepsOfATurn = 256

    /// Handles the requests that are whole.
    func process() {
        isUnfinished = false
        for _ in 0..<Self.stepsOfATurn {
            if isClosed { return }
            switch machine.nextStep(now: worker.now) {
            case .wait:
                guard countBody() else { refuse(machine.refuseBody()); continue }
                return
            case .head:
                route()
            case .request:
                handle()
            case .bodyBytes(let range):
                let wantsMore = receiver?.received(machine.input.readableBytes[slice: range]) ?? true
                machine.usedBodyBytes(range, wantsMore: wantsMore)
            case .bodyEnd:
                let receiver = receiver
                self.receiver = nil
                receiver?.ended()
            case .failed(let failure):
                refuse(failure)
            }
        }
        isUnfinished = true
    }

    /// Has the worker count what is held of a body that has come in part.
    ///
    /// - Returns: whether there is room for it.
    private func countBody() -> Bool {
        let held = machine.unfinishedBodyBytes + (receiver?.heldBytes ?? 0)
        guard held != countedBodyBytes else { return true }
        worker.unfinishedBodyBytes += held - countedBodyBytes
        let isMore = held > countedBodyBytes
        countedBodyBytes = held
        return !isMore || worker.hasRoomForBodies
    }

    private var matched: (route: Int, parameters: PathParameters)?
    private var mismatch: Response?
    /// Whether a head has been read whose request has not begun: it waits for its body.
    private var awaitsBody = false

    /// Finds the route of the head just read, and with it how the body is wanted.
    private func route() {
        let bytes = machine.input.readableBytes
        matched = nil
        mismatch = nil
        var isStreamed = false
        switch worker.application.router.match(machine.head.method, path: machine.head.path, in: bytes) {
        case .route(let route, let parameters):
            matched = (route, parameters)
            if case .streamed = worker.application.router.routes[route].handler { isStreamed = true }
        case .methodNotAllowed(let allowed):
            mismatch = methodNotAllowed(allowed)
        case .notFound:
            mismatch = machine.head.method == .options && bytes[slice: machine.head.path].equals("*")
                ? Response(.noContent)
                : worker.application.response(to: RequestFailure(.notFound, "no resource has this path"))
        }
        if isStreamed, let matched {
            startStream(matched.route, matched.parameters)
        } else {
            awaitsBody = true
            machine.readBody()
        }
    }

    private func methodNotAllowed(_ allowed: [Method]) -> Response {
        let list = allowed.map(\.name.description).joined(separator: ", ")
        var response =
            machine.head.method == .options
            ? Response(.noContent)
            : worker.application.response(to: RequestFailure(.methodNotAllowed, "this path supports only \(list)"))
        response.fields.append(("Allow", list))
        return response
    }

    private func startStream(_ route: Int, _ parameters: PathParameters) {
        guard case .streamed(let handler) = worker.application.router.routes[route].handler else { return }
        let bytes = machine.input.readableBytes
        // An answer that is given before the body has been read ends the connection, unless there is no body.
        let responder = begin(route: route, bytes, keepsAlive: machine.head.keepsAlive && machine.head.body == .none)
        let request = Request(
            head: machine.head, bytes: bytes, bodyRange: 0..<0, parameters: parameters, id: currentID, peer: peer)
        receiver = handler(request, responder)
        receiverSequence = responder.sequence
        machine.streamBody(isWanted: receiver != nil)
    }

    private func handle() {
        let bytes = machine.input.readableBytes
        let responder = begin(route: matched?.route, bytes, keepsAlive: machine.head.keepsAlive)
        var holdsNext = false
        if let (route, parameters) = matched,
            case .buffered(let handler) = worker.application.router.routes[route].handler
        {
            holdsNext = worker.application.router.routes[route].holdsNext
            if worker.isBehind, !worker.application.router.routes[route].isVital {
                responder.send(worker.refusalForLackOfTime())
                return machine.handled(holdsNext: holdsNext)
            }
            let request = Request(
                head: machine.head, bytes: bytes, bodyRange: machine.bodyRange, parameters: parameters, id: currentID,
                peer: peer)
            handler(request, responder)
        } else if let mismatch {
            responder.send(mismatch)
        }
        machine.handled(holdsNext: holdsNext)
    }

    private var currentID = RequestID.generated(loop: 0, count: 0)

    private func begin(route: Int?, _ bytes: UnsafeRawBufferPointer, keepsAlive: Bool) -> Responder {
        awaitsBody = false
        let head = machine.head
        currentID = head.value(of: "x-request-id", in: bytes).flatMap(RequestID.init) ?? worker.nextRequestID()
        var request = PendingRequest(
            id: currentID, method: head.method, isVersion11: head.isVersion11, keepsAlive: keepsAlive,
            ifNoneMatch: nil, route: route, startedAt: worker.now, target: nil, response: nil)
        if head.method.isSafe { request.ifNoneMatch = head.joinedValue(of: "if-none-match", in: bytes) }
        if worker.application.logsRequests {
            request.forwardedFor = head.joinedValue(of: "x-forwarded-for", in: bytes)
            request.target = String(decoding: bytes[head.path.lowerBound..<max(head.path.upperBound, head.query.upperBound)], as: UTF8.self)
        }
        return Responder(connection: self, sequence: machine.begin(request))
    }

    private func refuse(_ failure: RequestFailure) {
        if receiver != nil {
            // The request that the body belongs to has been begun; if it has been answered too, there is no more to say.
            machine.endAfterLast()
            answer(worker.response(to: failure), sequence: receiverSequence)
            return loseReceiver()
        }
        answer(worker.response(to: failure), sequence: beginRefused())
    }

    /// - Returns: the number of a request that is not handled, of which as much is known as could be read.
    private func beginRefused() -> UInt64 {
        guard !awaitsBody else {
            return begin(route: matched?.route, machine.input.readableBytes, keepsAlive: false).sequence
        }
        return machine.begin(PendingRequest(refused: worker.nextRequestID(), at: worker.now))
    }

    private func loseReceiver() {
        let receiver = receiver
        self.receiver = nil
        receiver?.aborted()
    }

    func resumeBody() {
        guard !isClosed else { return }
        machine.resumeBody(now: worker.now)
        worker.activate(self)
    }

    /// Keeps for the log who makes a request.
    func note(caller: String, of sequence: UInt64) {
        if worker.application.logsRequests { machine.note(caller: caller, of: sequence) }
    }

    // MARK: Answering

    @inline(__always)
    func answer(_ response: Response, sequence: UInt64) {
        guard !isClosed else { return }
        machine.answer(response, sequence: sequence, date: worker.date) { worker.completed($0, $1, peer) }
        worker.activate(self)
    }

    func streamWrote(_ bytes: [UInt8], sequence: UInt64) {
        guard !isClosed else { return }
        machine.streamWrote(bytes, sequence: sequence, date: worker.date)
        worker.activate(self)
    }

    func streamFinished(sequence: UInt64) {
        guard !isClosed else { return }
        machine.streamFinished(sequence: sequence, date: worker.date) { worker.completed($0, $1, peer) }
        worker.activate(self)
    }

    /// Answers with what has gone wrong, or else cuts the connection, so that the peer sees that the answer is not
    /// whole.
    func streamFailed(_ response: Response, sequence: UInt64) {
        guard !isClosed else { return }
        let isAnswered = machine.streamFailed(response, sequence: sequence, date: worker.date) {
            worker.completed($0, $1, peer)
        }
        isAnswered ? worker.activate(self) : close()
    }

    /// Sends what there is to send, and sees to what is to be waited for.
    func flush() {
        guard case .open = state else { return }
        if let (stream, sequence) = machine.streamToPull() {
            stream.produce(StreamWriter(connection: self, sequence: sequence))
            if isClosed { return }
        }
        if isUnfinished { worker.activate(self) }
        do throws(SystemError) {
            try send()
            if machine.output.isEmpty, machine.isDone { return finish() }
            try watch()
        } catch {
            close()
        }
    }

    private func send() throws(SystemError) {
        guard !machine.output.isEmpty else { return }
        if case .done(let count) = try socket.send(&machine.output) {
            worker.statistics.bytesSent &+= UInt64(count)
            lastWrite = worker.now
        } else if !isWriting {
            lastWrite = worker.now
        }
        guard machine.output.isEmpty else { return }
        machine.outputWasSent()
        // A stream, or requests left unread for lack of room, go on in the next turn.
        if machine.mayGoOn { worker.activate(self) }
    }

    private func watch() throws(SystemError) {
        try watch(reading: machine.wantsInput, writing: !machine.output.isEmpty)
        schedule(machine.deadline(lastWrite: lastWrite).at)
    }

    /// Has the loop wake for what is named, and for nothing else.
    private func watch(reading: Bool, writing: Bool) throws(SystemError) {
        guard reading != isReading || writing != isWriting else { return }
        try loop.selector.modify(socket.descriptor, token: token, reading: reading, writing: writing)
        (isReading, isWriting) = (reading, writing)
    }

    private func schedule(_ deadline: UInt64) {
        guard deadline < scheduledDeadline else { return }
        scheduledDeadline = deadline
        loop.deadlines.insert(.init(time: deadline, token: token))
    }

    // MARK: Ending

    /// A deadline of this connection has come up, which may have moved since it was entered.
    func deadlineCameUp(_ entered: UInt64) {
        guard entered == scheduledDeadline else { return }
        scheduledDeadline = .max
        switch state {
        case .closed:
            return
        case .lingering(let end):
            worker.now >= end ? close() : schedule(end)
        case .open:
            let (reason, deadline) = machine.deadline(lastWrite: lastWrite)
            guard worker.now >= deadline else { return schedule(deadline) }
            timeOut(reason)
        }
    }

    private func timeOut(_ reason: ConnectionMachine.Deadline) {
        worker.statistics.timedOut &+= 1
        switch reason {
        case .header, .body:
            refuse(machine.timedOut(reason))
        case .answer:
            if let id = machine.answers.oldestID { worker.application.report(.handlerTimedOut(id)) }
            close()
        case .idle, .write:
            close()
        }
    }

    /// The server stops: no new request is read, and an idle connection is closed at once.
    func drain() {
        // A request that has arrived and was not read yet is still answered.
        if machine.isIdle { receive() }
        guard case .open = state else { return }
        if machine.isIdle { return close() }
        machine.drain()
        worker.activate(self)
    }

    /// Whether a request has begun that has not been answered whole.
    var isBusy: Bool {
        guard case .open = state else { return false }
        return !machine.isIdle
    }

    /// The streamed response that has not been sent to its end.
    var unsentStream: (id: RequestID, route: Int?)? { machine.answers.unsentStream }

    private func finish() {
        guard machine.mustLinger else { return close() }
        socket.finishSending()
        let end = worker.now &+ 2_000_000_000
        state = .lingering(until: end)
        machine.input.consume(machine.input.count)
        do throws(SystemError) {
            // A socket that has sent its end could always be written to.
            try watch(reading: true, writing: false)
        } catch {
            return close()
        }
        scheduledDeadline = .max
        schedule(end)
    }

    func close() {
        guard !isClosed else { return }
        state = .closed
        worker.unfinishedBodyBytes -= countedBodyBytes
        socket.close()
        worker.remove(self)
        loseReceiver()
        machine.abandon { worker.completed($0, $1, peer) }
    }
}

@available(*, unavailable) extension Connection: Sendable {}
