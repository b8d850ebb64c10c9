/// Passes complete requests to their handlers.
extension Connection {
    /// The most steps that one connection takes in one iteration, before others are served. A request takes at least
    /// two.
    private static let stepsPerIteration = 256

    /// Handles the requests that are complete.
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
                let wantsMore = upload?.receiver.received(machine.input.readableBytes[slice: range]) ?? true
                machine.usedBodyBytes(range, wantsMore: wantsMore)
            case .bodyEnd:
                let receiver = upload?.receiver
                upload = nil
                receiver?.ended()
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
        } else {
            awaitsBody = true
            machine.readBody()
        }
    }

    private func beginUpload(_ handler: Route.StreamedHandler, route: Int, _ parameters: PathParameters) {
        // A response before the end of the body closes the connection, unless the body is empty.
        let (responder, id) = begin(
            route: route, keepsAlive: machine.head.keepsAlive && machine.head.body == .none)
        let request = Request(
            head: machine.head, bytes: machine.input.readableBytes, bodyRange: 0..<0, parameters: parameters, id: id,
            peer: peer)
        let receiver = handler(request, responder)
        upload = receiver.map { ($0, responder.sequence, route) }
        machine.streamBody(isWanted: receiver != nil)
    }

    private func callHandler() {
        guard case .route(let index, let parameters) = match else {
            let (responder, _) = begin(route: nil, keepsAlive: machine.head.keepsAlive)
            responder.send(
                worker.application.responseWithoutRoute(match, to: machine.head, in: machine.input.readableBytes))
            return machine.handled(holdsNext: false)
        }
        let (responder, id) = begin(route: index, keepsAlive: machine.head.keepsAlive)
        let route = worker.router.routes[index]
        if worker.isBehind, !route.isVital {
            responder.send(worker.overloadResponse(route: index))
        } else if case .buffered(let handler) = route.handler {
            let request = Request(
                head: machine.head, bytes: machine.input.readableBytes, bodyRange: machine.bodyRange,
                parameters: parameters, id: id, peer: peer)
            handler(request, responder)
        }
        machine.handled(holdsNext: route.holdsNext)
    }

    /// Registers the request of the current head.
    ///
    /// - Parameter route: the index in the route table; `nil` if none matched.
    private func begin(route: Int?, keepsAlive: Bool) -> (responder: Responder, id: RequestID) {
        awaitsBody = false
        let head = machine.head
        let bytes = machine.input.readableBytes
        let id = head.value(of: "x-request-id", in: bytes).flatMap(RequestID.init) ?? worker.nextRequestID()
        var request = PendingRequest(
            id: id, method: head.method, isVersion11: head.isVersion11, keepsAlive: keepsAlive, ifNoneMatch: nil,
            route: route, startedAt: worker.now, target: nil, response: nil)
        if head.method.isSafe { request.ifNoneMatch = head.joinedValue(of: "if-none-match", in: bytes) }
        if worker.application.logsRequests {
            request.forwardedFor = head.joinedValue(of: "x-forwarded-for", in: bytes)
            request.target = head.target(in: bytes)
        }
        return (Responder(target: self, sequence: machine.begin(request)), id)
    }

    // MARK: Refusing

    /// Responds to a request that no handler gets.
    func refuse(_ failure: RequestFailure) {
        if let upload {
            // The handler began this request. If it has responded already, this response is dropped.
            machine.endAfterLast()
            respond(worker.response(to: failure, at: .route(upload.route)), to: upload.sequence)
            return abortUpload()
        }
        guard awaitsBody else {
            let request = PendingRequest(refused: worker.nextRequestID(), at: worker.now)
            return respond(worker.response(to: failure, at: .none), to: machine.begin(request))
        }
        let location = match.location(of: machine.head, in: machine.input.readableBytes)
        let (responder, _) = begin(route: match.route, keepsAlive: false)
        responder.send(worker.response(to: failure, at: location))
    }

    func abortUpload() {
        let receiver = upload?.receiver
        upload = nil
        receiver?.aborted()
    }
}
