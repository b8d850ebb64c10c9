import APITestSupport
import JSON
import Testing

/// Who may move whom, on every route that names two users: nobody but an admin makes an override.
@Suite struct TakeoverTests {
    private static let anonymous = "anonymous-9f1c2d6e-7a4b-4c3d-8e2f-0123456789ab"
    private static let scopes = ["client", "read", "write", "admin"]
    private static let fields = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]

    private let server: any TestServer

    init() throws {
        server = try startTestServer(
            tokens: Self.scopes.map { "\($0) the-\($0)-token \(Self.secret($0))\n" }.joined())
        let definition = #"{"variations":["control","new"]}"#
        #expect(try ask("PUT", "/v1/experiments/checkout", definition, by: "admin").status == 201)
    }

    private static func secret(_ scope: String) -> String { "\(scope)-secret-0123456789" }

    private func ask(_ method: String, _ target: String, _ body: String? = nil, by scope: String) throws -> TestResponse
    {
        let fields = target.hasPrefix("/v1/decide") || target.hasPrefix("/v1/batch") ? Self.fields : []
        return try server.request(method, target, body, token: Self.secret(scope), fields: fields)
    }

    private func override(_ user: String, _ variation: String) throws {
        let body = #"{"variation_key":"\#(variation)"}"#
        #expect(try ask("PUT", "/v1/profiles/\(user)/experiments/checkout", body, by: "admin").status == 200)
    }

    private func assignment(_ user: String) throws -> JSONValue {
        try ask("GET", "/v1/profiles/\(user)/experiments/checkout", by: "read").json
    }

    /// The requests that take over what another id has, as a client sends them.
    private static func takeovers(_ user: String, from id: String) -> [(method: String, target: String, body: String?)]
    {
        let decide = #"{"userId":"\#(user)","anonymous_id":"\#(id)"}"#
        return [
            ("POST", "/v1/assign", #"{"user_id":"\#(user)","anonymous_id":"\#(id)","experiment":"checkout"}"#),
            ("POST", "/v1/assign", #"[{"user_id":"\#(user)","anonymous_id":"\#(id)","experiment":"checkout"}]"#),
            ("GET", "/v1/assign?user_id=\(user)&anonymous_id=\(id)&experiment=checkout", nil),
            ("POST", "/v1/evaluations", #"{"user_id":"\#(user)","anonymous_id":"\#(id)"}"#),
            ("POST", "/v1/decide", decide),
            ("POST", "/v1/decide", decide.replacing("anonymous_id", with: "anonymousId")),
            (
                "POST", "/v1/batch",
                #"{"operations":[{"method":"POST","url":"/v1/decide","operationID":"1","body":\#(decide),"headers":{"#
                    + #""X-Optimizely-SDK-Key":"default","Content-Type":"application/json"}}]}"#
            ),
            ("POST", "/v1/logins", #"{"user_id":"\#(user)","anonymous_id":"\#(id)"}"#),
            ("POST", "/v1/profiles/\(user)/merge", #"{"from":"\#(id)"}"#),
        ]
    }

    @Test(arguments: 0..<9) func `No route makes an override of another id's override`(route: Int) throws {
        for (index, variation) in ["control", "new"].enumerated() {
            try override(Self.anonymous, variation)
            let request = Self.takeovers("user\(index)", from: Self.anonymous)[route]
            let scope = request.target.hasSuffix("/merge") ? "write" : "client"
            #expect(try ask(request.method, request.target, request.body, by: scope).status == 200)
            let source = try assignment("user\(index)")["source"]
            #expect(source != "override", "\(request.target)")
        }
        server.stop()
    }

    @Test(arguments: 0..<9) func `No route moves an account, or takes it out of results`(route: Int) throws {
        let own = try ask("POST", "/v1/assign", #"{"user_id":"ada","experiment":"checkout"}"#, by: "client")
        let exposure = #"{"user_id":"ada","experiment":"checkout"}"#
        #expect(try ask("POST", "/v1/exposures", exposure, by: "client").status == 200)
        let before = try ask("GET", "/v1/profiles/ada?detail=true", by: "read").text
        try override(Self.anonymous, own["variation_key"] == "new" ? "control" : "new")
        let request = Self.takeovers("ada", from: Self.anonymous)[route]
        let scope = request.target.hasSuffix("/merge") ? "write" : "client"
        #expect(try ask(request.method, request.target, request.body, by: scope).status == 200)
        #expect(try ask("GET", "/v1/profiles/ada?detail=true", by: "read").text == before)
        let again = try ask("POST", "/v1/assign", #"{"user_id":"ada","experiment":"checkout"}"#, by: "client")
        #expect(again["variation_key"] == own["variation_key"])
        let results = try ask("GET", "/v1/experiments/checkout/results?goal=g", by: "read")
        #expect(results["variations"].array?.compactMap { $0["users"].double }.reduce(0, +) == 1, "\(results.text)")
        server.stop()
    }

    @Test(arguments: 0..<7) func `A client names only ids that nobody can guess`(route: Int) throws {
        #expect(try ask("POST", "/ups/save", profile("bob", ["7": "1"]), by: "write").status == 200)
        let request = Self.takeovers("ada", from: "bob")[route]
        let refused = try ask(request.method, request.target, request.body, by: "client")
        let detail = "`anonymous_id` must be 'anonymous-' and a random UUID (version 4); got 'bob'"
        #expect(refused.text.contains(detail), "\(request.target): \(refused.text)")
        if !request.target.hasSuffix("batch"), request.body?.hasPrefix("[") != true { #expect(refused.status == 400) }
        #expect(try ask("GET", "/v1/profiles/ada", by: "read").status == 404)
        // Whoever may read all profiles anyway may name any.
        #expect(try !ask(request.method, request.target, request.body, by: "write").text.contains(detail))
        if request.method == "GET" {
            #expect(try ask(request.method, request.target, by: "read").status == 200)
        }
        server.stop()
    }

    @Test func `What is taken over from beneath an override is merged, with its time`() throws {
        let saved = try ask(
            "POST", "/v1/assign", #"{"user_id":"\#(Self.anonymous)","experiment":"checkout"}"#, by: "client")
        let first = try assignment(Self.anonymous)
        try override(Self.anonymous, saved["variation_key"] == "new" ? "control" : "new")
        let body = #"{"user_id":"ada","anonymous_id":"\#(Self.anonymous)","experiment":"checkout"}"#
        let taken = try ask("POST", "/v1/assign", body, by: "client")
        #expect(taken["variation_key"] == saved["variation_key"] && taken["source"] == "stored")
        #expect(try assignment("ada")["source"] == "merged")
        #expect(try assignment("ada")["assigned_at"] == first["assigned_at"])
        server.stop()
    }
}
