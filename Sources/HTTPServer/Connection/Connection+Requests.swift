import Tracing

/// Carries out the steps of the ``ConnectionMachine``: finds the route of each head, calls the handler of each complete
/// request, and passes the pieces of streamed bodies to their receivers.
extension Connection {
    /// The most steps that one connection takes in one iteration, before others are served. A request takes at least
    /// two.
    private static let stepsPerIteration = 256

    /// Handles the received input: complete requests, heads, and pieces of streamed bodies.
    func handleRequests() {
        isUnfinished = false
        for _ in 0..<Self.stepsPerIteration {
            if isClosed { return }
            switch machine.nextStep(now: worker.now) {
            case .wait:
                guard countUnfinishedBody() else { refuse(machine.refuseBody()); continue }
                return
            case .head:
                findRoute()
            case .request:
                callHandler()
            case .bodyBytes(let range):
                // Without a receiver, which has been aborted, the bytes are dropped.
                let wantsMore =
                    Span.with(upload?.span) {
                        upload?.receiver.received(machine.input.readableBytes[slice: range])
                    } ?? true
                machine.usedBodyBytes(range, wantsMore: wantsMore)
            case .bodyEnd:
                let ended = upload
                upload = nil
                Span.with(ended?.span) { ended?.receiver.ended() }
            case .failed(let failure):
                refuse(failure)
            }
        }
        isUnfinished = true
    }

    /// Finds the route of the current head. The route says whether the body is streamed.
    private func findRoute() {
        match = worker.router.match(
            machine.head.method, path: machine.head.path, in: machine.input.readableBytes)
        if case .route(let index, let parameters) = match,
            case .streamed(let handler) = worker.router.routes[index].handler
        {
            beginUpload(handler, route: index, parameters)
        } else if machine.awaitsContinue, let refusal = refusalByHead() {
            // The client may send its body or not, so the connection cannot be used again.
            let responder = begin(refusal.id, route: match.route, keepsAlive: false)
            if let caller = refusal.caller { responder.setCaller(caller) }
            responder.send(refusal.response)
            machine.refuseBeforeBody()
        } else {
            awaitsBody = true
            machine.readBody(
                limit: match.route.map { worker.router.routes[$0].bodyBytes(worker.configuration.limits) })
        }
    }

    /// Calls the handler of a streamed body, which returns the receiver of the body.
    private func beginUpload(_ handler: Route.StreamedHandler, route: Int, _ parameters: PathParameters) {
        let id = requestID()
        // A response before the end of the body closes the connection, unless the body is empty.
        let responder = begin(id, route: route, keepsAlive: machine.head.keepsAlive && machine.head.body == .none)
        let receiver = Span.with(span) { handler(request(id, parameters, body: 0..<0), responder) }
        upload = receiver.map { Upload(receiver: $0, sequence: responder.sequence, route: route, span: span) }
        machine.streamBody(isWanted: receiver != nil)
    }

    /// Calls the handler of the current request, which is complete. Responds instead of the handler if there is none,
    /// or if the loop is overloaded.
    private func callHandler() {
        guard case .route(let index, let parameters) = match else {
            let responder = begin(requestID(), route: nil, keepsAlive: machine.head.keepsAlive)
            responder.send(responseWithoutRoute())
            return machine.handled(holdsNext: false)
        }
        let id = requestID()
        let responder = begin(id, route: index, keepsAlive: machine.head.keepsAlive)
        let route = worker.router.routes[index]
        if worker.isBehind, !route.isVital {
            responder.send(worker.overloadResponse(route: index))
        } else if case .buffered(let handler) = route.handler {
            if let span {
                Span.with(span) { handler(request(id, parameters, body: machine.bodyRange), responder) }
            } else {
                handler(request(id, parameters, body: machine.bodyRange), responder)
            }
        }
        machine.handled(holdsNext: route.holdsNext)
    }

    /// The id of the current request: the client's, or a new one.
    private func requestID() -> RequestID {
        machine.head.value(of: "x-request-id", in: machine.input.readableBytes).flatMap(RequestID.init)
            ?? worker.nextRequestID()
    }

    /// The current request as its handler gets it.
    @inline(__always)
    private func request(_ id: RequestID, _ parameters: PathParameters, body: Range<Int>) -> Request {
        Request(
            head: machine.head, bytes: machine.input.readableBytes, bodyRange: body, parameters: parameters, id: id,
            peer: peer)
    }

    private func responseWithoutRoute() -> Response {
        worker.application.responseWithoutRoute(match, to: machine.head, in: machine.input.readableBytes)
    }

    /// Registers the request of the current head, and begins its span.
    ///
    /// - Parameter route: the index in the route table; `nil` if none matched.
    private func begin(_ id: RequestID, route: Int?, keepsAlive: Bool) -> Responder {
        awaitsBody = false
        var request = PendingRequest(
            machine.head, in: machine.input.readableBytes, id: id, route: route, keepsAlive: keepsAlive,
            at: worker.now, for: worker.application)
        span = worker.beginSpan(of: machine.head, in: machine.input.readableBytes, route: route)
        if let span {
            request.fields.append(("Traceparent", span.context.traceparent))
            request.span = span
        }
        return Responder(target: self, sequence: machine.begin(request))
    }

    // MARK: Refusing

    /// Responds to a request that no handler gets.
    func refuse(_ failure: RequestFailure) {
        if let upload {
            // The handler of this request was called. If it has responded already, this response is dropped.
            machine.endAfterLast()
            respond(worker.response(to: failure, at: .route(upload.route)), to: upload.sequence)
            return abortUpload()
        }
        guard awaitsBody else {
            // The head is incomplete, but the fields that were parsed so far may include `Origin`.
            let fields = worker.application.fields(
                of: machine.parser.head, in: machine.input.readableBytes, route: nil)
            let request = PendingRequest(refused: worker.nextRequestID(), at: worker.now, fields: fields)
            return respond(worker.response(to: failure, at: .none), to: machine.begin(request))
        }
        let location = match.location(of: machine.head, in: machine.input.readableBytes)
        let responder = begin(requestID(), route: match.route, keepsAlive: false)
        responder.send(worker.response(to: failure, at: location))
    }

    /// Returns the response to a request whose head alone shows that the request will be refused. A client that waits
    /// for `100 (Continue)` gets this response instead (RFC 9110 §10.1.1).
    private func refusalByHead() -> (id: RequestID, response: Response, caller: String?)? {
        let id = requestID()
        guard case .route(let index, let parameters) = match else { return (id, responseWithoutRoute(), nil) }
        let route = worker.router.routes[index]
        if worker.isBehind, !route.isVital { return (id, worker.overloadResponse(route: index), nil) }
        return route.refusal?(request(id, parameters, body: 0..<0)).map { (id, $0.response, $0.caller) }
    }

    /// Tells the receiver of a streamed body, if there is one, that the body will not be completed.
    func abortUpload() {
        let receiver = upload?.receiver
        upload = nil
        receiver?.aborted()
    }
}
