import APITestSupport
import JSON
import Testing

/// Without tokens every caller is an admin; pages of other sites must not become one.
@Suite struct LocalAccessTests {
    private static let save = #"{"user_id":"ann","experiment_bucket_map":{}}"#

    private func request(
        _ server: any TestServer, _ method: String, _ path: String, host: String, _ fields: [String] = []
    ) throws -> Int {
        try server.response(
            to: TestRequest(
                method, path, bytes: method == "POST" ? Array(Self.save.utf8) : nil, fields: fields, host: host)
        ).status
    }

    @Test(arguments: [
        ("localhost", 200), ("localhost:8080", 200), ("LOCALHOST.", 200), ("shop.localhost:1", 200),
        ("127.0.0.1", 200), ("127.0.0.1:8080", 200), ("[::1]:8080", 200), ("10.1.2.3", 200), ("", 200),
        ("evil.example", 403), ("evil.example:8080", 403), ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403), ("holdfast", 403),
    ])
    func `Only a name that no site can point to this host is served`(host: String, status: Int) throws {
        let server = try startTestServer()
        #expect(try request(server, "POST", "/ups/save", host: host) == status)
        #expect(try request(server, "GET", "/v1/profiles", host: host) == status)
        #expect(try request(server, "GET", "/livez", host: host) == 200)
        server.stop()
    }

    @Test func `With tokens any name is served`() throws {
        let server = try startTestServer(tokens: "write app write-secret-0123456789\n")
        let token = ["Authorization: Bearer write-secret-0123456789", "Sec-Fetch-Site: cross-site"]
        #expect(try request(server, "POST", "/ups/save", host: "evil.example", token) == 200)
        server.stop()
    }

    @Test(arguments: [("cross-site", 403), ("same-origin", 200), ("same-site", 200), ("none", 200)])
    func `A page of another site changes nothing`(site: String, status: Int) throws {
        let server = try startTestServer()
        let fields = ["Sec-Fetch-Site: \(site)", "Origin: https://evil.example"]
        #expect(try request(server, "POST", "/ups/save", host: "localhost", fields) == status)
        let saved = "/ups/save?user_id=ann&experiment_bucket_map=%7B%7D"
        #expect(try request(server, "GET", saved, host: "localhost", fields) == status)
        #expect(try request(server, "GET", "/v1/profiles", host: "localhost", fields) == 200)
        server.stop()
    }

    @Test func `A listed origin's pages may call what is for clients`() throws {
        let server = try startTestServer(corsOrigins: "https://shop.example")
        let fields = ["Sec-Fetch-Site: cross-site", "Origin: https://shop.example"]
        let sdk = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]
        let tracked = try server.request("POST", "/v1/track?eventKey=buy", #"{"userId":"ann"}"#, fields: fields + sdk)
        #expect(tracked["detail"].isNull, "\(tracked.text)")
        #expect(try request(server, "POST", "/ups/save", host: "localhost", fields) == 403)
        server.stop()
    }
}
