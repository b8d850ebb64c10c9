import TestSupport
import Testing

@testable import HTTPServer

private let host = "Host: a\r\n"

@Suite struct RequestHeadParserTests {
    struct Accepted: Sendable, CustomTestStringConvertible {
        var text: String
        var path = "/"
        var query = ""
        var method = Method.get
        var keepsAlive = true
        var body = RequestHead.BodyLength.none
        var expectsContinue = false
        var testDescription: String { text.debugDescription }
    }

    static let accepted: [Accepted] = [
        Accepted(text: "GET / HTTP/1.1\r\n\(host)\r\n"),
        Accepted(text: "\r\n\r\nGET / HTTP/1.1\r\n\(host)\r\n"),
        Accepted(text: "GET /a/b?c=d&e HTTP/1.1\r\n\(host)\r\n", path: "/a/b", query: "c=d&e"),
        Accepted(text: "GET /a? HTTP/1.1\r\n\(host)\r\n", path: "/a"),
        Accepted(text: "GET /a?b?c HTTP/1.1\r\n\(host)\r\n", path: "/a", query: "b?c"),
        Accepted(text: "GET /%41%2f%C3%A9 HTTP/1.1\r\n\(host)\r\n", path: "/%41%2f%C3%A9"),
        Accepted(text: "GET http://a.example:80/b?c HTTP/1.1\r\n\(host)\r\n", path: "/b", query: "c"),
        Accepted(text: "GET HTTPS://a/ HTTP/1.1\r\n\(host)\r\n"),
        Accepted(text: "GET http://a HTTP/1.1\r\n\(host)\r\n", path: ""),
        Accepted(text: "GET http://a?b HTTP/1.1\r\n\(host)\r\n", path: "", query: "b"),
        Accepted(text: "OPTIONS * HTTP/1.1\r\n\(host)\r\n", path: "*", method: .options),
        Accepted(text: "GET / HTTP/1.1\r\nHost:\r\n\r\n"),
        Accepted(text: "GET / HTTP/1.1\r\nhOsT:\t[::1]:8080 \t\r\n\r\n"),
        Accepted(text: "GET / HTTP/1.1\r\n\(host)X-Text: caf\u{e9}, \"b\"\r\n\r\n"),
        Accepted(text: "GET / HTTP/1.1\r\n\(host)X-Empty:\r\n\r\n"),
        Accepted(text: "GET / HTTP/1.2\r\n\(host)\r\n"),
        Accepted(text: "GET / HTTP/1.0\r\n\r\n", keepsAlive: false),
        Accepted(text: "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"),
        Accepted(text: "GET / HTTP/1.1\r\n\(host)Connection: x, CLOSE\r\n\r\n", keepsAlive: false),
        Accepted(
            text: "GET / HTTP/1.1\r\n\(host)Connection: keep-alive\r\nConnection: close\r\n\r\n", keepsAlive: false),
        Accepted(text: "POST / HTTP/1.1\r\n\(host)Content-Length: 12\r\n\r\n", method: .post, body: .fixed(12)),
        Accepted(text: "PUT / HTTP/1.1\r\n\(host)Content-Length: 0\r\n\r\n", method: .put),
        Accepted(text: "PATCH / HTTP/1.1\r\n\(host)Transfer-Encoding: Chunked\r\n\r\n", method: .patch, body: .chunked),
        Accepted(
            text: "POST / HTTP/1.1\r\n\(host)Transfer-Encoding: , chunked ,\r\n\r\n", method: .post, body: .chunked),
        Accepted(
            text: "POST / HTTP/1.1\r\n\(host)Content-Length: 1\r\nExpect: 100-Continue\r\n\r\n", method: .post,
            body: .fixed(1), expectsContinue: true),
        Accepted(text: "GET / HTTP/1.1\r\n\(host)Expect: 100-continue\r\n\r\n"),
        Accepted(
            text: "POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n", method: .post,
            keepsAlive: false, body: .fixed(1)),
    ]

    @Test(arguments: accepted)
    func `A valid head is read`(_ example: Accepted) throws {
        guard case .head(let head) = ParseOutcome.of(Array(example.text.utf8) + Array("rest".utf8)) else {
            Issue.record("refused")
            return
        }
        #expect(head.method == example.method)
        #expect(head.path == example.path)
        #expect(head.query == example.query)
        #expect(head.keepsAlive == example.keepsAlive)
        #expect(head.body == example.body)
        #expect(head.expectsContinue == example.expectsContinue)
        #expect(head.length == example.text.utf8.count)
    }

    static let refused: [(text: String, status: UInt16)] = [
        // Request line
        ("GET /\r\n\r\n", 400),
        ("GET\r\n\r\n", 400),
        (" GET / HTTP/1.1\r\n\(host)\r\n", 400),
        ("GET  / HTTP/1.1\r\n\(host)\r\n", 400),
        ("GET /  HTTP/1.1\r\n\(host)\r\n", 400),
        ("GET / HTTP/1.1 \r\n\(host)\r\n", 400),
        ("GET /\tHTTP/1.1\r\n\(host)\r\n", 400),
        ("GET /a b HTTP/1.1\r\n\(host)\r\n", 400),
        ("G(T / HTTP/1.1\r\n\(host)\r\n", 400),
        ("get / HTTP/1.1\r\n\(host)\r\n", 501),
        ("BREW / HTTP/1.1\r\n\(host)\r\n", 501),
        ("GET / http/1.1\r\n\(host)\r\n", 400),
        ("GET / HTTP/1.10\r\n\(host)\r\n", 400),
        ("GET / HTTP/11\r\n\(host)\r\n", 400),
        ("GET / HTTP/2.0\r\n\(host)\r\n", 505),
        ("GET / HTTP/0.9\r\n\(host)\r\n", 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("\u{16}\u{3}\u{1}\u{2}\u{0}", 400),
        ("GET / HTTP/1.1\n\(host)\r\n", 400),
        ("GET /\r HTTP/1.1\r\n\(host)\r\n", 400),
        ("\nGET / HTTP/1.1\r\n\(host)\r\n", 400),
        ("\rGET / HTTP/1.1\r\n\(host)\r\n", 400),
        // Target
        ("GET a HTTP/1.1\r\n\(host)\r\n", 400),
        ("GET * HTTP/1.1\r\n\(host)\r\n", 400),
        ("GET ftp://a/ HTTP/1.1\r\n\(host)\r\n", 400),
        ("GET http:///b HTTP/1.1\r\n\(host)\r\n", 400),
        ("GET http://user@a/ HTTP/1.1\r\n\(host)\r\n", 400),
        ("GET /a#b HTTP/1.1\r\n\(host)\r\n", 400),
        ("GET /%4 HTTP/1.1\r\n\(host)\r\n", 400),
        ("GET /%zz HTTP/1.1\r\n\(host)\r\n", 400),
        ("GET /caf\u{e9} HTTP/1.1\r\n\(host)\r\n", 400),
        ("GET /\u{0} HTTP/1.1\r\n\(host)\r\n", 400),
        ("CONNECT a:443 HTTP/1.1\r\n\(host)\r\n", 501),
        // Field lines
        ("GET / HTTP/1.1\r\n\(host)X : b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\(host)X\t: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\(host)X\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\(host): b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\(host)X: b\r\n folded\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n \(host)\r\n", 400),
        ("GET / HTTP/1.1\r\n\(host)X: b\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\(host)X: b\rc\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\(host)X: b\r\n\n", 400),
        ("GET / HTTP/1.1\r\n\(host)X: \u{0}\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\(host)X: \u{7f}\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\(host)X(: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\(host)X\u{e9}: b\r\n\r\n", 400),
        // Host
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\(host)\(host)\r\n", 400),
        ("GET / HTTP/1.0\r\n\(host)\(host)\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: user@a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: <a>\r\n\r\n", 400),
        // Length
        ("POST / HTTP/1.1\r\n\(host)Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\n\(host)Content-Length: 1, 1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\n\(host)Content-Length: +1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\n\(host)Content-Length: -1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\n\(host)Content-Length: 0x1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\n\(host)Content-Length:\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\n\(host)Content-Length: 9223372036854775808\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\n\(host)Content-Length: 99999999999999999999\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\n\(host)Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\n\(host)Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\n\(host)Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\n\(host)Transfer-Encoding: gzip\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\n\(host)Transfer-Encoding: chunked, chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\n\(host)Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\n\(host)Transfer-Encoding: \u{b}chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\n\(host)Transfer-Encoding:\r\n\r\n", 400),
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\(host)Expect: 200-ok\r\n\r\n", 417),
    ]

    @Test(arguments: refused)
    func `An invalid head is refused`(_ text: String, status: UInt16) {
        #expect(ParseOutcome.of(Array(text.utf8)) == .failure(status))
    }

    @Test(arguments: accepted.map(\.text) + refused.map(\.text))
    func `The result is the same however the bytes are cut`(_ text: String) {
        let bytes = Array(text.utf8)
        let whole = ParseOutcome.of(bytes)
        for cut in 0...bytes.count {
            #expect(ParseOutcome.of(bytes, cuts: [cut]) == whole, "cut at \(cut)")
        }
        #expect(ParseOutcome.of(bytes, cuts: 0..<bytes.count) == whole, "byte by byte")
    }

    @Test func `A head has its fields in order without white space around`() {
        guard
            case .head(let head) = ParseOutcome.of(Array("GET / HTTP/1.1\r\nHost: a\r\nB:  c d\t\r\nB:e\r\n\r\n".utf8))
        else {
            Issue.record("refused")
            return
        }
        #expect(head.fields == ["Host=a", "B=c d", "B=e"])
    }

    // MARK: Limits

    @Test(arguments: [(0, true), (1, false)])
    func `A header may be as long as the limit`(_ excess: Int, isAccepted: Bool) {
        let start = "GET / HTTP/1.1\r\n\(host)X: "
        let padding = String(repeating: "x", count: 1000 + excess - start.utf8.count - 4)
        let bytes = Array((start + padding + "\r\n\r\n").utf8)
        #expect(bytes.count == 1000 + excess)
        for cuts in [[], Array(0..<bytes.count), [bytes.count - 1]] {
            let outcome = ParseOutcome.of(bytes, cuts: cuts, maximumLength: 1000)
            if isAccepted {
                guard case .head = outcome else {
                    Issue.record("\(outcome)")
                    continue
                }
            } else {
                #expect(outcome == .failure(431))
            }
        }
    }

    @Test func `A request line beyond the limit is a URI too long`() {
        let bytes = Array(("GET /" + String(repeating: "x", count: 1000)).utf8)
        #expect(ParseOutcome.of(Array(bytes[..<999]), maximumLength: 1000) == .incomplete)
        #expect(ParseOutcome.of(Array(bytes[..<1000]), maximumLength: 1000) == .failure(414))
        #expect(ParseOutcome.of(bytes + Array(" HTTP/1.1\r\n".utf8), maximumLength: 1000) == .failure(414))
    }

    @Test(arguments: [(10, true), (11, false)])
    func `A header may have as many fields as the limit`(_ count: Int, isAccepted: Bool) {
        let fields = (1..<count).map { "X-\($0): y\r\n" }.joined()
        let outcome = ParseOutcome.of(Array("GET / HTTP/1.1\r\n\(host)\(fields)\r\n".utf8), maximumFields: 10)
        #expect((outcome == .failure(431)) == !isAccepted)
    }

    // MARK: Random bytes

    @Test(arguments: 0..<8 as Range<UInt64>)
    func `No bytes stop the process`(_ seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let examples = Self.accepted.map { Array($0.text.utf8) }
        for _ in 0..<400 {
            var bytes = examples.randomElement(using: &random) ?? []
            for _ in 0..<Int.random(in: 1...6, using: &random) { bytes.mutate(using: &random) }
            let cuts = (0..<3).map { _ in Int.random(in: 0...bytes.count, using: &random) }.sorted()
            #expect(ParseOutcome.of(bytes) == ParseOutcome.of(bytes, cuts: cuts))
        }
    }
}

extension [UInt8] {
    /// Changes, inserts, removes or repeats some bytes.
    mutating func mutate(using random: inout SeededGenerator) {
        let position = Int.random(in: 0...count, using: &random)
        let telling = Array("\r\n :;,%/?#*0aF\u{0}\t".utf8) + [0x7F, 0x80, 0xFF]
        let byte = telling.randomElement(using: &random) ?? 0
        switch Int.random(in: 0..<4, using: &random) {
        case 0 where position < count: self[position] = byte
        case 1 where position < count: remove(at: position)
        case 2: append(contentsOf: self[position...])
        default: insert(byte, at: position)
        }
    }
}
