import APITestSupport
import JSON
import Testing

/// What the published description shows is what the server does.
@Suite struct OpenAPIExampleTests {
    private let server: any TestServer
    private let document: JSONValue

    init() throws {
        server = try startTestServer()
        document = try server.request("GET", "/openapi.json").json
        // What the examples look up.
        for (method, target, body) in [
            ("PUT", "/v1/datafile", Self.datafile),
            ("PUT", "/v1/projects/app", #"{"name":"App"}"#),
            ("PUT", "/v1/webhooks/ops", #"{"url":"https://ops.example/"}"#),
            ("PUT", "/v1/metrics/revenue", #"{"kind":"total","goal":"purchase","cap":500}"#),
            (
                "PUT", "/v1/experiments/checkout",
                #"{"variations":["control","new"],"metrics":{"primary":["revenue"]}}"#
            ),
            // The example is its second part: an import begins before the first exposure.
            (
                "POST", "/v1/experiments/checkout/import",
                #"{"started_at":"2026-01-05T09:00:00Z","shares":{"control":50,"new":50}}"#
            ),
            (
                "PUT", "/v1/experiments/onboarding",
                #"{"variations":["a","b"],"ramp":{"steps":[{"traffic":5,"for":"1d"},{"traffic":100}]}}"#
            ),
            ("PUT", "/v1/holdouts/everything", #"{"share":0,"metrics":{"primary":["revenue"]}}"#),
            ("PUT", "/v1/flags/banner", #"{"type":"boolean","rules":[{"experiment":{}}]}"#),
            ("POST", "/ups/save", profile("ada", ["11": "1", "22": "2"])),
            ("PUT", "/v1/attributes/country", #"{"type":"country"}"#),
            (
                "PUT", "/v1/segments/germans",
                #"{"conditions":{"type":"custom_attribute","name":"country","value":"de"}}"#
            ),
            ("PATCH", "/v1/profiles/ada/attributes", #"{"country":"de"}"#),
            ("PATCH", "/v1/sticky/id/ada", #"{"assignments":{"checkout__0":"new"}}"#),
            ("PATCH", "/v1/sticky-values/ada:userID", #"{"pricing":{"value":true}}"#),
        ] {
            #expect(try server.request(method, target, body).status < 300)
        }
    }

    /// With a flag for the protocols that ask for one.
    private static let datafile = #"""
        {"version":"4","accountId":"1","projectId":"1","revision":"1","sdkKey":"default","attributes":[],"audiences":[],
        "groups":[],"events":[],"rollouts":[],"experiments":[{"id":"9001","key":"search_test","layerId":"1",
        "status":"Running","audienceIds":[],"forcedVariations":{},
        "variations":[{"id":"90011","key":"old","featureEnabled":false},{"id":"90012","key":"new","featureEnabled":true}],
        "trafficAllocation":[{"entityId":"90011","endOfRange":5000},{"entityId":"90012","endOfRange":10000}]}],
        "featureFlags":[{"id":"1","key":"search","rolloutId":"","experimentIds":["9001"],"variables":[]}]}
        """#

    @Test func `The description is served with an entity tag`() throws {
        #expect(document["openapi"] == "3.1.0")
        let tag = try #require(try server.request("GET", "/openapi.json").field("etag"))
        #expect(try server.request("GET", "/openapi.json", fields: ["If-None-Match: \(tag)"]).status == 304)
    }

    @Test func `Each example request is answered with success, and as described`() throws {
        let examples = ExampleRequest.all(in: document)
        for example in examples {
            let name = "\(example.method) \(example.target)"
            if example.operation["responses"]["200"]["content"]["text/event-stream"].object != nil {
                try expectStream(at: example.target, example.fields, name)
                continue
            }
            if example.operation["responses"]["501"].object != nil { continue }
            // There are none without `--approvals 2`; see ApprovalTests.
            if example.path.hasPrefix("/v1/proposals/") { continue }
            // It replaces experiments in which the users of other examples take part.
            let replacesAll = example.operation["operationId"] == "putDatafile"
            let target = replacesAll ? "\(example.target)?moves=allow" : example.target
            let response = try server.request(example.method, target, example.body, fields: example.fields)
            let described = example.operation["responses"]["\(response.status)"]
            #expect((200..<300).contains(response.status), "\(name): \(response.text)")
            #expect(described.object != nil, "\(name) responds \(response.status)")
            let type = response.field("content-type")?.split(separator: ";").first.map(String.init)
            #expect(type == described["content"].object?.members.first?.key, "\(name)")
            if let type, type == "application/json" {
                expectSameMembers(response.json, described["content"][type]["example"], name)
            }
        }
        #expect(examples.count > 20)
        // Whatever was asked for, a clean stop leaves all data in the database file.
        server.stop()
    }

    /// Reads an endless response to its first event.
    private func expectStream(at target: String, _ fields: [String], _ name: String) throws {
        let stream = try server.stream("GET", target, fields: fields + ["Last-Event-ID: 0"])
        #expect(stream.head.status == 200, "\(name)")
        #expect(stream.head.field("content-type") == "text/event-stream", "\(name)")
        // Nothing is decided meanwhile.
        if name.contains("/v1/notifications/") { return }
        #expect(try stream.receiveChunk()?.contains("event: ") == true, "\(name)")
    }

    /// Ids and times differ from those of the example; the members do not.
    private func expectSameMembers(_ json: JSONValue, _ example: JSONValue, _ name: String) {
        guard let example = example.object else { return }
        #expect(json.object?.members.map(\.key) == example.members.map(\.key), "\(name)")
    }
}
