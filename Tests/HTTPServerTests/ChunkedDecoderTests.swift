import TestSupport
import Testing

@testable import HTTPServer

@Suite struct ChunkedDecoderTests {
    enum Outcome: Equatable {
        case body(String, unread: Int)
        case incomplete
        case failure(UInt16)
    }

    static let examples: [(text: String, outcome: Outcome)] = [
        ("0\r\n\r\n", .body("", unread: 0)),
        ("5\r\nhello\r\n0\r\n\r\n", .body("hello", unread: 0)),
        ("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\nGET", .body("hello world", unread: 3)),
        ("00005\r\nhello\r\n000\r\n\r\n", .body("hello", unread: 0)),
        ("A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n", .body("01234567890123456789", unread: 0)),
        ("2\r\n\r\n\r\n0\r\n\r\n", .body("\r\n", unread: 0)),
        ("5;name=value\r\nhello\r\n0;last\r\n\r\n", .body("hello", unread: 0)),
        ("5;a=\"b;c\"\r\nhello\r\n0\r\n\r\n", .body("hello", unread: 0)),
        ("5 \t;name = value\r\nhello\r\n0 ;last\r\n\r\n", .body("hello", unread: 0)),
        ("1\r\na\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n", .body("a", unread: 0)),
        ("5\r\nhel", .incomplete),
        ("5\r\nhello\r\n", .incomplete),
        ("0\r\n", .incomplete),
        ("0\r\nX: 1\r\n", .incomplete),
        ("", .incomplete),
        ("\r\n", .failure(400)),
        ("x\r\n", .failure(400)),
        ("-1\r\n", .failure(400)),
        ("0x1\r\n", .failure(400)),
        (" 1\r\n", .failure(400)),
        ("1 \r\n", .failure(400)),
        ("1 1\r\n", .failure(400)),
        ("1 \n", .failure(400)),
        (";a\r\n", .failure(400)),
        ("1\na\r\n", .failure(400)),
        ("1\r\r\n", .failure(400)),
        ("1;a\nb\r\n", .failure(400)),
        ("1;\u{0}\r\n", .failure(400)),
        ("1\r\nab\r\n", .failure(400)),
        ("1\r\na\n", .failure(400)),
        ("1\r\na\rb", .failure(400)),
        ("FFFFFFFFFFFFFFFF\r\n", .failure(400)),
        ("10000000000000000\r\n", .failure(400)),
        ("0000000000000001\r\n", .failure(400)),
        ("0\r\nX: 1\n\r\n", .failure(400)),
        ("0\r\nX : 1\r\n\r\n", .failure(400)),
        ("0\r\n X: 1\r\n\r\n", .failure(400)),
        ("0\r\nX\r\n\r\n", .failure(400)),
        ("0\r\n\n", .failure(400)),
    ]

    @Test(arguments: examples)
    func `A body is taken apart`(_ text: String, outcome: Outcome) {
        #expect(decode(Array(text.utf8)) == outcome)
    }

    @Test(arguments: examples)
    func `The result is the same however the bytes are cut`(_ text: String, outcome: Outcome) {
        let bytes = Array(text.utf8)
        for cut in 0...bytes.count {
            #expect(decode(bytes, pieces: [cut]) == outcome, "cut at \(cut)")
        }
        #expect(decode(bytes, pieces: Array(0..<bytes.count)) == outcome, "byte by byte")
    }

    @Test func `The largest size that fits is accepted`() {
        #expect(decode(Array("7FFFFFFFFFFFFFF\r\na".utf8)) == .incomplete)
    }

    @Test(arguments: [(0, false), (1, true)])
    func `A trailer may be as long as the limit`(_ excess: Int, isRefused: Bool) {
        let field = "X: " + String(repeating: "y", count: 100 + excess - 7) + "\r\n\r\n"
        let bytes = Array("0\r\n\(field)".utf8)
        #expect(field.utf8.count == 100 + excess)
        for pieces in [[], Array(0..<bytes.count)] {
            #expect(decode(bytes, pieces: pieces, limit: 100) == (isRefused ? .failure(431) : .body("", unread: 0)))
        }
    }

    @Test(arguments: [(100, false), (101, true)])
    func `An extension may be as long as the limit`(_ length: Int, isRefused: Bool) {
        let bytes = Array("0;\(String(repeating: "e", count: length))\r\n\r\n".utf8)
        #expect(decode(bytes, limit: 100) == (isRefused ? .failure(400) : .body("", unread: 0)))
    }

    @Test(arguments: 0..<4 as Range<UInt64>)
    func `No bytes stop the process`(_ seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        for _ in 0..<500 {
            var bytes = Array((Self.examples.randomElement(using: &random)?.text ?? "").utf8)
            for _ in 0..<Int.random(in: 1...4, using: &random) { bytes.mutate(using: &random) }
            let cut = Int.random(in: 0...bytes.count, using: &random)
            #expect(decode(bytes) == decode(bytes, pieces: [cut]))
        }
    }

    /// Feeds the decoder as a connection does: unread bytes stay in front of the next ones.
    private func decode(_ bytes: [UInt8], pieces cuts: [Int] = [], limit: Int = 16 * 1024) -> Outcome {
        var decoder = ChunkedDecoder(maximumFraming: limit)
        var body: [UInt8] = []
        var position = 0
        do throws(RequestFailure) {
            for end in cuts + [bytes.count] {
                reading: while true {
                    let piece = try next(&decoder, Array(bytes[position..<max(position, end)]))
                    switch piece {
                    case .needsMore(let framing):
                        position += framing
                        break reading
                    case .data(let framing, let data):
                        body += bytes[position + framing..<position + framing + data]
                        position += framing + data
                    case .end(let framing):
                        position += framing
                        return .body(String(decoding: body, as: UTF8.self), unread: bytes.count - position)
                    }
                }
            }
            return .incomplete
        } catch {
            return .failure(error.status.code)
        }
    }

    private func next(
        _ decoder: inout ChunkedDecoder, _ bytes: [UInt8]
    ) throws(RequestFailure) -> ChunkedDecoder.Piece {
        try bytes.withUnsafeBytes { bytes in
            Result { () throws(RequestFailure) in try decoder.next(bytes) }
        }.get()
    }
}
