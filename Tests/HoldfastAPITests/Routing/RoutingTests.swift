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

    @Test(arguments: [
        ("/v1/experiment/checkout", "/v1/experiments/{key}"), ("/v1/assin", "/v1/assign"),
        ("/experiments", "/v1/experiments"), ("/v1/assignments", "/v1/assign"),
        ("/v1/profile/ann/attributes", "/v1/profiles/{user_id}/attributes"), ("/open-api.json", "/openapi.json"),
    ])
    func `An unknown path names the route that was probably meant`(path: String, pattern: String) throws {
        let response = try server.request("GET", path)
        #expect(response.status == 404)
        #expect(
            response["detail"].string
                == "no resource has this path; did you mean \(pattern)? /openapi.json lists all", "\(path)")
        #expect(
            try server.request("GET", "/zzz/zzz")["detail"] == "no resource has this path; /openapi.json lists all")
    }

    @Test(arguments: [63, 64, 65, 200, 252]) func `A long key is no hint for a name that is not near`(length: Int)
        throws
    {
        let key = String(repeating: "y", count: length - 1)
        #expect(try server.request("PUT", "/v1/experiments/\(key)x", #"{"variations":["a"]}"#).status == 201)
        for (name, isNear) in [("nope", false), (key, length <= 64), (key + "zzz", false)] {
            let response = try server.request("GET", "/v1/experiments/\(name)")
            #expect(response.status == 404 && response.text.contains("did you mean") == isNear, "\(response.text)")
        }
    }

    /// Each is a word of another product.
    @Test(arguments: [
        ("POST", "/v1/events", #"{"user_id":"a","event":"b"}"#, "goal"),
        ("POST", "/v1/events", #"{"user_id":"a","goal":"b","revenue":1}"#, "value"),
        ("POST", "/v1/exposures", #"{"user_id":"a","experiment":"b","variation":"c"}"#, "variation_key"),
        ("POST", "/v1/assign", #"{"user_id":"a","experiment_key":"b"}"#, "experiment"),
        ("PUT", "/v1/experiments/x", #"{"variations":["a","b"],"percentage":50}"#, "traffic"),
        ("PUT", "/v1/experiments/x", #"{"variants":["a","b"]}"#, "variations"),
        ("PUT", "/v1/experiments/x", #"{"variations":["a","b"],"status":"live"}"#, "running"),
        ("PUT", "/v1/experiments/x", #"{"variations":["a"],"audience":{"name":"age","match":"gte","value":5}}"#, "ge"),
        ("PUT", "/v1/metrics/m", #"{"kind":"sum","goal":"b"}"#, "total"),
        ("PUT", "/v1/metrics/m", #"{"kind":"count","event":"b"}"#, "goal"),
        ("PUT", "/v1/flags/f", #"{"type":"bool"}"#, "boolean"), ("PUT", "/v1/flags/f", #"{"type":"float"}"#, "double"),
        ("PUT", "/v1/attributes/a", #"{"type":"int"}"#, "number"),
    ])
    func `A word of another product is refused with the one that means it here`(
        method: String, path: String, body: String, word: String
    ) throws {
        let response = try server.request(method, path, body)
        #expect((400...422).contains(response.status))
        #expect(
            response.text.firstMatch(of: try Regex("did you mean ['`]\(word)['`]\\?")) != nil, "\(response.text)")
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
