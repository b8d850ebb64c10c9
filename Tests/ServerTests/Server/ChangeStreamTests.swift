import APITestSupport
import Dispatch
import Glibc
import ProcessTestSupport
import Testing

/// Streams of `GET /v1/changes` over connections: several processes, shutdown, limits, and readers that stall.
@Suite struct ChangeStreamTests {
    private let directory: TemporaryDirectory
    private let database: String

    init() throws {
        directory = try TemporaryDirectory()
        database = directory.file("holdfast.db")
    }

    private func open(_ server: ServerProcess, _ target: String = "/v1/changes") throws -> HTTPClient {
        let client = try server.client()
        try client.send(HTTPClient.head("GET", target))
        let head = try client.receiveHead()
        #expect(head.status == 200)
        #expect(head.field("content-type") == "text/event-stream")
        return client
    }

    @Test func `A client is notified of the active datafile, and within a second of changes by any process`() throws {
        let servers = [try ServerProcess(database: database), try ServerProcess(database: database)]
        try ChangeSamples.put(servers[0])
        let client = try open(servers[0], "/v1/changes?sdk_key=default")
        #expect(try client.receiveChunk() == ChangeSamples.event(1))
        for (revision, server) in [(2, servers[0]), (3, servers[1])] {
            try ChangeSamples.put(server, weight: revision)
            let changed = DispatchTime.now()
            #expect(try client.receiveChunk() == ChangeSamples.event(revision))
            // A second is promised; a busy machine is given more.
            #expect(DispatchTime.now() < changed + .seconds(5))
        }
        for server in servers { server.stop() }
    }

    @Test func `Streams end when the server shuts down`() throws {
        let server = try ServerProcess(database: database)
        try ChangeSamples.put(server)
        let clients = try (0..<5).map { _ in try open(server) }
        for client in clients { _ = try client.receiveChunk() }
        server.child.send(SIGTERM)
        for client in clients { #expect(try client.receiveChunk() == nil) }
        #expect(server.child.wait() == .exit(0))
    }

    @Test func `Streams are bounded, and one that its client left makes room`() throws {
        let server = try ServerProcess(
            database: database, ["--max-change-streams", "2", "--change-heartbeat", "100ms"])
        let kept = try open(server)
        do {
            let left = try open(server)
            let refused = try server.request("GET", "/v1/changes")
            #expect(refused.status == 503)
            #expect(refused.field("retry-after") != nil)
            withExtendedLifetime(left) {}
        }
        // The next signs of life find that the client is gone.
        var status = 503
        while status == 503 {
            let client = try server.client()
            try client.send(HTTPClient.head("GET", "/v1/changes"))
            status = try client.receiveHead().status
            if status == 503 { _ = try kept.receiveChunk() }
        }
        #expect(status == 200)
        #expect(try server.request("GET", "/metrics").text.contains("holdfast_change_streams_refused_total"))
        withExtendedLifetime(kept) {}
        server.stop()
    }

    @Test func `A reader that takes nothing is dropped`() throws {
        let server = try ServerProcess(database: database, ["--write-timeout", "500ms", "--change-heartbeat", "100ms"])
        // A revision may be of any length: a few such events are more than the kernel keeps for a reader.
        let reader = try HTTPClient(port: server.port, receiveBuffer: 2_048)
        try reader.send(HTTPClient.head("GET", "/v1/changes"))
        #expect(try reader.receiveHead().status == 200)
        func streams() throws -> String? {
            try server.request("GET", "/metrics").text.split(separator: "\n").first {
                $0.hasPrefix("holdfast_change_streams ")
            }
            .map(String.init)
        }
        #expect(try streams() == "holdfast_change_streams 1")
        var revision = 0
        let deadline = DispatchTime.now() + .seconds(60)
        while try streams() != "holdfast_change_streams 0", DispatchTime.now() < deadline {
            revision += 1
            let long = String(repeating: "\(revision % 10)", count: 500_000)
            #expect(
                try server.request("PUT", "/v1/datafile", ChangeSamples.empty(revision: long, sdkKey: "shop")).status
                    < 300)
        }
        #expect(try streams() == "holdfast_change_streams 0")
        server.stop()
    }
}
