import APITestSupport
import Chronology
import Foundation
import JSON
import Storage
import Testing

/// What the results of an experiment say about its metrics.
@Suite struct MetricResultsTests {
    private let server: any TestServer
    /// An hour ago. Events follow the exposures, and each other.
    private let start = systemWallClock() - .hours(1)

    init() throws {
        server = try startTestServer()
        #expect(try server.request("PUT", "/v1/experiments/e", #"{"variations":["control","new"]}"#).status == 201)
    }

    private func define(_ key: String, _ body: String) throws {
        let defined = try server.request("PUT", "/v1/metrics/\(key)", body)
        #expect(defined.status == 201, "\(defined.text)")
    }

    private func measure(_ metrics: String) throws {
        let changed = try server.request("PUT", "/v1/experiments/e", #"{"metrics":\#(metrics)}"#)
        #expect(changed.status == 200, "\(changed.text)")
    }

    private func expose(_ users: [String], to variation: String) throws {
        let exposures = users.map {
            #"{"user_id":"\#($0)","experiment":"e","variation_key":"\#(variation)","timestamp":"\#(start.rfc3339)"}"#
        }
        let stored = try server.request("POST", "/v1/exposures", "[\(exposures.joined(separator: ","))]")
        #expect(stored.status == 200, "\(stored.text)")
    }

    private func send(_ events: [(user: String, goal: String, value: Double)]) throws {
        let list = events.enumerated().map { index, event in
            let time = (start + .seconds(Int64(index + 1))).rfc3339
            return
                #"{"user_id":"\#(event.user)","goal":"\#(event.goal)","value":\#(event.value),"timestamp":"\#(time)"}"#
        }
        let stored = try server.request("POST", "/v1/events", "[\(list.joined(separator: ","))]")
        #expect(stored.status == 200, "\(stored.text)")
    }

    /// The results once all users are counted.
    private func results(_ query: String) throws -> TestResponse {
        while true {
            let response = try server.request("GET", "/v1/experiments/e/results?\(query)")
            #expect(response.status == 200, "\(response.text)")
            guard response["metric"]["filling"] == true else { return response }
        }
    }

    private func variation(_ key: String, _ response: TestResponse) throws -> JSONValue {
        try #require(response["variations"].array?.first { $0["variation_key"].string == key })
    }

    /// Two users of each variation with events, and one without.
    private func useAll() throws {
        try expose(["a", "b", "c"], to: "control")
        try expose(["d", "e", "f"], to: "new")
        try send([
            ("a", "cart", 0), ("a", "buy", 10), ("a", "buy", 20), ("b", "cart", 0), ("d", "buy", 60), ("d", "cart", 0),
            ("e", "cart", 0), ("e", "buy", 40), ("e", "visit", 0), ("d", "visit", 0), ("d", "visit", 0),
            ("a", "visit", 0),
        ])
    }

    @Test(arguments: [false, true])
    func `Each kind of metric is measured, whether it is defined before the events or after them`(isLate: Bool) throws {
        if isLate { try useAll() }
        let ratio =
            #""numerator":{"goal":"buy","by":"value"},"denominator":{"goal":"visit","by":"count"}"#
        for (key, body) in [
            ("buyers", #"{"kind":"conversion","goal":"buy"}"#),
            ("soon", #"{"kind":"conversion","goal":"buy","window":1}"#),
            ("orders", #"{"kind":"count","goal":"buy"}"#), ("revenue", #"{"kind":"total","goal":"buy","cap":50}"#),
            ("order_value", #"{"kind":"mean","goal":"buy"}"#), ("per_visit", #"{"kind":"ratio",\#(ratio)}"#),
            ("funnel", #"{"kind":"funnel","goals":["cart","buy"]}"#),
            ("back", #"{"kind":"retention","goal":"visit","from":0,"to":1}"#),
        ] { try define(key, body) }
        try measure(
            #"{"primary":["buyers","soon","orders","revenue","order_value","per_visit","funnel","back"]}"#)
        if !isLate { try useAll() }
        let sums: [String: (control: Double, new: Double)] = [
            "orders": (2, 2), "revenue": (30, 90), "order_value": (30, 100), "per_visit": (30, 100),
        ]
        let expected: [(metric: String, member: String, control: Double, new: Double)] = [
            ("buyers", "rate", 1.0 / 3, 2.0 / 3), ("soon", "rate", 1.0 / 3, 2.0 / 3),
            ("orders", "mean", 2.0 / 3, 2.0 / 3),
            ("revenue", "mean", 10, 30), ("order_value", "ratio", 15, 50), ("per_visit", "ratio", 30, 100.0 / 3),
            ("funnel", "rate", 1.0 / 3, 1.0 / 3),
        ]
        for (metric, member, control, new) in expected {
            let found = try results("metric=\(metric)")
            #expect(found["metric"]["key"].string == metric && found["goal"].isNull, "\(found.text)")
            for (key, number) in [("control", control), ("new", new)] {
                let estimate = try variation(key, found)["estimate"]
                #expect(abs((estimate[member].double ?? -1) - number) < 1e-12, "\(metric): \(estimate)")
                let sum = sums[metric].map { key == "new" ? $0.new : $0.control }
                #expect(estimate["sum"].double == sum, "\(metric): \(estimate)")
            }
            #expect(found["metric"]["counts_since"] == .null)
        }
        let steps = try variation("new", results("metric=funnel"))["steps"].array ?? []
        #expect(steps.map { $0["goal"] } == ["cart", "buy"])
        #expect(steps.map { $0["converted"] } == [2, 1], "the purchase of 'd' precedes the cart, and does not count")
        // Nobody has had a day to come back.
        let back = try results("metric=back")
        #expect(try variation("new", back)["users"] == 0 && variation("new", back)["estimate"]["rate"] == .null)
        #expect(back["metric"]["enrolled_until"].string != nil)
        // Without a parameter, all metrics with one verdict.
        #expect(try results("")["metrics"].array?.first?["key"] == "buyers")
        #expect(try server.request("GET", "/v1/experiments/e/goals")["goals"] == ["buy", "cart", "visit"])
    }

    @Test func `The adjustment of a metric decides, and no other`() throws {
        for (key, body) in [
            ("standard", #"{"kind":"total","goal":"buy"}"#),
            ("plain", #"{"kind":"total","goal":"buy","adjustment":"none"}"#),
            ("short", #"{"kind":"total","goal":"buy","adjustment":{"days":1}}"#),
            ("rate", #"{"kind":"conversion","goal":"buy"}"#),
            ("adjusted_rate", #"{"kind":"conversion","goal":"buy","adjustment":{"days":14}}"#),
            ("mean", #"{"kind":"mean","goal":"buy"}"#),
        ] { try define(key, body) }
        try measure(#"{"primary":["standard","plain","short","rate","adjusted_rate","mean"]}"#)
        // What users buy three days before tells what they buy.
        let users = (0..<300).map { "u\($0)" }
        let before = (start - .days(3)).rfc3339
        let events = users.enumerated().map { index, user in
            #"{"user_id":"\#(user)","goal":"buy","value":\#(index % 7 * 10),"timestamp":"\#(before)"}"#
        }
        let buyers = events.enumerated().filter { $0.offset.isMultiple(of: 3) }.map(\.element)
        #expect(
            try server.request("POST", "/v1/events", "[\(buyers.joined(separator: ","))]").status == 200)
        try expose(users.enumerated().filter { $0.offset.isMultiple(of: 2) }.map(\.element), to: "control")
        try expose(users.enumerated().filter { !$0.offset.isMultiple(of: 2) }.map(\.element), to: "new")
        try send(
            users.enumerated().filter { $0.offset.isMultiple(of: 3) || $0.offset.isMultiple(of: 11) }.map {
                ($0.element, "buy", Double($0.offset % 7 * 10 + $0.offset % 2))
            })
        func comparison(_ metric: String) throws -> JSONValue {
            try variation("new", results("metric=\(metric)"))["estimate"]["comparison"]
        }
        let standard = try comparison("standard")
        #expect(
            standard["cuped"]["decides"] == true && (standard["cuped"]["variance_reduction"].double ?? 0) > 0.5,
            "\(standard)")
        // Nobody did anything on the day before.
        for key in ["plain", "short", "rate", "mean"] { #expect(try comparison(key)["cuped"] == .null, "\(key)") }
        let rate = try comparison("adjusted_rate")
        #expect(rate["cuped"]["decides"] == true && (rate["cuped"]["variance_reduction"].double ?? 0) > 0.3)
        // The raw figures stay those of the likelihood ratio.
        let raw = try comparison("rate")
        for member in ["difference", "lift_interval", "p_value", "sequential_p_value"] {
            #expect(rate[member] == raw[member], "\(member)")
        }
        let verdicts = try results("")["metrics"].array ?? []
        let isAdjusted = verdicts.map { $0["variations"].array?.last?["adjusted"] }
        #expect(isAdjusted == [true, false, false, false, true, false])
        let adjusted = verdicts[4]["variations"].array?.last
        #expect(adjusted?["difference"] == rate["cuped"]["difference"])
        // The plan takes what the adjustment leaves of the variance.
        func deviation(_ metric: String) throws -> Double {
            let plan = try server.request(
                "POST", "/v1/experiments/e/plan", #"{"metric":"\#(metric)","minimum_effect":0.1,"users_per_day":10}"#)
            return try #require(plan["baseline"]["standard_deviation"].double, "\(plan.text)")
        }
        #expect(try deviation("standard") < deviation("plain") * 0.9)
        #expect(try deviation("short") == deviation("plain"))
        #expect(try deviation("adjusted_rate") < deviation("rate"))
    }

    /// 600 users, every tenth of whom buys for about 10; one of them for 5,000.
    private func sell(at time: Instant) throws {
        let users = (0..<600).map { "u\($0)" }
        for (remainder, variation) in ["control", "new"].enumerated() {
            let own = users.enumerated().filter { $0.offset % 2 == remainder }.map(\.element)
            let exposures = own.map {
                #"{"user_id":"\#($0)","experiment":"e","variation_key":"\#(variation)","timestamp":"\#(time.rfc3339)"}"#
            }
            #expect(
                try server.request("POST", "/v1/exposures", "[\(exposures.joined(separator: ","))]").status == 200)
        }
        try send(
            users.enumerated().filter { $0.offset % 10 < 2 && $0.offset % 3 < 2 }.map {
                ($0.element, "buy", $0.offset == 0 ? 5_000 : Double(6 + $0.offset % 10 * 4 + $0.offset % 7))
            })
    }

    @Test func `A total that few users dominate says so, and a cap is proposed`() throws {
        for (key, body) in [
            ("revenue", #"{"kind":"total","goal":"buy","minimum_effect":0.2}"#),
            ("capped", #"{"kind":"total","goal":"buy","cap":100}"#), ("orders", #"{"kind":"count","goal":"buy"}"#),
        ] { try define(key, body) }
        try measure(#"{"primary":["revenue","capped","orders"]}"#)
        try sell(at: start - .days(2))
        let found = try results("metric=revenue")
        let warning = found["warnings"].array?.first { $0["code"] == "few_users_dominate" }
        let text = try #require(warning?["message"].string, "\(found.text)")
        #expect(text.hasPrefix("1 user (0.2% of them) have 85% of the sum of 'revenue': with a cap of 16 "), "\(text)")
        #expect(text.contains(" days;"))
        for query in ["metric=capped", "metric=orders"] {
            #expect(try !results(query).text.contains("few_users_dominate"))
        }
        #expect(try results("goal=buy").text.contains("few_users_dominate"))
        // All metrics of the plan, of which one has it.
        let metrics = try results("")["metrics"].array ?? []
        #expect(
            metrics.map { $0["warnings"].array?.contains { $0["code"] == "few_users_dominate" } } == [
                true, false, false,
            ])
        func plan(_ metric: String) throws -> TestResponse {
            try server.request(
                "POST", "/v1/experiments/e/plan", #"{"metric":"\#(metric)","minimum_effect":0.2,"users_per_day":100}"#)
        }
        let proposed = try plan("revenue")
        #expect(
            proposed["proposed_cap"]["cap"] == 16 && proposed["proposed_cap"]["greatest_users"] == 1, "\(proposed.text)"
        )
        let (before, after) = (
            proposed["any_time"]["users"].double ?? 0, proposed["proposed_cap"]["any_time"]["users"].double ?? 0
        )
        #expect(after > 0 && after < before / 10, "\(proposed.text)")
        for metric in ["capped", "orders"] { #expect(try plan(metric)["proposed_cap"] == .null) }
    }

    @Test func `A lower number is better where a metric says so, and the numbers stay the same`() throws {
        try define("more", #"{"kind":"conversion","goal":"buy"}"#)
        try define("less", #"{"kind":"conversion","goal":"buy","direction":"decrease"}"#)
        try define("fewer", #"{"kind":"count","goal":"buy","direction":"decrease"}"#)
        try measure(#"{"primary":["more","less","fewer"]}"#)
        let (control, new) = ((0..<400).map { "c\($0)" }, (0..<400).map { "n\($0)" })
        try expose(control, to: "control")
        try expose(new, to: "new")
        try send(control.prefix(200).map { ($0, "buy", 1) } + new.prefix(60).map { ($0, "buy", 1) })
        let (more, less) = (try results("metric=more"), try results("metric=less"))
        #expect(more["verdict"]["decision"] == "stop" && less["verdict"]["decision"] == "ship", "\(less.text)")
        #expect(less["verdict"]["winner"] == "new" && less["verdict"]["metric"] == "less")
        let (a, b) = (try variation("new", more)["estimate"], try variation("new", less)["estimate"])
        for member in ["lift", "lift_interval", "p_value", "sequential_p_value", "difference"] {
            #expect(a["comparison"][member] == b["comparison"][member])
        }
        let chances = [a, b, try variation("new", results("metric=fewer"))["estimate"]].map {
            $0["comparison"]["chance_to_win"].double ?? -1
        }
        #expect(chances[0] < 1e-6 && chances[1] > 1 - 1e-6 && chances[2] > 1 - 1e-6, "\(chances)")
    }

    @Test func `Results of a metric are a table and a chart, and have the days of enrollment`() throws {
        try define("revenue", #"{"kind":"total","goal":"buy","cap":50}"#)
        try measure(#"{"secondary":["revenue"]}"#)
        try useAll()
        let csv = try server.request("GET", "/v1/experiments/e/results?metric=revenue&format=csv").text
        let lines = csv.split(separator: "\r\n").map { $0.split(separator: ",", omittingEmptySubsequences: false) }
        #expect(lines.dropFirst().map { $0[10] } == ["revenue", "revenue"] && lines.count == 3, "\(csv)")
        #expect(lines[0].last == "sum" && lines.dropFirst().map { $0.last } == ["30.0", "90.0"], "\(csv)")
        let chart = try server.request("GET", "/v1/experiments/e/results.svg?metric=revenue")
        #expect(chart.status == 200 && chart.text.contains("Metric 'revenue'"))
        let days = try results("metric=revenue&by=day")["days"].array ?? []
        #expect(days.first?["variations"].array?.compactMap { $0["value"].double }.sorted() == [30, 90], "\(days)")
    }

    @Test func `What an experiment does not measure has no results`() throws {
        try define("revenue", #"{"kind":"total","goal":"buy","cap":50}"#)
        func get(_ query: String) throws -> TestResponse {
            try server.request("GET", "/v1/experiments/e/results?\(query)")
        }
        #expect(try get("metric=revenue").status == 422)
        #expect(try get("").status == 400)
        #expect(try get("goal=buy&metric=revenue").status == 400)
        try measure(#"{"primary":["revenue"]}"#)
        let misspelt = try get("metric=revenu")
        #expect(misspelt.status == 422 && misspelt.text.contains("did you mean 'revenue'"), "\(misspelt.text)")
        #expect(try get("goal=buy&metric=value")["goal"] == "buy")
    }

    @Test func `A changed definition is computed anew, and totals that nobody needs are gone`() throws {
        try define("m", #"{"kind":"total","goal":"buy","cap":50}"#)
        try measure(#"{"primary":["m"]}"#)
        try useAll()
        #expect(try variation("new", results("metric=m"))["estimate"]["mean"].double == 30)
        // A cap may only change while no experiment that has started measures the metric.
        try measure("null")
        #expect(try server.request("PUT", "/v1/metrics/m", #"{"cap":45}"#).status == 200)
        try measure(#"{"primary":["m"]}"#)
        #expect(abs((try variation("new", results("metric=m"))["estimate"]["mean"].double ?? 0) - 85.0 / 3) < 1e-12)
        try send([("f", "buy", 100)])
        #expect(abs((try variation("new", results("metric=m"))["estimate"]["mean"].double ?? 0) - 130.0 / 3) < 1e-12)
        #expect(try server.request("DELETE", "/v1/profiles/f").status < 300)
        #expect(try variation("new", results("metric=m"))["estimate"]["mean"].double == 42.5)
    }

    @Test func `A goal cannot have the name of a total`() throws {
        let refused = try server.request("POST", "/v1/events", #"{"user_id":"a","goal":"\u00011"}"#)
        #expect(refused.status == 400 && refused["pointer"] == "/goal", "\(refused.text)")
        #expect(try server.request("PUT", "/v1/metrics/m", #"{"kind":"count","goal":"\u0001"}"#).status == 422)
    }
}
