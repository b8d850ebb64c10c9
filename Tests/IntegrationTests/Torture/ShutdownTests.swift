import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Testing

/// How the server ends.
@Suite struct ShutdownTests {
    private let directory: TemporaryDirectory
    private let database: String

    init() throws {
        directory = try TemporaryDirectory()
        database = directory.file("holdfast.db")
    }

    @Test(arguments: [SIGTERM, SIGINT])
    func `A request in flight is answered, and the exit status is 0`(signal: Int32) throws {
        let server = try ServerProcess(database: database, ["--lock-timeout", "60s", "--shutdown-timeout", "60s"])
        let client = try server.client()
        let idle = try server.client()
        for client in [client, idle] { #expect(try client.request("GET", "/livez").status == 200) }
        // The save cannot be committed before the lock is let go, which is after the shutdown has begun.
        let other = try DatabaseConnection(database)
        try other.execute("BEGIN IMMEDIATE")
        try client.send(HTTPClient.head("POST", "/ups/save", profile("ada", ["11": "1"])))
        try passAllLoops(server)
        server.child.send(signal)
        #expect(server.child.errors.first { $0.contains(#""message":"stopping""#) } != nil)
        #expect(idle.isClosedByPeer())
        try expectRefusal(of: server)
        try other.execute("ROLLBACK")
        #expect(try client.receive().text == profile("ada", ["11": "1"]))
        #expect(client.isClosedByPeer())
        #expect(server.child.wait() == .exit(0))
        #expect(server.child.errors.all.last?.contains(#""message":"stopped""#) == true)
        #expect(try Command("export", "--database", database).output == profile("ada", ["11": "1"]))
    }

    @Test func `A request that is never finished does not keep the server from ending in time`() throws {
        let server = try ServerProcess(database: database, ["--shutdown-timeout", "200ms"])
        let client = try server.client()
        #expect(try client.request("GET", "/livez").status == 200)
        try client.send("POST /ups/save HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        try passAllLoops(server)
        server.stop()
    }

    @Test func `During the delay the server is not ready, and serves old and new connections`() throws {
        let server = try ServerProcess(database: database, environment: ["HOLDFAST_SHUTDOWN_DELAY": "60s"])
        let former = try server.client()
        #expect(try former.request("GET", "/readyz").status == 200)
        server.child.send(SIGTERM)
        #expect(server.child.errors.first { $0.contains(#""message":"stopping""#) } != nil)
        var ready = 200
        while ready == 200 { ready = try former.request("GET", "/readyz").status }
        #expect(ready == 503)
        #expect(try server.request("GET", "/readyz")["detail"].string?.contains("shutting down") == true)
        for client in [former, try server.client()] {
            #expect(try client.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        }
        // The second signal ends the delay only.
        server.stop(with: SIGINT)
        #expect(server.child.errors.all.last?.contains(#""message":"stopped""#) == true)
    }

    @Test(arguments: ["100ms", "0", "0s"]) func `The delay ends by itself`(delay: String) throws {
        let server = try ServerProcess(database: database, ["--shutdown-delay", delay])
        let begin = ContinuousClock.now
        server.stop()
        #expect(delay != "100ms" || ContinuousClock.now - begin >= .milliseconds(100))
    }

    @Test func `An export that is cut off by the shutdown is logged`() throws {
        let server = try ServerProcess(database: database, ["--shutdown-timeout", "200ms"])
        // More than the kernel keeps for a client that does not read.
        for user in 0..<40 {
            #expect(try server.request("POST", "/ups/save", largeProfile("user\(user)")).status == 200)
        }
        let reader = try HTTPClient(port: server.port, receiveBuffer: 4_096)
        try reader.send(HTTPClient.head("GET", "/v1/profiles", fields: ["X-Request-Id: the-export"]))
        #expect(try reader.receiveHead().status == 200)
        let unfinished = try server.client()
        try unfinished.send("POST /ups/save HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        try passAllLoops(server)
        server.stop()
        let line = try #require(server.child.errors.all.first { $0.contains("a response was cut off") })
        #expect(try JSONParser().parse(line)["route"] == "GET /v1/profiles")
        #expect(try JSONParser().parse(line)["request_id"] == "the-export")
        #expect(server.child.errors.all.contains { $0.contains("requests were cut off") })
        #expect(throws: TestFailure.self) { while try reader.receiveChunk() != nil {} }
    }

    @Test func `A second signal ends the server at once`() throws {
        let server = try ServerProcess(database: database, ["--lock-timeout", "60s", "--shutdown-timeout", "60s"])
        let other = try DatabaseConnection(database)
        try other.execute("BEGIN IMMEDIATE")
        let client = try server.client()
        #expect(try client.request("GET", "/livez").status == 200)
        try client.send(HTTPClient.head("POST", "/ups/save", profile("ada", ["11": "1"])))
        try passAllLoops(server)
        server.child.send(SIGTERM)
        #expect(server.child.errors.first { $0.contains(#""message":"stopping""#) } != nil)
        server.child.send(SIGTERM)
        #expect(server.child.wait() == .exit(1))
    }

    @Test func `A second signal under load ends the server at once and loses nothing`() throws {
        let server = try ServerProcess(database: database, ["--shutdown-timeout", "60s"])
        try DatafileExperiment.make(on: [server])
        let clients = (0..<4).map { LoadClient(number: $0, seed: 1, users: ["user\($0)"], insists: true) }
        let load = Load(of: clients, on: [server.port])
        #expect(load.wait { $0.acknowledged >= 50 })
        // A response that waits for a body which never comes keeps the server from ending by itself.
        let unfinished = try server.client()
        try unfinished.send("POST /ups/save HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        try passAllLoops(server)
        server.child.send(SIGTERM)
        #expect(server.child.errors.first { $0.contains(#""message":"stopping""#) } != nil)
        server.child.send(SIGTERM)
        #expect(server.child.wait() == .exit(1))
        load.end()
        #expect(load.counts.wrong.isEmpty)
        try expectExplanation(of: clients)
    }

    /// What the clients were told agrees with what a server finds afterwards.
    private func expectExplanation(of clients: [LoadClient]) throws {
        let restarted = try ServerProcess(database: database)
        let end = monotonicNanoseconds()
        for client in clients {
            for index in client.history.indices {
                client.history[index].returnedAt = min(client.history[index].returnedAt, end)
            }
            for (user, events) in Dictionary(grouping: client.history, by: \.user) {
                let (method, target, body) = Operation.read.request(for: user)
                let last = try Operation.read.observation(in: restarted.request(method, target, body))
                #expect(last != .nothing)
                var checker = HistoryChecker(ProfileModel())
                let read = HistoryEvent(
                    client: -1, user: user, operation: .read, invokedAt: end + 1, returnedAt: end + 2, observation: last
                )
                try checker.check(events + [read])
            }
        }
        restarted.stop()
    }

    @Test func `A signal right after the start line is a clean shutdown`() throws {
        for _ in 0..<10 { try ServerProcess(database: database).stop() }
    }

    @Test func `The server outlives the reader of its log`() throws {
        let errors = try #require(Executable.find("head"))
        let script =
            "'\(Executable.holdfast)' serve --listen 127.0.0.1:0 --database '\(database)' --access-log "
            + "3>&1 >&3 2>&1 | '\(errors)' -n 1"
        let shell = try ChildProcess("/bin/sh", ["-c", script])
        let line = try #require(shell.output.first { $0.contains("listening") })
        let start = try JSONParser().parse(line)
        let port = try #require(start["address"].string?.split(separator: ":").last.flatMap { UInt16($0) })
        let pid = try #require(start["pid"].integer.flatMap { pid_t(exactly: $0) })
        defer { kill(pid, SIGKILL) }
        for _ in 0..<3 { #expect(try HTTPClient(port: port).request("GET", "/livez").status == 200) }
    }

    /// The event loops stop listening one after the other, each within its turn.
    private func expectRefusal(of server: ServerProcess) throws {
        let deadline = ContinuousClock.now + .seconds(60)
        while (try? server.request("GET", "/livez")) != nil, .now < deadline {}
        #expect(throws: TestFailure.self) { try server.client() }
    }

    /// Blocks until every event loop has read what was sent to it before: metrics are collected from all of them.
    private func passAllLoops(_ server: ServerProcess) throws {
        #expect(try server.request("GET", "/metrics").status == 200)
    }
}
