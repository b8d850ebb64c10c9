import APITestSupport
import JSON
import Testing

/// Tokens that are bound to projects: `projects=KEY,KEY` in the token file.
@Suite struct ProjectTokenTests {
    private let server: any TestServer

    private static let scopes = ["client", "read", "write", "attributes", "admin"]
    /// Occurs in what the project has that the tokens are not bound to, and in no request of theirs.
    private static let unseen = "unseen"

    init() throws {
        let tokens = Self.scopes.map { "\($0) the-\($0) \($0)-secret-0123456789 projects=shop\n" }.joined()
        server = try startTestServer(
            tokens: tokens + "admin all \(Self.all)\nadmin two \(Self.two) projects=shop,hidden-app\n")
        for (method, target, body, key) in [
            ("PUT", "/v1/projects/hidden-app", "{}", nil), ("PUT", "/v1/projects/shop", "{}", nil),
            ("PUT", "/v1/experiments/hiddentest", #"{"variations":["unseen-a","unseen-b"]}"#, "hidden-app"),
            ("PUT", "/v1/metrics/unseen-metric", #"{"kind":"total","goal":"unseen-goal"}"#, "hidden-app"),
            ("PUT", "/v1/experiments/checkout", #"{"variations":["a","b"]}"#, "shop"),
            ("POST", "/v1/assign", #"{"user_id":"eve","experiment":"hiddentest"}"#, "hidden-app"),
            ("POST", "/v1/exposures", #"{"user_id":"eve","experiment":"hiddentest"}"#, "hidden-app"),
            ("POST", "/v1/assign", #"{"user_id":"eve","experiment":"checkout"}"#, "shop"),
            ("POST", "/v1/exposures", #"{"user_id":"eve","experiment":"checkout"}"#, "shop"),
            ("POST", "/v1/assign", #"{"user_id":"ada","experiment":"checkout"}"#, "shop"),
            ("POST", "/v1/exposures", #"{"user_id":"ada","experiment":"checkout"}"#, "shop"),
        ] as [(String, String, String, String?)] {
            #expect(try ask(method, target, body, key: key).status < 300, "\(target)")
        }
    }

    private static let all = "unbound-secret-0123456789"
    private static let two = "two-secret-0123456789"
    private static func secret(_ scope: String) -> String { "\(scope)-secret-0123456789" }

    private func ask(
        _ method: String, _ target: String, _ body: String? = nil, key: String? = nil, token: String = all
    ) throws -> TestResponse {
        try server.request(
            method, target, body, token: token, fields: key.map { ["X-Optimizely-SDK-Key: \($0)"] } ?? [])
    }

    /// The definitions, history, users and events of the other project, as an admin of all sees them.
    private func state() throws -> [String] {
        try [
            "/v1/definitions", "/v1/datafile/history", "/v1/projects/hidden-app",
            "/v1/experiments/hiddentest/results?goal=unseen-goal", "/v1/profiles/eve",
        ].map { try ask("GET", $0, key: "hidden-app").text } + [try ask("GET", "/v1/segments").text]
    }

    @Test func `Over no route does a bound token see or change another project`() throws {
        let examples = ExampleRequest.all(in: try server.request("GET", "/openapi.json").json)
        let before = try state().map(Self.withoutTimes)
        for example in examples where example.scope != nil {
            for scope in Self.scopes {
                // The other project is named by the header, in the path, in the body and in the query, as far as there is
                // a place.
                let path = example.target.replacing("checkout", with: "hiddentest")
                for target in Set([example.target, path, Self.naming(example.path, example.target)]) {
                    let body = example.body?.replacing(#""sdk_key":"default""#, with: #""sdk_key":"hidden-app""#)
                        .replacing("checkout", with: "hiddentest")
                    for fields in [[], ["X-Optimizely-SDK-Key: hidden-app"]] {
                        let kept = example.fields.filter { !$0.hasPrefix("X-Optimizely-SDK-Key") || fields.isEmpty }
                        let response = try server.stream(
                            example.method, target, body, token: Self.secret(scope), fields: kept + fields)
                        guard response.head.status < 300 || example.method == "GET" else { continue }
                        guard response.head.field("content-type")?.contains("event-stream") != true else { continue }
                        var text = ""
                        while let chunk = try response.receiveChunk() { text += chunk }
                        #expect(
                            !text.contains(Self.unseen),
                            "\(scope): \(example.method) \(target) \(text.prefix(300))")
                    }
                }
            }
        }
        for (after, before) in zip(try state().map(Self.withoutTimes), before) { #expect(after == before) }
    }

    /// The target with the other project's key wherever the path names a project.
    private static func naming(_ path: String, _ target: String) -> String {
        if path.contains("{sdk_key}") { return path.replacing("{sdk_key}", with: "hidden-app") }
        return target + (target.contains("?") ? "&" : "?") + "sdk_key=hidden-app"
    }

    private static func withoutTimes(_ text: String) -> String {
        text.replacing(#/"as_of":"[^"]*"|"computed_at":"[^"]*"/#, with: "")
    }

    @Test func `Another project is refused with its name, and one's own goes without saying`() throws {
        let refused = try ask("GET", "/v1/experiments", key: "hidden-app", token: Self.secret("read"))
        #expect(refused.status == 403)
        #expect(
            refused["detail"] == "the token is bound to the projects shop; it may not use the project 'hidden-app'")
        // The default project is another one, but this token can only mean its own.
        let own = try ask("GET", "/v1/experiments", token: Self.secret("read"))
        #expect(own["experiments"].array?.map { $0["key"] } == ["checkout"])
        #expect(try ask("GET", "/v1/experiments/checkout", token: Self.secret("admin")).status == 200)
        #expect(
            try ask("PUT", "/v1/experiments/menu", #"{"variations":["a"]}"#, token: Self.secret("admin")).status == 201)
        #expect(try ask("GET", "/v1/experiments/menu", key: "shop").status == 200)
        // With two projects, the default one is meant.
        let two = try ask("GET", "/v1/experiments", token: Self.two)
        #expect(two["experiments"].array?.map { $0["key"] } == ["hiddentest"])
    }

    @Test func `Lists and streams have the token's projects only`() throws {
        let listed = try ask("GET", "/v1/projects", token: Self.secret("read"))
        #expect(listed["projects"].array?.map { $0["sdk_key"] } == ["shop"])
        let stream = try server.stream("GET", "/v1/changes", nil, token: Self.secret("client"), fields: [])
        #expect(try stream.receiveChunk()?.contains("hidden-app") == false)
        let exposures = try ask("GET", "/v1/profiles/eve/exposures", token: Self.secret("read"))
        #expect(exposures["exposures"].array?.map { $0["experiment_key"] } == ["checkout"])
    }

    @Test(arguments: [
        ("GET", "/v1/audit"), ("GET", "/v1/feed"), ("GET", "/v1/exposures"), ("GET", "/v1/events"),
        ("GET", "/v1/profiles"), ("GET", "/v1/users"), ("GET", "/v1/users/recent"), ("GET", "/v1/tokens"),
        ("GET", "/v1/profiles/ada/export"), ("GET", "/metrics"),
        ("DELETE", "/v1/profiles/ada"), ("PUT", "/v1/attributes/plan"), ("PUT", "/v1/segments/vip"),
        ("GET", "/v1/profiles/ada/attributes"), ("GET", "/v1/segments/vip/users"),
    ])
    func `What concerns all projects needs a token for all`(method: String, target: String) throws {
        let refused = try ask(method, target, "{}", token: Self.secret("admin"))
        #expect(refused.status == 403)
        #expect(
            refused["detail"]
                == "a token for all projects is required; the token 'the-admin' is bound to the projects shop")
    }

    @Test func `Users are shared by all projects`() throws {
        let saved = try ask("POST", "/ups/save", profile("bob", ["11": "1"]), token: Self.secret("write"))
        #expect(saved.status == 200)
        #expect(try ask("GET", "/v1/profiles/bob", token: Self.secret("read")).status == 200)
    }

    @Test func `An admin of one project changes it, and neither another one's override nor the default project`() throws
    {
        let admin = Self.secret("admin")
        let other = "/v1/profiles/eve/experiments/hiddentest"
        #expect(try ask("PUT", other, #"{"variation_key":"unseen-a"}"#, token: admin).status == 403)
        let own = "/v1/profiles/ada/experiments/checkout"
        #expect(try ask("PUT", own, #"{"variation_key":"a"}"#, token: admin).status == 200)
        #expect(try ask("PUT", "/v1/projects/shop", #"{"name":"Shop"}"#, token: admin).status == 200)
        #expect(try ask("PUT", "/v1/projects/shop", #"{"default":true}"#, token: admin).status == 403)
        #expect(try ask("PUT", "/v1/projects/third", "{}", token: admin).status == 403)
        let set = #"{"attributes":[{"name":"plan","type":"string"}]}"#
        let refused = try ask("PUT", "/v1/definitions", set, token: admin)
        #expect(refused.status == 403, "\(refused.text)")
        #expect(try ask("PUT", "/v1/definitions", #"{"flags":[]}"#, token: admin).status == 200)
    }

    @Test func `The list of tokens has projects and last use, and no secret`() throws {
        #expect(try ask("GET", "/v1/projects", token: Self.secret("read")).status == 200)
        let list = try ask("GET", "/v1/tokens")
        let tokens = list["tokens"].array ?? []
        #expect(tokens.count == 7)
        #expect(!list.text.contains("secret"))
        let reader = try #require(tokens.first { $0["name"] == "the-read" })
        #expect(reader["scope"] == "read" && reader["projects"] == ["shop"] && reader["expires_at"] == .null)
        #expect(reader["last_used_at"].string != nil)
        #expect(tokens.first { $0["name"] == "the-write" }?["last_used_at"] == .null)
        #expect(tokens.first { $0["name"] == "all" }?["projects"] == .null)
    }
}
