import Dispatch
import Synchronization
import Testing

@testable import HTTPServer

/// Limits of connections, and stopping.
extension HTTPServerTests {
    @Test func `A connection beyond the limit is turned away`() throws {
        var limits = Limits()
        limits.connections = 2
        try withServer(limits) { _, port in
            let clients = try (0..<2).map { _ in try TestClient(port: port) }
            for client in clients {
                try client.send(request("GET", "/now"))
                #expect(try client.response().status == 200)
            }
            let response = try TestClient(port: port).rest()
            #expect(response.hasPrefix("HTTP/1.1 503 "))
            #expect(response.hasSuffix("the server has no free connection; try again later"))
            #expect(TestClient.field("Content-Length", of: response) == "50")
            #expect(
                TestClient.field("X-Request-Id", of: response) != nil && TestClient.field("Date", of: response) != nil)
        }
    }

    @Test func `Connections are spread over the event loops`() async throws {
        let server = try server(4)
        let clients = try (0..<40).map { _ in
            let client = try TestClient(port: server.address.port)
            try client.send(request("GET", "/now"))
            #expect(try client.response().status == 200)
            return client
        }
        #expect(await server.collect { _, statistics in statistics.open } == [10, 10, 10, 10])
        for client in clients { client.close() }
        server.stop(within: 0)
        server.wait()
    }

    // MARK: Stopping

    @Test func `Stopping completes what is in flight`() throws {
        try withServer(eventLoops: 1) { server, port in
            let idle = try TestClient(port: port)
            try idle.send(request("GET", "/now"))
            #expect(try idle.response().status == 200)
            let waiting = try TestClient(port: port)
            try waiting.send(request("GET", "/held"))
            #expect(observations.isHolding.comes())
            server.stop(within: 10)
            #expect(try idle.rest().isEmpty)
            #expect(throws: SystemError.self) { try TestClient(port: port) }
            observations.respondToHeld()
            let response = try waiting.rest()
            #expect(response.hasSuffix("held"))
            #expect(response.contains("Connection: close\r\n"))
            waiting.close()
            server.wait()
        }
    }

    @Test func `Stopping does not wait longer than it is told`() throws {
        try withServer(eventLoops: 1) { server, port in
            let client = try TestClient(port: port)
            try client.send(request("GET", "/held"))
            #expect(observations.isHolding.comes())
            server.stop(within: 0.1)
            server.wait()
            #expect(try client.rest().isEmpty)
            observations.respondToHeld()
        }
    }

    @Test func `An address in use is not shared`() throws {
        try withServer { server, _ in
            var configuration = HTTPServer.Configuration()
            configuration.address = server.address.description
            #expect(throws: SystemError.self) {
                _ = try HTTPServer(configuration) { _ in TestApplication(observations) }
            }
        }
    }
}
