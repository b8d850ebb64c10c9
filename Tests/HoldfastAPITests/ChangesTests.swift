import APITestSupport
import Testing

/// `GET /v1/changes`: server-sent events.
@Suite struct ChangesTests {
    private static func put(_ server: any TestServer, weight: Int = 5_000) throws {
        let response = try server.request(
            "PUT", "/v1/experiments/checkout",
            #"{"id":"7001","variations":[{"key":"control","weight":\#(weight)},{"key":"new","weight":\#(10_000 - weight)}]}"#
        )
        #expect(response.status < 300, "\(response.text)")
    }

    private static func event(_ revision: Int) -> String {
        "event: datafile\ndata: {\"sdk_key\":\"default\",\"revision\":\"\(revision)\"}\n\n"
    }

    private static func empty(revision: String, sdkKey: String) -> String {
        #"{"version":"4","accountId":"1","projectId":"1","revision":"\#(revision)","sdkKey":"\#(sdkKey)","attributes":[],"events":[],"#
            + #""audiences":[],"groups":[],"experiments":[],"featureFlags":[]}"#
    }

    private func open(_ server: any TestServer, _ target: String = "/v1/changes") throws -> any TestStream {
        let stream = try server.stream("GET", target)
        #expect(stream.head.status == 200)
        #expect(stream.head.field("content-type") == "text/event-stream")
        return stream
    }

    @Test func `A stream begins before there is anything to tell, and tells of all projects`() throws {
        let server = try startTestServer()
        let stream = try open(server)
        try Self.put(server)
        #expect(try stream.receiveChunk() == Self.event(1))
        let response = try server.request("PUT", "/v1/datafile", Self.empty(revision: "7", sdkKey: "shop"))
        #expect(response.status == 201, "\(response.text)")
        #expect(try stream.receiveChunk()?.contains(#"{"sdk_key":"shop","revision":"7"}"#) == true)
        server.stop()
    }

    @Test func `A stream shows that it is alive while nothing changes`() throws {
        let server = try startTestServer(changeHeartbeat: 200)
        let stream = try open(server)
        for _ in 0..<3 { #expect(try stream.receiveChunk() == ": nothing new\n\n") }
        server.stop()
    }

    @Test(arguments: [("?sdk_key=other", 404), ("?other=1", 400)])
    func `A stream of what does not exist is refused`(_ query: String, _ status: Int) throws {
        let server = try startTestServer()
        try Self.put(server)
        #expect(try server.request("GET", "/v1/changes" + query).status == status)
        server.stop()
    }
}
