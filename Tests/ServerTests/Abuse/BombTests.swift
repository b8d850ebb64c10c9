import APITestSupport
import JSON
import Testing

/// Input that is cheap to send and would be dear to take: it is refused early, in little memory and time.
@Suite struct BombTests {
    private let directory: TemporaryDirectory
    private let server: ServerProcess
    private let memory: Int

    init() throws {
        directory = try TemporaryDirectory()
        server = try ServerProcess(database: directory.file("holdfast.db"))
        _ = try server.request("GET", "/metrics")
        memory = try server.peakMemory()
    }

    @Test func `A header or a body without end is refused at its limit`() throws {
        let endless = String(repeating: "a", count: 64 << 10)
        for (start, status) in [
            ("GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ", 431), ("GET /livez HTTP/1.1\r\nHost: localhost\r\n", 431),
            ("GET /", 414),
            ("POST /ups/save HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000000000000000\r\n\r\n", 413),
            ("POST /ups/save HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n7fffffffffffff\r\n", 413),
            ("POST /ups/save HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ", 431),
        ] {
            let client = try server.client()
            try client.send(start)
            // The server may close before all is sent.
            for _ in 0..<32 where (try? client.send(endless)) == nil { break }
            #expect(try client.receive().status == status, "\(start)")
        }
        let tinyFields = String(repeating: "a:\r\n", count: 3_000)
        let client = try server.client()
        try client.send("GET /livez HTTP/1.1\r\nHost: localhost\r\n\(tinyFields)\r\n")
        #expect(try client.receive().status == 431)
        try server.expectMemory(since: memory, lessThan: 200)
    }

    @Test func `Many bodies that never end take no more memory than they may, and whole ones are taken meanwhile`()
        throws
    {
        let server = try ServerProcess(
            database: directory.file("unfinished.db"),
            ["--event-loops", "1", "--max-body-size", "256KiB", "--max-unfinished-bodies", "1MiB"])
        let save = profile("ada", ["11": "1"])
        let body = save + String(repeating: " ", count: 200_000 - save.utf8.count)
        let request = HTTPClient.head("POST", "/ups/save", fields: ["Content-Length: 200000"]) + body.prefix(100_000)
        let clients = try (0..<20).map { _ in try server.client() }
        for client in clients { try client.send(request) }
        #expect(try server.awaitMetric("holdfast_http_overload_refusals_total") { $0 >= 10 } >= 10)
        #expect(try server.request("POST", "/ups/save", save).status == 200)

        var statuses: [Int: Int] = [:]
        for client in clients {
            // One that was refused may have been closed already.
            try? client.send(String(body.suffix(100_000)))
            let response = try client.receive()
            if response.status == 503 { #expect(response.field("retry-after") == "1") }
            statuses[response.status, default: 0] += 1
        }
        let served = statuses[200] ?? 0
        #expect((1...10).contains(served))
        #expect(statuses[503] == 20 - served)
        // What they held has been given back.
        #expect(try server.request("POST", "/ups/save", body).status == 200)
    }

    @Test func `Many imports whose line never ends take no more memory than they may`() throws {
        let server = try ServerProcess(
            database: directory.file("lines.db"),
            ["--event-loops", "1", "--max-body-size", "256KiB", "--max-unfinished-bodies", "1MiB"])
        let line = profile("ada", ["11": "1"]) + "\n"
        let unfinished = line + String(repeating: " ", count: 200_000)
        let request = HTTPClient.head("POST", "/v1/profiles", fields: ["Content-Length: 500000"]) + unfinished
        let clients = try (0..<20).map { _ in try server.client() }
        for client in clients { try client.send(request) }
        #expect(try server.awaitMetric("holdfast_http_overload_refusals_total") { $0 >= 10 } >= 10)
        #expect(try server.request("POST", "/v1/profiles", line)["imported"] == 1)

        let refused = try clients.compactMap { client -> TestResponse? in
            // One that was refused may have been closed already.
            try? client.send(String(repeating: " ", count: 500_000 - unfinished.utf8.count))
            let response = try client.receive()
            return response.status == 503 ? response : nil
        }
        #expect((10..<20).contains(refused.count))
        #expect(refused.allSatisfy { $0["detail"] == "the memory for unfinished requests is full; try again later" })
        // What they held has been given back.
        #expect(try server.request("POST", "/v1/profiles", unfinished)["imported"] == 1)
    }

    @Test(arguments: ["/ups/save", "/v1/profiles", "/v1/profiles/lookup", "/v1/assign", "/v1/decide", "/v1/batch"])
    func `Deep, long and huge JSON is answered in little time`(path: String) throws {
        let client = try server.client()
        let size = 60_000
        let start = ContinuousClock.now
        for body in [
            String(repeating: "[", count: size), String(repeating: #"{"user_id":"#, count: size / 11),
            #"{"user_id":"# + String(repeating: "9", count: size) + "}",
            #"{"user_id":1e"# + String(repeating: "9", count: size) + "}",
            #"{"user_id":""# + String(repeating: #"\u0061"#, count: size / 6) + #""}"#,
            "{" + (0..<6_000).map { #""k\#($0)":0"# }.joined(separator: ",") + "}",
            "[" + String(repeating: "{},", count: size / 3) + "{}]",
            #"{"user_ids":["# + String(repeating: #""","#, count: size / 3) + #"""]}"#,
        ] {
            let response = try client.request("POST", path, body, fields: ["Content-Type: application/json"])
            // An import answers which lines it refused, and a batch without operations is one.
            #expect(response.status < 500, "\(response.text.prefix(200))")
            #expect(response.status >= 400 || response["imported"] == 0 || response["errorCount"] == 0)
        }
        #expect(ContinuousClock.now - start < .seconds(30))
        #expect(try server.request("GET", "/livez").status == 200)
        try server.expectMemory(since: memory, lessThan: 200)
    }

    @Test func `Events that each activate many decisions are as dear as their bytes`() throws {
        func list(_ element: String) -> String { Array(repeating: element, count: 5_000).joined(separator: ",") }
        let decisions = list(#"{"experiment_id":"1","variation_id":"1"}"#)
        let activations = list(#"{"key":"campaign_activated"}"#)
        let response = try server.request(
            "POST", "/sdk/v1/events",
            #"{"visitors":[{"visitor_id":"u","snapshots":[{"decisions":[\#(decisions)],"events":[\#(activations)]}]}]}"#
        )
        #expect(response.status == 204)
        try server.expectMemory(since: memory, lessThan: 100)
    }

    @Test func `What a visitor has is kept with each event, and no more of it than 16 MiB in all`() throws {
        let attribute = #"{"key":"a","value":"\#(String(repeating: "x", count: 8_000))"}"#
        let events = Array(repeating: #"{"key":"g"}"#, count: 2_500).joined(separator: ",")
        let response = try server.request(
            "POST", "/sdk/v1/events",
            #"{"visitors":[{"visitor_id":"u","attributes":[\#(attribute)],"snapshots":[{"events":[\#(events)]}]}]}"#)
        #expect(response.status == 204)
        let first = try server.request("GET", "/v1/events?limit=1")
        #expect(first["detail"]["attributes"]["a"].string?.utf8.count == 8_000)
        let last = try server.request("GET", "/v1/events?after=2499&limit=1")
        #expect(last["user_id"] == "u")
        #expect(last["detail"]["attributes"].isNull)
    }

    @Test func `A query of nothing but separators is read in little time`() throws {
        for query in [
            String(repeating: "&", count: 16_000), String(repeating: "a=&", count: 5_300),
            String(repeating: "%00", count: 5_300),
        ] {
            let response = try server.request("GET", "/ups/lookup?\(query)")
            #expect(response.status == 400)
        }
    }
    @Test func `A batch that asks for much again and again is given no more than its limit`() throws {
        let lists = ["groups", "experiments", "events", "attributes", "audiences", "featureFlags", "rollouts"]
        let datafile =
            #"{"version":"4","accountId":"1","projectId":"1","revision":"1","filling":"\#(String(repeating: "a", count: 900_000))","#
            + lists.map { #""\#($0)":[]"# }.joined(separator: ",") + "}"
        let client = try server.client()
        #expect(
            try client.request("PUT", "/v1/datafile", datafile, fields: ["X-Optimizely-SDK-Key: default"]).status == 201
        )
        let operations = (0..<30).map {
            #"{"operationID":"\#($0)","method":"GET","url":"/v1/datafile","headers":{"X-Optimizely-SDK-Key":"default"}}"#
        }
        let response = try client.request(
            "POST", "/v1/batch", #"{"operations":[\#(operations.joined(separator: ","))]}"#)
        #expect(response.status == 200)
        #expect((15 << 20..<17 << 20).contains(response.body.count), "\(response.body.count)")
        #expect(String(decoding: response.body.suffix(500), as: UTF8.self).contains(#""status":422"#))
    }
}
