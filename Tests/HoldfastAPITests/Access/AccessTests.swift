import APITestSupport
import JSON
import Testing

/// Which scope each route needs, and how a request without it is refused.
@Suite struct AccessTests {
    private static let tokens = """
        # scope name secret
        read dashboard read-secret-0123456789
        write app write-secret-0123456789
        admin on-call admin-secret-0123456789

        """

    private let server: any TestServer

    init() throws {
        server = try startTestServer(tokens: Self.tokens)
    }

    private static let open = ["GET /livez", "GET /readyz", "GET /health", "GET /info", "GET /openapi.json"]
    private static let needsRead = [
        "GET /metrics", "GET /v1/profiles/ada", "GET /v1/profiles/ada/experiments/1",
        "POST /v1/profiles/lookup", "GET /ups/lookup?user_id=ada", "POST /ups/lookup",
    ]
    private static let needsWrite = [
        "POST /v1/profiles", "PUT /v1/profiles/ada", "PATCH /v1/profiles/ada", "POST /ups/save", "GET /ups/save",
        "DELETE /v1/profiles/ada/experiments/1",
    ]
    private static let needsAdmin = [
        "GET /v1/profiles", "DELETE /v1/profiles/ada", "PUT /v1/profiles/ada/experiments/1",
    ]

    @Test(arguments: open)
    func `What says nothing of users needs no token`(route: String) throws {
        #expect(try status(route, nil) == 200)
    }

    @Test(
        arguments: needsRead.map { ($0, "read") } + needsWrite.map { ($0, "write") } + needsAdmin.map { ($0, "admin") })
    func `A route is for its scope and those above`(route: String, needed: String) throws {
        let scopes = ["read", "write", "admin"]
        for scope in scopes {
            let isAllowed = scopes.firstIndex(of: scope) ?? 0 >= scopes.firstIndex(of: needed) ?? 0
            let status = try status(route, "\(scope)-secret-0123456789")
            #expect((status == 403) == !isAllowed, "\(scope) gets \(status)")
            #expect(status != 401)
        }
        #expect(try status(route, nil) == 401)
        #expect(try status(route, "read-secret-012345678x") == 401)
        #expect(try status(route, "") == 401)
    }

    @Test(arguments: [
        ("GET", "/v1/profiles/ada"), ("POST", "/ups/lookup"), ("POST", "/v1/decide"), ("GET", "/v1/config"),
        ("POST", "/ofrep/v1/evaluate/flags"), ("POST", "/get_evaluations"), ("GET", "/datafiles/default.json"),
        ("POST", "/sdk/v1/events"), ("GET", "/metrics"),
    ])
    func `Every protocol takes the secret in X-API-Key, too`(method: String, target: String) throws {
        #expect(try server.request(method, target, "{}").status == 401)
        #expect(try server.request(method, target, "{}", fields: ["X-API-Key: "]).status == 401)
        let unknown = try server.request(method, target, "{}", fields: ["X-API-Key: nobody-has-this-secret"])
        #expect([401, 403].contains(unknown.status))
        let known = try server.request(method, target, "{}", fields: ["X-API-Key: write-secret-0123456789"])
        #expect(![401, 403].contains(known.status), "\(known.text)")
    }

    // An operation that is admitted lacks the SDK key: 400.
    @Test func `An operation of a batch has the key of the batch, or its own`() throws {
        func statuses(_ headers: String) throws -> [Double?]? {
            let operation =
                #"{"operationID":"1","method":"GET","url":"/v1/config","headers":{\#(headers)}}"#
            return try server.request(
                "POST", "/v1/batch", #"{"operations":[\#(operation)]}"#,
                fields: ["X-API-Key: write-secret-0123456789", "Content-Type: application/json"]
            )["response"].array?.map { $0["status"].double }
        }
        #expect(try statuses("") == [400])
        #expect(try statuses(#""X-API-Key":"nobody-has-this-secret""#) == [401])
        #expect(try statuses(#""X-API-Key":"read-secret-0123456789""#) == [400])
    }

    @Test func `Of two secrets of one name the expired one is refused, and the response says why`() throws {
        let server = try startTestServer(
            tokens: "read app 0123456789abcdef expires=2020-02-03\nread app fedcba9876543210 expires=9999-12-31\n")
        let refused = try server.request("GET", "/v1/profiles/ada", token: "0123456789abcdef")
        #expect(refused.status == 401)
        #expect(
            refused["detail"]
                == "the secret must not have expired; this one of the token 'app' expired at 2020-02-03T00:00:00.000Z")
        #expect(refused.field("www-authenticate")?.contains("error=\"invalid_token\"") == true)
        #expect(try server.request("GET", "/v1/profiles/ada", token: "fedcba9876543210").status == 404)
        server.stop()
    }

    @Test func `A refusal says how to ask and not what the secret is`() throws {
        let unknown = try server.request("GET", "/v1/profiles/ada", token: "not-the-secret-of-anybody")
        #expect(unknown.status == 401)
        #expect(unknown.field("www-authenticate")?.hasPrefix("Bearer") == true)
        #expect(unknown.field("www-authenticate")?.contains("error=\"invalid_token\"") == true)
        #expect(unknown.field("content-type") == "application/problem+json")
        #expect(try server.request("GET", "/v1/config")["error"].string?.contains("token is required") == true)
        let weak = try server.request("DELETE", "/v1/profiles/ada", token: "read-secret-0123456789")
        #expect(weak.status == 403)
        #expect(weak["detail"].string?.contains("dashboard") == true)
        for text in [unknown.text, weak.text] { #expect(!text.contains("secret")) }
    }

    private func status(_ route: String, _ token: String?) throws -> Int {
        let words = route.split(separator: " ").map(String.init)
        // A connection of its own, as a refused request may end one.
        return try server.request(words[0], words[1], token: token).status
    }
}
