import APITestSupport
import Chronology
import Foundation
import JSON
import Storage
import Testing

/// Results of exposures and goals that were recorded.
@Suite struct ResultsEndpointTests {
    @Test func `Results tell who is left out, and forget who is erased`() throws {
        let server = try startTestServer()
        let definition = #"{"id":"7","variations":[{"key":"control","id":"71"},{"key":"new","id":"72"}]}"#
        #expect(try server.request("PUT", "/v1/experiments/checkout", definition).status == 201)
        func expose(_ user: String, _ variation: String) throws {
            let body = #"{"user_id":"\#(user)","experiment":"checkout","variation_key":"\#(variation)"}"#
            #expect(try server.request("POST", "/v1/exposures", body).status == 200)
        }
        for (user, variation) in [("a", "control"), ("b", "new"), ("c", "new"), ("d", "new"), ("e", "control")] {
            try expose(user, variation)
            let event = #"{"user_id":"\#(user)","goal":"buy","value":10}"#
            #expect(try server.request("POST", "/v1/events", event).status == 200)
        }
        try expose("c", "control")
        let override = try server.request("PUT", "/v1/profiles/d/experiments/7", #"{"variation_id":"71"}"#)
        #expect(override.status == 200)
        func results() throws -> JSONValue {
            try server.request("GET", "/v1/experiments/checkout/results?goal=buy").json
        }
        #expect(try results()["users"] == ["counted": 3, "multiple_variations": 1, "forced": 1, "excluded_users": 0])
        let control = try #require(try results()["variations"].array?.first)
        #expect(control["users"] == 2 && control["converted"] == 2 && control["value"]["mean"] == 10.0)
        #expect(control["value"]["sum"] == 20.0 && control["conversion"]["sum"].isNull)
        #expect(try server.request("DELETE", "/v1/profiles/a").status == 200)
        #expect(try results()["users"] == ["counted": 2, "multiple_variations": 1, "forced": 1, "excluded_users": 0])
        #expect(try results()["variations"].array?.first?["events"] == 1)
    }

    @Test func `Values that add up to 0 are shown, and a goal without values has none`() throws {
        let server = try startTestServer()
        #expect(
            try server.request("PUT", "/v1/experiments/checkout", #"{"variations":["control","new"]}"#).status == 201)
        for (user, variation) in [("ann", "control"), ("bob", "new")] {
            let exposure = #"{"user_id":"\#(user)","experiment":"checkout","variation_key":"\#(variation)"}"#
            #expect(try server.request("POST", "/v1/exposures", exposure).status == 200)
            for event in [#""goal":"visit""#, #""goal":"refund","value":-5"#, #""goal":"refund","value":5"#] {
                let body = #"{"user_id":"\#(user)",\#(event)}"#
                #expect(try server.request("POST", "/v1/events", body).status == 200)
            }
        }
        func values(_ goal: String) throws -> [JSONValue] {
            let results = try server.request("GET", "/v1/experiments/checkout/results?goal=\(goal)")
            return (results["variations"].array ?? []).map { $0["value"] }
        }
        #expect(try values("refund").map { $0["mean"] } == [0.0, 0.0])
        #expect(try values("visit") == [.null, .null])
        let csv = try server.request("GET", "/v1/experiments/checkout/results?goal=refund&format=csv").text
        #expect(csv.contains("checkout,refund,control"), "\(csv)")
    }

    @Test func `A goal that was reached only before exposures is said to be one`() throws {
        let server = try startTestServer()
        #expect(
            try server.request("PUT", "/v1/experiments/checkout", #"{"variations":["control","new"]}"#).status == 201)
        let earlier = Date.now.addingTimeInterval(-3_600).formatted(.iso8601)
        let goal = #"{"user_id":"ann","goal":"buy","timestamp":"\#(earlier)"}"#
        #expect(try server.request("POST", "/v1/events", goal).status == 200)
        let exposure = #"{"user_id":"ann","experiment":"checkout","variation_key":"new"}"#
        #expect(try server.request("POST", "/v1/exposures", exposure).status == 200)
        func warning(_ goal: String) throws -> String? {
            let results = try server.request("GET", "/v1/experiments/checkout/results?goal=\(goal)")
            return results["warnings"].array?.first { $0["code"] == "no_conversions" }?["message"].string
        }
        let before =
            "no user has reached the goal 'buy' after being exposed; it was reached only before, which does not count"
        #expect(try warning("buy") == before)
        let misspelt = "no exposed user has reached the goal 'buyy'; goals that were reached: buy; did you mean 'buy'?"
        #expect(try warning("buyy") == misspelt)
    }

    @Test func `A goal that is tracked as with the Agent counts, though no datafile declares it`() throws {
        let server = try startTestServer()
        #expect(
            try server.request("PUT", "/v1/experiments/checkout", #"{"variations":["control","new"]}"#).status == 201)
        let fields = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]
        func post(_ target: String, _ body: String) throws -> TestResponse {
            try server.request("POST", target, body, fields: fields)
        }
        for user in ["ann", "bob"] {
            let exposure = #"{"user_id":"\#(user)","experiment":"checkout","variation_key":"new"}"#
            #expect(try post("/v1/exposures", exposure).status == 200)
        }
        let tracked = try post("/v1/track?eventKey=purchase", #"{"userId":"ann","eventTags":{"value":5}}"#)
        #expect(String(decoding: tracked.body, as: UTF8.self) == #"{"userId":"ann","eventKey":"purchase"}"# + "\n")
        let operation = #"""
            {"method":"POST","url":"/v1/track","operationID":"1","params":{"eventKey":"purchase"},"body":{"userId":"bob"},
            "headers":{"X-Optimizely-SDK-Key":"default","Content-Type":"application/json"}}
            """#
        let batch = try post("/v1/batch", #"{"operations":[\#(operation)]}"#)
        #expect(batch["response"].array?.first?["body"] == ["userId": "bob", "eventKey": "purchase"])
        let results = try server.request("GET", "/v1/experiments/checkout/results?goal=purchase")
        let converted = results["variations"].array?.compactMap { $0["converted"].integer }.reduce(0, +)
        #expect(converted == 2, "\(results.text)")
        // Nobody has the first variation: its means are unknown, not 0.
        let control = try #require(results["variations"].array?.first)
        #expect(control["users"] == 0 && control["conversion"]["rate"].isNull && control["value"]["mean"].isNull)
    }

    @Test func `An event that is missing among those of a datafile is recorded and reported`() throws {
        let server = try startTestServer()
        let datafile = #"""
            {"version":"4","accountId":"1","projectId":"1","revision":"1","sdkKey":"shop","groups":[],"rollouts":[],
            "experiments":[],"featureFlags":[],"audiences":[],"attributes":[],
            "events":[{"id":"1","key":"purchase","experimentIds":[]}]}
            """#
        #expect(try server.request("PUT", "/v1/datafile", datafile).status == 201)
        let fields = ["X-Optimizely-SDK-Key: shop", "Content-Type: application/json"]
        for (key, text) in [
            ("purchase", #"{"userId":"ann","eventKey":"purchase"}"#),
            ("purchace", #"{"userId":"ann","eventKey":"purchace","error":"event with key \"purchace\" not found"}"#),
        ] {
            let target = "/v1/track?eventKey=\(key)"
            let response = try server.request("POST", target, #"{"userId":"ann"}"#, fields: fields)
            #expect(response.status == 200)
            #expect(response.text == text + "\n")
        }
        let events = try server.request("GET", "/v1/profiles/ann/events")["events"].array ?? []
        #expect(Set(events.compactMap { $0["goal"].string }) == ["purchase", "purchace"])
        server.stop()
    }

    /// What a spreadsheet would take for a formula is text; numbers stay numbers.
    @Test func `No cell of a table begins as a formula does, whatever a goal or a value is called`() throws {
        let server = try startTestServer()
        func send(_ method: String, _ target: String, _ body: String) throws {
            let response = try server.request(method, target, body)
            #expect(response.status < 300, "\(response.text)")
        }
        let names = [
            "=1+1", "-x", "+A1", "@SUM(A1)", "-inf", "+0x1p3", "-1", #"=cmd|' /C calc'!A0"#, #"=HYPERLINK("a,b")"#,
        ]
        let values = names.map { JSONValue.string($0) }
        let selection: JSONValue = ["type": "selection", "values": .array(values)]
        try send("PUT", "/v1/attributes/plan", String(decoding: selection.encoded(), as: UTF8.self))
        let definition = #"{"id":"1","variations":["=a","-b"],"metrics":{"breakdowns":["plan"]}}"#
        try send("PUT", "/v1/experiments/%40e", definition)
        for (index, name) in values.enumerated() {
            let attributes: JSONValue = ["plan": name]
            let event: JSONValue = ["user_id": .string("u\(index)"), "goal": name, "value": -1.5]
            try send(
                "PATCH", "/v1/profiles/u\(index)/attributes", String(decoding: attributes.encoded(), as: UTF8.self))
            try send("POST", "/v1/assign", #"{"user_id":"u\#(index)","experiment":"@e"}"#)
            try send("POST", "/v1/exposures", #"{"user_id":"u\#(index)","experiment":"@e"}"#)
            try send("POST", "/v1/events", String(decoding: event.encoded(), as: UTF8.self))
        }
        for name in names {
            let goal = name.utf8.map { "%" + String(UInt16($0) + 0x100, radix: 16).suffix(2) }.joined()
            for part in ["", "&by=day", "&breakdown=plan"] {
                let csv = try server.request("GET", "/v1/experiments/%40e/results?format=csv&goal=\(goal)\(part)")
                #expect(csv.status == 200, "\(csv.text)")
                let cells = Self.cells(csv.text)
                #expect(cells.contains(name == "-1" ? "-1" : "'" + name), "\(name)\(part): \(csv.text)")
                #expect(cells.contains("'=a") && cells.contains("'-b") && cells.contains("'@e"))
                for cell in cells where cell.utf8.first.map({ "=+-@\t\r".utf8.contains($0) }) == true {
                    #expect(cell.wholeMatch(of: #/-?\d+(\.\d+)?(e[+-]?\d+)?/#) != nil, "\(name)\(part): \(cell)")
                }
            }
        }
        server.stop()
    }

    /// The cells of a table, without their quotation marks (RFC 4180).
    private static func cells(_ text: String) -> [String] {
        text.matches(of: #/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(?:,|\r\n)/#).map { match in
            match.output.1.map { String($0).replacing("\"\"", with: "\"") } ?? String(match.output.2 ?? "")
        }
    }

    @Test func `Results come as a table and as a picture too, and what is asked wrongly is told`() throws {
        let server = try startTestServer()
        #expect(try server.request("PUT", "/v1/experiments/e", #"{"variations":["a","b"]}"#).status == 201)
        let csv = try server.request("GET", "/v1/experiments/e/results?goal=g&format=csv")
        #expect(csv.field("content-type") == "text/csv; charset=utf-8")
        #expect(csv.text.split(separator: "\r\n").count == 3)
        let chart = try server.request("GET", "/v1/experiments/e/results.svg?goal=g")
        #expect(chart.field("content-type") == "image/svg+xml")
        #expect(chart.text.hasSuffix("</svg>\n"))
        for (target, status) in [
            ("/v1/experiments/e/results", 400), ("/v1/experiments/nope/results?goal=g", 404),
            ("/v1/experiments/e/results?goal=g&baseline=c", 422),
            ("/v1/experiments/e/results.svg?goal=g&format=csv", 400),
        ] {
            #expect(try server.request("GET", target).status == status, "\(target)")
        }
    }

    @Test func `A change of weights is no mismatch, and each period is compared with its own allocation`() throws {
        let server = try startTestServer()
        func put(_ control: Int, _ new: Int) throws {
            let variations = [("control", control), ("new", new)].map { #"{"key":"\#($0.0)","weight":\#($0.1)}"# }
            let body = #"{"id":"7","variations":[\#(variations.joined(separator: ","))]}"#
            #expect(try server.request("PUT", "/v1/experiments/checkout", body).status < 300)
        }
        func expose(_ users: Range<Int>) throws {
            let assigned = users.map { #"{"user_id":"u\#($0)","experiment":"checkout"}"# }.joined(separator: ",")
            for target in ["/v1/assign", "/v1/exposures"] {
                #expect(try server.request("POST", target, "[\(assigned)]").status == 200)
            }
        }
        try put(1, 1)
        try expose(0..<200)
        // Assigned under the first allocation, and exposed under the second.
        let late = (200..<220).map { #"{"user_id":"u\#($0)","experiment":"checkout"}"# }.joined(separator: ",")
        #expect(try server.request("POST", "/v1/assign", "[\(late)]").status == 200)
        try put(19, 1)
        try expose(220..<900)
        #expect(try server.request("POST", "/v1/exposures", "[\(late)]").status == 200)
        let results = try server.request("GET", "/v1/experiments/checkout/results?goal=buy")
        #expect(results["sample_ratio"]["mismatch"] == false)
        let periods = try #require(results["sample_ratio"]["periods"].array)
        #expect(periods.map { $0["variations"].array?.compactMap { $0["users"].integer }.reduce(0, +) } == [220, 680])
        #expect(
            periods.map { $0["variations"].array?.compactMap { $0["expected_share"].double } } == [
                [50, 50], [95, 5],
            ])
        #expect(periods.allSatisfy { $0["since"].string != nil && $0["p_value"].double != nil })
        let codes = results["warnings"].array?.compactMap { $0["code"].string } ?? []
        #expect(codes.contains("weights_changed") && !codes.contains("sample_ratio_mismatch"), "\(codes)")
    }

    @Test func `Users of a variation that is left out are left out until it is put back`() throws {
        let server = try startTestServer()
        func put(_ variations: String) throws {
            let body = #"{"id":"7","variations":[\#(variations)]}"#
            #expect(try server.request("PUT", "/v1/experiments/checkout?moves=allow", body).status < 300)
        }
        try put(#""control","new","other""#)
        for (user, variation) in [("a", "control"), ("b", "new"), ("c", "other"), ("d", "other")] {
            let body = #"{"user_id":"\#(user)","experiment":"checkout","variation_key":"\#(variation)"}"#
            #expect(try server.request("POST", "/v1/exposures", body).status == 200)
        }
        func results() throws -> TestResponse { try server.request("GET", "/v1/experiments/checkout/results?goal=buy") }
        try put(#""control","new""#)
        let without = try results()
        #expect(without["users"] == ["counted": 2, "multiple_variations": 0, "forced": 0, "excluded_users": 2])
        #expect(without["removed_variations"].array?.first?["variation_key"] == "other")
        #expect(without["removed_variations"].array?.first?["users"] == 2)
        #expect(without["variations"].array?.count == 2)
        try put(#""control","new","other""#)
        let again = try results()
        #expect(again["users"] == ["counted": 4, "multiple_variations": 0, "forced": 0, "excluded_users": 0])
        #expect(again["removed_variations"] == [])
    }

    @Test func `The days of enrollment add up to the totals`() throws {
        let server = try startTestServer()
        #expect(try server.request("PUT", "/v1/experiments/e", #"{"variations":["control","new"]}"#).status == 201)
        let today = systemWallClock()
        for (user, variation, daysAgo) in [("a", "control", 2), ("b", "new", 2), ("c", "new", 1), ("d", "control", 0)] {
            let time = (today - .days(Int64(daysAgo))).rfc3339
            let exposure =
                #"{"user_id":"\#(user)","experiment":"e","variation_key":"\#(variation)","timestamp":"\#(time)"}"#
            #expect(try server.request("POST", "/v1/exposures", exposure).status == 200)
            let event = #"{"user_id":"\#(user)","goal":"buy","value":2.5}"#
            #expect(try server.request("POST", "/v1/events", event).status == 200)
        }
        let results = try server.request("GET", "/v1/experiments/e/results?goal=buy&by=day&mde=0.5")
        let days = try #require(results["days"].array)
        #expect(
            days.map { $0["day"].string } == [2, 1, 0].map { (today - .days($0)).date })
        for (index, key) in ["control", "new"].enumerated() {
            let total = results["variations"].array?[index]
            let rows = days.flatMap { $0["variations"].array ?? [] }.filter { $0["variation_key"].string == key }
            for member in ["users", "events", "converted"] {
                #expect(rows.compactMap { $0[member].integer }.reduce(0, +) == total?[member].integer)
            }
            #expect(rows.compactMap { $0["value"].double }.reduce(0, +) == 5)
        }
        #expect(results["power"] == ["users_per_day": 1.5, "days_counted": 2, "mde": 0.5])
        let csv = try server.request("GET", "/v1/experiments/e/results?goal=buy&by=day&format=csv")
        #expect(csv.text.split(separator: "\r\n").count == 5)
        #expect(csv.text.hasPrefix("experiment_key,goal,day,variation_key,"))
        #expect(try server.request("POST", "/v1/events", #"{"user_id":"d","goal":"click"}"#).status == 200)
        let clicks = try server.request("GET", "/v1/experiments/e/results?goal=click&by=day")
        #expect(clicks["variations"].array?.allSatisfy { $0["value"] == .null } == true)
        let values = (clicks["days"].array ?? []).flatMap { $0["variations"].array ?? [] }.map { $0["value"] }
        #expect(values.count == 4 && values.allSatisfy { $0 == .null }, "without values there is no sum of them")
        for query in [
            "by=week", "mde=0", "mde=x", "mde=nan", "mde=11", "enrolled_from=today", "enrolled_to=2026-02-30",
            "enrolled_from=2026-01-02&enrolled_to=2026-01-01",
        ] {
            #expect(try server.request("GET", "/v1/experiments/e/results?goal=buy&\(query)").status == 400, "\(query)")
        }
        // Only some days.
        let dates = days.compactMap { $0["day"].string }
        for (query, counts) in [
            ("enrolled_from=\(dates[1])", [1, 1]), ("enrolled_to=\(dates[0])", [1, 1]),
            ("enrolled_from=\(dates[1])&enrolled_to=\(dates[1])", [0, 1]), ("enrolled_from=\(dates[0])", [2, 2]),
        ] {
            let some = try server.request("GET", "/v1/experiments/e/results?goal=buy&by=day&\(query)")
            #expect(some["variations"].array?.map { $0["users"].integer } == counts.map { Int64($0) }, "\(query)")
            #expect(some["variations"].array?.map { $0["events"].integer } == counts.map { Int64($0) }, "\(query)")
            #expect(some["warnings"].array?.contains { $0["code"] == "some_days" } == true)
            #expect(some["verdict"]["decision"] == "continue")
            #expect(query.contains("enrolled_to") || some["enrolled_from"].string.map(query.contains) == true)
        }
    }
}
