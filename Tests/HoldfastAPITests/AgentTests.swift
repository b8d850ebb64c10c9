import APITestSupport
import JSON
import Testing

/// The API of Optimizely Agent.
@Suite struct AgentTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    private func putDatafile() throws {
        let response = try server.request("PUT", "/v1/datafile", AgentSamples.datafile, fields: AgentSamples.fields)
        #expect(response.status == 201)
    }

    private func post(_ target: String, _ body: String) throws -> TestResponse {
        try server.request("POST", target, body, fields: AgentSamples.fields)
    }

    /// The variation of the experiment `checkout`.
    private func variation(of user: String) throws -> String? {
        let response = try post("/v1/activate?experimentKey=checkout", #"{"userId":"\#(user)"}"#)
        return response.json.array?.first?["variationKey"].string
    }

    @Test(arguments: ["7-a", ""]) func `A datafile is refused whose ids no profile can hold`(id: String) throws {
        let datafile = AgentSamples.datafile.replacing("\"id\":\"7\"", with: "\"id\":\"\(id)\"")
        let response = try server.request("PUT", "/v1/datafile", datafile, fields: AgentSamples.fields)
        #expect(response.status == 400)
        #expect(response["detail"].string?.contains("checkout") == true)
        server.stop()
    }

    @Test(arguments: [("POST", "/v1/send-odp-event"), ("GET", "/v1/notifications/event-stream")])
    func `What this server does not have is not implemented, as the Agent would say it`(
        method: String, target: String
    ) throws {
        try putDatafile()
        let body = method == "POST" ? #"{"action":"any"}"# : nil
        let response = try server.request(method, target, body, fields: AgentSamples.fields)
        #expect(response.status == 501)
        #expect(response.json.object?.members.map(\.key) == ["error"])
        server.stop()
    }

    @Test func `What was forced for a user is gone when the erasure is answered`() throws {
        try putDatafile()
        for user in (0..<10).map({ "eva\($0)" }) {
            let body = #"{"userId":"\#(user)","experimentKey":"checkout","variationKey":"new"}"#
            #expect(try post("/v1/override", body).status == 200)
            #expect(try server.request("DELETE", "/v1/profiles/\(user)").status == 200)
            #expect(try variation(of: user) == "control")
        }
        server.stop()
    }

    @Test func `A decision that ignores stored assignments uses overrides, and stores nothing`() throws {
        // It gives `control` to everyone.
        let flag = #""featureFlags":[{"id":"5","key":"pay","rolloutId":"","experimentIds":["7"],"variables":[]}]"#
        let datafile = AgentSamples.datafile.replacing(#""featureFlags":[]"#, with: flag)
        #expect(try server.request("PUT", "/v1/datafile", datafile, fields: AgentSamples.fields).status == 201)
        func decide(_ user: String) throws -> JSONValue {
            let body = #"{"userId":"\#(user)","decideOptions":["IGNORE_USER_PROFILE_SERVICE"]}"#
            return try post("/v1/decide?keys=pay", body)["variationKey"]
        }
        #expect(try server.request("POST", "/ups/save", profile("ada", ["7": "72"])).status == 200)
        #expect(try decide("ada") == "control")
        #expect(try variation(of: "ada") == "new")
        #expect(try decide("bob") == "control")
        #expect(try server.request("GET", "/v1/profiles/bob").status == 404)
        #expect(try server.request("PUT", "/v1/profiles/bob/experiments/7", #"{"variation_id":"72"}"#).status == 200)
        #expect(try decide("bob") == "new")
        server.stop()
    }

    @Test func `Each operation of a batch needs its own scope`() throws {
        let tokens = "write app write-secret-0123456789\nadmin on-call admin-secret-0123456789\n"
        let server = try startTestServer(tokens: tokens)
        let admin = "admin-secret-0123456789"
        #expect(
            try server.request("PUT", "/v1/datafile", AgentSamples.datafile, token: admin, fields: AgentSamples.fields)
                .status == 201)
        func batch(_ authorization: String) -> String {
            let headers =
                #"{"X-Optimizely-SDK-Key":"tests","Content-Type":"application/json"\#(authorization)}"#
            return #"""
                {"operations":[{"method":"POST","url":"/v1/override","operationID":"1","headers":\#(headers),
                "body":{"userId":"eva","experimentKey":"checkout"}},
                {"method":"GET","url":"/v1/config","operationID":"2","headers":\#(headers)}]}
                """#
        }
        func statuses(_ body: String, token: String) throws -> [JSONValue] {
            let response = try server.request("POST", "/v1/batch", body, token: token)
            return response["response"].array?.map { $0["status"] } ?? []
        }
        #expect(try statuses(batch(""), token: "write-secret-0123456789") == [403, 200])
        #expect(try statuses(batch(""), token: admin) == [200, 200])
        let own = batch(#","authorization":"Bearer \#(admin)""#)
        #expect(try statuses(own, token: "write-secret-0123456789") == [200, 200])
        #expect(try statuses(batch(#","authorization":"Bearer x""#), token: admin) == [401, 401])
        server.stop()
    }
}
