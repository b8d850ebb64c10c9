import Foundation
import Testing

@testable import HTTPServer

/// Responses are compressed for clients that accept it (RFC 9110 §8.4 and §12.5.3).
@Suite struct ContentCodingTests {
    @Test(arguments: [
        ("gzip", true), ("GZIP", true), ("x-gzip", true), ("deflate, gzip;q=0.5, br", true), ("gzip ; q=1.000", true),
        ("*", true), ("br, *;q=0.1", true), ("gzip;q=0.001", true), ("identity, gzip", true), ("gzip;q=1.", true),
        ("gzip;q=0.5, identity;q=0.5", true), ("identity;q=0, gzip;q=0.1", true), (", ,gzip", true),
        ("", false), ("br", false), ("identity", false), ("gzip;q=0", false), ("gzip; q=0.000", false),
        ("*;q=0", false), ("gzip;q=0, *", false), ("gzip;q=0.5, identity", false), ("x-gzipped", false),
        ("gzip;q=", false), ("gzip;q=2", false), ("gzip;q=0.1234", false), ("gzip;q=a", false), ("gzip;x=1", false),
        (";q=1", false), ("gzip;q=-1", false),
    ])
    func `Accept-Encoding is read with its weights`(field: String, isAccepted: Bool) {
        #expect(ContentCoding.acceptsGzip(field) == isAccepted)
    }

    private static let tag = EntityTag(0xAB)
    private static let text = String(repeating: #"{"key":"checkout"},"#, count: 20_000)

    private func head(_ bytes: [UInt8]) -> (lines: [Substring], body: [UInt8]) {
        let end = bytes.firstRange(of: Array("\r\n\r\n".utf8))?.lowerBound ?? bytes.endIndex
        let lines = String(decoding: bytes[..<end], as: UTF8.self).split(separator: "\r\n")
        return (lines, Array(bytes[end...].dropFirst(4)))
    }

    /// The response of a given length to a request.
    private func exchange(
        _ length: Int, _ request: String, type: StaticString = "application/json", fields: [(StaticString, String)] = []
    ) throws -> (lines: [Substring], body: [UInt8]) {
        let driver = MachineDriver()
        driver.receive(request)
        var response = Response(
            .ok, contentType: type, entityTag: Self.tag, body: .bytes(Array(Self.text.utf8.prefix(length))))
        response.fields = fields.map { ($0.0, $0.1) }
        driver.respond(to: "/a", response)
        try driver.runStream(of: "/a")
        return head(driver.takeBytes())
    }

    private let gzip = "Accept-Encoding: br, gzip"

    @Test func `A body of a kilobyte or more is compressed, a smaller one is not`() throws {
        let (lines, body) = try exchange(1_024, get("/a", gzip))
        #expect(lines.contains("Content-Encoding: gzip") && lines.contains("Vary: Accept-Encoding"))
        #expect(lines.contains("Content-Length: \(body.count)"))
        #expect(lines.contains(#"ETag: "00000000000000ab-gzip""#))
        #expect(try gunzip(body) == Self.text.prefix(1_024))
        let small = try exchange(1_023, get("/a", gzip))
        #expect(!small.lines.contains { $0.hasPrefix("Content-Encoding") || $0.hasPrefix("Vary") })
        #expect(small.lines.contains(#"ETag: "00000000000000ab""#) && small.body.count == 1_023)
    }

    @Test func `A client that does not accept it gets the plain body, and caches are told`() throws {
        let old = "GET /a HTTP/1.0\r\nHost: a\r\n\(gzip)\r\n\r\n"
        for request in [get("/a"), get("/a", "Accept-Encoding: gzip;q=0"), old] {
            let (lines, body) = try exchange(2_000, request)
            #expect(body.count == 2_000)
            #expect(lines.contains("Vary: Accept-Encoding") && lines.contains(#"ETag: "00000000000000ab""#))
            #expect(!lines.contains("Content-Encoding: gzip"))
        }
        #expect(try exchange(2_000, get("/a", "Accept-Encoding: br", "Accept-Encoding: gzip")).body.count < 200)
    }

    @Test func `A long body is compressed while it is sent`() throws {
        let (lines, body) = try exchange(300_000, get("/a", gzip))
        #expect(lines.contains("Transfer-Encoding: chunked") && lines.contains("Content-Encoding: gzip"))
        #expect(!lines.contains { $0.hasPrefix("Content-Length") })
        #expect(body.count < 10_000)
        #expect(try gunzip(unchunked(body)) == Self.text.prefix(300_000))
    }

    @Test(arguments: [2_000, 300_000]) func `HEAD has the fields of GET and no body`(length: Int) throws {
        let get = try exchange(length, get("/a", gzip))
        let head = try exchange(length, request("HEAD", "/a", gzip))
        #expect(head.lines == get.lines)
        #expect(head.body.isEmpty)
    }

    @Test func `Only texts are compressed, and none that is negotiated already`() throws {
        for type: StaticString in ["application/octet-stream", "image/png", "text/event-stream"] {
            #expect(try exchange(2_000, get("/a", gzip), type: type).body.count == 2_000)
        }
        for type: StaticString in ["application/problem+json", "application/x-ndjson", "text/csv; charset=utf-8"] {
            #expect(try exchange(2_000, get("/a", gzip), type: type).body.count < 200)
        }
        for field: (StaticString, String) in [("Content-Encoding", "br"), ("Vary", "Accept-Encoding")] {
            #expect(try exchange(2_000, get("/a", gzip), fields: [field]).body.count == 2_000)
        }
    }

    @Test(arguments: [
        (#""00000000000000ab""#, true, 304, #""00000000000000ab""#),
        (#""00000000000000ab-gzip""#, true, 304, #""00000000000000ab-gzip""#),
        (#"W/"00000000000000ab-gzip""#, true, 304, #""00000000000000ab-gzip""#),
        (#""00000000000000ab""#, false, 304, #""00000000000000ab""#),
        (#""00000000000000ab-gzip""#, false, 200, #""00000000000000ab""#),
        (#""00000000000000ac-gzip""#, true, 200, #""00000000000000ab-gzip""#),
    ])
    func `A condition matches the tags of both representations`(
        condition: String, accepts: Bool, status: Int, tag: String
    ) throws {
        let request = get("/a", "If-None-Match: \(condition)", accepts ? gzip : "Accept: */*")
        let (lines, body) = try exchange(2_000, request)
        #expect(lines.first?.hasPrefix("HTTP/1.1 \(status)") == true)
        #expect(lines.contains("ETag: \(tag)") && lines.contains("Vary: Accept-Encoding"))
        #expect(body.isEmpty == (status == 304))
    }

    @Test func `If-Match takes the tag of a compressed response`() {
        #expect(Self.tag.isListed(in: #""x", "00000000000000ab-gzip""#, weakly: false))
        #expect(!Self.tag.isListed(in: #"W/"00000000000000ab-gzip""#, weakly: false))
        #expect(!Self.tag.isListed(in: #""00000000000000ab-br""#))
    }

    @Test func `A stream is compressed as a whole, and events are sent as they come`() throws {
        let driver = MachineDriver()
        driver.receive(get("/a", gzip))
        driver.respond(to: "/a", Response(.ok, contentType: "application/x-ndjson", body: .stream(EmptyStream())))
        for _ in 0..<100 { driver.write("{\"n\":1}\n", to: "/a") }
        driver.finish("/a")
        let (lines, body) = head(driver.takeBytes())
        #expect(lines.contains("Content-Encoding: gzip"))
        #expect(try gunzip(unchunked(body)) == String(repeating: "{\"n\":1}\n", count: 100))

        let events = MachineDriver()
        events.receive(get("/a", gzip))
        events.respond(to: "/a", Response(.ok, contentType: "text/event-stream", body: .stream(EmptyStream())))
        events.write("data: 1\n\n", to: "/a")
        #expect(events.takeOutput().hasSuffix("9\r\ndata: 1\n\n\r\n"))
    }

    @Test func `Random pieces are restored`() throws {
        var random = SystemRandomNumberGenerator()
        var whole: [UInt8] = []
        var compressed: [UInt8] = []
        let writer = try #require(Gzip(.fast))
        for length in [0, 1, 5, 70_000, 0, 200_000, 3] {
            let piece = (0..<length).map { _ in UInt8.random(in: 97...122, using: &random) }
            whole += piece
            compressed += writer.add(piece, isLast: false)
        }
        compressed += writer.add([], isLast: true)
        #expect(try gunzip(compressed) == String(decoding: whole, as: UTF8.self))
        #expect(Gzip.compress([1, 2, 3], .small) == nil)
    }

    @Test func `What was compressed is expanded, up to a limit, and nothing else`() throws {
        let text = Array(String(repeating: "abcdefgh", count: 50_000).utf8)
        let file = try #require(Gzip.compress(text, .small))
        func expand(_ bytes: [UInt8], limit: Int = 1 << 20) -> Gzip.Expansion {
            bytes.withUnsafeBytes { Gzip.expand($0, limit: limit) }
        }
        #expect(expand(file) == .expanded(text))
        #expect(expand(file, limit: text.count) == .expanded(text))
        #expect(expand(file, limit: text.count - 1) == .tooLong)
        #expect(expand([]) == .malformed && expand(text) == .malformed && expand(file + [0]) == .malformed)
        for length in file.indices { #expect(expand(Array(file.prefix(length))) == .malformed) }
        for index in file.indices {
            var changed = file
            changed[index] ^= 1
            // The name of the system, for example, is not checked.
            #expect([.malformed, .tooLong, .expanded(text)].contains(expand(changed)))
        }
    }

    // MARK: Reading

    private func unchunked(_ bytes: [UInt8]) -> [UInt8] {
        var rest = bytes[...]
        var whole: [UInt8] = []
        while let line = rest.firstRange(of: [13, 10]) {
            let length = Int(String(decoding: rest[..<line.lowerBound], as: UTF8.self), radix: 16) ?? 0
            whole += rest[line.upperBound...].prefix(length)
            rest = rest[line.upperBound...].dropFirst(length + 2)
        }
        return whole
    }

    private func gunzip(_ bytes: [UInt8]) throws -> String {
        let file = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
        try Data(bytes).write(to: file)
        defer { try? FileManager.default.removeItem(at: file) }
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = ["gzip", "-dc"]
        let output = Pipe()
        process.standardInput = try FileHandle(forReadingFrom: file)
        process.standardOutput = output
        try process.run()
        let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        try #require(process.terminationStatus == 0)
        return text
    }
}
