import APITestSupport
import HoldfastAPI
import JSON
import Testing

/// What an edge answers itself, and what it forwards to its upstream.
@Suite struct ForwardingTests {
    private static let upstreamTokens = """
        edge edge-1 edge-secret-0123456789
        admin boss admin-secret-0123456789

        """
    private static let edgeTokens = """
        client page client-secret-0123456789
        read reader read-secret-0123456789
        write app write-secret-0123456789
        attributes crm attributes-secret-0123456789
        write shop shop-secret-0123456789 projects=shop
        admin boss admin-secret-0123456789
        admin local local-secret-0123456789

        """
    private static let admin = "admin-secret-0123456789"
    private static let reader = "read-secret-0123456789"

    private let server: any TestServer
    private let upstream: TestUpstream

    init() throws {
        server = try startTestServer(tokens: Self.upstreamTokens)
        upstream = TestUpstream(server, token: "edge-secret-0123456789")
        for (target, body) in [
            ("/v1/experiments/checkout", #"{"variations":["control","new"]}"#),
            ("/v1/attributes/plan", #"{"type":"string"}"#),
        ] {
            #expect(try server.request("PUT", target, body, token: Self.admin).status < 300)
        }
    }

    private func startEdge(tokens: String? = edgeTokens, isReadOnlyCopy: Bool = false) throws -> any TestServer {
        try startTestEdge(of: upstream, tokens: tokens, isReadOnlyCopy: isReadOnlyCopy, Self.fill)
    }

    private static func fill(_ copy: any TestServer) throws {
        let definition = #"{"variations":["control","new"]}"#
        #expect(try copy.request("PUT", "/v1/experiments/checkout", definition).status < 300)
        #expect(try copy.request("POST", "/v1/assign", AssignSamples.ask("known")).status == 200)
    }

    private var sent: [String] { upstream.requests.map { "\($0.method) \($0.target)" } }

    private func caller(of request: UpstreamRequest?) -> String? {
        request?.fields.first { $0.name == "holdfast-on-behalf-of" }?.value
    }

    @Test func `An edge forwards on behalf of callers whom it has checked`() throws {
        let edge = try startEdge()
        let target = "/v1/experiments/checkout/results?goal=buy"
        for (scope, name) in [("read", "reader"), ("write", "app"), ("attributes", "crm")] {
            let response = try edge.request("GET", target, token: "\(scope)-secret-0123456789")
            #expect(response.status == 200, "\(response.text)")
            #expect(response["experiment_key"] == "checkout", "\(response.text)")
            #expect(caller(of: upstream.requests.last) == "\(name); scope=\(scope)")
            #expect(upstream.requests.last?.hasOwnToken == true)
        }
        #expect(sent == Array(repeating: "GET \(target)", count: 3))
        let other = ["X-Optimizely-SDK-Key: default"]
        #expect(try edge.request("GET", target, token: "shop-secret-0123456789", fields: other).status == 403)
        #expect(caller(of: upstream.requests.last) == "shop; scope=write; projects=shop")
        let before = upstream.requests.count
        #expect(try edge.request("GET", target).status == 401)
        #expect(try edge.request("GET", target, token: "unknown-secret-0123456789").status == 401)
        #expect(try edge.request("GET", target, token: "client-secret-0123456789").status == 403)
        #expect(upstream.requests.count == before && upstream.catchUps == 0)
    }

    @Test func `Admins are checked by the upstream alone`() throws {
        let edge = try startEdge()
        let put = try edge.request(
            "PUT", "/v1/experiments/banner", #"{"variations":["a","b"]}"#, token: Self.admin,
            fields: ["X-Request-Id: from-the-client"])
        #expect(put.status == 201, "\(put.text)")
        #expect(upstream.catchUps == 1)
        let audit = try edge.request("GET", "/v1/audit?action=experiment.put&target=banner", token: Self.admin)
        #expect(audit["entries"].array?.first?["author"] == "boss", "\(audit.text)")
        #expect(audit["entries"].array?.first?["request_id"] == "from-the-client")
        // The edge's token file does not matter.
        let before = upstream.requests.count
        for token in ["local-secret-0123456789", "write-secret-0123456789", nil] {
            let response = try edge.request("DELETE", "/v1/profiles/known", token: token)
            #expect(response.status == 401 && response.field("www-authenticate") != nil, "\(response.text)")
        }
        #expect(upstream.requests.dropFirst(before).allSatisfy { !$0.hasOwnToken && caller(of: $0) == nil })
        #expect(upstream.catchUps == 1)
    }

    @Test func `Without tokens of its own an edge forwards for anybody, except what is for admins`() throws {
        let edge = try startEdge(tokens: nil)
        #expect(try edge.request("GET", "/v1/experiments/checkout/results?goal=buy").status == 200)
        #expect(caller(of: upstream.requests.last) == "anonymous; scope=write")
        #expect(try edge.request("DELETE", "/v1/profiles/known").status == 401)
        #expect(try edge.request("DELETE", "/v1/profiles/known", token: Self.admin).status == 404)
    }

    @Test func `An edge answers a batch, and has the upstream perform what is for admins`() throws {
        let edge = try startEdge()
        func statuses(_ authorization: String = "", token: String?) throws -> [Int?] {
            let headers =
                #"{"X-Optimizely-SDK-Key":"default","Content-Type":"application/json"\#(authorization)}"#
            let batch = #"""
                {"operations":[{"method":"POST","url":"/v1/override?n=1","operationID":"1","headers":\#(headers),
                "body":{"userId":"<eva>","experimentKey":"checkout","variationKey":"new"}},
                {"method":"GET","url":"/v1/config","operationID":"2","headers":\#(headers)}]}
                """#
            let fields = ["X-Request-Id: by-batch"]
            let response = try edge.request("POST", "/v1/batch", batch, token: token, fields: fields)
            #expect(response.status == 200, "\(response.text)")
            return response["response"].array?.map { $0["status"].integer.map { Int($0) } } ?? []
        }
        #expect(try statuses(token: Self.admin) == [200, 200])
        #expect(sent == ["POST /v1/override"] && upstream.catchUps == 1)
        let audit = try server.request("GET", "/v1/audit?action=forced_variation.set", token: Self.admin)
        let entries = audit["entries"].array ?? []
        #expect(entries.map { $0["user_id"] } == ["<eva>"], "\(audit.text)")
        #expect(entries.first?["author"] == "boss" && entries.first?["request_id"] == "by-batch")
        #expect(try statuses(token: "local-secret-0123456789") == [401, 200])
        let own = #","authorization":"Bearer \#(Self.admin)""#
        #expect(try statuses(own, token: "write-secret-0123456789") == [200, 200])
        #expect(try statuses(token: "write-secret-0123456789") == [401, 200])
        let before = upstream.requests.count
        let smuggled = #","authorization":"Bearer \#(Self.admin)\r\nX-Request-Id: forged""#
        #expect(try statuses(smuggled, token: Self.admin) == [401, 401])
        #expect(upstream.requests.count == before && upstream.requests.allSatisfy { !$0.hasOwnToken })
        upstream.failure = .away
        #expect(try statuses(token: Self.admin) == [503, 200])
    }

    @Test func `Body, conditions and what responses say pass unchanged`() throws {
        let edge = try startEdge()
        let direct = try server.request("GET", "/v1/flags/checkout", token: Self.admin)
        let flag = try edge.request("GET", "/v1/flags/checkout", token: Self.reader)
        #expect(flag.text == direct.text && flag.field("etag") == direct.field("etag"))
        let tag = try #require(flag.field("etag"))
        #expect(
            try edge.request("GET", "/v1/flags/checkout", token: Self.reader, fields: ["If-None-Match: \(tag)"]).status
                == 304)
        let stale = try edge.request(
            "PUT", "/v1/experiments/checkout", #"{"variations":["control","new"],"traffic":50}"#, token: Self.admin,
            fields: [#"If-Match: "0123456789abcdef""#])
        #expect(stale.status == 412)
        let csv = try edge.request(
            "GET", "/v1/experiments/checkout/results?goal=buy&format=csv", token: Self.reader)
        #expect(csv.field("content-type")?.hasPrefix("text/csv") == true, "\(csv.fields)")
        let import_ = try edge.request(
            "POST", "/v1/profiles", profile("eve", ["11": "1"]) + "\n" + profile("ann", ["11": "2"]),
            token: "write-secret-0123456789")
        #expect(import_["imported"] == 2, "\(import_.text)")
        let export = try edge.request("GET", "/v1/profiles", token: Self.admin)
        #expect(export.text.split(separator: "\n").count == 2)
        let missing = try edge.request("GET", "/v1/flags/nothing", token: Self.reader)
        #expect(missing.status == 404 && missing.field("content-type") == "application/problem+json")
        let wrong = try edge.request("PUT", "/v1/experiments/checkout", "{", token: Self.admin)
        #expect(wrong.status == 400)
    }

    /// Every route of the description, with an upstream that does not respond.
    @Test func `While the upstream is away, an edge answers what is marked, and refuses everything else in time`()
        throws
    {
        let edge = try startEdge()
        upstream.failure = .away
        var (answered, refused): ([String], [String]) = ([], [])
        for example in ExampleRequest.all(in: try edge.request("GET", "/openapi.json").json) {
            let before = upstream.requests.count
            let response = try edge.stream(
                example.method, example.target, example.body, token: Self.admin, fields: example.fields
            ).head
            let name = "\(example.method) \(example.path)"
            if upstream.requests.count > before {
                #expect(response.status == 503, "\(name)")
                #expect(response.field("retry-after") == "1", "\(name)")
                refused.append(name)
            } else {
                #expect(response.status != 503, "\(name)")
                answered.append(name)
            }
        }
        #expect(upstream.catchUps == 0)
        #expect(
            answered.filter { $0.contains(" /v1/") && !$0.hasPrefix("GET ") }.sorted() == [
                "POST /v1/activate", "POST /v1/assign", "POST /v1/batch", "POST /v1/bucket", "POST /v1/decide",
                "POST /v1/evaluations", "POST /v1/evaluations/counts", "POST /v1/events", "POST /v1/exposures",
                "POST /v1/lookup", "POST /v1/profiles/lookup", "POST /v1/save", "POST /v1/send-odp-event",
                "POST /v1/track",
            ])
        #expect(
            refused.filter { $0.hasPrefix("GET ") }.sorted() == [
                "GET /v1/audit", "GET /v1/datafile/history", "GET /v1/datafile/history/{version}", "GET /v1/events",
                "GET /v1/experiments/{key}/goals", "GET /v1/experiments/{key}/history",
                "GET /v1/experiments/{key}/report.html",
                "GET /v1/experiments/{key}/results",
                "GET /v1/experiments/{key}/results.svg", "GET /v1/experiments/{key}/results/series",
                "GET /v1/exposures", "GET /v1/feed", "GET /v1/flags",
                "GET /v1/flags/{key}", "GET /v1/flags/{key}/history", "GET /v1/holdouts/{key}/history",
                "GET /v1/holdouts/{key}/results", "GET /v1/holdouts/{key}/results.svg",
                "GET /v1/metrics/{key}/history", "GET /v1/overview", "GET /v1/profiles",
                "GET /v1/profiles/{user_id}/evaluations",
                "GET /v1/profiles/{user_id}/events", "GET /v1/profiles/{user_id}/export",
                "GET /v1/profiles/{user_id}/exposures", "GET /v1/proposals", "GET /v1/proposals/{id}",
                "GET /v1/segments/{name}", "GET /v1/segments/{name}/users",
                "GET /v1/sticky-values/{key}", "GET /v1/sticky/{attribute}/{value}", "GET /v1/users",
                "GET /v1/users/recent", "GET /v1/webhooks", "GET /v1/webhooks/{key}",
            ])
        #expect(answered.contains("POST /ups/save") && answered.contains("POST /ofrep/v1/evaluate/flags"))
        #expect(
            !answered.contains { $0.contains("/edge/") }
                || upstream.requests.allSatisfy { !$0.target.hasPrefix("/edge/") })
    }

    @Test(arguments: [
        (UpstreamFailure.away, 503, "the upstream does not respond"),
        (.late, 504, "the upstream has not responded in time"),
        (.overloaded, 503, "too many requests wait for the upstream"),
        (.tooLarge(limit: 64 << 20), 502, "at most 64 MiB; ask the upstream"),
    ])
    func `Why there is no response is said, in the format of the route`(
        failure: UpstreamFailure, status: Int, detail: String
    ) throws {
        let edge = try startEdge()
        upstream.failure = failure
        let native = try edge.request("GET", "/v1/flags", token: Self.reader)
        #expect(native.status == status && native["detail"].string?.contains(detail) == true, "\(native.text)")
        let agent = try edge.request(
            "POST", "/v1/override", #"{"userId":"ada","experimentKey":"checkout","variationKey":"new"}"#,
            token: Self.admin, fields: ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"])
        #expect(agent.status == status && agent["error"].string?.contains(detail) == true, "\(agent.text)")
        #expect((native.field("retry-after") != nil) == (status != 502))
    }

    @Test func `A token of the edge that the upstream refuses is not the caller's fault`() throws {
        let edge = try startTestEdge(
            of: TestUpstream(server, token: "revoked-secret-0123456789"), tokens: Self.edgeTokens)
        let response = try edge.request("GET", "/v1/flags", token: Self.reader)
        #expect(response.status == 502)
        #expect(response["detail"] == "the upstream must accept the token of this edge; it does not")
    }

    @Test func `An edge says what it follows, and how`() throws {
        let edge = try startEdge()
        let status: JSONValue = [
            "upstream": "http://upstream.test", "upstream_up": true, "copy_complete": true, "lag_seconds": 0.5,
            "outbox_events": 3,
        ]
        #expect(try edge.request("GET", "/info")["edge"] == status)
        #expect(try edge.request("GET", "/readyz").json == ["status": "ready"])
        upstream.failure = .away
        let away = try edge.request("GET", "/info")["edge"]
        #expect(away["upstream_up"] == false && away["detail"] == "away")
        #expect(try edge.request("GET", "/readyz").json == ["status": "ready", "detail": "away"])
        #expect(try server.request("GET", "/info")["edge"].isNull)
    }

    @Test func `What is for apps is not waited for long`() throws {
        let edge = try startEdge()
        for (method, target, takesLong) in [
            ("GET", "/v1/flags", false), ("PATCH", "/v1/profiles/ada", false),
            ("GET", "/v1/experiments/checkout/results?goal=buy", true), ("POST", "/v1/profiles", true),
            ("PUT", "/v1/experiments/checkout", true), ("GET", "/v1/segments/payers?size=true", true),
        ] {
            _ = try edge.request(method, target, method == "GET" ? nil : "{}", token: Self.admin)
            #expect(upstream.requests.last?.takesLong == takesLong, "\(method) \(target)")
        }
    }

    @Test func `A body that is too long to forward is refused`() throws {
        let edge = try startEdge()
        let line = profile("ada", ["11": "1"]) + String(repeating: " ", count: 1 << 20) + "\n"
        let response = try edge.request(
            "POST", "/v1/profiles", String(repeating: line, count: 33), token: "write-secret-0123456789")
        #expect(response.status == 413)
        #expect(response["detail"].string?.contains("at most 32 MiB; send longer ones to the upstream") == true)
        #expect(upstream.requests.isEmpty)
    }

    @Test func `A decision that cannot be stored says so, and is the same each time`() throws {
        let edge = try startEdge(isReadOnlyCopy: true)
        upstream.failure = .away
        let known = try edge.request(
            "POST", "/v1/assign", AssignSamples.ask("known"), token: "client-secret-0123456789")
        #expect(known["source"] == "stored")
        let reason = "The assignment was not stored: the upstream of this edge does not respond."
        var variations: Set<String> = []
        for _ in 0..<2 {
            let new = try edge.request(
                "POST", "/v1/assign", AssignSamples.ask("new"), token: "client-secret-0123456789")
            #expect(new.status == 200 && new["source"] == "bucketed", "\(new.text)")
            #expect(new["reasons"].array?.last?.string == reason, "\(new.text)")
            variations.insert(new["variation_key"].string ?? "")
            let flags = try edge.request(
                "POST", "/v1/evaluations", #"{"user_id":"new","include_reasons":true}"#,
                token: "client-secret-0123456789")
            let evaluation = flags["evaluations"].array?.first ?? .null
            #expect(evaluation["reasons"].array?.last?.string == reason, "\(flags.text)")
            variations.insert(evaluation["variation_key"].string ?? "")
            let agent = try edge.request(
                "POST", "/v1/decide?keys=checkout", #"{"userId":"new","decideOptions":["INCLUDE_REASONS"]}"#,
                token: "client-secret-0123456789",
                fields: ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"])
            #expect(agent["reasons"].array?.last?.string == reason, "\(agent.text)")
            variations.insert(agent["variationKey"].string ?? "")
        }
        #expect(variations.count == 1)
        #expect(try edge.request("GET", "/v1/profiles/new", token: Self.reader).status == 404)
        #expect(try edge.request("POST", "/ups/save", profile("new"), token: "write-secret-0123456789").status == 503)
    }
}
