import TestSupport
import Testing

@testable import HTTPServer

/// Requests without a connection get the responses that they would get over one.
@Suite struct ResponseCollectorTests {
    private let observations = Observations()
    private let server: InProcessServer

    init() throws {
        let observations = observations
        server = try InProcessServer { _ in TestApplication(observations) }
    }

    private func text(_ response: CollectedResponse) -> String { String(decoding: response.body, as: UTF8.self) }

    @Test(arguments: [
        (LocalRequest("GET", "/now"), 200, "now"), (LocalRequest("HEAD", "/now"), 200, ""),
        (LocalRequest("POST", "/echo", body: Array("a\r\nb".utf8)), 200, "a\r\nb"),
        // Another thread responds.
        (LocalRequest("GET", "/number/7"), 200, "7"), (LocalRequest("GET", "/number/8?x=y"), 200, "8"),
        (LocalRequest("GET", "/task"), 200, "after a wait"),
        (LocalRequest("POST", "/batched"), 200, "batched"), (LocalRequest("GET", "/tagged"), 200, "A"),
        (LocalRequest("GET", "/tagged", fields: [("If-None-Match", EntityTag(1).text)]), 304, ""),
        (LocalRequest("GET", "/tagged", fields: [("If-Match", EntityTag(1).text)]), 200, "A"),
        (LocalRequest("OPTIONS", "/now"), 204, ""),
        // Streams, of 100 pieces and of 400,000 bytes.
        (LocalRequest("GET", "/hesitant"), 200, "AAAAAAAAAA"),
        (LocalRequest("POST", "/upload", body: Array(repeating: 65, count: 400_000)), 200, "400000"),
        (LocalRequest("POST", "/upload"), 200, "0"),
    ])
    func aResponseIsCollected(_ request: LocalRequest, status: UInt16, body: String) throws {
        let response = try server.response(to: request)
        #expect(response.status.code == status)
        #expect(text(response) == body)
        #expect(response.isComplete)
    }

    @Test(arguments: [
        (LocalRequest("GET", "/nowhere"), 404, "path(\"/nowhere\")"), (LocalRequest("PUT", "/now"), 405, "route(0)"),
        (LocalRequest("POST", "/echo", body: Array(repeating: 0, count: 1024 * 1024 + 1)), 413, "route(1)"),
        (LocalRequest("GET", "/tagged", fields: [("If-Match", EntityTag(2).text)]), 412, "route(5)"),
        (LocalRequest("BREW", "/now"), 501, "none"), (LocalRequest("GET", "/no where"), 400, "none"),
        (LocalRequest("GET", "/now", fields: [("X", "a\r\nY: b")]), 400, "none"),
        (LocalRequest("GET", "/now", fields: [("Host", "a"), ("X", "a\r\n\r\n")]), 400, "none"),
    ])
    func aRefusalIsCollected(_ request: LocalRequest, status: UInt16, location: String) throws {
        let response = try server.response(to: request)
        #expect(response.status.code == status)
        #expect(response.fields.first { "\($0.name)" == "X-Location" }?.value == location)
    }

    @Test func `The ID of the request is that of the response`() throws {
        let response = try server.response(to: LocalRequest("GET", "/now", fields: [("X-Request-Id", "mine")]))
        #expect(response.id.description == "mine")
    }

    @Test func `A request that is given up releases its stream`() throws {
        #expect(throws: InProcessServer.TimedOut.self) {
            try server.response(to: LocalRequest("GET", "/endless"), within: 0.05)
        }
        #expect(observations.streamWasLetGo.comes())
    }

    @Test func `A stream that fails is an error before its first piece and incomplete after it`() throws {
        let loop = try EventLoop(index: 0)
        loop.adoptThread()
        for pieces in 0..<2 {
            let application = FailingApplication(pieces: pieces)
            var response: CollectedResponse?
            application.respond(to: LocalRequest("GET", "/"), on: loop) { response = $0 }
            while response == nil { loop.runJobs() }
            #expect(response?.status == (pieces == 0 ? .serviceUnavailable : .ok))
            #expect(response?.isComplete == (pieces == 0))
            #expect(response.map(text) == (pieces == 0 ? "broken" : "piece"))
        }
    }
}

/// Responds with a stream that fails after so many pieces.
private final class FailingApplication: Application, ResponseStream {
    private(set) var router = Router([])
    let logsRequests = false
    private var pieces: Int

    init(pieces: Int) {
        self.pieces = pieces
        router = Router([Route(.get, "/", .buffered { [unowned self] in $1.send(Response(.ok, body: .stream(self))) })])
    }

    func produce(_ writer: StreamWriter) {
        guard pieces > 0 else { return writer.fail(Response(.serviceUnavailable, text: "broken")) }
        pieces -= 1
        writer.write(Array("piece".utf8))
    }

    func beginBatch() {}
    func endBatch() {}
    func response(to failure: RequestFailure, at location: RequestFailure.Location) -> Response {
        Response(failure.status)
    }
    func requestCompleted(_ summary: RequestSummary) {}
    func report(_ event: ServerEvent) {}
}
