import APITestSupport
import Testing

/// Requests made so that two programs may see their end at different places. Holdfast refuses each as a whole and
/// closes the connection, so that nothing behind it is ever taken for a request.
@Suite struct SmugglingTests {
    private let directory: TemporaryDirectory
    private let server: ServerProcess

    init() throws {
        directory = try TemporaryDirectory()
        server = try ServerProcess(database: directory.file("holdfast.db"))
    }

    /// What another program might have let pass as the body.
    private static let hidden = HTTPClient.head("PUT", "/v1/profiles/hidden", profile("hidden"))

    /// The fields of a `POST`, and the status that refuses it.
    private static let headers: [(fields: String, status: Int)] = [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", 400),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", 400),
        ("Transfer-Encoding: identity, chunked", 501), ("Transfer-Encoding: xchunked", 501),
        ("Transfer-Encoding: chunked;q=1", 501), ("Transfer-Encoding: \"chunked\"", 501),
        ("Transfer-Encoding : chunked", 400), ("Transfer-Encoding:\u{B}chunked", 400),
        ("Transfer-Encoding\u{0}: chunked", 400), ("Transfer-Encoding: chunked\u{0}", 400),
        ("X: a\nTransfer-Encoding: chunked", 400), ("X: a\rTransfer-Encoding: chunked", 400),
        ("X: a\r\n Transfer-Encoding: chunked", 400), ("Transfer-Encoding:\r\n chunked", 400),
        ("Content-Length: 0\r\nContent-Length: 200", 400), ("Content-Length: 5\r\nContent-Length: 5", 400),
        ("Content-Length: 0, 200", 400), ("Content-Length: +5", 400), ("Content-Length: -5", 400),
        ("Content-Length: 5 5", 400), ("Content-Length: 0x5", 400), ("Content-Length: 5e0", 400),
        ("Content-Length:", 400), ("Content-Length: 18446744073709551621", 400), ("Content-Length : 0", 400),
        ("Content-Length: 99999999999999999", 413), ("Host: b\r\nContent-Length: 0", 400), (": a", 400),
    ]

    @Test func `A header with two meanings is refused and nothing behind it is read`() throws {
        for (fields, status) in Self.headers {
            try expectRefusal("POST /ups/save HTTP/1.1\r\nHost: localhost\r\n\(fields)\r\n\r\n", status)
        }
        try expectNothingHidden()
    }

    @Test func `A request line with two meanings is refused and nothing behind it is read`() throws {
        for (line, status) in [
            ("POST /ups/save HTTP/1.1 ", 400), ("POST  /ups/save HTTP/1.1", 400), ("POST /ups/save\tHTTP/1.1", 400),
            ("POST /ups/save HTTP/1.1\r", 400), ("POST /ups/save\u{0} HTTP/1.1", 400),
            (" POST /ups/save HTTP/1.1", 400),
            ("POST /ups/save HTTP/1.1\nHost: b\r\nX: y", 400), ("POST /ups/save HTTP/1.1,HTTP/1.0", 400),
            ("POST ups/save HTTP/1.1", 400), ("POST http://a@b/ups/save HTTP/1.1", 400), ("CONNECT a:80 HTTP/1.1", 501),
            ("POST /ups/save", 400), ("POST /ups/save HTTP/3.0", 505), ("PRI * HTTP/2.0", 505),
        ] {
            try expectRefusal("\(line)\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", status)
        }
        try expectNothingHidden()
    }

    @Test func `Chunks that end at no clear place are refused and nothing behind them is read`() throws {
        for chunks in [
            "5\r\nhello6\r\n", "5\nhello\r\n0\r\n\r\n", "5\r\nhello\n0\r\n\r\n", "0x5\r\nhello\r\n0\r\n\r\n",
            "+5\r\nhello\r\n0\r\n\r\n", "-1\r\n\r\n", "5 \r\nhello\r\n0\r\n\r\n", "\r\n0\r\n\r\n", ";a\r\n0\r\n\r\n",
            "ffffffffffffffff\r\nhello", "10000000000000005\r\nhello\r\n0\r\n\r\n", "5;a\nb\r\nhello\r\n0\r\n\r\n",
            "5;a\u{0}\r\nhello\r\n0\r\n\r\n", "0\r\nX : y\r\n\r\n", "0\r\nX: y\n\r\n", "0\n\r\n",
            "5;\(String(repeating: "a", count: 20_000))\r\nhello\r\n0\r\n\r\n",
        ] {
            try expectRefusal(
                "POST /ups/save HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\(chunks)", 400)
        }
        try expectNothingHidden()
    }

    @Test func `The authority of an absolute target and the Host field may differ, and neither chooses what is served`()
        throws
    {
        let client = try server.client()
        try client.send("GET http://other.example:81/livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        #expect(try client.receive().status == 200)
        try client.send("GET /livez HTTP/1.1\r\nHost: other.example\r\nX-Forwarded-Host: third\r\n\r\n")
        #expect(try client.receive().status == 200)
    }

    @Test func `Fields that look like a length and are none leave the request without a body`() throws {
        let client = try server.client()
        try client.send(
            "GET /livez HTTP/1.1\r\nHost: localhost\r\nTransfer_Encoding: chunked\r\nContent_Length: 5\r\nUpgrade: h2c\r\n\r\n"
        )
        try client.send("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in 0..<2 { #expect(try client.receive().status == 200) }
    }

    private func expectRefusal(_ request: String, _ status: Int, sourceLocation: SourceLocation = #_sourceLocation)
        throws
    {
        let client = try server.client()
        try client.send(request + Self.hidden)
        let response = try client.receive()
        #expect(response.status == status, "\(request.debugDescription)", sourceLocation: sourceLocation)
        #expect(client.isClosedByPeer(), "\(request.debugDescription)", sourceLocation: sourceLocation)
    }

    private func expectNothingHidden(sourceLocation: SourceLocation = #_sourceLocation) throws {
        #expect(try server.request("GET", "/v1/profiles").text == "", sourceLocation: sourceLocation)
    }
}
