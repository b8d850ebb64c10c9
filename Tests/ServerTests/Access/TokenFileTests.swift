import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Testing

/// The file of tokens: what it must be, when it is read, and what its changes do to open connections.
@Suite struct TokenFileTests {
    private static let tokens = """
        # scope name secret
        read dashboard read-secret-0123456789
        write app write-secret-0123456789
        admin on-call admin-secret-0123456789

        """

    private let directory: TemporaryDirectory
    private let server: ServerProcess
    private let client: HTTPClient
    private let file: String

    init() throws {
        directory = try TemporaryDirectory()
        file = try directory.write(Self.tokens, to: "tokens")
        server = try ServerProcess(database: directory.file("holdfast.db"), ["--tokens-file", file])
        client = try server.client()
    }

    @Test func `An import without the scope is refused before its body is sent`() throws {
        try client.send(
            "POST /v1/profiles HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 100\r\n"
                + "Authorization: Bearer read-secret-0123456789\r\n\r\n")
        #expect(try client.receive().status == 403)
    }

    @Test func `The token file is read again on SIGHUP, and the former tokens stay active if it is wrong`() throws {
        #expect(try status("GET /metrics", "read-secret-0123456789") == 200)
        _ = try directory.write("read other another-secret-0123456789\n", to: "tokens")
        server.child.send(SIGHUP)
        #expect(server.child.errors.first { $0.contains("read the token file again") } != nil)
        #expect(try status("GET /metrics", "read-secret-0123456789") == 401)
        #expect(try status("GET /metrics", "another-secret-0123456789") == 200)

        _ = try directory.write("nonsense\n", to: "tokens")
        server.child.send(SIGHUP)
        #expect(server.child.errors.first { $0.contains("the former tokens stay active") } != nil)
        #expect(try status("GET /metrics", "another-secret-0123456789") == 200)
        let ready = try server.request("GET", "/readyz")
        #expect(ready.status == 200)
        #expect(ready["detail"] == "the token file was not read; the former tokens stay active")

        _ = try directory.write(
            "read other another-secret-0123456789 expires=2020-01-01\nread other third-secret-0123456789\n",
            to: "tokens")
        server.child.send(SIGHUP)
        while try server.request("GET", "/readyz")["detail"].string != nil {}
        #expect(try status("GET /metrics", "third-secret-0123456789") == 200)
        #expect(try status("GET /metrics", "another-secret-0123456789") == 401)
        #expect(server.child.errors.first { $0.contains("this one of the token 'other' expired at 2020-01-01") } != nil)
        #expect(!server.child.errors.text.contains("secret-"))
    }

    @Test func `A stream of changes ends when its token is revoked, and only then`() throws {
        let clients = try ["read-secret-0123456789", "write-secret-0123456789"].map { token in
            let client = try server.client()
            try client.send(HTTPClient.head("GET", "/v1/changes", token: token))
            #expect(try client.receiveHead().status == 200)
            return client
        }
        _ = try directory.write(
            "read renamed write-secret-0123456789\nadmin new admin-secret-0123456789\n", to: "tokens")
        server.child.send(SIGHUP)
        #expect(try clients[0].receiveChunk() == nil)
        #expect(try clients[0].request("GET", "/v1/changes", token: "read-secret-0123456789").status == 401)
        let experiment = #"{"id":"7001","variations":[{"key":"control"},{"key":"new"}]}"#
        #expect(
            try client.request("PUT", "/v1/experiments/checkout", experiment, token: "admin-secret-0123456789").status
                < 300)
        #expect(try clients[1].receiveChunk()?.hasPrefix("event: datafile") == true)
    }

    @Test(arguments: [true, false])
    func `An export is cut off when its token is revoked, and only then`(isRevoked: Bool) throws {
        // More than the kernel keeps for a client that does not read.
        for user in 0..<40 {
            let response = try client.request(
                "POST", "/ups/save", largeProfile("user\(user)"), token: "write-secret-0123456789")
            #expect(response.status == 200)
        }
        let reader = try HTTPClient(port: server.port, receiveBuffer: 4_096)
        try reader.send(HTTPClient.head("GET", "/v1/profiles", token: "admin-secret-0123456789"))
        #expect(try reader.receiveHead().status == 200)
        let secret = isRevoked ? "another-secret-0123456789" : "admin-secret-0123456789"
        _ = try directory.write("admin other \(secret)\n", to: "tokens")
        server.child.send(SIGHUP)
        #expect(server.child.errors.first { $0.contains("read the token file again") } != nil)
        var length = 0
        do {
            while let chunk = try reader.receiveChunk() { length += chunk.utf8.count }
            #expect(!isRevoked && length > 40 * 220_000)
        } catch {
            #expect(isRevoked && length < 40 * 220_000)
        }
    }

    @Test(arguments: ["0.0.0.0:0", "[::]:0"])
    func `Without tokens only this host is listened to`(address: String) throws {
        let refused = try Command("serve", "--listen", address, "--database", directory.file("new.db"))
        #expect(refused.end == .exit(78))
        #expect(refused.errors.contains("--tokens-file"))
        #expect(!FileManager.default.fileExists(atPath: directory.file("new.db")))
    }

    @Test func `The token file may be a link, and what it links to counts`() throws {
        let link = directory.file("link")
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: file)
        let linked = try ServerProcess(database: directory.file("linked.db"), ["--tokens-file", link])
        #expect(try linked.request("GET", "/v1/profiles/ada").status == 401)
        linked.stop()
        try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: file)
        let refused = try Command("serve", "--listen", "127.0.0.1:0", "--tokens-file", link)
        #expect(refused.end == .exit(78))
        #expect(refused.errors.contains("chmod 600"))
    }

    @Test func `With tokens every address is listened to`() throws {
        let arguments = [
            "serve", "--listen", "0.0.0.0:0", "--database", directory.file("new.db"), "--tokens-file", file,
        ]
        let child = try ChildProcess(Executable.holdfast, arguments)
        #expect(child.errors.first { $0.contains("listening") }?.contains("http://0.0.0.0:") == true)
        child.send(SIGTERM)
        #expect(child.wait() == .exit(0))
    }

    @Test(arguments: [0o644, 0o640, 0o604, 0o602])
    func `A token file that others can read or write is refused`(mode: Int) throws {
        let file = try directory.write(Self.tokens, to: "open", mode: mode)
        let refused = try Command(
            "serve", "--listen", "127.0.0.1:0", "--database", directory.file("new.db"), "--tokens-file", file)
        #expect(refused.end == .exit(78))
        #expect(refused.errors.contains("chmod 600"))
    }

    @Test(arguments: [
        "", "# none\n", "read dashboard\n", "read dashboard short\n", "root dashboard long-enough-0123456\n",
    ])
    func `A token file that is wrong is refused`(text: String) throws {
        let file = try directory.write(text, to: "wrong")
        let refused = try Command(
            "serve", "--listen", "127.0.0.1:0", "--database", directory.file("new.db"), "--tokens-file", file)
        #expect(refused.end == .exit(78))
        #expect(refused.errors.contains(file))
        #expect(!refused.errors.contains("long-enough"))
    }

    private func status(_ route: String, _ token: String?) throws -> Int {
        let words = route.split(separator: " ").map(String.init)
        // A connection of its own, as a refused request may end one.
        return try server.request(words[0], words[1], token: token).status
    }
}
