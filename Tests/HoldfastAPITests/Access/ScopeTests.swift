import APITestSupport
import Foundation
import JSON
import Testing

/// Every route in the published description (`OpenAPITests` compares it with the route table), requested with every kind
/// of token.
@Suite struct ScopeTests {
    /// The tokens that may call what needs a scope.
    private static let allowed = [
        "any": scopes, "client": ["client", "write", "admin"],
        "read": ["read", "write", "attributes", "admin"], "write": ["write", "admin"],
        "attributes": ["attributes", "admin"], "edge": ["edge", "admin"], "admin": ["admin"],
        "definitions": ["definitions", "admin"], "export": ["export", "admin"], "metrics": ["metrics", "admin"],
    ]
    private static let scopes = [
        "client", "read", "write", "attributes", "definitions", "export", "metrics", "edge", "admin",
    ]

    private let server: any TestServer
    private let examples: [ExampleRequest]

    init() throws {
        let tokens = Self.scopes.map { "\($0) the-\($0)-token \(Self.secret($0))\n" }.joined()
        server = try startTestServer(tokens: tokens)
        examples = ExampleRequest.all(in: try server.request("GET", "/openapi.json").json)
        for (method, target, body) in [
            ("PUT", "/v1/experiments/checkout", #"{"variations":["control","new"]}"#),
            ("POST", "/ups/save", profile("ada", ["11": "1", "22": "2"])),
        ] {
            #expect(try server.request(method, target, body, token: Self.secret("admin")).status < 300)
        }
    }

    private static func secret(_ scope: String) -> String { "\(scope)-secret-0123456789" }

    @Test func `Each route is for its scope and those above, and for nobody else`() throws {
        #expect(examples.count > 30)
        for example in examples {
            guard example.scope != nil else {
                #expect(try status(example, nil) < 400, "\(example.target)")
                continue
            }
            #expect(try status(example, nil) == 401, "\(example.method) \(example.target)")
            // Bucketeer's SDKs tell an unknown key from a missing one.
            let refusal = example.operation["tags"] == ["bucketeer"] ? 403 : 401
            #expect(try status(example, "admin-secret-012345678X") == refusal, "\(example.method) \(example.target)")
            let allowed = try example.scopes.flatMap { scope in
                try #require(Self.allowed[scope], "the scope \(scope) of \(example.target) is not known")
            }
            for token in Self.scopes {
                let status = try status(example, Self.secret(token))
                #expect(
                    (status == 403) == !allowed.contains(token),
                    "\(token): \(example.method) \(example.target) \(status)")
                #expect(status != 401, "\(token): \(example.method) \(example.target)")
            }
        }
    }

    @Test func `A token for clients can do only what the manual says`() throws {
        let allowed = examples.filter { $0.scope == "client" || $0.scope == "any" }
            .map { "\($0.method) \($0.path)" }.sorted()
        #expect(
            allowed == [
                "DELETE /v1/profiles/{user_id}/attributes", "GET /datafiles/{sdk_key}.json", "GET /ofrep/v1/changes",
                "GET /sub/{client_key}", "GET /v1/assign", "GET /v1/changes", "GET /v1/whoami",
                "PATCH /v1/profiles/{user_id}/attributes",
                "POST /api/eval/{client_key}", "POST /get_evaluation", "POST /get_evaluations",
                "POST /ofrep/v1/evaluate/flags",
                "POST /ofrep/v1/evaluate/flags/{key}", "POST /predict/{rule_id}", "POST /register_events",
                "POST /sdk/v1/events",
                "POST /segment/v1/batch",
                "POST /v1/activate", "POST /v1/assign", "POST /v1/batch", "POST /v1/decide", "POST /v1/evaluations",
                "POST /v1/evaluations/counts", "POST /v1/events", "POST /v1/exposures", "POST /v1/logins",
                "POST /v1/profiles/attributes", "POST /v1/send-odp-event", "POST /v1/track",
            ])
    }

    @Test(arguments: [
        (
            "definitions",
            [
                "GET /openfeature/v0/manifest", "GET /v1/attributes", "GET /v1/attributes/{name}",
                "GET /v1/datafile/history", "GET /v1/definitions",
                "GET /v1/experiments", "GET /v1/experiments/{key}", "GET /v1/experiments/{key}/history",
                "GET /v1/flags",
                "GET /v1/flags/{key}", "GET /v1/flags/{key}/history", "GET /v1/holdouts", "GET /v1/holdouts/{key}",
                "GET /v1/holdouts/{key}/history", "GET /v1/metrics", "GET /v1/metrics/{key}",
                "GET /v1/metrics/{key}/history",
                "GET /v1/projects", "GET /v1/projects/{sdk_key}", "GET /v1/segments", "GET /v1/segments/{name}",
                "POST /v1/definitions/preview", "POST /v1/experiments/{key}/history/{version}/preview",
                "POST /v1/experiments/{key}/preview", "POST /v1/flags/{key}/history/{version}/preview",
                "POST /v1/flags/{key}/preview", "POST /v1/holdouts/{key}/history/{version}/preview",
                "POST /v1/metrics/{key}/history/{version}/preview",
            ]
        ),
        (
            "export",
            [
                "GET /v1/audit", "GET /v1/events", "GET /v1/exposures", "GET /v1/feed", "GET /v1/profiles",
                "GET /v1/users", "GET /v1/users/recent",
            ]
        ), ("metrics", ["GET /metrics"]),
    ])
    func `A robot's token reads what it is for, and no single user`(scope: String, routes: [String]) throws {
        let any = ["GET /datafiles/{sdk_key}.json", "GET /v1/changes", "GET /v1/whoami"]
        let allowed = try examples.filter { try $0.scope != nil && status($0, Self.secret(scope)) != 403 }
        #expect(allowed.map { "\($0.method) \($0.path)" }.sorted() == (any + routes).sorted())
    }

    @Test func `A look at the head alone needs the scope as well`() throws {
        for example in examples where example.method == "GET" && example.scope != nil {
            // What changes something is not for looking at.
            let expected = example.target.hasPrefix("/ups/save") ? 405 : 401
            #expect(try status(example, nil, method: "HEAD") == expected, "\(example.target)")
        }
    }

    @Test func `A page of another origin is given nothing`() throws {
        let origin = ["Origin: https://elsewhere.example", "Access-Control-Request-Method: PUT"]
        for example in examples {
            for method in ["OPTIONS", example.method] {
                let response = try server.stream(
                    method, example.target, example.body, token: Self.secret("admin"), fields: example.fields + origin)
                let names = response.head.fields.map(\.name)
                #expect(!names.contains { $0.hasPrefix("access-control-") }, "\(method) \(example.target)")
            }
        }
    }

    @Test func `A batch reaches neither another batch nor what the Agent has not`() throws {
        for (method, url) in [
            ("POST", "/v1/batch"), ("DELETE", "/v1/profiles/ada"), ("GET", "/v1/audit"), ("GET", "/metrics"),
        ] {
            let operation = #"{"method":"\#(method)","url":"\#(url)","operationID":"1","body":{"operations":[]}}"#
            let response = try server.request(
                "POST", "/v1/batch", #"{"operations":[\#(operation)]}"#, token: Self.secret("admin"))
            #expect(response["response"].array?.first?["status"] == 404, "\(url)")
        }
    }

    /// The status of a response whose body may never end.
    private func status(_ example: ExampleRequest, _ token: String?, method: String? = nil) throws -> Int {
        try server.stream(
            method ?? example.method, example.target, example.body, token: token, fields: example.fields
        ).head.status
    }
}
