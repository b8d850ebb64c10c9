import APITestSupport
import JSON
import Testing

/// `/v1/users` and `/v1/whoami`: what a page needs to find users and to know what it may offer.
@Suite struct KnownUsersTests {
    private static let tokens = """
        admin boss boss-secret-0123456789
        read viewer viewer-secret-0123456789
        client app app-secret-0123456789
        """
    private let server: any TestServer

    init() throws {
        server = try startTestServer(tokens: Self.tokens)
    }

    private func ask(_ method: String, _ target: String, _ body: String? = nil, as name: String = "boss") throws
        -> TestResponse
    {
        try server.request(method, target, body, fields: ["Authorization: Bearer \(name)-secret-0123456789"])
    }

    @Test func `Users are found by the beginning of their ids, page by page`() throws {
        for user in ["ann", "anna", "anton", "bob"] {
            _ = try ask("PUT", "/v1/profiles/\(user)", #"{"user_id":"\#(user)","experiment_bucket_map":{}}"#)
        }
        #expect(try ask("PUT", "/v1/attributes/country", #"{"type":"country"}"#).status < 300)
        #expect(try ask("PATCH", "/v1/profiles/anders/attributes", #"{"country":"de"}"#).status < 300)
        func ids(_ query: String) throws -> [String?] {
            try ask("GET", "/v1/users\(query)")["users"].array?.map(\.["user_id"].string) ?? []
        }
        // Who has only attributes is known, too.
        #expect(try ids("?prefix=an") == ["anders", "ann", "anna", "anton"])
        #expect(try ids("") == ["anders", "ann", "anna", "anton", "bob"])
        let first = try ask("GET", "/v1/users?prefix=an&limit=2")
        #expect(first["next"] == "ann")
        #expect(try ids("?prefix=an&limit=2&after=ann") == ["anna", "anton"])
        #expect(try ask("GET", "/v1/users?prefix=an&limit=2&after=ann")["next"] == .null)
        #expect(try ids("?prefix=B") == [])
        #expect(try ask("GET", "/v1/users?prefix=%00").status == 400)
        #expect(try ask("GET", "/v1/users?limit=0").status == 400)
        #expect(try ask("GET", "/v1/users", as: "viewer").status == 403)
        server.stop()
    }

    @Test func `The users of the last exposures come first, each once`() throws {
        #expect(try ask("PUT", "/v1/experiments/checkout", #"{"variations":["a","b"]}"#).status == 201)
        #expect(try ask("PUT", "/v1/experiments/search", #"{"variations":["a","b"]}"#).status == 201)
        for (user, experiment) in [("ann", "checkout"), ("bob", "checkout"), ("ann", "search")] {
            let body = #"{"user_id":"\#(user)","experiment":"\#(experiment)","variation_key":"a"}"#
            #expect(try ask("POST", "/v1/exposures", body).status == 200)
        }
        let recent = try ask("GET", "/v1/users/recent")["users"].array ?? []
        #expect(recent.map(\.["user_id"].string) == ["ann", "bob"])
        #expect(recent.first?["experiment_key"] == "search")
        #expect(try ask("GET", "/v1/users/recent?limit=1")["users"].array?.count == 1)
        #expect(try ask("GET", "/v1/users/recent", as: "viewer").status == 403)
        server.stop()
    }

    @Test func `Everybody is told who they are and what they may do`() throws {
        let boss = try ask("GET", "/v1/whoami")
        #expect(boss["name"] == "boss" && boss["scope"] == "admin" && boss["projects"] == .null)
        #expect(boss["scopes"].array?.contains("admin") == true)
        #expect(try ask("GET", "/v1/whoami", as: "viewer")["scopes"] == ["read"])
        #expect(try ask("GET", "/v1/whoami", as: "app")["scopes"] == ["client"])
        #expect(try server.request("GET", "/v1/whoami").status == 401)
        #expect(!boss.text.contains("secret"))
        server.stop()
        let open = try startTestServer()
        let anybody = try open.request("GET", "/v1/whoami")
        #expect(anybody["name"] == "anonymous" && anybody["scope"] == .null)
        #expect(anybody["scopes"].array?.contains("admin") == true && anybody["approvals"] == 1)
        open.stop()
    }
}
