import APITestSupport
import Foundation
import Glibc
import JSON
import ProcessTestSupport
import Testing

/// What the server's log tells of requests.
@Suite struct LogTests {
    private static let app = "write-secret-0123456789"

    private let directory: TemporaryDirectory
    private let tokens: String

    init() throws {
        directory = try TemporaryDirectory()
        tokens = try directory.write("write app \(Self.app)\nadmin on-call admin-secret-0123456789\n", to: "tokens")
    }

    private func server(_ options: [String]) throws -> ServerProcess {
        try ServerProcess(database: directory.file("holdfast.db"), ["--tokens-file", tokens] + options)
    }

    private func lines(_ server: ServerProcess, _ message: String) throws -> [JSONValue] {
        try server.child.errors.all.map { try JSONParser().parse($0) }.filter { $0["message"].string == message }
    }

    @Test func `A line says who asked for what, and its numbers are numbers`() throws {
        let server = try server(["--access-log"])
        let saved = try server.request("PATCH", "/v1/profiles/ann", profile("ann", ["11": "1"]), token: Self.app)
        #expect(saved.status == 200)
        #expect(try server.request("GET", "/v1/profiles?limit=1", token: "admin-secret-0123456789").status == 200)
        #expect(try server.request("GET", "/livez").status == 200)
        let start = try #require(try lines(server, "listening").first)
        for name in ["event_loops", "profiles", "pid"] { #expect(start[name].integer != nil) }
        server.stop()

        let requests = try lines(server, "request")
        #expect(requests.map { $0["target"].string } == ["/v1/profiles/ann", "/v1/profiles?limit=1", "/livez"])
        #expect(requests.map { $0["method"].string } == ["PATCH", "GET", "GET"])
        #expect(requests.map { $0["token"].string } == ["app", "on-call", nil])
        for line in requests {
            #expect(line["client"] == "127.0.0.1")
            #expect(line["proxy"].isNull)
            #expect(line["status"].integer == 200)
            #expect(line["microseconds"].integer.map { $0 >= 0 } == true)
        }
        // The head is counted too.
        let bodies = [saved.body.count, profile("ann", ["11": "1"]).utf8.count, 16]
        for (line, body) in zip(requests, bodies) {
            #expect(line["bytes"].integer.map { (body + 50..<body + 500).contains(Int($0)) } == true, "\(line)")
        }
    }

    @Test func `What reads the log may hang, and learns later how many lines it missed`() throws {
        let path = directory.file("log")
        #expect(mkfifo(path, 0o600) == 0)
        let pipe = open(path, O_RDWR)
        defer { close(pipe) }
        // Two pages, the fewest with which a page takes more than a line.
        #expect(fcntl(pipe, 1031 /* F_SETPIPE_SZ */, 8192) == 8192)
        func read() -> [String] {
            var bytes = [UInt8](repeating: 0, count: 65536)
            let count = Glibc.read(pipe, &bytes, bytes.count)
            return String(decoding: bytes.prefix(max(count, 0)), as: UTF8.self).split(separator: "\n").map(String.init)
        }
        let options = ["serve", "--listen", "127.0.0.1:0", "--database", directory.file("h.db"), "--access-log"]
        let child = try ChildProcess(
            try #require(Executable.find("sh")),
            ["-c", "exec \"$0\" \"$@\" 2>'\(path)'", Executable.holdfast] + options)
        let address = try JSONParser().parse(try #require(read().first))["address"].string
        let port = try #require(address?.split(separator: ":").last.flatMap { UInt16($0) })
        let client = try HTTPClient(port: port)
        for _ in 0..<60 { #expect(try client.request("GET", "/livez").status == 200) }
        #expect(read().count > 5)
        #expect(try client.request("GET", "/livez").status == 200)
        let note = try JSONParser().parse(try #require(read().first { $0.contains("were dropped") }))
        #expect(note["level"] == "warning")
        #expect(note["lines"].integer.map { (10..<60).contains($0) } == true)
        child.send(SIGTERM)
        #expect(child.wait() == .exit(0))
    }

    @Test(arguments: 0...2) func `A descriptor that was closed at the start is no file of the server's`(number: Int)
        throws
    {
        let (path, receiver) = (directory.file("holdfast.db"), try NotifyReceiver())
        let options = ["serve", "--listen", "127.0.0.1:0", "--database", path]
        let child = try ChildProcess(
            try #require(Executable.find("sh")),
            ["-c", "exec \"$0\" \"$@\" \(number)>&-", Executable.holdfast] + options,
            environment: ["NOTIFY_SOCKET": receiver.name])
        defer { child.send(SIGKILL) }
        #expect(receiver.next(with: "READY=1") != nil)
        let link = "/proc/\(child.identifier)/fd/\(number)"
        #expect(try FileManager.default.destinationOfSymbolicLink(atPath: link) == "/dev/null")
        child.send(SIGTERM)
        #expect(child.wait() == .exit(0))
    }

    @Test(arguments: [
        ("127.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("127.0.0.0/8,::1", "6.6.6.6, 203.0.113.9, 127.3.3.3", "203.0.113.9"),
        ("10.0.0.0/8", "203.0.113.9", "127.0.0.1"), ("127.0.0.1", "unknown", "127.0.0.1"),
    ])
    func `A client behind a trusted proxy is named, and nobody's word is taken for it`(
        trusted: String, forwardedFor: String, client: String
    ) throws {
        let server = try ServerProcess(
            database: directory.file("holdfast.db"), ["--tokens-file", tokens, "--access-log"],
            environment: ["HOLDFAST_TRUSTED_PROXIES": trusted])
        let fields = ["X-Forwarded-For: \(forwardedFor)"]
        #expect(try server.client().request("GET", "/livez", fields: fields).status == 200)
        #expect(try server.client().request("GET", "/v1/profiles", fields: fields).status == 401)
        server.stop()
        for line in try lines(server, "request") + lines(server, "a request without permission was refused") {
            #expect(line["client"].string == client)
            #expect(line["proxy"].string == (client == "127.0.0.1" ? nil : "127.0.0.1"))
        }
    }

    @Test func `A refused login is logged, without its secret`() throws {
        let server = try server([])
        let guess = "guessed-secret-0123456789"
        #expect(try server.request("GET", "/v1/profiles/ann?x=\(Self.app)").status == 401)
        #expect(try server.request("GET", "/v1/profiles/ann", token: guess).status == 401)
        #expect(try server.request("DELETE", "/v1/profiles/ann", token: Self.app).status == 403)
        #expect(try server.request("GET", "/v1/profiles/\(Self.app)").status == 401)
        let batch = #"{"operations":[{"operationID":"1","method":"POST","url":"/v1/override"}]}"#
        #expect(try server.request("POST", "/v1/batch", batch, token: Self.app).status == 200)
        server.stop()
        let refusals = try lines(server, "a request without permission was refused")
        #expect(refusals.map { $0["status"].integer } == [401, 401, 403, 401, 403])
        #expect(refusals.map { $0["token"].string } == [nil, nil, "app", nil, "app"])
        #expect(refusals.map { $0["method"].string } == ["GET", "GET", "DELETE", "GET", "POST"])
        #expect(refusals.prefix(3).allSatisfy { $0["path"] == "/v1/profiles/ann" })
        #expect(refusals.last?["path"] == "/v1/override")
        #expect(refusals.allSatisfy { $0["client"] == "127.0.0.1" && $0["level"] == "notice" })
        #expect(!server.child.errors.text.contains(guess))
        #expect(!server.child.errors.text.contains(Self.app))
    }

    @Test func `Refused logins cannot flood the log, and those left out are counted`() throws {
        let server = try server([])
        let client = try server.client()
        let begin = ContinuousClock.now
        for _ in 0..<10 {
            try client.send(String(repeating: HTTPClient.head("GET", "/v1/profiles/ann"), count: 100))
            for _ in 0..<100 { #expect(try client.receive().status == 401) }
        }
        let seconds = (ContinuousClock.now - begin).components.seconds + 1
        server.stop()
        let written = try lines(server, "a request without permission was refused").count
        #expect(written >= 10 && written <= 10 * (Int(seconds) + 1))
        let leftOut = try lines(server, "further requests without permission were refused").compactMap {
            $0["left_out"].integer
        }.reduce(
            0, +)
        #expect(written + Int(leftOut) == 1_000)
    }
}
