import APITestSupport
import JSON
import Testing

/// What is forced on a user for a test does not become the user's own, where this server can know it; and an assignment that
/// has become it nevertheless can be removed.
@Suite struct ForcedDecisionTests {
    private static let tokens = "admin boss admin-secret-0123456789\nwrite app write-secret-0123456789\n"
    private static let (admin, app) = ("admin-secret-0123456789", "write-secret-0123456789")
    private static let path = "/v1/profiles/ann/experiments/checkout"
    private let server: any TestServer
    private let sdk = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]

    init() throws {
        server = try startTestServer(tokens: Self.tokens)
        let definition = #"{"id":"7001","variations":[{"key":"a","id":"70011"},{"key":"b","id":"70012"}]}"#
        let made = try server.request("PUT", "/v1/experiments/checkout", definition, token: Self.admin)
        #expect(made.status == 201, "\(made.text)")
    }

    private func post(_ path: String, _ body: String, token: String = ForcedDecisionTests.admin) throws -> TestResponse
    {
        try server.request("POST", path, body, token: token, fields: sdk)
    }

    private func save(_ variation: String, _ path: String = "/ups/save") throws -> Int {
        let body =
            path == "/ups/save"
            ? #"{"user_id":"ann","experiment_bucket_map":{"7001":{"variation_id":"\#(variation)"}}}"#
            : #"{"userId":"ann","experimentBucketMap":{"7001":{"variation_id":"\#(variation)"}}}"#
        return try post(path, body, token: Self.app).status
    }

    @Test func `A decision that the request forces enrolls nobody`() throws {
        let forced = #"{"flagKey":"checkout","ruleKey":"checkout","variationKey":"b"}"#
        let decided = try post("/v1/decide?keys=checkout", #"{"userId":"ann","forcedDecisions":[\#(forced)]}"#)
        #expect(decided["variationKey"] == "b", "\(decided.text)")
        #expect(try server.request("GET", Self.path, token: Self.admin).status == 404)
        server.stop()
    }

    @Test func `The scope write removes an assignment, never an override`() throws {
        #expect(try save("70012") == 200)
        #expect(try server.request("DELETE", Self.path, token: Self.app).status == 204)
        #expect(try server.request("DELETE", Self.path, token: Self.app).status == 404)
        #expect(try save("70012") == 200)
        let override = #"{"variation_key":"a"}"#
        #expect(try server.request("PUT", Self.path, override, token: Self.admin).status == 200)
        let refused = try server.request("DELETE", Self.path, token: Self.app)
        #expect(refused.status == 409 && refused["detail"].string?.contains("override") == true, "\(refused.text)")
        #expect(try server.request("DELETE", Self.path, token: Self.admin).status == 204)
        #expect(try server.request("GET", Self.path, token: Self.admin)["variation_key"] == "b")
        let stale = ["If-Match: \"0\""]
        #expect(try server.request("DELETE", Self.path, token: Self.app, fields: stale).status == 412)
        server.stop()
    }
}
