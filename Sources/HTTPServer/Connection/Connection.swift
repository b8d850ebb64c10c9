import Tracing

/// One connection: moves bytes between its socket and its state machine, and requests and responses between the state
/// machine and the handlers. Confined to its event loop's thread.
///
/// In each loop iteration the worker calls ``receive()``, ``handleRequests()`` and ``flush()``, in this order.
final class Connection {
    let worker: Worker
    /// Identifies the connection in events and deadlines, even after its descriptor is reused.
    let token: UInt64
    let peer: IPAddress
    var machine: ConnectionMachine
    /// The request whose body is being streamed to its receiver.
    var upload: Upload?
    /// The route of the current head.
    var match = Router.Match.notFound
    /// Whether the current request has not been registered (``ConnectionMachine/begin(_:)``), because its body is not
    /// complete.
    var awaitsBody = false
    /// Whether the last iteration ended before all received requests were handled.
    var isUnfinished = false
    /// Whether the worker serves the connection in the current or the next iteration.
    var isActive = false

    /// The span of the current request; `nil` if nothing is traced.
    var span: Span?

    /// A request whose body is streamed.
    struct Upload {
        let receiver: any BodyReceiver
        /// The sequence number of the request.
        let sequence: UInt64
        /// The index in the route table.
        let route: Int
        let span: Span?
    }

    private let socket: Socket
    private var state = State.open
    /// The events that the socket is registered for.
    private var isReading = true
    private var isWriting = false
    /// Bytes of this connection's incomplete body that ``Worker/unfinishedBodyBytes`` includes.
    private var countedBodyBytes = 0
    /// When the peer last took bytes, or when output began to wait for the peer, in monotonic nanoseconds.
    private var lastWrite: UInt64
    /// The deadline that the event loop's queue holds for this connection.
    private var scheduledDeadline = UInt64.max

    /// The state of the socket.
    private enum State {
        case open
        /// Everything is sent. Input is discarded until the peer closes the connection, or until the time is over.
        case lingering(until: UInt64)
        case closed
    }

    /// How long a connection discards input before it closes, in nanoseconds.
    private static let lingerTime: UInt64 = 2_000_000_000

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

    /// Receives the bytes that have arrived. ``handleRequests()`` handles them later in the iteration.
    func receive() {
        guard !isClosed else { return }
        do throws(SystemError) {
            switch try socket.receive(into: &machine.input, through: &worker.receiveBuffer) {
            case .wouldBlock:
                break
            case .done(0):
                machine.inputEnded()
                if case .lingering = state { return close() }
            case .done(let count):
                worker.metrics.bytesReceived &+= UInt64(count)
                if case .lingering = state { machine.input.consume(machine.input.count) }
            }
            worker.activate(self)
        } catch {
            close()
        }
    }

    /// Closes the connection if its peer has ended its input and then reset the connection. The kernel reports a reset
    /// until the descriptor is closed, and a stream that has nothing to write would not notice it.
    func hangUp() {
        if machine.endOfInput { close() }
    }

    /// Adds the bytes held of an incomplete body to the worker's total.
    ///
    /// - Returns: whether the worker has room for them.
    func countUnfinishedBody() -> Bool {
        let held = machine.unfinishedBodyBytes + (upload?.receiver.heldBytes ?? 0)
        guard held != countedBodyBytes else { return true }
        worker.unfinishedBodyBytes += held - countedBodyBytes
        let isMore = held > countedBodyBytes
        countedBodyBytes = held
        return !isMore || worker.hasRoomForBodies
    }

    // MARK: Sending

    /// Sends the output, and registers the events and the deadline to wait for.
    func flush() {
        guard case .open = state else { return }
        if let (stream, sequence) = machine.streamToPull() {
            stream.produce(StreamWriter(target: self, sequence: sequence))
            if isClosed { return }
        }
        if isUnfinished { worker.activate(self) }
        do throws(SystemError) {
            try send()
            if machine.responses.output.isEmpty, machine.isDone { return finish() }
            try watch(reading: machine.wantsInput, writing: !machine.responses.output.isEmpty)
            schedule(machine.deadline(lastWrite: lastWrite).at)
        } catch {
            close()
        }
    }

    /// Sends as much of the output as the socket takes.
    private func send() throws(SystemError) {
        guard !machine.responses.output.isEmpty else { return }
        if case .done(let count) = try socket.send(&machine.responses.output) {
            worker.metrics.bytesSent &+= UInt64(count)
            lastWrite = worker.now
        } else if !isWriting {
            lastWrite = worker.now
        }
        guard machine.responses.output.isEmpty else { return }
        machine.outputWasSent()
        // A stream, or requests that were left unread for lack of room, continue in the next iteration.
        if machine.mayGoOn { worker.activate(self) }
    }

    /// Changes the events that wake the loop, if they differ.
    private func watch(reading: Bool, writing: Bool) throws(SystemError) {
        guard reading != isReading || writing != isWriting else { return }
        try worker.loop.selector.modify(socket.descriptor, token: token, reading: reading, writing: writing)
        isReading = reading
        isWriting = writing
    }

    /// Makes the loop call ``deadlinePassed(_:)`` at a time, or earlier.
    private func schedule(_ deadline: UInt64) {
        guard deadline < scheduledDeadline else { return }
        scheduledDeadline = deadline
        worker.loop.deadlines.insert(.init(time: deadline, token: token))
    }

    // MARK: Deadlines

    /// Handles a deadline that was scheduled for `time`. The deadline may have moved since; then it is scheduled again.
    func deadlinePassed(_ time: UInt64) {
        guard time == scheduledDeadline else { return }
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
        worker.metrics.timedOut &+= 1
        switch reason {
        case .header, .body:
            refuse(machine.timedOut(reason))
        case .response:
            if let id = machine.responses.oldestID { worker.application.report(.handlerTimedOut(id)) }
            close()
        case .idle, .write:
            close()
        }
    }

    // MARK: Ending

    /// Prepares for the server's stop: reads no new request, and closes at once if idle.
    func drain() {
        // A request that has already arrived still gets its response.
        if machine.isIdle { receive() }
        guard case .open = state else { return }
        if machine.isIdle { return close() }
        machine.drain()
        worker.activate(self)
    }

    /// Whether a request has begun whose response is not complete.
    var isBusy: Bool {
        guard case .open = state else { return false }
        return !machine.isIdle
    }

    /// Closes the connection after the last response, or begins to linger.
    private func finish() {
        guard machine.mustLinger else { return close() }
        socket.finishSending()
        let end = worker.now &+ Self.lingerTime
        state = .lingering(until: end)
        machine.input.consume(machine.input.count)
        do throws(SystemError) {
            // After the shutdown the socket would always be writable.
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
        abortUpload()
        if let summary = machine.responses.abandon() { worker.requestCompleted(summary, from: peer) }
    }
}

/// Responses on their way from the handlers to the output. ``Connection/flush()`` sends them.
extension Connection: ResponseTarget {
    var loop: EventLoop { worker.loop }

    @inline(__always)
    func respond(_ response: Response, to sequence: UInt64) {
        guard !isClosed else { return }
        if let request = machine.responses.requestFailingIfMatch(with: response, to: sequence) {
            machine.responses.add(worker.application.preconditionFailed(request.route), to: sequence)
        } else {
            machine.responses.add(response, to: sequence)
        }
        writeResponses()
    }

    func continueStream(_ event: StreamEvent, of sequence: UInt64) {
        guard !isClosed else { return }
        guard machine.responses.continueStream(event, of: sequence, date: worker.date) else {
            // The client sees from the cut connection that the response is incomplete.
            return close()
        }
        writeResponses()
    }

    private func writeResponses() {
        while let summary = machine.responses.writeNext(date: worker.date) {
            worker.requestCompleted(summary, from: peer)
        }
        worker.activate(self)
    }

    func resumeReading() {
        guard !isClosed else { return }
        machine.resumeBody(now: worker.now)
        worker.activate(self)
    }

    func setCaller(_ name: String, of sequence: UInt64) {
        if worker.application.logsRequests { machine.responses.setCaller(name, of: sequence) }
    }

    func setTask(_ task: Task<Void, Never>, of sequence: UInt64) {
        machine.responses.setTask(task, of: sequence)
    }
}

@available(*, unavailable) extension Connection: Sendable {}
