/// Collects the response to a request that does not come from a connection, such as a call of one handler by another.
/// Confined to its event loop's thread.
///
/// ``Application/respond(to:on:limits:completion:)`` creates it, and gives it to the handler in place of a connection:
/// the handler sends its response to the collector, and the collector calls the completion.
public final class ResponseCollector {
    public let loop: EventLoop
    private let request: PendingRequest
    private let application: any Application
    private let completion: (CollectedResponse) -> Void
    /// The streamed response, until it ends.
    private var streaming: Response?
    /// The pieces of the streamed response so far.
    private var body: [UInt8] = []
    /// Whether the head of the streamed response would have been sent.
    private var hasBegun = false
    /// The receiver of a streamed request body, and the bytes that it has not received yet.
    private var upload: (receiver: any BodyReceiver, rest: ArraySlice<UInt8>)?
    private var task: Task<Void, Never>?
    public private(set) var isClosed = false

    /// The size of the pieces in which a streamed request body is received.
    private static let pieceBytes = 16 * 1024

    fileprivate init(
        _ request: PendingRequest, of application: any Application, on loop: EventLoop,
        completion: @escaping (CollectedResponse) -> Void
    ) {
        self.request = request
        self.application = application
        self.loop = loop
        self.completion = completion
    }

    /// Gives up the request, as a closed connection does. The completion will not be called.
    public func close() {
        guard !isClosed else { return }
        isClosed = true
        streaming = nil
        task?.cancel()
        let receiver = upload?.receiver
        upload = nil
        receiver?.aborted()
    }

    /// A streamed response as far as it has been produced; `nil` before its first piece and after its end.
    public var unfinishedResponse: CollectedResponse? {
        guard hasBegun, let streaming else { return nil }
        return collected(streaming, body: body, isComplete: false)
    }

    private func complete(_ response: Response, body: [UInt8], isComplete: Bool = true) {
        isClosed = true
        streaming = nil
        completion(collected(response, body: body, isComplete: isComplete))
    }

    private func collected(_ response: Response, body: [UInt8], isComplete: Bool) -> CollectedResponse {
        let status = ResponseEncoder.status(of: response, to: request)
        return CollectedResponse(
            id: request.id, status: status,
            contentType: status == .notModified ? nil : response.contentType, entityTag: response.entityTag,
            fields: response.fields + request.fields,
            body: ResponseEncoder.sendsBody(of: response, to: request) ? body : [], isComplete: isComplete)
    }

    // MARK: Streams

    /// Lets the streamed response produce its next piece.
    private func pull() {
        guard !isClosed, case .stream(let source)? = streaming?.body else { return }
        source.produce(StreamWriter(target: self, sequence: 0))
    }

    /// Passes a request body to its receiver, in pieces.
    fileprivate func receive(_ body: [UInt8], with receiver: any BodyReceiver) {
        upload = (receiver, body[...])
        resumeReading()
    }

    private func nextPiece() -> ArraySlice<UInt8>? {
        guard let piece = upload?.rest.prefix(Self.pieceBytes), !piece.isEmpty else { return nil }
        upload?.rest.removeFirst(piece.count)
        return piece
    }
}

extension ResponseCollector: ResponseTarget {
    package func respond(_ response: Response, to sequence: UInt64) {
        guard !isClosed, streaming == nil else { return }
        let response = request.excludes(response) ? application.preconditionFailed(request.route) : response
        switch response.body {
        case .empty:
            complete(response, body: [])
        case .bytes(let bytes):
            complete(response, body: bytes)
        case .stream:
            guard ResponseEncoder.sendsBody(of: response, to: request) else { return complete(response, body: []) }
            streaming = response
            pull()
        }
    }

    package func continueStream(_ event: StreamEvent, of sequence: UInt64) {
        guard !isClosed, let response = streaming else { return }
        switch event {
        case .write(let bytes):
            hasBegun = true
            body += bytes
            // Each piece is a job of its own, so that other requests are served in between.
            nonisolated(unsafe) let collector = self
            loop.submit { collector.pull() }
        case .finish:
            complete(response, body: body)
        case .fail(let failure):
            guard !hasBegun else { return complete(response, body: body, isComplete: false) }
            streaming = nil
            respond(failure, to: sequence)
        }
    }

    package func resumeReading() {
        while let upload, let piece = nextPiece() {
            guard piece.withUnsafeBytes(upload.receiver.received) else { return }
        }
        let receiver = upload?.receiver
        upload = nil
        receiver?.ended()
    }

    package func setCaller(_ name: String, of sequence: UInt64) {}

    package func setTask(_ task: Task<Void, Never>, of sequence: UInt64) {
        self.task = task
    }
}

@available(*, unavailable) extension ResponseCollector: Sendable {}

/// A request that does not come from a connection.
public struct LocalRequest: Sendable {
    public var method: String
    /// Path and query, percent-encoded.
    public var target: String
    /// Header fields. Without `X-Request-Id`, all requests have the same id.
    public var fields: [(name: String, value: String)]
    public var body: [UInt8]
    /// The address to report as the request's origin.
    public var peer: IPAddress

    public init(
        _ method: String, _ target: String, fields: [(name: String, value: String)] = [], body: [UInt8] = [],
        peer: IPAddress = .unspecified
    ) {
        self.method = method
        self.target = target
        self.fields = fields
        self.body = body
        self.peer = peer
    }

    /// Writes the request as bytes, so that it is parsed as strictly as one from a connection.
    fileprivate func encoded() -> (bytes: [UInt8], headLength: Int, fields: Int) {
        var text = "\(method) \(target) HTTP/1.1\r\n"
        let hasHost = fields.contains { $0.name.lowercased() == "host" }
        if !hasHost { text += "Host: localhost\r\n" }
        for field in fields { text += "\(field.name): \(field.value)\r\n" }
        let head = Array((text + "\r\n").utf8)
        return (head + body, head.count, fields.count + (hasHost ? 0 : 1))
    }
}

/// A response as its client would see it.
public struct CollectedResponse: Sendable {
    public let id: RequestID
    /// 304 if `If-None-Match` lists the entity tag.
    public let status: Status
    public let contentType: StaticString?
    public let entityTag: EntityTag?
    public let fields: [(name: StaticString, value: String)]
    /// The whole body; empty for `HEAD` and where the status forbids one.
    public let body: [UInt8]
    /// `false` if a streamed body failed after its first piece; a connection would have been cut.
    public let isComplete: Bool
}

extension Application {
    /// Handles a request without a connection, on the loop's thread. Of the limits only that of a buffered body
    /// applies. The request is not reported to ``requestCompleted(_:)``.
    ///
    /// - Parameter completion: called once on the loop's thread, before this method returns or later.
    /// - Returns: the collector, to give up the request.
    @discardableResult
    public func respond(
        to local: LocalRequest, on loop: EventLoop, limits: Limits = Limits(),
        completion: @escaping (CollectedResponse) -> Void
    ) -> ResponseCollector {
        let (bytes, headLength, fields) = local.encoded()
        return bytes.withUnsafeBytes { bytes -> ResponseCollector in
            var parser = RequestHeadParser(maximumLength: headLength + 1, maximumFields: .max)
            do throws(RequestFailure) {
                // A line end in a field would make another field, or end the head early.
                guard let head = try parser.parse(bytes), head.length == headLength, head.fields.count == fields else {
                    throw RequestFailure(.badRequest, "a header field must not contain line ends")
                }
                return respond(to: local, head, bytes, on: loop, limits, completion)
            } catch {
                let request = PendingRequest(
                    refused: .generated(loop: 0, count: 0), at: 0,
                    fields: self.fields(of: parser.head, in: bytes, route: nil))
                let collector = ResponseCollector(request, of: self, on: loop, completion: completion)
                collector.respond(response(to: error, at: .none), to: 0)
                return collector
            }
        }
    }

    /// Finds the route of a parsed request and calls its handler.
    private func respond(
        to local: LocalRequest, _ head: RequestHead, _ bytes: UnsafeRawBufferPointer, on loop: EventLoop,
        _ limits: Limits, _ completion: @escaping (CollectedResponse) -> Void
    ) -> ResponseCollector {
        let match = router.match(head.method, path: head.path, in: bytes)
        let id = head.value(of: "x-request-id", in: bytes).flatMap(RequestID.init)
        let pending = PendingRequest(
            head, in: bytes, id: id ?? .generated(loop: 0, count: 0), route: match.route, keepsAlive: true, at: 0,
            for: self)
        let collector = ResponseCollector(pending, of: self, on: loop, completion: completion)
        guard case .route(let index, let parameters) = match else {
            collector.respond(responseWithoutRoute(match, to: head, in: bytes), to: 0)
            return collector
        }
        let responder = Responder(target: collector, sequence: 0)
        func request(body: Range<Int>) -> Request {
            Request(
                head: head, bytes: bytes, bodyRange: body, parameters: parameters, id: pending.id, peer: local.peer)
        }
        let longest = router.routes[index].bodyBytes(limits)
        switch router.routes[index].handler {
        case .buffered where local.body.count > longest:
            let failure = RequestFailure.bodyTooLarge(limit: longest)
            collector.respond(response(to: failure, at: .route(index)), to: 0)
        case .buffered(let handler):
            handler(request(body: head.length..<bytes.count), responder)
        case .streamed(let handler):
            if let receiver = handler(request(body: 0..<0), responder) {
                collector.receive(local.body, with: receiver)
            }
        }
        return collector
    }
}
