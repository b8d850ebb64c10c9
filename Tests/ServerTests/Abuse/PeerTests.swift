import APITestSupport
import Foundation
import ProcessTestSupport
import Testing

/// Peers that take up what all share: connections, descriptors, memory for responses, the iterations of an event loop.
@Suite struct PeerTests {
    private let directory: TemporaryDirectory
    private let database: String

    init() throws {
        directory = try TemporaryDirectory()
        database = directory.file("holdfast.db")
    }

    /// A server with one profile of 250 KB.
    private func serverWithLargeProfile(_ options: [String] = []) throws -> ServerProcess {
        let server = try ServerProcess(database: database, options)
        #expect(try server.request("POST", "/ups/save", largeProfile("large")).status == 200)
        return server
    }

    @Test func `Who stays after the end of an answer costs no processor time`() throws {
        let server = try serverWithLargeProfile()
        let client = try HTTPClient(port: server.port, receiveBuffer: 4_096)
        let requests = String(repeating: HTTPClient.head("GET", "/v1/profiles/large"), count: 20)
        try client.send(requests + HTTPClient.head("GET", "/livez", fields: ["Connection: close"]))
        // So much that it is not sent at once.
        for _ in 0..<20 { #expect(try client.receive().body.count > 200_000) }
        #expect(try client.receive().status == 200)
        try client.send("and more")
        // The connection lingers for 2 s. Nothing is asked of the server meanwhile, which would cost it time.
        let (before, descriptors) = try (server.processorTicks(), server.openDescriptors())
        let deadline = ContinuousClock.now + .seconds(60)
        while try server.openDescriptors() >= descriptors, .now < deadline { usleep(10_000) }
        #expect(try server.openDescriptors() < descriptors)
        #expect(try server.processorTicks() - before < 25)
    }

    @Test(arguments: [
        ("GET", "/v1/profiles/large"), ("GET", "/v1/profiles?detail=true"), ("POST", "/v1/profiles/lookup"),
    ])
    func `Who asks for much and reads nothing is given no more memory than a few answers`(
        method: String, target: String
    ) throws {
        let server = try serverWithLargeProfile(["--write-timeout", "1s"])
        let userIDs = Array(repeating: #""large""#, count: 1_000).joined(separator: ",")
        let request = HTTPClient.head(method, target, method == "POST" ? #"{"user_ids":[\#(userIDs)]}"# : nil)
        let memory = try server.peakMemory()
        let clients = try (0..<5).map { _ in try HTTPClient(port: server.port, receiveBuffer: 4_096) }
        let requests = Array(String(repeating: request, count: 30).utf8)
        for client in clients { client.sendWhatFits(requests) }
        #expect(try server.request("GET", "/v1/profiles/large").status == 200)
        // They are cut off when they have taken nothing for long.
        #expect(try server.awaitMetric("holdfast_connections_timed_out_total") { $0 == clients.count } == clients.count)
        try server.expectMemory(since: memory, lessThan: 64)
        #expect(try server.request("GET", "/v1/profiles/large").status == 200)
    }

    @Test(arguments: ["/openapi.json", "/v1/profiles/large?detail=true"])
    func `Responses that wait behind a slow one take no more memory than they may`(target: String) throws {
        let server = try serverWithLargeProfile(["--lock-timeout", "60s"])
        let request = HTTPClient.head("GET", target)
        let whole = try server.request("GET", target).body
        let memory = try server.peakMemory()
        // Readiness is known when the store can be written, which it cannot be before the lock is let go.
        let lock = try DatabaseConnection(database)
        try lock.execute("BEGIN IMMEDIATE")
        // Without a limit these would take 190 MB.
        let clients = try (0..<12).map { _ in try server.client() }
        for client in clients {
            try client.send(HTTPClient.head("GET", "/readyz") + String(repeating: request, count: 63))
        }
        // Each event loop has read what came before when it reports its metrics.
        for _ in 0..<2 { #expect(try server.request("GET", "/metrics").status == 200) }
        try server.expectMemory(since: memory, lessThan: 64)
        try lock.execute("ROLLBACK")
        let client = try #require(clients.first)
        #expect([200, 503].contains(try client.receive().status))
        for _ in 0..<63 { #expect(try client.receive().body == whole) }
    }

    @Test func `Peers that pipeline without end and read nothing keep nobody else waiting`() throws {
        let server = try ServerProcess(database: database, ["--event-loops", "1"])
        let memory = try server.peakMemory()
        let requests = Array(String(repeating: HTTPClient.head("GET", "/livez"), count: 1_500_000).utf8)
        let floods = try (0..<4).map { _ in try server.client() }
        let other = try server.client()
        for flood in floods {
            #expect(flood.sendWhatFits(requests) < requests.count)
            #expect(try other.request("GET", "/livez").status == 200)
        }
        try server.expectMemory(since: memory, lessThan: 64)
    }

    @Test func `Peers that are reset while they are sent to leave nothing behind`() throws {
        let server = try serverWithLargeProfile()
        let descriptors = try server.metric("process_open_fds")
        let peers = 40
        for _ in 0..<peers {
            let client = try HTTPClient(port: server.port, receiveBuffer: 4_096)
            client.sendWhatFits(Array(String(repeating: HTTPClient.head("GET", "/v1/profiles"), count: 5).utf8))
            client.resetAtEnd()
        }
        #expect(try server.awaitMetric("holdfast_connections") { $0 == 1 } == 1)
        // Each event loop opens its database connection at its first read, which may come after the first count.
        #expect(try server.awaitMetric("process_open_fds") { $0 < descriptors + peers } < descriptors + peers)
        server.stop()
    }

    @Test func `A peer that has ended its sending is still answered whole`() throws {
        let server = try serverWithLargeProfile()
        let client = try HTTPClient(port: server.port, receiveBuffer: 4_096)
        try client.send(HTTPClient.head("GET", "/v1/profiles/large") + HTTPClient.head("GET", "/v1/profiles"))
        client.finishSending()
        for _ in 0..<2 { #expect(try client.receive().body.count > 200_000) }
        #expect(client.isClosedByPeer())
    }

    @Test func `500 peers that send a byte now and then are cut off, and others are served meanwhile`() throws {
        let server = try ServerProcess(database: database, ["--header-timeout", "3s"])
        let slow = try (0..<500).map { _ in try server.client() }
        for byte in "GET /li".utf8 {
            for client in slow { try client.send([byte]) }
            #expect(try server.request("GET", "/livez").status == 200)
        }
        for client in slow { #expect(try client.receive().status == 408) }
        #expect(try server.metric("holdfast_connections_timed_out_total") == slow.count)
    }

    @Test func `A flood of connections is turned away at the limit, and the server goes on`() throws {
        let server = try ServerProcess(database: database, ["--max-connections", "50"])
        let kept = try (0..<49).map { _ in try server.client() }
        for client in kept { #expect(try client.request("GET", "/livez").status == 200) }
        var refused = 0
        for _ in 0..<500 {
            let client = try server.client()
            try? client.send(HTTPClient.head("GET", "/livez", fields: ["Connection: close"]))
            if try client.receive().status == 503 { refused += 1 }
        }
        // On a connection that is there: the last of the flood may not be gone yet.
        let metrics = try kept[0].request("GET", "/metrics").text
        #expect(metrics.contains("\nholdfast_connections_refused_total \(refused)\n"))
        server.stop()
    }

    @Test func `TLS and HTTP/2 on the plain port are refused in words`() throws {
        let server = try ServerProcess(database: database)
        let clientHello: [UInt8] = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3] + Array(repeating: 0xA5, count: 505)
        let preface = Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8) + [0, 0, 0, 4, 0, 0, 0, 0, 0]
        for (bytes, status) in [(clientHello, 400), (preface, 505)] {
            let client = try server.client()
            try client.send(bytes)
            #expect(try client.receive().status == status)
            #expect(client.isClosedByPeer())
        }
    }
}
