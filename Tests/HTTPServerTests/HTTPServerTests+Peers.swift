import Synchronization
import Testing

@testable import HTTPServer

/// Peers that misbehave.
extension HTTPServerTests {
    @Test(
        arguments: [
            ([0x16, 0x03, 0x01, 0x02, 0x00, 0x01], 400),
            (Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8), 505),
            (Array("GET / HTTP/1.1\r\n\r\n".utf8), 400),
            (Array("SSH-2.0-OpenSSH_9.2\r\n".utf8), 400),
        ] as [([UInt8], Int)])
    func `What is no request is refused and the connection closed`(_ bytes: [UInt8], status: Int) throws {
        try withServer(eventLoops: 1) { _, port in
            let client = try TestClient(port: port)
            try client.send(bytes)
            let response = try client.rest()
            #expect(response.hasPrefix("HTTP/1.1 \(status) "))
            #expect(response.contains("Connection: close\r\n"))
        }
    }

    @Test(arguments: [
        "GET / HTTP/1.1\r\nHo", request("POST", "/echo", "Content-Length: 5", body: "ab"),
        request("POST", "/upload", "Content-Length: 5", body: "ab"),
    ])
    func `A slow sender is cut off`(_ start: String) throws {
        var limits = Limits()
        limits.headerSeconds = 0.2
        limits.bodySeconds = 0.2
        try withServer(eventLoops: 1, limits) { _, port in
            let client = try TestClient(port: port)
            let begin = ContinuousClock.now
            try client.send(start)
            let response = try client.rest()
            let elapsed = ContinuousClock.now - begin
            #expect(response.components(separatedBy: "HTTP/1.1 ").count == 2)
            #expect(response.hasPrefix("HTTP/1.1 408 "))
            #expect(elapsed > .seconds(0.19))
        }
    }

    @Test(arguments: ["", "\r\n"]) func `An idle connection is closed`(lineBehind: String) throws {
        var limits = Limits()
        limits.idleSeconds = 0.5
        limits.headerSeconds = 0.5
        try withServer(eventLoops: 1, limits) { _, port in
            let client = try TestClient(port: port)
            try client.send(request("GET", "/now") + lineBehind)
            #expect(try client.response().status == 200)
            #expect(try client.rest().isEmpty)
        }
    }

    @Test func `A handler that does not respond is not waited for forever`() throws {
        var limits = Limits()
        limits.responseSeconds = 0.1
        try withServer(eventLoops: 1, limits) { _, port in
            let client = try TestClient(port: port)
            try client.send(request("GET", "/held"))
            #expect(try client.rest().isEmpty)
            observations.respondToHeld()
        }
    }

    /// Otherwise the kernel would report the reset connection again and again, and the loop would not rest.
    @Test func `A client that resets a quiet stream after it has ended its input is noticed at once`() throws {
        try withServer(eventLoops: 1) { _, port in
            let client = try TestClient(port: port)
            try client.send(request("GET", "/quiet"))
            client.finishSending()
            // The loop serves the other client after it has seen the end.
            let other = try TestClient(port: port)
            try other.send(request("GET", "/now"))
            #expect(try other.response().status == 200)
            client.reset()
            #expect(observations.streamWasLetGo.comes())
        }
    }

    @Test(arguments: [false, true])
    func `A client that disappears in a body is noticed`(_ isReset: Bool) throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            try client.send(request("POST", "/upload", "Content-Length: 100", body: "ab"))
            isReset ? client.reset() : client.close()
            #expect(observations.bodyWasAborted.comes())
            let other = try TestClient(port: port)
            try other.send(request("GET", "/now"))
            #expect(try other.response().status == 200)
        }
    }

    @Test func `A slow reader is given no more than it takes`() throws {
        var limits = Limits()
        limits.writeSeconds = 0.2
        try withServer(eventLoops: 1, limits) { _, port in
            let client = try TestClient(port: port, receiveBuffer: 4096)
            try client.send(request("GET", "/endless"))
            #expect(observations.streamWasLetGo.comes())
            #expect(observations.streamedBytes.load(ordering: .relaxed) < 8_000_000)
            client.close()
        }
    }

    @Test func `A half closed client gets its responses`() throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            try client.send((0..<100).map { request("GET", "/number/\($0)") }.joined())
            client.finishSending()
            for number in 0..<100 {
                let body = try client.response().body
                #expect(body == "\(number)")
            }
            #expect(try client.rest().isEmpty)
        }
    }
}
