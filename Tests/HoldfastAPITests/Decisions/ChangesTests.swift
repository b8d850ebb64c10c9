import APITestSupport
import Testing

/// `GET /v1/changes`: server-sent events.
@Suite struct ChangesTests {
    private func open(_ server: any TestServer, _ target: String = "/v1/changes") throws -> any TestStream {
        let stream = try server.stream("GET", target)
        #expect(stream.head.status == 200)
        #expect(stream.head.field("content-type") == "text/event-stream")
        return stream
    }

    @Test func `A stream begins before there is anything to tell, and tells of all projects`() throws {
        let server = try startTestServer()
        let stream = try open(server)
        try ChangeSamples.put(server)
        #expect(try stream.receiveChunk() == ChangeSamples.event(1))
        #expect(try server.request("PUT", "/v1/projects/shop").status == 201)
        #expect(try stream.receiveChunk()?.contains(#"{"sdk_key":"shop","revision":"0"}"#) == true)
        let response = try server.request("PUT", "/v1/datafile", ChangeSamples.empty(revision: "7", sdkKey: "shop"))
        #expect(response.status == 200, "\(response.text)")
        #expect(try stream.receiveChunk()?.contains(#"{"sdk_key":"shop","revision":"7"}"#) == true)
        server.stop()
    }

    @Test func `A stream of one project tells of no other`() throws {
        let server = try startTestServer()
        for key in ["default", "shop"] {
            let datafile = ChangeSamples.empty(revision: "7", sdkKey: key)
            #expect(try server.request("PUT", "/v1/projects/\(key)").status == 201)
            #expect(try server.request("PUT", "/v1/datafile", datafile).status == 200)
        }
        let stream = try server.stream("GET", "/v1/changes", fields: ["X-Optimizely-SDK-Key: shop"])
        #expect(try stream.receiveChunk() == "event: datafile\ndata: {\"sdk_key\":\"shop\",\"revision\":\"7\"}\n\n")
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
        try ChangeSamples.put(server)
        #expect(try server.request("GET", "/v1/changes" + query).status == status)
        server.stop()
    }
}
