import APITestSupport
import Foundation
import ProcessTestSupport
import Testing

/// Where the secrets of tokens never turn up.
@Suite struct SecretTests {
    private static let secret = "s3cret+admin/0123456789=="
    private static let reader = "s3cret-read-0123456789"

    private let directory: TemporaryDirectory
    private let server: ServerProcess
    private let file: String

    init() throws {
        directory = try TemporaryDirectory()
        file = try directory.write("admin on-call \(Self.secret)\nread dashboard \(Self.reader)\n", to: "tokens")
        server = try ServerProcess(
            database: directory.file("holdfast.db"),
            ["--tokens-file", file, "--access-log", "--log-level", "trace"])
    }

    @Test func `A secret is in no log, metric, audit entry or process title, wherever it is sent`() throws {
        let percentEncoded = Self.secret.utf8.map { "%" + String(UInt16($0) + 0x100, radix: 16).suffix(2) }.joined()
        for token in [Self.secret, Self.reader] { try sendEverywhere(token) }
        try sendEverywhere(percentEncoded)
        _ = try server.request("PUT", "/v1/profiles/ada/experiments/1", #"{"variation_id":"2"}"#, token: Self.secret)
        server.child.send(SIGHUP)
        #expect(server.child.errors.first { $0.contains("read the token file again") } != nil)
        _ = try directory.write("admin \(Self.secret) on-call\nread \(Self.reader) \(Self.secret)\nx\n", to: "tokens")
        server.child.send(SIGHUP)
        #expect(server.child.errors.first { $0.contains("the former tokens stay active") } != nil)

        var texts = [try server.request("GET", "/metrics", token: Self.reader).text]
        texts.append(try auditLog(with: "tokens.reload"))
        #expect(texts.last?.contains("tokens.reload") == true)
        for name in ["cmdline", "environ", "comm", "status"] {
            let bytes = try Data(contentsOf: URL(fileURLWithPath: "/proc/\(server.child.identifier)/\(name)"))
            texts.append(String(decoding: bytes, as: UTF8.self))
        }
        server.stop()
        texts += [server.child.output.text, server.child.errors.text]
        #expect(server.child.errors.text.contains("/v1/profiles"))
        for text in texts {
            for token in [Self.secret, Self.reader, percentEncoded] { #expect(!text.contains(token), "\(text)") }
        }
    }

    /// The audit log, when it has an entry of an action, which may be made after it was told in the log.
    private func auditLog(with action: String) throws -> String {
        let deadline = ContinuousClock.now + .seconds(60)
        while true {
            let text = try server.request("GET", "/v1/audit", token: Self.secret).text
            if text.contains(action) || .now > deadline { return text }
        }
    }

    /// Sends a secret where it does not belong, and where it does.
    private func sendEverywhere(_ secret: String) throws {
        let targets = [
            "/v1/profiles/ada?token=\(secret)", "/v1/profiles/\(secret)", "/\(secret)",
            "/metrics?access_token=\(secret)",
            "/ups/lookup?user_id=\(secret)", "http://\(secret)@host/v1/profiles/ada",
        ]
        for target in targets { _ = try server.request("GET", target, token: Self.reader) }
        let fields = [
            "X-Request-Id: \(secret)", "X-Optimizely-SDK-Key: \(secret)", "User-Agent: \(secret)",
            "Cookie: token=\(secret)",
            "Authorization: Basic \(secret)", "Authorization: \(secret)", "Authorization: Bearer  \(secret) x",
            "\(secret): x", "Host: \(secret)",
        ]
        for field in fields {
            _ = try server.client().request("GET", "/v1/config", fields: [field])
            _ = try server.client().request("GET", "/v1/profiles/ada", token: Self.reader, fields: [field])
        }
        for body in [secret, "{\"\(secret)\":1}", #"{"user_id":"\#(secret)"}"#] {
            _ = try server.request("PATCH", "/v1/profiles/ada", body, token: Self.secret)
            _ = try server.request("PUT", "/v1/datafile", body, token: Self.secret)
        }
        for line in ["\(secret)\r\n\r\n", "\(secret) / HTTP/1.1\r\n\r\n", "GET / \(secret)\r\n\r\n"] {
            let client = try server.client()
            try client.send(line)
            #expect(try client.receive().status >= 400)
        }
    }

    @Test func `An admin's error page does not quote the token`() throws {
        for token in ["\(Self.secret)x", Self.reader] {
            let response = try server.request("DELETE", "/v1/profiles/ada", token: token)
            #expect([401, 403].contains(response.status))
            #expect(!response.text.contains("s3cret"))
        }
    }
}
