import APITestSupport
import JSON
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
        #expect(try results()["users"] == ["counted": 3, "crossed": 1, "forced": 1])
        let control = try #require(try results()["variations"].array?.first)
        #expect(control["users"] == 2 && control["converted"] == 2 && control["value"]["mean"] == 10.0)
        #expect(try server.request("DELETE", "/v1/profiles/a").status == 204)
        #expect(try results()["users"] == ["counted": 2, "crossed": 1, "forced": 1])
        #expect(try results()["variations"].array?.first?["events"] == 1)
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
}
