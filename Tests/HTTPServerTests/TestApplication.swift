import Dispatch
import Glibc
import Synchronization

@testable import HTTPServer

/// What the handlers of a ``TestApplication`` tell the test.
final class Observations: Sendable {
    let held = Mutex<[Responder]>([])
    let isHolding = DispatchSemaphore(value: 0)
    let bodyWasAborted = DispatchSemaphore(value: 0)
    let streamWasLetGo = DispatchSemaphore(value: 0)
    let hasBegunTask = DispatchSemaphore(value: 0)
    let taskWasCancelled = DispatchSemaphore(value: 0)
    let streamedBytes = Atomic<Int>(0)

    func respondToHeld() {
        for responder in held.withLock({ $0 }) { responder.send(Response(.ok, text: "held")) }
    }
}

extension DispatchSemaphore {
    /// Whether the signal arrives within a minute.
    func comes() -> Bool {
        // Asks again and again: a time-out would depend on the wall clock, which may be set.
        let deadline = ContinuousClock.now + .seconds(60)
        while wait(timeout: .now()) == .timedOut {
            guard .now < deadline else { return false }
            usleep(1_000)
        }
        return true
    }
}

/// Handlers that respond in every possible way.
final class TestApplication: Application {
    private let observations: Observations
    private(set) var router = Router([])
    private var batched: [Responder] = []
    let logsRequests = false

    init(_ observations: Observations) {
        self.observations = observations
        router = Router([
            Route(.get, "/now", .buffered { $1.send(Response(.ok, text: "now")) }),
            Route(
                .post, "/echo",
                .buffered { request, responder in
                    responder.send(Response(.ok, body: .bytes(request.withBody { Array($0) })))
                }),
            Route(
                .get, "/number/{number}",
                .buffered { request, responder in
                    let text = request.parameter(0) ?? ""
                    guard (Int(text) ?? 0) % 7 == 0 else { return responder.send(Response(.ok, text: text)) }
                    DispatchQueue.global().async { responder.send(Response(.ok, text: text)) }
                }),
            Route(.post, "/batched", .buffered { [unowned self] in batched.append($1) }),
            Route(
                .get, "/held",
                .buffered { _, responder in
                    observations.held.withLock { $0.append(responder) }
                    observations.isHolding.signal()
                }),
            Route(.get, "/tagged", .buffered { $1.send(Response(.ok, entityTag: EntityTag(1), body: .bytes([65]))) }),
            Route(.get, "/endless", .buffered { $1.send(Response(.ok, body: .stream(EndlessStream(observations)))) }),
            Route(.get, "/hesitant", .buffered { $1.send(Response(.ok, body: .stream(HesitantStream()))) }),
            Route(.post, "/upload", .streamed { Upload($1, observations) }),
            Route(
                .post, "/refused",
                refusal: { request in
                    request.field("x-secret") == nil ? (Response(.unauthorized, text: "\(request.id)"), nil) : nil
                }, .buffered { $1.send(Response(.ok, text: "\($0.withBody { $0.count })")) }),
            Route(
                .get, "/task",
                .buffered { _, responder in
                    responder.send {
                        await responder.yield()
                        return Response(.ok, text: "after a wait")
                    }
                }),
            Route(
                .get, "/waiting",
                .buffered { _, responder in
                    responder.send {
                        observations.hasBegunTask.signal()
                        await withTaskCancellationHandler {
                            await withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in }
                        } onCancel: {
                            observations.taskWasCancelled.signal()
                        }
                        return nil
                    }
                }),
            Route(.get, "/quiet", .buffered { $1.send(Response(.ok, body: .stream(QuietStream(observations)))) }),
        ])
    }

    func beginBatch() {}

    func endBatch() {
        for responder in batched { responder.send(Response(.ok, text: "batched")) }
        batched = []
    }

    func response(to failure: RequestFailure, at location: RequestFailure.Location) -> Response {
        var response = Response(failure.status, text: failure.detail)
        response.fields = [("X-Location", "\(location)")]
        return response
    }

    let readsOrigin = true

    func fields(origin: String?, route: Int?) -> [(name: StaticString, value: String)] {
        [("X-For", "\(origin ?? "nobody") at \(route.map { "\($0)" } ?? "-")")]
    }

    func requestCompleted(_ summary: RequestSummary) {}

    func report(_ event: ServerEvent) {}
}

/// Counts the bytes of a body and responds with the count.
private final class Upload: BodyReceiver {
    private let responder: Responder
    private let observations: Observations
    private var count = 0

    init(_ responder: Responder, _ observations: Observations) {
        self.responder = responder
        self.observations = observations
    }

    var heldBytes: Int { 0 }

    /// Pauses after each piece; another thread resumes.
    func received(_ bytes: UnsafeRawBufferPointer) -> Bool {
        count += bytes.count
        let responder = responder
        DispatchQueue.global().async { responder.resumeReading() }
        return false
    }

    func ended() { responder.send(Response(.ok, text: "\(count)")) }

    func aborted() { observations.bodyWasAborted.signal() }
}

/// Produces an empty piece nine times out of ten.
private final class HesitantStream: ResponseStream {
    private var asked = 0

    func produce(_ writer: StreamWriter) {
        asked += 1
        if asked > 100 { return writer.finish() }
        writer.write(asked % 10 == 0 ? [65] : [])
    }
}

/// Produces one piece, and then nothing until somebody lets it go.
private final class QuietStream: ResponseStream {
    private let observations: Observations
    private var hasBegun = false

    init(_ observations: Observations) {
        self.observations = observations
    }

    deinit {
        observations.streamWasLetGo.signal()
    }

    func produce(_ writer: StreamWriter) {
        if !hasBegun { writer.write([65]) }
        hasBegun = true
    }
}

private final class EndlessStream: ResponseStream {
    private let observations: Observations

    init(_ observations: Observations) {
        self.observations = observations
    }

    deinit {
        observations.streamWasLetGo.signal()
    }

    func produce(_ writer: StreamWriter) {
        observations.streamedBytes.add(16 * 1024, ordering: .relaxed)
        writer.write(Array(repeating: 65, count: 16 * 1024))
    }
}
