import APITestSupport
import Foundation
import Testing

/// More is asked than can be done: what is beyond is refused at once, what is acknowledged is stored, and who watches
/// the server is answered.
@Suite struct OverloadTests {
    private let directory: TemporaryDirectory
    private let database: String

    init() throws {
        directory = try TemporaryDirectory()
        database = directory.file("holdfast.db")
    }

    @Test
    func
        `Saves beyond those that may wait for a stalled store are refused, and none is acknowledged that is not stored`()
        throws
    {
        let server = try ServerProcess(database: database, ["--max-waiting-writes", "100", "--lock-timeout", "5s"])
        #expect(try server.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        let memory = try server.peakMemory()
        let other = try DatabaseConnection(database)
        try other.execute("BEGIN IMMEDIATE")

        let clients = try (0..<300).map { _ in try server.client() }
        for (number, client) in clients.enumerated() {
            let requests = (0..<20).map {
                HTTPClient.head("POST", "/ups/save", profile("c\(number)u\($0)", ["11": "1"]))
            }
            try client.send(requests.joined())
        }
        #expect(try server.awaitMetric("holdfast_store_refused_changes_total") { $0 >= 1_000 } >= 1_000)
        #expect(try server.request("GET", "/livez").status == 200)
        #expect([200, 503].contains(try server.request("GET", "/readyz").status))
        #expect(try server.request("GET", "/v1/profiles/ada").text == profile("ada", ["11": "1"]))
        try other.execute("ROLLBACK")

        var stored: Set<String> = []
        for (number, client) in clients.enumerated() {
            for user in 0..<20 {
                let response = try client.receive()
                if response.status == 200 { stored.insert("c\(number)u\(user)") } else { expectRefusal(response) }
            }
        }
        let lines = try server.request("GET", "/v1/profiles").text.split(separator: "\n")
        #expect(lines.count == stored.count + 1)
        #expect(try server.request("POST", "/ups/save", profile("ada", ["11": "2"])).status == 200)
        // One look at the store serves those who ask for a while.
        #expect(try server.becomesReady())
        try server.expectMemory(since: memory, lessThan: 64)
        server.stop()
    }

    @Test func `While a save has waited for longer than it may, further ones are refused at once`() throws {
        let server = try ServerProcess(database: database, ["--max-write-wait", "100ms", "--lock-timeout", "60s"])
        let other = try DatabaseConnection(database)
        try other.execute("BEGIN IMMEDIATE")
        // The first is in the transaction that waits for the lock, one of the next waits behind it.
        var waiting: [HTTPClient] = []
        let client = try server.client()
        repeat {
            let saver = try server.client()
            try saver.send(HTTPClient.head("POST", "/ups/save", profile("u\(waiting.count)", ["11": "1"])))
            waiting.append(saver)
            let deadline = ContinuousClock.now + .milliseconds(150)
            while .now < deadline { #expect(try client.request("GET", "/livez").status == 200) }
        } while try server.metric("holdfast_store_waiting_changes") == 0
        expectRefusal(try client.request("POST", "/ups/save", profile("late", ["11": "1"])))
        #expect(try client.request("POST", "/v1/assign", #"{"user_id":"late","experiment":"none"}"#).status == 404)
        try other.execute("ROLLBACK")
        for client in waiting { #expect(try client.receive().status == 200) }
        #expect(try client.request("GET", "/v1/profiles/late").status == 404)
        #expect(try client.request("POST", "/ups/save", profile("late", ["11": "1"])).status == 200)
    }

    @Test func `An event loop that is behind refuses what came meanwhile, and still says how it is`() throws {
        let server = try ServerProcess(database: database, ["--max-loop-delay", "1ms", "--event-loops", "1"])
        var refused = 0
        while true {
            let response = try server.request("POST", "/ups/save", profile("ada", ["11": "1"]))
            if response.status == 200 { break }
            refused += 1
            expectRefusal(response)
        }
        let clients = try (0..<20).map { _ in try server.client() }
        let requests = (0..<200).map { HTTPClient.head("GET", $0 % 20 == 0 ? "/livez" : "/v1/profiles/ada") }.joined()
        for client in clients { try client.send(requests) }
        for client in clients {
            for number in 0..<200 {
                let response = try client.receive()
                if response.status == 503, number % 20 != 0 {
                    refused += 1
                    expectRefusal(response)
                } else {
                    #expect(response.status == 200)
                }
            }
        }
        #expect(refused > 0)
        #expect(try server.metric("holdfast_http_overload_refusals_total") == refused)
        // One request takes a millisecond now and then, and the next is refused for it.
        #expect(try (0..<100).contains { _ in try clients[0].request("GET", "/v1/profiles/ada").status == 200 })
    }

    private func expectRefusal(_ response: TestResponse, sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(response.status == 503, sourceLocation: sourceLocation)
        #expect(response.field("retry-after") == "1", sourceLocation: sourceLocation)
        #expect(response.field("content-type") == "application/problem+json", sourceLocation: sourceLocation)
    }
}
