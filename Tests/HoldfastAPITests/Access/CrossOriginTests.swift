import APITestSupport
import Testing

/// `--cors-origins`: pages of other origins may call what a `client` token may.
@Suite struct CrossOriginTests {
    private static let origin = "https://shop.example"
    private let server: any TestServer

    init() throws {
        server = try startTestServer(
            tokens: "client app client-secret-0123456789\nadmin boss admin-secret-0123456789\n",
            corsOrigins: "\(Self.origin),http://localhost:3000")
        let datafile = ChangeSamples.empty(revision: "7", sdkKey: "shop")
        #expect(try server.request("PUT", "/v1/datafile", datafile, token: "admin-secret-0123456789").status == 201)
    }

    private func preflight(_ path: String, _ method: String, origin: String = CrossOriginTests.origin) throws
        -> TestResponse
    {
        try server.request(
            "OPTIONS", path,
            fields: [
                "Origin: \(origin)", "Access-Control-Request-Method: \(method)",
                "Access-Control-Request-Headers: authorization,content-type",
            ])
    }

    @Test(arguments: [
        ("/v1/evaluations", "POST"), ("/v1/exposures", "POST"), ("/v1/profiles/ann/attributes", "PATCH"),
        ("/ofrep/v1/evaluate/flags/x", "POST"), ("/ofrep/v1/changes", "GET"), ("/datafiles/shop.json", "GET"),
        ("/sdk/v1/events", "POST"), ("/v1/changes", "GET"),
    ])
    func `A browser may ask without a token, and is told what a page may send`(path: String, method: String) throws {
        let response = try preflight(path, method)
        #expect(response.status == 204)
        #expect(response.field("access-control-allow-origin") == Self.origin)
        #expect(response.field("access-control-allow-methods")?.contains(method) == true)
        let fields = response.field("access-control-allow-headers") ?? ""
        for name in ["authorization", "content-type", "if-none-match", "x-api-key"] { #expect(fields.contains(name)) }
        #expect(response.field("vary") == "Origin")
        #expect(response.field("access-control-allow-credentials") == nil)
        server.stop()
    }

    @Test(arguments: [
        ("/v1/exposures", "GET"), ("/v1/profiles/ann", "DELETE"), ("/v1/experiments/x", "PUT"),
        ("/v1/override", "POST"),
        ("/v1/profiles/ann/attributes", "GET"), ("/metrics", "GET"),
    ])
    func `A page may not call what is not for clients`(path: String, method: String) throws {
        let methods = try preflight(path, method).field("access-control-allow-methods") ?? ""
        #expect(!methods.split(separator: ", ").contains { $0 == method })
        let response = try server.stream(
            method, path, token: "admin-secret-0123456789", fields: ["Origin: \(Self.origin)"])
        #expect(response.head.field("access-control-allow-origin") == nil)
        server.stop()
    }

    @Test func `A page of a listed origin reads every response, also a refusal`() throws {
        for (token, status) in [("client-secret-0123456789", 200), ("", 401)] {
            let response = try server.request(
                "POST", "/v1/evaluations", #"{"user_id":"ann"}"#, token: token, fields: ["Origin: \(Self.origin)"])
            #expect(response.status == status)
            #expect(response.field("access-control-allow-origin") == Self.origin)
            #expect(response.field("access-control-expose-headers")?.contains("ETag") == true)
        }
        server.stop()
    }

    @Test(arguments: [
        ("GET", "/nowhere", 404), ("POST", "/ofrep/nowhere", 404), ("PUT", "/v1/evaluations", 405),
        ("OPTIONS", "/nowhere", 404), ("BREW", "/v1/evaluations", 501), ("POST", "/v1/evaluations", 413),
    ])
    func `A page also reads what the server says without a route`(method: String, path: String, status: Int) throws {
        let body = status == 413 ? String(repeating: " ", count: 1_048_577) : nil
        func response(_ origin: String) throws -> TestResponse {
            try server.request(method, path, body, fields: ["Origin: \(origin)"])
        }
        let allowed = try response(Self.origin)
        #expect(allowed.status == status)
        // The bytes of a request with an unknown method are read no further.
        #expect(allowed.field("access-control-allow-origin") == (status == 501 ? nil : Self.origin))
        #expect(allowed.field("vary") == "Origin")
        let other = try response("https://evil.example")
        #expect(other.status == status)
        #expect(other.field("access-control-allow-origin") == nil)
        #expect(other.field("vary") == "Origin")
        server.stop()
    }

    @Test(arguments: ["https://evil.example", "https://shop.example.evil", "http://shop.example", "null"])
    func `A page of another origin is given nothing`(origin: String) throws {
        #expect(try preflight("/v1/evaluations", "POST", origin: origin).field("access-control-allow-origin") == nil)
        let response = try server.request(
            "POST", "/v1/evaluations", #"{"user_id":"ann"}"#, token: "client-secret-0123456789",
            fields: ["Origin: \(origin)"])
        #expect(response.field("access-control-allow-origin") == nil)
        #expect(response.field("vary") == "Origin")
        server.stop()
    }

    @Test func `Every origin may be allowed`() throws {
        let server = try startTestServer(corsOrigins: "*")
        let response = try server.request(
            "POST", "/v1/events", #"{"user_id":"a","goal":"g"}"#, fields: ["Origin: null"])
        #expect(response.field("access-control-allow-origin") == "*")
        #expect(response.field("vary") == nil)
        server.stop()
    }

    @Test func `The methods of a path are named as ever`() throws {
        #expect(try server.request("OPTIONS", "/v1/exposures").field("allow") == "GET, HEAD, POST, OPTIONS")
        #expect(try server.request("PUT", "/v1/evaluations").field("allow") == "POST, OPTIONS")
        server.stop()
    }
}
