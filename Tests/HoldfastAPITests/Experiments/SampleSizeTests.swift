import APITestSupport
import Chronology
import JSON
import Storage
import Testing

/// `POST /v1/experiments/{key}/plan`. `SampleSizeRequestTests` has what a request may be.
@Suite struct SampleSizeTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
        let body = #"{"id":"7","status":"draft","variations":["control","new"]}"#
        #expect(try server.request("PUT", "/v1/experiments/checkout", body).status == 201)
    }

    private func plan(_ body: String, of key: String = "checkout") throws -> TestResponse {
        try server.request("POST", "/v1/experiments/\(key)/plan", body)
    }

    /// Enrolls users two days ago, every fourth of whom reaches the goal.
    private func enroll(_ users: Int, in key: String) throws {
        let before = (systemWallClock() - .days(2)).rfc3339
        let exposures = (0..<users).map {
            let variation = $0.isMultiple(of: 2) ? "control" : "new"
            return
                #"{"user_id":"\#($0)","experiment":"\#(key)","variation_key":"\#(variation)","timestamp":"\#(before)"}"#
        }
        let events = (0..<users).filter { $0 % 8 < 2 }.map { #"{"user_id":"\#($0)","goal":"buy","value":\#($0 % 5)}"# }
        for (path, elements) in [("exposures", exposures), ("events", events)] {
            let sent = try server.request("POST", "/v1/\(path)", "[\(elements.joined(separator: ","))]")
            #expect(sent.status == 200 && !sent.text.contains("refused"), "\(sent.text)")
        }
    }

    @Test func `Users and days follow from the baseline, the traffic, and the effect`() throws {
        let body = #"{"goal":"buy","baseline":0.1,"minimum_effect":0.1,"users_per_day":1000}"#
        let plan = try plan(body)
        #expect(plan.status == 200, "\(plan.text)")
        // scipy: norm.cdf(sqrt(z2) - 1.96) is 0.8, with the likelihood ratio z2 of 10% and 11%.
        #expect(plan["one_look"]["variations"].array?.map { $0["users"] } == [14_747, 14_747], "\(plan.text)")
        let days = try #require(plan["one_look"]["days"].double)
        #expect(abs(days - 29.4939) < 0.001)
        let anyTime = try #require(plan["any_time"]["users"].double)
        #expect((40_000...80_000).contains(anyTime), "\(anyTime)")
        #expect(plan["baseline"]["from"].isNull && plan["traffic"]["users_per_day"] == 1000.0)
        // The smallest effect of as many days is the one that was asked for.
        let effect = try self.plan(#"{"goal":"buy","baseline":0.1,"days":\#(days),"users_per_day":1000}"#)
        #expect(abs((effect["one_look"]["detectable_effect"].double ?? 0) - 0.1) < 1e-6, "\(effect.text)")
        #expect(effect["one_look"]["users"].isNull)
        // Without traffic users are known, but no days.
        let untimed = try self.plan(#"{"goal":"buy","baseline":0.1,"minimum_effect":0.1}"#)
        #expect(untimed["one_look"]["users"] == 29_494 && untimed["one_look"]["days"].isNull)
        // A decrease has other variances than an increase.
        let less = try self.plan(#"{"goal":"buy","baseline":0.1,"minimum_effect":-0.1,"days":10,"users_per_day":1000}"#)
        #expect(less["one_look"]["users"].double ?? 0 < 29_494)
        #expect(less["one_look"]["detectable_effect"].double ?? 0 < 0)
        // A rate cannot exceed 1.
        let impossible = try self.plan(#"{"goal":"buy","baseline":0.9,"minimum_effect":0.2}"#)
        #expect(impossible["one_look"]["users"].isNull && impossible["any_time"]["users"].isNull)
    }

    @Test func `Weights, more variations and stricter levels need more users`() throws {
        func users(_ key: String, _ more: String = "") throws -> Double {
            let found = try plan(#"{"goal":"buy","baseline":0.1,"minimum_effect":0.1\#(more)}"#, of: key)
            return try #require(found["any_time"]["users"].double, "\(found.text)")
        }
        for (key, variations) in [
            ("skewed", #"[{"key":"control","weight":9},{"key":"new","weight":1}]"#), ("three", #"["control","a","b"]"#),
        ] {
            try server.request("PUT", "/v1/experiments/\(key)", #"{"variations":\#(variations)}"#)
        }
        let plain = try users("checkout")
        #expect(try users("skewed") > 2 * plain && users("three") > 1.5 * plain)
        #expect(try users("checkout", #","alpha":0.01"#) > plain && users("checkout", #","power":0.95"#) > plain)
        let three = try plan(#"{"goal":"buy","baseline":0.1,"minimum_effect":0.1}"#, of: "three")
        #expect(three["comparisons"] == 2 && three["alpha_per_comparison"] == 0.025)
        let margin = try plan(#"{"goal":"buy","baseline":0.1,"margin":0.1}"#, of: "three")
        #expect(margin["margin"] == 0.1 && margin["alpha_per_comparison"] == 0.05, "\(margin.text)")
    }

    @Test func `What is not given is observed, in the experiment or in the one that is named`() throws {
        try server.request("PUT", "/v1/experiments/former", #"{"variations":["control","new"],"traffic":50}"#)
        try enroll(400, in: "former")
        let missing = try plan(#"{"goal":"buy","minimum_effect":0.1}"#)
        #expect(missing.status == 422 && missing["pointer"] == "/baseline", "\(missing.text)")
        let observed = try plan(#"{"goal":"buy","minimum_effect":0.1,"from":"former"}"#)
        #expect(observed["baseline"]["mean"] == 0.25 && observed["baseline"]["from"] == "former", "\(observed.text)")
        // 400 users on the only day of which there were whole ones since; all users instead of half of them take part.
        #expect(observed["traffic"] == ["users_per_day": 400.0, "from": "former"], "\(observed.text)")
        #expect(observed["enrolled"] == 0)
        let own = try plan(#"{"goal":"buy","kind":"total","minimum_effect":0.1,"days":7}"#, of: "former")
        #expect(own["baseline"]["from"] == "former" && own["traffic"]["users_per_day"] == 200.0, "\(own.text)")
        #expect(own["enrolled"] == 400 && own["one_look"]["detectable_effect"].double ?? 0 > 0)
        #expect(own["baseline"]["standard_deviation"].double ?? 0 > 0)
    }

    /// Defines an experiment that measures metrics, and the metrics.
    private func measure(_ metrics: String, in key: String) throws {
        for (metric, body) in [
            ("orders", #"{"kind":"conversion","goal":"buy","minimum_effect":0.1}"#),
            ("spent", #"{"kind":"total","goal":"buy","minimum_effect":0.2}"#),
            ("buyers", #"{"kind":"conversion","goal":"buy"}"#),
            ("unknown", #"{"kind":"conversion","goal":"other","minimum_effect":0.1}"#),
        ] {
            try server.request("PUT", "/v1/metrics/\(metric)", body)
        }
        let body = #"{"variations":["control","new"],"metrics":\#(metrics)}"#
        #expect(try server.request("PUT", "/v1/experiments/\(key)", body).status == 201)
        try enroll(400, in: key)
    }

    @Test func `Without a metric the plan is about all primary metrics and guardrails`() throws {
        let guardrails = #""guardrails":[{"metric":"buyers","margin":0.3}],"secondary":["unknown"]"#
        try measure(#"{"primary":["orders","spent"],\#(guardrails)}"#, in: "shop")
        let whole = try plan("{}", of: "shop")
        #expect(whole.status == 200, "\(whole.text)")
        let parts = whole["metrics"].array ?? []
        #expect(parts.map { $0["metric"] } == ["orders", "spent", "buyers"])
        #expect(parts.map { $0["role"] } == ["primary", "primary", "guardrail"])
        #expect(parts.map { $0["comparisons"] } == [2, 2, 2] && parts.last?["margin"] == 0.3)
        // The first at the top, and each as if it had been asked for.
        for (index, part) in parts.enumerated() {
            let alone = try plan(#"{"metric":"\#(part["metric"].string ?? "")"}"#, of: "shop").json
            #expect(alone.object?["all"] == nil && alone.object?["metrics"] == nil)
            for member in alone.object ?? JSONObject() where member.key != "experiment_key" {
                #expect(part[member.key] == member.value, "\(member.key)")
                if index == 0 { #expect(whole[member.key] == member.value, "\(member.key)") }
            }
        }
        // Each of three is missed with a third of the probability that is allowed for all.
        #expect(abs((whole["all"]["power_per_metric"].double ?? 0) - (1 - 0.2 / 3)) < 1e-12)
        for looks in ["one_look", "any_time"] {
            let stricter = try parts.map { part in
                // A guardrail beside a metric leaves half of what the power leaves.
                let body = #"{"metric":"\#(part["metric"].string ?? "")","power":\#(1 - 2 * 0.2 / 3)}"#
                return try plan(body, of: "shop")[looks]
            }
            for member in ["users", "days"] {
                let most = try #require(stricter.compactMap { $0[member].double }.max())
                let all = try #require(whole["all"][looks][member].double)
                #expect(abs(all - most) <= 1e-9 * most + 2, "\(looks), \(member): \(all), \(most)")
            }
        }
        let given = try plan(#"{"minimum_effect":0.1}"#, of: "shop")
        #expect(given["metric"] == "orders" && given.json.object?["metrics"] == nil)
    }

    @Test func `A metric of the plan that lacks something says what, and then there are no numbers for all`() throws {
        try measure(#"{"primary":["orders","unknown"]}"#, in: "shop")
        let whole = try plan("{}", of: "shop")
        #expect(whole.status == 200 && whole["metric"] == "orders" && whole["all"].isNull, "\(whole.text)")
        let missing = whole["metrics"].array?.last
        #expect(missing?["metric"] == "unknown")
        #expect(missing?["missing"].string?.contains("`baseline` is required") == true)
        try measure(#"{"primary":["unknown","orders"]}"#, in: "other")
        let refused = try plan("{}", of: "other")
        #expect(refused.status == 422 && refused["pointer"] == "/baseline", "\(refused.text)")
    }

    @Test func `The experiment's own plan holds where the request says nothing, and SDKs do not get it`() throws {
        let body = #"{"plan":{"alpha":0.1,"minimum_effect":0.02}}"#
        #expect(try server.request("PUT", "/v1/experiments/checkout", body)["plan"]["alpha"] == 0.1)
        let estimate = try plan(#"{"goal":"buy","baseline":0.1}"#)
        #expect(estimate["alpha"] == 0.1 && estimate["minimum_effect"] == 0.02, "\(estimate.text)")
        #expect(try server.request("GET", "/datafiles/default.json").text.contains("minimum_effect") == false)
    }

    @Test func `What cannot be planned is refused, with what is required`() throws {
        for (body, status, pointer) in [
            ("[]", 400, ""), ("{}", 422, "/goal"), (#"{"goal":"buy","why":1}"#, 400, "/why"),
            (#"{"goal":"buy","baseline":0.1}"#, 422, "/minimum_effect"),
            (#"{"goal":"buy","baseline":0.1,"days":7}"#, 422, "/users_per_day"),
            (#"{"goal":"buy","baseline":2,"minimum_effect":0.1}"#, 422, "/baseline"),
            (#"{"goal":"buy","baseline":0.1,"standard_deviation":1,"minimum_effect":0.1}"#, 422, "/standard_deviation"),
            (#"{"goal":"buy","kind":"total","baseline":5,"minimum_effect":0.1}"#, 422, "/baseline"),
            (#"{"goal":"buy","baseline":0.1,"users_per_day":9,"until":"2020-01-31T12:00:00Z"}"#, 422, "/until"),
            (#"{"goal":"buy","minimum_effect":0.1,"from":"formr"}"#, 404, "/from"),
        ] {
            let refused = try plan(body)
            #expect(refused.status == status && refused["pointer"].string == pointer, "\(body): \(refused.text)")
        }
        #expect(try plan(#"{"goal":"buy"}"#, of: "nothing").status == 404)
        try server.request("PUT", "/v1/experiments/alone", #"{"variations":["control"]}"#)
        #expect(try plan(#"{"goal":"buy","baseline":0.1,"minimum_effect":0.1}"#, of: "alone").status == 422)
    }
}
