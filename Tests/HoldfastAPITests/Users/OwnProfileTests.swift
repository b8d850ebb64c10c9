import APITestSupport
import JSON
import Testing

/// A device loads and saves its own profile, and nobody else's.
@Suite struct OwnProfileTests {
    private static let anonymous = "anonymous-9f1c2d6e-7a4b-4c3d-8e2f-0123456789ab"

    private let server: any TestServer

    init() throws {
        server = try startTestServer(
            tokens: ["client", "read", "write", "admin"].map { "\($0) the-\($0)-token \(Self.secret($0))\n" }.joined())
        #expect(
            try ask("PUT", "/v1/experiments/checkout", #"{"id":"7001","variations":["a","b"]}"#, by: "admin") == 201)
    }

    private static func secret(_ scope: String) -> String { "\(scope)-secret-0123456789" }

    private func ask(_ method: String, _ target: String, _ body: String? = nil, by scope: String) throws -> Int {
        try server.request(method, target, body, token: Self.secret(scope)).status
    }

    /// What a device sends for a user, by each way.
    private static func requests(_ user: String) -> [(String, String, String?)] {
        let map = #"{"user_id":"\#(user)","experiment_bucket_map":{"7001":{"variation_id":"70012"}}}"#
        let query = "user_id=\(user)&experiment_bucket_map=%7B%227001%22:%7B%22variation_id%22:%2270012%22%7D%7D"
        return [
            ("PATCH", "/v1/profiles/\(user)", map), ("PATCH", "/v1/profiles/\(user)?on_conflict=keep", map),
            ("POST", "/ups/save", map), ("GET", "/ups/save?\(query)", nil),
            ("GET", "/v1/profiles/\(user)", nil), ("POST", "/v1/profiles/lookup", #"{"user_ids":["\#(user)"]}"#),
            ("POST", "/ups/lookup", #"{"user_id":"\#(user)"}"#), ("GET", "/ups/lookup?user_id=\(user)", nil),
        ]
    }

    @Test func `A token of scope client uses the profile of an id that nobody can guess`() throws {
        for (method, target, body) in Self.requests(Self.anonymous) {
            #expect(try ask(method, target, body, by: "client") == 200, "\(method) \(target)")
        }
        let profile = try server.request(
            "GET", "/v1/profiles/\(Self.anonymous)", token: Self.secret("client"))
        #expect(profile["experiment_bucket_map"]["7001"]["variation_id"] == "70012")
    }

    @Test(arguments: ["ada", "anonymous-1", "anonymous-9f1c2d6e-7a4b-1c3d-8e2f-0123456789ab"])
    func `It uses nobody else's`(user: String) throws {
        for (method, target, body) in Self.requests(user) {
            #expect(try ask(method, target, body, by: "client") == 403, "\(method) \(target)")
        }
        #expect(try ask("GET", "/v1/profiles/\(user)", by: "read") == 404)
        let mixed = #"{"user_ids":["\#(Self.anonymous)","\#(user)"]}"#
        #expect(try ask("POST", "/v1/profiles/lookup", mixed, by: "client") == 403)
    }

    @Test func `Overrides stay the admin's, and what names admins stays hidden`() throws {
        let target = "/v1/profiles/\(Self.anonymous)"
        let override = "\(target)/experiments/checkout"
        #expect(try ask("PUT", override, #"{"variation_key":"a"}"#, by: "client") == 403)
        #expect(try ask("PUT", override, #"{"variation_key":"a"}"#, by: "admin") == 200)
        for (method, target, body) in Self.requests(Self.anonymous) {
            #expect(try ask(method, target, body, by: "client") == 200)
        }
        let shown = try server.request("GET", override, token: Self.secret("read"))
        #expect(shown["source"] == "override" && shown["variation_key"] == "a")
        #expect(try ask("GET", "\(target)?detail=true", by: "client") == 403)
        for method in ["PUT", "DELETE"] {
            #expect(try ask(method, target, #"{"experiment_bucket_map":{}}"#, by: "client") == 403)
        }
        #expect(try ask("POST", "\(target)/merge", #"{"from":"ada"}"#, by: "client") == 403)
        #expect(try ask("POST", "/v1/profiles", #"{"user_id":"\#(Self.anonymous)"}"#, by: "client") == 403)
    }
}
