import APITestSupport
import JSON
import Testing

/// `POST /v1/evaluations`: every flag of one user, as a client library caches it.
@Suite struct EvaluationTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
        #expect(try server.request("PUT", "/v1/datafile", Self.datafile(revision: "12")).status == 201)
    }

    /// One flag with an experiment for Germans and with variables, and one that a delivery rule turns on for all.
    private static func datafile(revision: String, weights: (Int, Int) = (5_000, 10_000)) -> String {
        #"""
        {"version":"4","accountId":"1","projectId":"1","revision":"\#(revision)","sdkKey":"shop","groups":[],"events":[],
         "attributes":[{"id":"501","key":"country"}],
         "audiences":[],"typedAudiences":[{"id":"601","name":"Germans","conditions":["and",{"type":"custom_attribute","match":"exact","name":"country","value":"de"}]}],
         "experiments":[{"id":"7001","key":"checkout_test","layerId":"1","status":"Running","audienceIds":["601"],"forcedVariations":{},
          "variations":[{"id":"70011","key":"control","featureEnabled":false,"variables":[]},
           {"id":"70012","key":"new","featureEnabled":true,"variables":[{"id":"801","value":"3"}]}],
          "trafficAllocation":[{"entityId":"70011","endOfRange":\#(weights.0)},{"entityId":"70012","endOfRange":\#(weights.1)}]}],
         "featureFlags":[{"id":"9001","key":"checkout","rolloutId":"","experimentIds":["7001"],
          "variables":[{"id":"801","key":"columns","type":"integer","defaultValue":"1"}]},
          {"id":"9002","key":"banner","rolloutId":"30","experimentIds":[],"variables":[]}],
         "rollouts":[{"id":"30","experiments":[{"id":"301","key":"301","layerId":"30","status":"Running","audienceIds":[],"forcedVariations":{},
          "variations":[{"id":"3011","key":"on","featureEnabled":true,"variables":[]}],
          "trafficAllocation":[{"entityId":"3011","endOfRange":10000}]}]}]}
        """#
    }

    private func evaluate(
        _ userID: String, country: String = "de", more: String = "", fields: [String] = []
    ) throws -> TestResponse {
        let body = #"{"user_id":"\#(userID)","attributes":{"country":"\#(country)"}\#(more)}"#
        return try server.request("POST", "/v1/evaluations", body, fields: fields)
    }

    @Test func `A user gets every flag with its variables, and keeps the variation when the split changes`() throws {
        let users = (0..<20).map { "user\($0)" }
        let first = try users.map { try evaluate($0) }
        #expect(first.allSatisfy { $0["revision"] == "12" && $0["evaluations"].array?.count == 2 })
        let before = first.map { $0["evaluations"].array?[0] ?? .null }
        #expect(Set(before.map { $0["variation_key"].string }) == ["control", "new"])
        for evaluation in before.prefix(5) {
            #expect(evaluation["source"] == "bucketed" && evaluation["reason"] == "experiment")
            #expect(evaluation["experiment_id"] == "7001")
            let isNew = evaluation["variation_key"] == "new"
            #expect(evaluation["enabled"].bool == isNew)
            #expect(evaluation["variables"]["columns"] == (isNew ? 3 : 1))
        }
        #expect(
            try server.request("PUT", "/v1/datafile", Self.datafile(revision: "13", weights: (10_000, 10_000))).status
                == 200)
        for (user, former) in zip(users, before) {
            let now = try evaluate(user)
            #expect(now["revision"] == "13")
            #expect(now["evaluations"].array?[0]["variation_id"] == former["variation_id"])
            #expect(now["evaluations"].array?[0]["source"] == "stored")
            #expect(now["evaluations"].array?[0]["reason"] == "sticky")
        }
        server.stop()
    }

    @Test func `A delivery rule names no experiment, and one whom no rule suits has neither variation nor rule`() throws
    {
        let evaluations = try #require(try evaluate("ada", country: "fr")["evaluations"].array)
        #expect(
            evaluations[0].encoded()
                == Array(
                    #"{"flag_key":"checkout","type":null,"value":{"columns":1},"variation_key":null,"variation_id":null,"experiment_id":null,"enabled":false,"variables":{"columns":1},"rule_key":null,"reason":"default","source":"none","flag_version":12,"tags":[]}"#
                        .utf8))
        #expect(
            evaluations[1].encoded()
                == Array(
                    #"{"flag_key":"banner","type":"boolean","value":true,"variation_key":"on","variation_id":"3011","experiment_id":null,"enabled":true,"variables":{},"rule_key":"301","reason":"default","source":"bucketed","flag_version":12,"tags":[]}"#
                        .utf8))
        #expect(try server.request("GET", "/v1/profiles/ada").status == 404)
        server.stop()
    }

    @Test func `What is as the client has it is answered 304 until the datafile or the user changes`() throws {
        _ = try evaluate("ada")
        let kept = try evaluate("ada")
        let tag = try #require(kept.field("etag"))
        let unchanged = try evaluate("ada", fields: ["If-None-Match: \(tag)"])
        #expect(unchanged.status == 304)
        #expect(unchanged.field("etag") == tag)
        #expect(try evaluate("bob", fields: ["If-None-Match: \(tag)"]).status == 200)
        _ = try server.request("PUT", "/v1/datafile", Self.datafile(revision: "13"))
        #expect(try evaluate("ada", fields: ["If-None-Match: \(tag)"]).status == 200)
        server.stop()
    }

    @Test func `A server without any project has no flags, but a project that is named must exist`() throws {
        let empty = try startTestServer()
        let body = #"{"user_id":"ada","flag_keys":["checkout"]}"#
        let none = try empty.request("POST", "/v1/evaluations", body)
        #expect(none.text == #"{"user_id":"ada","revision":"0","evaluations":[],"unknown_flag_keys":["checkout"]}"#)
        let tag = try #require(none.field("etag"))
        #expect(try empty.request("POST", "/v1/evaluations", body, fields: ["If-None-Match: \(tag)"]).status == 304)
        let named = try empty.request("POST", "/v1/evaluations", #"{"user_id":"ada","sdk_key":"shop"}"#)
        #expect(named.status == 404)
        empty.stop()
        server.stop()
    }

    @Test func `Reasons are told when they are asked for`() throws {
        #expect(try evaluate("ada")["evaluations"].array?[0]["reasons"].isNull == true)
        let told = try evaluate("ada", more: #","include_reasons":true"#)
        #expect(told["evaluations"].array?[0]["reasons"].array?.isEmpty == false)
        server.stop()
    }

    @Test func `Reasons name the attribute that is missing, except where the Agent's texts are asked for`() throws {
        let missing: JSONValue =
            #"Attribute "country" is missing; the audience of experiment "checkout_test" needs it."#
        let evaluated = try server.request("POST", "/v1/evaluations", #"{"user_id":"ada","include_reasons":true}"#)
        #expect(evaluated["evaluations"].array?[0]["reasons"].array?.first == missing, "\(evaluated.text)")
        let assigned = try server.request("POST", "/v1/assign", #"{"user_id":"ada","experiment":"checkout_test"}"#)
        #expect(assigned["reasons"].array?.first == missing, "\(assigned.text)")
        #expect(!assigned.text.contains("nested tree"))
        let decided = try server.request(
            "POST", "/v1/decide?keys=checkout", #"{"userId":"ada","decideOptions":["INCLUDE_REASONS"]}"#,
            fields: ["X-Optimizely-SDK-Key: shop", "Content-Type: application/json"])
        #expect(
            decided["reasons"].array?.first == #"an error occurred while evaluating nested tree for audience ID "601""#)
        server.stop()
    }

    @Test func `Keys narrow the flags, in the order of the datafile, and only their experiments enroll`() throws {
        func keys(_ more: String) throws -> [String?]? {
            try evaluate("ada", more: more)["evaluations"].array?.map { $0["flag_key"].string }
        }
        #expect(try keys(#","flag_keys":["banner","unknown"]"#) == ["banner"])
        let named = try server.request(
            "POST", "/v1/evaluations", #"{"user_id":"ada","flag_keys":["unknown","banner","bannner"]}"#)
        #expect(named["unknown_flag_keys"] == ["unknown", "bannner"])
        let known = try evaluate("ada", more: #","flag_keys":["banner"]"#)
        #expect(known.json.object?["unknown_flag_keys"] == nil)
        #expect(try server.request("GET", "/v1/profiles/ada").status == 404)
        #expect(try keys(#","tags":["web"]"#) == [])
        #expect(try keys(#","flag_keys":["banner","checkout"]"#) == ["checkout", "banner"])
        #expect(try server.request("GET", "/v1/profiles/ada").status == 200)
        server.stop()
    }

    @Test func `An exposure is not recorded`() throws {
        _ = try evaluate("ada")
        #expect(
            try server.request("GET", "/metrics").text.contains("holdfast_events_stored_total{kind=\"exposure\"} 0\n"))
        server.stop()
    }

    @Test(arguments: [
        ("[]", 400, ""), (#"{"attributes":{}}"#, 400, "/user_id"), (#"{"user_id":""}"#, 400, "/user_id"),
        (#"{"user_id":"a","attributes":[]}"#, 400, "/attributes"),
        (#"{"user_id":"a","include_reasons":1}"#, 400, "/include_reasons"),
        (#"{"user_id":"a","sdk_key":"other"}"#, 404, nil), (#"{"user_id":"a","tags":"web"}"#, 400, "/tags"),
        (#"{"user_id":"a","tags":[]}"#, 400, "/tags"), (#"{"user_id":"a","tags":["web",1]}"#, 400, "/tags/1"),
        (#"{"user_id":"a","flag_keys":[null]}"#, 400, "/flag_keys/0"),
    ])
    func `A request that is wrong is refused with the place`(_ body: String, _ status: Int, _ pointer: String?) throws {
        let response = try server.request("POST", "/v1/evaluations", body)
        #expect(response.status == status)
        #expect(response["pointer"].string == pointer)
        server.stop()
    }
}
