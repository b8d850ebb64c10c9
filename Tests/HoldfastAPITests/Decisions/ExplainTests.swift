import APITestSupport
import Foundation
import JSON
import Testing

/// Why a user gets what they get.
@Suite struct ExplainTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    private func explain(
        _ user: String, _ experiment: String = "checkout", _ query: String = "", token: String? = nil
    ) throws -> TestResponse {
        try server.request("GET", "/v1/profiles/\(user)/experiments/\(experiment)/explain\(query)", token: token)
    }

    private func steps(_ response: TestResponse) -> [JSONValue] { response["steps"].array ?? [] }

    private func names(_ response: TestResponse) -> [String] { steps(response).compactMap(\.["step"].string) }

    private static let adults = #"""
        {"id":"7001","variations":[{"key":"control","id":"70011"},{"key":"new","id":"70012"}],
        "audience":["and",{"type":"custom_attribute","name":"age","match":"ge","value":18},
        ["not",{"type":"custom_attribute","name":"country","value":"us"}]]}
        """#

    private func start() throws {
        for (target, body) in [
            ("/v1/attributes/age", #"{"type":"number"}"#), ("/v1/attributes/country", #"{"type":"string"}"#),
            ("/v1/experiments/checkout", Self.adults),
        ] {
            #expect(try server.request("PUT", target, body).status < 300)
        }
        #expect(try server.request("PATCH", "/v1/profiles/ada/attributes", #"{"age":30,"country":"ch"}"#).status < 300)
    }

    @Test func `A user without an assignment is explained by audience and bucket, as an assignment would be`() throws {
        try start()
        let explained = try explain("ada")
        #expect(explained.status == 200, "\(explained.text)")
        #expect(
            names(explained) == [
                "status", "forced_variation", "override", "whitelist", "stored_assignment", "audience", "bucketing",
            ])
        #expect(
            steps(explained).map { $0["result"] } == [
                "running", "none", "none", "none", "none", "admits", "in_variation",
            ])
        let audience = try #require(steps(explained).first { $0["step"] == "audience" }?["audience"])
        #expect(audience["audience_id"] == "holdfast7001" && audience["result"] == true)
        let all = audience["conditions"].array?.first ?? .null
        #expect(all["operator"] == "and" && all["result"] == true)
        let conditions = all["conditions"].array ?? []
        #expect(
            conditions.first
                == ["attribute": "age", "match": "ge", "value": 18, "actual": 30, "result": true])
        #expect(conditions.last?["operator"] == "not")
        #expect(
            conditions.last?["conditions"].array
                == [["attribute": "country", "match": "exact", "value": "us", "actual": "ch", "result": false]])

        let bucket = try #require(steps(explained).last)
        let hashed = try server.request(
            "POST", "/v1/bucket", #"{"bucketing_id":"ada","parent_id":"7001"}"#)
        #expect(bucket["hash"] == hashed["hash"] && bucket["bucket_value"] == hashed["bucket_value"])
        let (start, end) = (bucket["range"]["start"].double ?? -1, bucket["range"]["end"].double ?? -1)
        #expect((start..<end).contains(bucket["bucket_value"].double ?? -1))
        // It has enrolled nobody.
        #expect(try server.request("GET", "/v1/profiles/ada").status == 404)
        let assigned = try server.request("POST", "/v1/assign", AssignSamples.ask("ada"))
        for member in ["variation_id", "variation_key", "source", "reasons"] {
            #expect(assigned[member] == explained[member])
        }
        server.stop()
    }

    @Test func `The step that decides is the last one`() throws {
        try start()
        let outside = try explain("nobody")
        #expect(names(outside).last == "audience" && outside["variation_id"].isNull && outside["source"] == "none")
        let audience = steps(outside).last?["audience"] ?? .null
        #expect(audience["result"].isNull)
        let age = audience["conditions"].array?.first?["conditions"].array?.first
        #expect(age == ["attribute": "age", "match": "ge", "value": 18, "actual": .null, "result": .null])

        _ = try server.request("POST", "/ups/save", profile("bob", ["7001": "70012"]))
        let stored = try explain("bob", "7001")
        #expect(stored["variation_key"] == "new" && stored["source"] == "stored")
        let step = try #require(steps(stored).last)
        #expect(step["step"] == "stored_assignment" && step["result"] == "applies")
        #expect(step["source"] == "saved" && step["assigned_at"].string != nil)

        _ = try server.request("PUT", "/v1/profiles/bob/experiments/checkout", #"{"variation_key":"control"}"#)
        let overridden = try explain("bob")
        #expect(names(overridden) == ["status", "forced_variation", "override"])
        #expect(steps(overridden).last?["variation_key"] == "control")

        _ = try server.request("PUT", "/v1/experiments/checkout", #"{"status":"paused"}"#)
        let paused = try explain("bob")
        #expect(steps(paused).last == ["step": "status", "result": "not_running", "status": "paused"])
        server.stop()
    }

    @Test func `Closed enrollment is a step`() throws {
        try start()
        _ = try server.request("PUT", "/v1/experiments/checkout", #"{"enrollment":"closed"}"#)
        let explained = try explain("ada")
        #expect(names(explained).suffix(2) == ["enrollment", "bucketing"] && explained["variation_id"].isNull)
        #expect(steps(explained).suffix(2).map { $0["result"] } == ["closed", "outside_traffic"])
        server.stop()
    }

    @Test func `An assignment whose variation is gone is a step, and bucketing decides`() throws {
        try start()
        _ = try server.request("POST", "/ups/save", profile("ada", ["7001": "gone"]))
        let explained = try explain("ada")
        let step = try #require(steps(explained).first { $0["step"] == "stored_assignment" })
        #expect(step["result"] == "gone" && step["variation_id"] == "gone")
        #expect(names(explained).last == "bucketing")
        #expect(try server.request("GET", "/v1/profiles/ada").text == profile("ada", ["7001": "gone"]))
        server.stop()
    }

    @Test func `Holdouts, groups, the whitelist and what is forced for a test are steps`() throws {
        #expect(
            try server.request("PUT", "/v1/datafile", ExplainSamples.datafile, fields: AgentSamples.fields).status
                == 201)
        let first = try explain("user", "one")
        #expect(names(first).first == "holdout")
        #expect(steps(first).first?["result"] == "outside_traffic")
        let groups = try ["one", "two"].map { experiment in
            try #require(steps(explain("user", experiment)).first { $0["step"] == "group" })
        }
        #expect(Set(groups.map { $0["result"].string }) == ["this_experiment", "other_experiment"])
        #expect(Set(groups.map { $0["bucket_value"].encoded() }).count == 1)
        let listed = try explain("listed", "one")
        #expect(steps(listed).last?["step"] == "whitelist" && listed["source"] == "whitelist")
        let body = #"{"userId":"user","experimentKey":"one","variationKey":"b"}"#
        #expect(try server.request("POST", "/v1/override", body, fields: AgentSamples.fields).status == 200)
        let forced = try explain("user", "one")
        #expect(steps(forced).last?["step"] == "forced_variation" && forced["variation_key"] == "b")
        let all = ExplainSamples.datafile.replacing(#""endOfRange":0}"#, with: #""endOfRange":10000}"#)
        #expect(try server.request("PUT", "/v1/datafile", all, fields: AgentSamples.fields).status == 200)
        let held = try explain("user", "one")
        #expect(names(held) == ["holdout"] && held["source"] == "holdout")
        #expect(steps(held).first?["result"] == "held_out" && steps(held).first?["holdout_key"] == "quiet")
        server.stop()
    }

    @Test func `At an earlier time the datafile of then explains`() throws {
        try start()
        let first = try explain("ada")
        // The clock of the server counts milliseconds.
        let between = Date().addingTimeInterval(0.01)
        while Date() < between.addingTimeInterval(0.01) {}
        _ = try server.request("PUT", "/v1/experiments/checkout", #"{"status":"paused"}"#)
        let format = Date.ISO8601FormatStyle(includingFractionalSeconds: true)
        let then = try explain("ada", "checkout", "?at=\(between.formatted(format))")
        #expect(then["datafile"]["active"] == false && first["datafile"]["active"] == true)
        #expect(then["datafile"]["version"] == first["datafile"]["version"])
        #expect(then["steps"] == first["steps"] && then["variation_id"] == first["variation_id"])
        let now = try explain("ada")
        #expect(now["datafile"]["version"] != first["datafile"]["version"] && names(now) == ["status"])
        let future = try explain("ada", "checkout", "?at=2999-01-01T00:00:00Z")
        #expect(future["datafile"] == now["datafile"])
        let before = try explain("ada", "checkout", "?at=2001-01-01T00:00:00Z")
        #expect(before.status == 404)
        #expect(before["detail"] == "no datafile is kept that was active at 2001-01-01T00:00:00.000Z")
        server.stop()
    }

    @Test(arguments: [
        (
            "checkout", "?at=yesterday", 400,
            "`at` must be an RFC 3339 time such as 2026-01-31T12:00:00Z; got 'yesterday'"
        ),
        (
            "checkout", "?att=1", 400,
            "the query must have no parameters but `at`, `sdk_key`; got `att`; did you mean `at`?"
        ),
        (
            "chekout", "", 404,
            "no experiment has the key or id 'chekout' in the datafile of version 1; did you mean 'checkout'?"
        ),
        ("checkout", "?sdk_key=other", 404, "no project has the SDK key 'other'"),
    ])
    func `A wrong question is refused`(experiment: String, query: String, status: Int, detail: String) throws {
        _ = try server.request("PUT", "/v1/experiments/checkout", AssignSamples.definition)
        let refused = try explain("ada", experiment, query)
        #expect(refused.status == status && refused["detail"].string == detail)
        server.stop()
    }

    @Test func `Values of attributes are shown only to those who may read them`() throws {
        let tokens = ["read", "write", "attributes", "admin"].map { "\($0) the-\($0) \($0)-secret-0123456789\n" }
        let server = try startTestServer(tokens: tokens.joined())
        func request(_ method: String, _ target: String, _ body: String? = nil, as scope: String) throws -> TestResponse
        {
            try server.request(method, target, body, token: "\(scope)-secret-0123456789")
        }
        _ = try request("PUT", "/v1/attributes/age", #"{"type":"number"}"#, as: "admin")
        _ = try request("PUT", "/v1/experiments/checkout", Self.adults, as: "admin")
        _ = try request("PATCH", "/v1/profiles/ada/attributes", #"{"age":30}"#, as: "admin")
        for (scope, isShown) in [("read", false), ("write", false), ("attributes", true), ("admin", true)] {
            let explained = try request("GET", "/v1/profiles/ada/experiments/checkout/explain", as: scope)
            #expect(explained.status == 200)
            #expect(explained.text.contains(#""actual":30"#) == isShown, "\(scope)")
        }
        server.stop()
    }
}

private enum ExplainSamples {
    /// Two experiments of a group, a holdout for nobody, and a whitelist.
    static let datafile = #"""
        {"version":"4","accountId":"1","projectId":"2","revision":"1","sdkKey":"tests","attributes":[],"audiences":[],
        "rollouts":[],"events":[],"featureFlags":[],"experiments":[],
        "holdouts":[{"id":"90","key":"quiet","status":"Running","audienceIds":[],"variations":[{"id":"91","key":"off"}],
        "trafficAllocation":[{"entityId":"91","endOfRange":0}]}],
        "groups":[{"id":"80","policy":"random","trafficAllocation":[{"entityId":"1","endOfRange":5000},
        {"entityId":"2","endOfRange":10000}],"experiments":[
        {"id":"1","key":"one","layerId":"8","status":"Running","audienceIds":[],"forcedVariations":{"listed":"b"},
        "variations":[{"id":"11","key":"a"},{"id":"12","key":"b"}],
        "trafficAllocation":[{"entityId":"11","endOfRange":10000}]},
        {"id":"2","key":"two","layerId":"8","status":"Running","audienceIds":[],"forcedVariations":{},
        "variations":[{"id":"21","key":"a"}],"trafficAllocation":[{"entityId":"21","endOfRange":10000}]}]}]}
        """#
}
