import APITestSupport
import JSON
import Testing

/// A report of an experiment as a page to print and to send.
@Suite struct ReportTests {
    private let server: any TestServer
    private static let evil = #"<img src=x onerror=alert(1)>"'&"#

    init() throws {
        server = try startTestServer()
        for (key, body) in [
            ("orders", #"{"kind":"conversion","goal":"buy"}"#), ("spent", #"{"kind":"total","goal":"buy"}"#),
            ("returns", #"{"kind":"conversion","goal":"return","direction":"decrease"}"#),
        ] {
            #expect(try server.request("PUT", "/v1/metrics/\(key)", body).status == 201)
        }
    }

    private static var evilText: String { String(decoding: JSONValue.string(evil).encoded(), as: UTF8.self) }

    private func put(_ members: String = "") throws {
        let body = #"{"variations":["control",\#(Self.evilText)],"name":\#(Self.evilText)\#(members)}"#
        let made = try server.request("PUT", "/v1/experiments/checkout", body)
        #expect(made.status == 201, "\(made.text)")
    }

    private func send(_ path: String, _ users: Range<Int>, _ members: String) throws {
        let body = users.map { #"{"user_id":"\#($0)",\#(members)}"# }.joined(separator: ",")
        #expect(try server.request("POST", "/v1/\(path)", "[\(body)]").status == 200)
    }

    private func run() throws {
        try send("exposures", 0..<400, #""experiment":"checkout","variation_key":"control""#)
        try send("exposures", 400..<800, #""experiment":"checkout","variation_key":\#(Self.evilText)"#)
        for users in [0..<100, 400..<600] { try send("events", users, #""goal":"buy","value":10"#) }
    }

    private func report(_ query: String = "") throws -> TestResponse {
        try server.request("GET", "/v1/experiments/checkout/report.html\(query)")
    }

    /// Nothing is loaded and nothing runs, whatever the names are.
    private func expectSafe(_ report: TestResponse) throws {
        #expect(report.status == 200, "\(report.text)")
        #expect(report.field("content-type") == "text/html; charset=utf-8")
        let nonce = try #require(report.text.firstMatch(of: #/<style nonce="([0-9a-z]+)">/#)?.output.1)
        let policy = "default-src 'none'; style-src 'nonce-\(nonce)'; base-uri 'none'; form-action 'none'"
        #expect(report.field("content-security-policy") == "\(policy); sandbox; frame-ancestors 'none'")
        #expect(report.text.contains(#"<meta http-equiv="Content-Security-Policy" content="\#(policy)">"#))
        let text = report.text.lowercased()
        for forbidden in ["<img", "<script", "<link", "<iframe", " src=", " href=", "url(", "@import", "://"] {
            #expect(!text.replacing("&lt;img src=x", with: "").contains(forbidden), "\(forbidden)")
        }
        #expect(text.utf8.count < 40_000, "\(text.utf8.count)")
    }

    @Test func `A report has the verdict, the plan, the metrics with intervals, the split, who and when`() throws {
        try put(
            #","hypothesis":"Fewer <steps>","owner":"ann","traffic":50"#
                + #","metrics":{"primary":["orders"],"secondary":["spent"],"guardrails":[{"metric":"returns","margin":0.3}]}"#
        )
        try run()
        let report = try report()
        try expectSafe(report)
        for part in [
            "<h1>&lt;img src=x onerror=alert(1)&gt;&quot;'&amp;</h1>", "Fewer &lt;steps&gt;", "owner: ann",
            "50% of users are enrolled", "Decided by</th><td>orders", "returns (margin 30%)", "5% error, 80% power",
            "95% interval, valid at every interim look", "+100.0%",
            "<svg role=\"img\"", "Sample ratio: as configured (p ",
            "<td>400</td><td>400</td>", "from revision", "by anonymous",
        ] {
            #expect(report.text.contains(part), "\(part) is missing in \(report.text)")
        }
    }

    @Test func `Numbers of a metric with a unit have it in results, reports, charts and sentences`() throws {
        #expect(try server.request("PUT", "/v1/metrics/spent", #"{"unit":"EUR"}"#).status == 200)
        try put(#","metrics":{"primary":["orders"],"guardrails":[{"metric":"spent","margin":{"absolute":20}}]}"#)
        try run()
        let planned = try server.request("GET", "/v1/experiments/checkout/results")
        let metrics = planned["metrics"].array ?? []
        #expect(metrics.map { $0.object?["unit"] } == [nil, "EUR"], "\(planned.text)")
        #expect(planned.text.contains("by its margin of 20.0 EUR: difference +2.5 EUR"), "\(planned.text)")
        let alone = try server.request("GET", "/v1/experiments/checkout/results?metric=spent")
        #expect(alone["metric"]["unit"] == "EUR", "\(alone.text)")
        let chart = try server.request("GET", "/v1/experiments/checkout/results.svg?metric=spent").text
        #expect(chart.contains("baseline 2.50\u{a0}EUR"), "\(chart)")
        let report = try report()
        try expectSafe(report)
        for part in ["5.00\u{a0}EUR", "baseline 2.50\u{a0}EUR", "spent (margin 20.00\u{a0}EUR)"] {
            #expect(report.text.contains(part), "\(part) is missing in \(report.text)")
        }
        for (unit, text) in [("JPY", "2.5\u{a0}JPY"), ("items", "2.5\u{a0}items"), ("<b>", "2.5\u{a0}&lt;b&gt;")] {
            #expect(try server.request("PUT", "/v1/metrics/spent", #"{"unit":"\#(unit)"}"#).status == 200)
            #expect(try self.report().text.contains("baseline \(text)"))
        }
    }

    @Test func `A conclusion is the first that a report says`() throws {
        try put(#","metrics":{"primary":["orders"]}"#)
        try run()
        let conclude = #"{"winner":"control","reason":"The <other> costs too much"}"#
        #expect(try server.request("POST", "/v1/experiments/checkout/conclude", conclude).status == 200)
        let report = try report()
        try expectSafe(report)
        #expect(report.text.contains("Concluded: everybody gets control"))
        #expect(report.text.contains("The &lt;other&gt; costs too much."))
        #expect(report.text.contains("the time of the conclusion"))
        #expect(try !self.report("?live=true").text.contains("the time of the conclusion"))
    }

    @Test func `Without metrics a report is about a goal, also before anybody was seen`() throws {
        try put()
        try expectSafe(report("?goal=buy"))
        try run()
        let report = try report("?goal=buy")
        try expectSafe(report)
        #expect(report.text.contains("+100.0%"))
        #expect(try self.report("?goal=buy&days=7").text.contains("Only some users"))
    }

    @Test(arguments: [
        ("/v1/experiments/checkot/report.html", 404), ("/v1/experiments/checkout/report.html", 400),
        ("/v1/experiments/checkout/report.html?goal=buy&format=csv", 400),
        ("/v1/experiments/checkout/report.html?goal=buy&baseline=none", 422),
        ("/v1/experiments/checkout/report.html?goal=buy&days=x", 400),
        ("/v1/experiments/checkout/report.html?goal=buy&segment=none", 422),
        ("/v1/experiments/%3Cb%3E/report.html?goal=buy", 404),
    ])
    func `A wrong name or parameter is an error and no page`(_ target: String, _ status: Int) throws {
        try put()
        let refused = try server.request("GET", target)
        #expect(refused.status == status, "\(refused.text)")
        #expect(refused.field("content-type") == "application/problem+json")
    }
}
