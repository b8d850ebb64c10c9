import APITestSupport
import JSON
import Testing

/// `/v1/metrics`. `MetricRulesTests` has the rules.
@Suite struct MetricTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    private func put(_ body: String) throws -> TestResponse {
        try server.request("PUT", "/v1/metrics/revenue", body)
    }

    @Test func `A metric is created, shown, listed, changed and deleted, and SDKs do not get it`() throws {
        let created = try put(#"{"kind":"total","goal":"purchase","cap":500.5,"unit":"EUR"}"#)
        #expect(created.status == 201 && created["cap"] == 500.5, "\(created.text)")
        let read = try server.request("GET", "/v1/metrics/revenue")
        #expect(read.json == created.json)
        #expect(try put(read.text)["revision"] == read["revision"])
        #expect(try server.request("GET", "/v1/metrics?q=purchase")["metrics"].array?.map { $0["key"] } == ["revenue"])
        #expect(try server.request("GET", "/v1/metrics?q=other")["metrics"] == [])
        #expect(try server.request("GET", "/datafiles/default.json").text.contains("revenue") == false)
        #expect(try put(#"{"cap":null}"#).status == 200)
        let refused = try put(#"{"cap":-1,"extra":2}"#)
        #expect(refused.status == 422 && refused["errors"].array?.map { $0["pointer"] } == ["/extra", "/cap"])
        #expect(try server.request("DELETE", "/v1/metrics/revenue").status == 204)
        #expect(try server.request("GET", "/v1/metrics/revenue").status == 404)
        let entries = try server.request("GET", "/v1/audit")["entries"].array ?? []
        #expect(entries.map { $0["action"] } == ["metric.delete", "metric.put", "metric.put"])
        #expect(entries[1]["before"]["metric"]["cap"] == 500.5 && entries[1]["after"]["metric"]["cap"].isNull)
    }

    @Test func `A metric that an experiment measures cannot be deleted, and if its numbers are kept not be changed`()
        throws
    {
        #expect(try put(#"{"kind":"count","goal":"purchase"}"#).status == 201)
        let body = #"{"variations":["control","new"],"metrics":{"primary":["revenue"]}}"#
        #expect(try server.request("PUT", "/v1/experiments/checkout", body).status == 201)
        #expect(try server.request("GET", "/v1/metrics/revenue")["experiments"] == ["checkout"])
        let conclusion = try server.request("POST", "/v1/experiments/checkout/conclude", #"{"winner":"new"}"#)
        #expect(conclusion.status == 200, "\(conclusion.text)")
        for refused in [try server.request("DELETE", "/v1/metrics/revenue"), try put(#"{"window":3}"#)] {
            #expect(refused.status == 409 && refused.text.contains("'checkout'"), "\(refused.text)")
        }
    }
}
