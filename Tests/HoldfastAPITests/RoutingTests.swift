import APITestSupport
import JSON
import Testing

/// Requests that reach no handler, and handlers that stream both ways.
@Suite struct RoutingTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    @Test func `A saved profile is looked up, imported and exported`() throws {
        #expect(try server.request("POST", "/ups/save", profile("u1", ["e1": "v1"])).status == 200)
        #expect(try server.request("GET", "/ups/lookup?user_id=u1").text.contains(#""variation_id":"v1""#))
        // A streamed request body.
        let imported = try server.request("POST", "/v1/profiles", profile("u2", ["e1": "v1"]) + "\n")
        #expect(imported.text.contains(#""imported":1"#))
        // A streamed response.
        let exported = try server.request("GET", "/v1/profiles")
        #expect(exported.text.split(separator: "\n").count == 2)
    }

    @Test(arguments: [("GET", "/nowhere", 404), ("DELETE", "/ups/save", 405)])
    func `A request without a route gets a problem`(_ method: String, path: String, status: Int) throws {
        let response = try server.request(method, path)
        #expect(response.status == status)
        #expect(response.field("content-type") == "application/problem+json")
    }

    @Test func `Below the Agent's paths a request without a route is refused in the Agent's format`() throws {
        let wrongMethod = try server.request("GET", "/v1/decide")
        #expect(wrongMethod.status == 405)
        #expect(wrongMethod.field("allow")?.contains("POST") == true)
        #expect(wrongMethod["error"].string?.contains("POST") == true)
        #expect(try server.request("GET", "/v1/assigns")["title"] == "Not Found")
        #expect(try server.request("POST", "/v1/profiles/ann", "{}")["title"] == "Method Not Allowed")
        server.stop()
    }
}
