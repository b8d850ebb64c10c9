import Bucketing
import Foundation
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
            ("GET /livez HTTP/1.1\r\nHost: a\r\nX: ", 431), ("GET /livez HTTP/1.1\r\nHost: a\r\n", 431), ("GET /", 414),
            ("POST /ups/save HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000000000000000\r\n\r\n", 413),
            ("POST /ups/save HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n7fffffffffffff\r\n", 413),
            ("POST /ups/save HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ", 431),
        ] {
            let client = try server.client()
            try client.send(start)
            // The server may close before all is sent.
            for _ in 0..<32 where (try? client.send(endless)) == nil { break }
            #expect(try client.receive().status == status, "\(start)")
        }
        let tinyFields = String(repeating: "a:\r\n", count: 3_000)
        let client = try server.client()
        try client.send("GET /livez HTTP/1.1\r\nHost: a\r\n\(tinyFields)\r\n")
        #expect(try client.receive().status == 431)
        try expectBounded()
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
            let answer = try client.request("POST", path, body, fields: ["Content-Type: application/json"])
            // An import answers which lines it refused, and a batch without operations is one.
            #expect(answer.status < 500, "\(answer.text.prefix(200))")
            #expect(answer.status >= 400 || answer["imported"] == 0 || answer["errorCount"] == 0)
        }
        #expect(ContinuousClock.now - start < .seconds(30))
        #expect(try server.request("GET", "/livez").status == 200)
        try expectBounded()
    }

    @Test func `A query of nothing but separators is read in little time`() throws {
        for query in [String(repeating: "&", count: 16_000), String(repeating: "a=&", count: 5_300), String(repeating: "%00", count: 5_300)] {
            let answer = try server.request("GET", "/ups/lookup?\(query)")
            #expect(answer.status == 400)
        }
    }

    private func expectBounded(sourceLocation: SourceLocation = #_sourceLocation) throws {
        let used = try server.peakMemory() - memory
        #expect(used < 200 << 20, "\(used >> 20) MiB", sourceLocation: sourceLocation)
    }
}
