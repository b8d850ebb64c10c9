import APITestSupport
import Foundation
import JSON
import TestSupport
import Testing

/// What made decisions wrong, or hid them, as requests make it: outliers, breakage, baselines below zero, and too many looks.
@Suite struct DecisionFaultTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    private func send(_ path: String, _ elements: [String]) throws {
        for start in stride(from: 0, to: elements.count, by: 1_000) {
            let body = "[\(elements[start..<min(start + 1_000, elements.count)].joined(separator: ","))]"
            let sent = try server.request("POST", "/v1/\(path)", body)
            #expect(sent.status == 200 && !sent.text.contains("refused"), "\(sent.text)")
        }
    }

    private func metric(_ key: String, _ body: String) throws {
        #expect(try server.request("PUT", "/v1/metrics/\(key)", body).status == 201)
    }

    /// Starts an experiment with a ramp, whose users are `control0`, `new0`, `control1`…
    private func start(_ metrics: String, variations: [String] = ["control", "new"], users: Int) throws {
        let names = variations.map { "\"\($0)\"" }.joined(separator: ",")
        let ramp = #"{"steps":[{"traffic":50,"for":"1d"},{"traffic":100}]}"#
        let body = #"{"variations":[\#(names)],"metrics":\#(metrics),"ramp":\#(ramp)}"#
        let made = try server.request("PUT", "/v1/experiments/e", body)
        #expect(made.status == 201, "\(made.text)")
        try send(
            "exposures",
            variations.flatMap { name in
                (0..<users).map { #"{"user_id":"\#(name)\#($0)","experiment":"e","variation_key":"\#(name)"}"# }
            })
    }

    private func events(
        _ goal: String, _ variation: String, _ users: Range<Int>, value: (Int) -> Double? = { _ in nil }
    )
        throws
    {
        try send(
            "events",
            users.map { user in
                let value = value(user).map { #","value":\#($0)"# } ?? ""
                return #"{"user_id":"\#(variation)\#(user)","goal":"\#(goal)"\#(value)}"#
            })
    }

    private func results(_ query: String = "") throws -> TestResponse {
        try server.request("GET", "/v1/experiments/e/results\(query)")
    }

    /// What would stop the ramp, or has.
    private func alarms() throws -> [String] {
        let overview = try server.request("GET", "/v1/overview")
        let experiment = overview["experiments"].array?.first
        return (experiment?["alarms"].array ?? []).compactMap { $0["kind"].string }
    }

    private func finding(_ metric: String, _ results: TestResponse) throws -> JSONValue {
        let found = results["metrics"].array?.first { $0["key"].string == metric }
        return try #require(found?["variations"].array?.last, "\(results.text)")
    }

    @Test func `One order decides nothing, of the baseline or of the variation`() throws {
        try metric("revenue", #"{"kind":"total","goal":"buy"}"#)
        try start(#"{"guardrails":[{"metric":"revenue","margin":0.2}]}"#, users: 200)
        for name in ["control", "new"] { try events("buy", name, 0..<20) { 15 + Double($0 % 11) } }
        for name in ["control", "new"] {
            try events("buy", name, 0..<1) { _ in 20_000 }
            let found = try results("?goal=buy&metric=value")
            #expect(found["verdict"]["decision"] == "continue", "\(found.text)")
            let comparison = try #require(found["variations"].array?.last?["value"]["comparison"])
            let (oneLook, always) = (comparison["p_value"].double ?? 2, comparison["sequential_p_value"].double ?? -1)
            #expect(always >= oneLook && oneLook > 0.05, "\(comparison)")
            #expect(try finding("revenue", try results())["outcome"] == "uncertain")
            #expect(try alarms() == [])
        }
    }

    @Test func `What does not work any more is found, though one side has nothing to count`() throws {
        try metric("orders", #"{"kind":"conversion","goal":"order"}"#)
        try metric("conversions", #"{"kind":"conversion","goal":"convert"}"#)
        try metric("crashes", #"{"kind":"conversion","goal":"crash","direction":"decrease"}"#)
        try start(
            #"{"primary":["conversions"],"guardrails":[{"metric":"orders","margin":0.1},{"metric":"crashes","margin":0.1}]}"#,
            users: 1_000)
        try events("order", "control", 0..<100)
        try events("crash", "new", 0..<1_000)
        try events("convert", "control", 0..<300)
        let found = try results()
        #expect(found["verdict"]["decision"] == "stop", "\(found.text)")
        #expect(try finding("orders", found)["outcome"] == "beyond_margin")
        let crashes = try finding("crashes", found)
        #expect(crashes["outcome"] == "beyond_margin" && crashes["lift"] == .null && crashes["lift_interval"] == .null)
        #expect(crashes["difference"] == 1.0 && crashes["difference_interval"].array?.first?.double ?? 0 > 0.9)
        #expect(try finding("conversions", found)["outcome"] == "worse")
        #expect(try alarms().sorted() == ["guardrail", "primary"])
        for goal in ["order", "crash", "convert"] {
            let verdict = try results("?goal=\(goal)")["verdict"]
            #expect(verdict["decision"] == (goal == "crash" ? "ship" : "stop"), "\(verdict)")
        }
    }

    @Test(arguments: [("control", "new", "better", "within_margin"), ("new", "control", "worse", "beyond_margin")])
    func `With a mean below zero, a loss that shrinks is better, and one that grows is worse`(
        losing: String, other: String, outcome: String, guardrail: String
    ) throws {
        try metric("profit", #"{"kind":"total","goal":"profit","direction":"increase"}"#)
        try metric("margin", #"{"kind":"total","goal":"profit","direction":"increase"}"#)
        try start(#"{"primary":["profit"],"guardrails":[{"metric":"margin","margin":0.2}]}"#, users: 1_000)
        try events("profit", losing, 0..<1_000) { -5 + Double($0 % 5 - 2) }
        try events("profit", other, 0..<1_000) { -3 + Double($0 % 5 - 2) }
        let found = try results()
        #expect(found["verdict"]["decision"] == (outcome == "better" ? "ship" : "stop"), "\(found.text)")
        let profit = try finding("profit", found)
        #expect(profit["outcome"].string == outcome)
        #expect(abs((profit["lift"].double ?? 0) - (outcome == "better" ? 0.4 : -2.0 / 3)) < 1e-9)
        #expect(try finding("margin", found)["outcome"].string == guardrail)
        #expect(try alarms() == (outcome == "better" ? [] : ["guardrail", "primary"]))
    }

    @Test func `Near zero an absolute margin decides`() throws {
        try metric("profit", #"{"kind":"total","goal":"profit","direction":"increase"}"#)
        try start(#"{"guardrails":[{"metric":"profit","margin":{"absolute":0.5}}]}"#, users: 1_000)
        for name in ["control", "new"] { try events("profit", name, 0..<1_000) { Double($0 % 5 - 2) } }
        let profit = try finding("profit", try results())
        #expect(profit["outcome"] == "within_margin" && profit["difference"] == 0.0, "\(profit)")
        #expect(profit["difference_interval"].array?.first?.double ?? -1 > -0.5)
    }

    @Test func `12 against 60 crashes of 5,000 users each are told apart`() throws {
        try metric("crashes", #"{"kind":"conversion","goal":"crash","direction":"decrease"}"#)
        try start(#"{"primary":["crashes"]}"#, users: 5_000)
        try events("crash", "control", 0..<12)
        try events("crash", "new", 0..<60)
        let crashes = try finding("crashes", try results())
        #expect(crashes["outcome"] == "worse" && crashes["p_value"].double ?? 1 < 1e-4, "\(crashes)")
    }

    @Test func `A control check that one look would call suspicious is not, and a broken one is`() throws {
        try metric("orders", #"{"kind":"conversion","goal":"order"}"#)
        try start(#"{"primary":["orders"]}"#, variations: ["control", "control-check", "new"], users: 1_000)
        try events("order", "control", 0..<100)
        try events("order", "new", 0..<100)
        // One look at 100 against 140 of 1,000 has a p-value of 0.006.
        try events("order", "control-check", 0..<140)
        #expect(try results()["verdict"]["decision"] == "continue")
        try events("order", "control-check", 140..<200)
        let found = try results()
        #expect(found["verdict"]["decision"] == "invalid", "\(found.text)")
    }

    @Test func `Equal variations with heavy-tailed orders are not decided, however often one looks`() throws {
        var random = SeededGenerator(seed: 57)
        // Log-normal orders with a sigma of 1.5, of one user in 30.
        func orders(_ users: Range<Int>, of experiment: Int) -> [String] {
            users.filter { _ in Int.random(in: 0..<30, using: &random) == 0 }.map { user in
                let normal =
                    (-2 * log(Double.random(in: .leastNonzeroMagnitude...1, using: &random))).squareRoot()
                    * cos(2 * .pi * Double.random(in: 0...1, using: &random))
                return #"{"user_id":"e\#(experiment)u\#(user)","goal":"buy","value":\#(20 * exp(1.5 * normal))}"#
            }
        }
        var decided: [String] = []
        for experiment in 0..<6 {
            let key = "aa\(experiment)"
            let made = try server.request("PUT", "/v1/experiments/\(key)", #"{"variations":["control","new"]}"#)
            #expect(made.status == 201)
            for first in stride(from: 0, to: 1_500, by: 250) {
                let users = first..<first + 250
                try send(
                    "exposures",
                    users.map {
                        let variation = Bool.random(using: &random) ? "control" : "new"
                        return
                            #"{"user_id":"e\#(experiment)u\#($0)","experiment":"\#(key)","variation_key":"\#(variation)"}"#
                    })
                try send("events", orders(users, of: experiment))
                let found = try server.request("GET", "/v1/experiments/\(key)/results?goal=buy&metric=value")
                if found["verdict"]["decision"] != "continue" { decided.append(key) }
            }
        }
        #expect(decided.isEmpty)
    }
}
