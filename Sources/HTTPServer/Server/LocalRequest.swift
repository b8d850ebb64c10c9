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

    /// A request as a client would send it.
    fileprivate struct Encoded {
        /// The head and the body.
        let bytes: [UInt8]
        let headLength: Int
        let fieldCount: Int
    }

    /// Encodes the request as bytes, so that it is parsed as strictly as one from a connection.
    fileprivate func encoded() -> Encoded {
        var text = "\(method) \(target) HTTP/1.1\r\n"
        let hasHost = fields.contains { $0.name.lowercased() == "host" }
        if !hasHost { text += "Host: localhost\r\n" }
        for field in fields { text += "\(field.name): \(field.value)\r\n" }
        let head = Array((text + "\r\n").utf8)
        return Encoded(
            bytes: head + body, headLength: head.count, fieldCount: fields.count + (hasHost ? 0 : 1))
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
    /// Handles a request without a connection. Called on the loop's thread. The request is not reported to
    /// ``requestCompleted(_:)``.
    ///
    /// - Parameters:
    ///   - limits: only the limit of a buffered body applies.
    ///   - completion: called once on the loop's thread, before this method returns or later.
    /// - Returns: the collector, by which the caller may give up the request.
    @discardableResult
    public func respond(
        to local: LocalRequest, on loop: EventLoop, limits: Limits = Limits(),
        completion: @escaping (CollectedResponse) -> Void
    ) -> ResponseCollector {
        let encoded = local.encoded()
        return encoded.bytes.withUnsafeBytes { bytes -> ResponseCollector in
            var parser = RequestHeadParser(maximumLength: encoded.headLength + 1, maximumFields: .max)
            do throws(RequestFailure) {
                // A line end in a field would make another field, or end the head early.
                guard let head = try parser.parse(bytes), head.length == encoded.headLength,
                    head.fields.count == encoded.fieldCount
                else { throw RequestFailure(.badRequest, "a header field must not contain line ends") }
                return respond(to: local, head: head, in: bytes, on: loop, limits: limits, completion: completion)
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
        to local: LocalRequest, head: RequestHead, in bytes: UnsafeRawBufferPointer, on loop: EventLoop,
        limits: Limits, completion: @escaping (CollectedResponse) -> Void
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
