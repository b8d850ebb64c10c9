import APITestSupport
import JSON
import Testing

/// `/v1/sticky-values`: what Statsig's SDKs keep. The real SDK is in `PythonClientTests`.
@Suite struct StickyValueTests {
    private static let target = "/v1/sticky-values/ann:userID"
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    private func patch(_ body: String, _ target: String = Self.target) throws -> TestResponse {
        try server.request("PATCH", target, body)
    }

    @Test func `Objects are merged by configuration, and null removes one`() throws {
        #expect(try server.request("GET", Self.target).status == 404)
        #expect(try patch(#"{"a":{"rule_id":"1","time":1795353600000}}"#)["a"]["time"] == 1_795_353_600_000)
        #expect(try patch(#"{"b":{"rule_id":"2"},"c":null}"#).json.object?.members.map(\.key) == ["a", "b"])
        #expect(
            try patch(#"{"a":{"rule_id":"3"},"b":null}"#).text == #"{"a":{"rule_id":"3"}}"#)
        let response = try server.request("GET", Self.target)
        #expect(response.text == #"{"a":{"rule_id":"3"}}"#)
        let tag = try #require(response.field("etag"))
        #expect(try server.request("GET", Self.target, fields: ["If-None-Match: \(tag)"]).status == 304)
        #expect(try patch(#"{"a":null}"#).text == "{}")
        #expect(try server.request("GET", Self.target).status == 404)
        server.stop()
    }

    @Test func `Members that are null are left out, and inner ones stay`() throws {
        let response = try patch(#"{"a":{"group_name":null,"json_value":{"color":null},"secondary_exposures":[]}}"#)
        #expect(response.text == #"{"a":{"json_value":{"color":null},"secondary_exposures":[]}}"#)
        server.stop()
    }

    @Test func `Values of several types of ids are apart, and erasing the user erases them all`() throws {
        for (target, value) in [
            (Self.target, 1), ("/v1/sticky-values/ann:companyID", 2), ("/v1/sticky-values/a%3Ann:userID", 3),
        ] {
            #expect(try patch(#"{"e":{"n":\#(value)}}"#, target).status == 200)
        }
        #expect(try server.request("GET", Self.target)["e"]["n"] == 1)
        #expect(try server.request("DELETE", "/v1/profiles/ann")["erased"]["sticky_documents"] == 2)
        for target in [Self.target, "/v1/sticky-values/ann:companyID"] {
            #expect(try server.request("GET", target).status == 404)
        }
        #expect(try server.request("GET", "/v1/sticky-values/a:nn:userID")["e"]["n"] == 3)
        #expect(try server.request("DELETE", "/v1/sticky-values/a:nn:userID").status == 204)
        #expect(try server.request("DELETE", "/v1/sticky-values/a:nn:userID").status == 404)
        server.stop()
    }

    @Test(
        arguments: [
            ("/v1/sticky-values/ann", "{}", nil), ("/v1/sticky-values/:userID", "{}", nil), (Self.target, "[]", ""),
            (Self.target, #"{"a":1}"#, "/a"), (Self.target, #"{"":{}}"#, "/"),
            (Self.target, #"{"a":{"x":"\#(String(repeating: "x", count: 65_536))"}}"#, "/a"),
        ] as [(String, String, String?)])
    func `What is not an object by configuration is refused`(target: String, body: String, pointer: String?) throws {
        let response = try patch(body, target)
        #expect(response.status == 400)
        #expect(response.json.object?["pointer"]?.string == pointer)
        server.stop()
    }
}
