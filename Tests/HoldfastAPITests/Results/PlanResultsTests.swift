import APITestSupport
import JSON
import Testing

/// Results of all metrics of a plan, with one verdict.
@Suite struct PlanResultsTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
        for (key, body) in [
            ("orders", #"{"kind":"conversion","goal":"buy","minimum_effect":0.1}"#),
            ("returns", #"{"kind":"conversion","goal":"return","direction":"decrease"}"#),
            ("spent", #"{"kind":"total","goal":"buy"}"#),
        ] {
            #expect(try server.request("PUT", "/v1/metrics/\(key)", body).status == 201)
        }
    }

    private func put(_ body: String) throws -> TestResponse {
        try server.request("PUT", "/v1/experiments/checkout", body)
    }

    private func results(_ query: String = "") throws -> TestResponse {
        try server.request("GET", "/v1/experiments/checkout/results\(query)")
    }

    private func send(_ path: String, _ users: Range<Int>, _ members: String) throws {
        let body = users.map { #"{"user_id":"\#($0)",\#(members)}"# }.joined(separator: ",")
        let sent = try server.request("POST", "/v1/\(path)", "[\(body)]")
        #expect(sent.status == 200 && !sent.text.contains("refused"), "\(sent.text)")
    }

    /// 400 users of each variation; a quarter of the first buys, half of the second.
    private func run(returns: Range<Int>) throws {
        let metrics =
            #"{"primary":["orders"],"secondary":["spent"],"guardrails":[{"metric":"returns","margin":0.3}]}"#
        let made = try put(#"{"id":"7","variations":["control","new"],"metrics":\#(metrics)}"#)
        #expect(made["plan"]["alpha"] == 0.05 && made["plan"]["fixed_at_revision"] == made["revision"], "\(made.text)")
        try send("exposures", 0..<400, #""experiment":"checkout","variation_key":"control""#)
        try send("exposures", 400..<800, #""experiment":"checkout","variation_key":"new""#)
        for users in [0..<100, 400..<600] { try send("events", users, #""goal":"buy","value":10"#) }
        for users in [0..<200, returns] { try send("events", users, #""goal":"return""#) }
    }

    private func finding(_ metric: String, _ results: TestResponse) throws -> JSONValue {
        let found = results["metrics"].array?.first { $0["key"].string == metric }
        return try #require(found?["variations"].array?.last, "\(results.text)")
    }

    @Test func `A better primary metric and a guardrail within its margin ship, with the numbers that carry it`() throws
    {
        try run(returns: 400..<600)
        let found = try results()
        #expect(found["verdict"]["decision"] == "ship" && found["verdict"]["winner"] == "new", "\(found.text)")
        #expect(found["verdict"]["reasons"].array?.count == 2)
        #expect(found["users"]["counted"] == 800 && found["baseline"] == "control")
        #expect(found["metrics"].array?.map { $0["role"] } == ["primary", "guardrail", "secondary"])
        let orders = try finding("orders", found)
        #expect(orders["outcome"] == "better" && orders["lift"] == 1.0 && orders["mean"] == 0.5)
        #expect(orders["lift_interval"].array?.first?.double ?? 0 > 0)
        // The only metric of the family: as the verdict over it alone.
        let alone = try results("?metric=orders")["verdict"]["variations"].array?.first
        let low =
            (orders["lift_interval"].array?.first?.double ?? 0) - (alone?["lift_interval"].array?.first?.double ?? 1)
        #expect(abs(low) < 1e-12 && orders["p_value"] == alone?["p_value"])
        #expect(
            orders["one_look"]["chance_to_win"].double ?? 0 > 0.99 && orders["one_look"]["p_value"].double ?? 1 < 0.01)
        let returns = try finding("returns", found)
        #expect(returns["outcome"] == "within_margin" && returns["lift"] == 0.0)
        #expect(returns["lift_interval"].array?.last?.double ?? 1 < 0.3)
        #expect(try finding("spent", found)["outcome"] == "better")
        let control = found["metrics"].array?.first?["variations"].array?.first
        #expect(control?["outcome"] == .null && control?["mean"] == 0.25)
    }

    @Test func `A guardrail beyond its margin stops`() throws {
        try run(returns: 400..<790)
        let found = try results()
        #expect(found["verdict"]["decision"] == "stop" && found["verdict"]["winner"] == .null, "\(found.text)")
        #expect(try finding("returns", found)["outcome"] == "beyond_margin")
        #expect(found["verdict"]["reasons"].array?.first?.string?.contains("'returns'") == true)
    }

    @Test func `A guardrail that nobody of the variation reaches any more is within its margin`() throws {
        try run(returns: 0..<0)
        let found = try results()
        #expect(found["verdict"]["decision"] == "ship", "\(found.text)")
        #expect(try finding("returns", found)["outcome"] == "within_margin")
    }

    @Test func `Results of the plan are kept at the conclusion, and changes of metrics show`() throws {
        try run(returns: 400..<600)
        let before = try results()
        #expect(try server.request("POST", "/v1/experiments/checkout/conclude", #"{"winner":"new"}"#).status == 200)
        try send("events", 100..<380, #""goal":"buy","value":10"#)
        let after = try results()
        #expect(after["metrics"] == before["metrics"] && after["verdict"] == before["verdict"], "\(after.text)")
        #expect(after["frozen_at"].string != nil && before["frozen_at"] == .null)
        let live = try results("?live=true")
        #expect(live["metrics"].array?.first?["variations"].array?.first?["mean"] == 0.95, "\(live.text)")
        #expect(try results("?frozen_at=2026-01-31T12:00:00Z").status == 404)
        #expect(try results("?metric=orders&frozen_at=2026-01-31T12:00:00Z").status == 404)
        try server.request("PUT", "/v1/metrics/orders", #"{"minimum_effect":0.2,"description":"What people buy"}"#)
        let metrics = #"{"metrics":{"primary":["orders"],"secondary":["spent"]}}"#
        #expect(try put(metrics).status == 409)
        #expect(try server.request("POST", "/v1/experiments/checkout/reopen").status == 200)
        let changed = try put(metrics)
        #expect(
            changed["plan"]["changed_since_start"] == ["metric orders", "metric returns", "metrics.guardrails"],
            "\(changed.text)")
        #expect(try results()["plan"] == changed["plan"])
    }

    @Test func `The level is the plan's, and what is about one metric needs its name`() throws {
        try run(returns: 400..<600)
        for query in ["?confidence=0.9", "?by=day", "?mde=0.1"] {
            let refused = try results(query)
            #expect(refused.status == 400, "\(refused.text)")
        }
        let strict = try put(#"{"plan":{"alpha":0.0001}}"#)
        #expect(strict["plan"]["changed_since_start"] == ["alpha"], "\(strict.text)")
        #expect(try results()["verdict"]["decision"] == "continue")
        #expect(try results("?format=csv").text.contains("orders"))
        let bare = try server.request("PUT", "/v1/experiments/bare", #"{"variations":["a","b"]}"#)
        #expect(bare.json.object?["plan"] == nil)
        #expect(try server.request("GET", "/v1/experiments/bare/results").status == 400)
    }

    @Test func `A plan asks about a metric, by default the first primary one, or for the margin of a guardrail`() throws
    {
        try run(returns: 400..<600)
        func plan(_ body: String) throws -> TestResponse {
            try server.request("POST", "/v1/experiments/checkout/plan", body)
        }
        let first = try plan("{}")
        #expect(first["metric"] == "orders" && first["minimum_effect"] == 0.1, "\(first.text)")
        #expect(first["baseline"]["mean"] == 0.25 && first["guardrails"] == 1 && first["power_per_metric"] == 0.9)
        let guardrail = try plan(#"{"metric":"returns"}"#)
        #expect(guardrail["margin"] == 0.3 && guardrail["alpha_per_comparison"] == 0.05, "\(guardrail.text)")
        #expect(guardrail["any_time"]["users"].double ?? 0 > 0)
        let spent = try plan(#"{"metric":"spent","minimum_effect":0.1}"#)
        #expect(spent["kind"] == "total" && spent["baseline"]["mean"] == 2.5, "\(spent.text)")
        for (body, pointer) in [
            (#"{"metric":"order"}"#, "/metric"), (#"{"metric":"orders","goal":"buy"}"#, "/metric"),
            (#"{"metric":"orders","kind":"total"}"#, "/kind"), (#"{"metric":"spent","baseline":3}"#, "/baseline"),
        ] {
            let refused = try plan(body)
            #expect(refused.status == 422 && refused["pointer"].string == pointer, "\(refused.text)")
        }
    }
}
