/// Collects the response to a request that does not come from a connection, such as a call of one handler by another.
/// Confined to its event loop's thread.
///
/// ``Application/respond(to:on:limits:completion:)`` creates it, and gives it to the handler in place of a connection:
/// the handler sends its response to the collector, and the collector calls the completion. A collector has only one
/// request, so the sequence number of the request is always 0.
public final class ResponseCollector {
    public let loop: EventLoop
    private let request: PendingRequest
    private let application: any Application
    private let completion: (CollectedResponse) -> Void
    /// The streamed response, until it ends.
    private var streaming: Response?
    /// The pieces of the streamed response so far.
    private var body: [UInt8] = []
    /// Whether the streamed response has produced its first piece. A connection would have sent the head with it.
    private var hasBegun = false
    /// The receiver of a streamed request body, and the bytes of the body that the receiver has not got yet.
    private var upload: (receiver: any BodyReceiver, rest: ArraySlice<UInt8>)?
    private var task: Task<Void, Never>?
    public private(set) var isClosed = false

    /// The size of the pieces in which a streamed request body is received.
    private static let pieceBytes = 16 * 1024

    init(
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
    func receive(_ body: [UInt8], with receiver: any BodyReceiver) {
        upload = (receiver, body[...])
        resumeReading()
    }

    /// Removes and returns the next piece of the request body; `nil` at its end.
    private func nextPiece() -> ArraySlice<UInt8>? {
        guard let piece = upload?.rest.prefix(Self.pieceBytes), !piece.isEmpty else { return nil }
        upload?.rest.removeFirst(piece.count)
        return piece
    }
}

extension ResponseCollector: ResponseTarget {
    package func respond(_ response: Response, to sequence: UInt64) {
        guard !isClosed, streaming == nil else { return }
        let response = request.failsIfMatch(with: response) ? application.preconditionFailed(request.route) : response
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

    /// Ignores the name: the request is not reported to ``Application/requestCompleted(_:)``, which would need it.
    package func setCaller(_ name: String, of sequence: UInt64) {}

    package func setTask(_ task: Task<Void, Never>, of sequence: UInt64) {
        self.task = task
    }
}

@available(*, unavailable) extension ResponseCollector: Sendable {}
