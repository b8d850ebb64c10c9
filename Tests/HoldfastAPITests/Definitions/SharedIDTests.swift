import APITestSupport
import JSON
import Testing

/// The id of an experiment or a holdout belongs to one project of a server, because users' assignments belong to ids.
@Suite struct SharedIDTests {
    private let server: any TestServer
    private static let all = "unbound-secret-0123456789"
    private static let bound = "bound-secret-0123456789"

    init() throws {
        server = try startTestServer(tokens: "admin all \(Self.all)\nadmin shop \(Self.bound) projects=shop\n")
        for key in ["stage", "shop"] { #expect(try ask("PUT", "/v1/projects/\(key)", "{}", "").status == 201) }
        let body = #"{"id":"7001","variations":[{"key":"a","id":"1"},{"key":"b","id":"2"}]}"#
        #expect(try ask("PUT", "/v1/experiments/checkout", body, "stage").status == 201)
    }

    @discardableResult
    private func ask(
        _ method: String, _ target: String, _ body: String? = nil, _ key: String = "shop", token: String = all
    ) throws -> TestResponse {
        try server.request(
            method, target, body, token: token, fields: key.isEmpty ? [] : ["X-Optimizely-SDK-Key: \(key)"])
    }

    private static let datafile = #"""
        {"version":"4","accountId":"1","projectId":"1","revision":"1","groups":[],"events":[],"attributes":[],
        "audiences":[],"typedAudiences":[],"featureFlags":[],"rollouts":[],"experiments":[{"id":"7001","key":"other",
        "status":"Running","layerId":"1","audienceIds":[],"forcedVariations":{},"variations":[{"id":"9","key":"x"}],
        "trafficAllocation":[{"entityId":"9","endOfRange":10000}]}]}
        """#
    private static let rule = datafile.replacing(#""rollouts":[]"#, with: #""rollouts":[{"id":"r","experiments":[]}]"#)
        .replacing(#/"experiments":\[\](.*)"experiments":(\[\{.*\}\])\}/#.dotMatchesNewlines()) {
            #""experiments":\#($0.output.2)\#($0.output.1)"experiments":[]}"#
        }

    /// Everything that adds an experiment or a holdout.
    private static let additions = [
        ("PUT", "/v1/experiments/checkout", #"{"id":"7001","variations":["x"]}"#),
        ("POST", "/v1/experiments/checkout/preview", #"{"id":"7001","variations":["x"]}"#),
        ("PUT", "/v1/flags/f", #"{"type":"boolean","rules":[{"key":"other","experiment":{"id":"7001"}}]}"#),
        ("POST", "/v1/flags/f/preview", #"{"type":"boolean","rules":[{"key":"other","experiment":{"id":"7001"}}]}"#),
        ("PUT", "/v1/definitions", #"{"experiments":[{"key":"mine","id":"7001","variations":["x"]}]}"#),
        ("POST", "/v1/definitions/preview", #"{"experiments":[{"key":"mine","id":"7001","variations":["x"]}]}"#),
        ("PUT", "/v1/datafile", datafile), ("PUT", "/v1/datafile", rule),
    ]

    @Test(arguments: additions)
    func `An id of another project is refused, archived or not`(
        method: String, target: String, body: String
    ) throws {
        for isArchived in [false, true] {
            if isArchived { #expect(try ask("DELETE", "/v1/experiments/checkout", nil, "stage").status == 204) }
            let before = try ask("GET", "/v1/definitions").text
            let refused = try ask(method, target, body)
            #expect(refused.status == 409, "\(refused.text)")
            #expect(refused["detail"].string?.contains("the project 'stage' has the id '7001'") == true)
            let unnamed = try ask(method, target, body, token: Self.bound)
            #expect(unnamed.status == 409 && !unnamed.text.contains("stage"), "\(unnamed.text)")
            #expect(try ask(method, "\(target)?share=allow", body, token: Self.bound).status == 403)
            #expect(try ask("GET", "/v1/definitions").text == before)
        }
        #expect(try ask(method, "\(target)?share=allow", body).status < 300)
    }

    @Test func `A bound token does not reach another project's users by an id`() throws {
        try ask("POST", "/v1/assign", #"{"user_id":"ann","experiment":"checkout"}"#, "stage")
        let profile = try ask("GET", "/v1/profiles/ann", nil, "").text
        let body = #"{"id":"7001","variations":[{"key":"a","id":"1"},{"key":"b","id":"2"}]}"#
        #expect(try ask("PUT", "/v1/experiments/mine", body, token: Self.bound).status == 409)
        for (method, body) in [("PUT", #"{"variation_id":"2"}"#), ("DELETE", nil), ("GET", nil)] {
            let refused = try ask(method, "/v1/profiles/ann/experiments/7001", body, token: Self.bound)
            #expect(refused.status == 403, "\(refused.text)")
        }
        #expect(try ask("GET", "/v1/experiments/mine/results?goal=g", token: Self.bound).status == 404)
        #expect(try ask("GET", "/v1/profiles/ann", nil, "").text == profile)
    }

    @Test func `What is shared already stays, and goes on being edited`() throws {
        #expect(try ask("PUT", "/v1/datafile?share=allow", Self.datafile).status < 300)
        #expect(
            try ask("PUT", "/v1/datafile", Self.datafile.replacing("\"revision\":\"1\"", with: "\"revision\":\"2\""))
                .status < 300)
        #expect(try ask("PUT", "/v1/experiments/other", #"{"traffic":50}"#).status == 200)
        #expect(try ask("PUT", "/v1/experiments/checkout", #"{"traffic":50}"#, "stage").status == 200)
    }

    @Test func `Equal keys in two projects have ids of their own`() throws {
        for key in ["stage", "shop"] {
            let set = #"""
                {"experiments":[{"key":"menu","variations":["a","b"],"group":"g"}],"holdouts":[{"key":"h","share":5}],
                "flags":[{"key":"f","type":"boolean","rules":[{"audience":{"name":"age","value":3},"variation":"on"},
                {"key":"t","experiment":{"traffic":50}}]}]}
                """#
            #expect(try ask("PUT", "/v1/definitions", set, key).status == 200)
        }
        let ids = try ["stage", "shop"].map { try ask("GET", "/v1/holdouts/h", nil, $0)["id"].string ?? "" }
        #expect(Set(ids).count == 2)
        // Made again, a holdout keeps out the same users.
        #expect(try ask("DELETE", "/v1/holdouts/h").status == 204)
        #expect(try ask("PUT", "/v1/holdouts/h", #"{"share":5}"#)["id"].string == ids[1])
    }

    @Test func `Within a project an id stays free once nothing has it`() throws {
        #expect(
            try ask("PUT", "/v1/datafile?moves=allow", Self.datafile.replacing("7001", with: "7002"), "stage").status
                < 300)
        #expect(try ask("PUT", "/v1/experiments/mine", #"{"id":"7001","variations":["x"]}"#).status == 201)
    }
}
