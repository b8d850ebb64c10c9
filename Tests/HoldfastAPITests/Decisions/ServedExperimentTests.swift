import APITestSupport
import JSON
import Testing

/// Experiments served as flags, and flags that a datafile brought.
@Suite struct ServedExperimentTests {
    private let server: any TestServer
    private static let sdk = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]

    init() throws {
        server = try startTestServer()
    }

    private func evaluations(_ user: String, _ more: String = "") throws -> [JSONValue] {
        try server.request("POST", "/v1/evaluations", #"{"user_id":"\#(user)"\#(more)}"#)["evaluations"].array ?? []
    }

    @Test func `Every experiment is a flag with the variation's key as value`() throws {
        _ = try server.request("PUT", "/v1/experiments/checkout", #"{"variations":["control","new"]}"#)
        for number in 0..<20 {
            let user = "user\(number)"
            let evaluation = try #require(try evaluations(user).first)
            let assigned = try server.request("POST", "/v1/assign", #"{"user_id":"\#(user)","experiment":"checkout"}"#)
            #expect(evaluation["flag_key"] == "checkout" && evaluation["type"] == "string")
            #expect(evaluation["value"] == assigned["variation_key"] && evaluation["value"].string != nil)
            #expect(evaluation["variables"]["value"] == evaluation["value"] && evaluation["enabled"] == true)
            #expect(evaluation["experiment_id"] == assigned["experiment_id"])
            let decided = try server.request(
                "POST", "/v1/decide?keys=checkout", #"{"userId":"\#(user)"}"#, fields: Self.sdk)
            #expect(decided["variationKey"] == evaluation["value"])
            #expect(decided["variables"]["value"] == evaluation["value"])
        }
        let flag = try server.request("GET", "/v1/flags/checkout")
        #expect(flag["defined_by"] == "experiment" && flag["otherwise"].isNull)
        #expect(
            flag["variations"].array?.map { [$0["key"], $0["value"]] } == [["control", "control"], ["new", "new"]])
        let body = #"{"variations":["control","other"],"traffic":0}"#
        #expect(try server.request("PUT", "/v1/experiments/checkout?moves=allow", body).status == 200)
        let nobody = try #require(try evaluations("dee").first)
        #expect(nobody["value"].isNull && nobody["reason"] == "default" && nobody["variation_key"].isNull)
        _ = try server.request("DELETE", "/v1/experiments/checkout")
        #expect(try evaluations("dee").first?["reason"] == "disabled")
        #expect(try server.request("GET", "/v1/flags/checkout")["enabled"] == false)
    }

    @Test func `Experiments may share the ids of their variations`() throws {
        for (experiment, keys) in [("one", ["a", "b"]), ("two", ["x", "y"]), ("three", ["b", "a"])] {
            let body = #"{"variations":[{"key":"\#(keys[0])","id":"1"},{"key":"\#(keys[1])","id":"2"}]}"#
            #expect(try server.request("PUT", "/v1/experiments/\(experiment)", body).status == 201)
        }
        for user in ["ada", "bob", "cy", "dee"] {
            for evaluation in try evaluations(user) {
                #expect(evaluation["value"] == evaluation["variation_key"] && evaluation["value"].string != nil)
            }
        }
        let datafile = try server.request("GET", "/v1/datafile", fields: Self.sdk)
        // SDKs take the values of an id from the last experiment that has it.
        let counts = (datafile["experiments"].array ?? []).map { experiment in
            (experiment["variations"].array ?? []).map { $0["variables"].array?.count }
        }
        #expect(counts == [[1, 1], [1, 1], [3, 3]])
    }

    @Test(arguments: [["one", "two"], ["two", "one"]])
    func `A shared id has the values of all, whatever the order in which groups come about`(groups: [String]) throws {
        let ids = #""variations":[{"key":"a","id":"1"},{"key":"b","id":"2"}]"#
        for (experiment, group) in [("x", groups[0]), ("w", groups[1]), ("z", groups[0]), ("y", nil)] {
            let member = group.map { #","group":"\#($0)","traffic":30"# } ?? ""
            let put = try server.request("PUT", "/v1/experiments/\(experiment)", "{\(ids)\(member)}")
            #expect(put.status == 201, "\(put.text)")
            for evaluation in try evaluations("ada") + evaluations("bob") where evaluation["reason"] == "bucketed" {
                #expect(["a", "b"].contains(evaluation["value"]), "\(evaluation)")
            }
            #expect(try evaluations("ada").first { $0["flag_key"] == "y" }.map { $0["value"].string } != "")
        }
        let before = try server.request("GET", "/v1/datafile", fields: Self.sdk)
        // The experiment out of the group is read first, so the last grouped one has the values of all.
        let all =
            (before["experiments"].array ?? [])
            + (before["groups"].array ?? []).flatMap { $0["experiments"].array ?? [] }
        let last = try #require(all.last)
        #expect(last["variations"].array?.map { $0["variables"].array?.count } == [4, 4], "\(before.text)")
    }

    @Test func `Tags and a description are the flag's, the rest is the experiment's`() throws {
        _ = try server.request("PUT", "/v1/experiments/checkout", #"{"variations":["control","new"]}"#)
        _ = try server.request("PUT", "/v1/experiments/search", #"{"variations":["old","new"]}"#)
        let tagged = try server.request("PUT", "/v1/flags/checkout", #"{"tags":["web"],"description":"d"}"#)
        #expect(tagged.status == 200 && tagged["tags"] == ["web"] && tagged["description"] == "d")
        #expect(try evaluations("ada", #","tags":["web","ios"]"#).map { $0["flag_key"] } == ["checkout"])
        #expect(try evaluations("ada").map { $0["tags"] } == [["web"], []])
        _ = try server.request("PUT", "/v1/experiments/checkout?moves=allow", #"{"variations":["control"]}"#)
        #expect(try server.request("GET", "/v1/flags/checkout")["tags"] == ["web"])
        for member in [#""rules":[]"#, #""enabled":false"#, #""type":"boolean""#, #""otherwise":"new""#] {
            let refused = try server.request("PUT", "/v1/flags/checkout", "{\(member)}")
            #expect(refused.status == 409, "\(refused.text)")
            #expect(refused["detail"].string?.contains("PUT /v1/experiments/checkout") == true)
        }
        #expect(try server.request("DELETE", "/v1/flags/checkout").status == 409)
    }

    @Test func `A key has one owner, a flag or an experiment`() throws {
        _ = try server.request("PUT", "/v1/flags/dark", #"{"type":"boolean","rules":[{"key":"test","experiment":{}}]}"#)
        _ = try server.request("PUT", "/v1/experiments/search", #"{"variations":["old","new"]}"#)
        for (target, body) in [
            ("experiments/dark", #"{"variations":["control","new"]}"#), ("flags/search", #"{"type":"boolean"}"#),
            ("flags/test", #"{"type":"boolean"}"#),
        ] {
            let refused = try server.request("PUT", "/v1/\(target)", body)
            #expect(refused.status == 409, "\(refused.text)")
            #expect(refused["detail"].string?.contains("choose another key") == true, "\(refused.text)")
        }
        let rule = #"{"type":"boolean","rules":[{"key":"dark","experiment":{}}]}"#
        #expect(try server.request("PUT", "/v1/flags/other", rule)["pointer"] == "/rules/0/key")
        // A flag's own rule may have its key.
        #expect(try server.request("PUT", "/v1/flags/light", rule.replacing("dark", with: "light")).status == 201)
        #expect(try server.request("PUT", "/v1/experiments/light", #"{"traffic":50}"#).status == 200)
        #expect(try server.request("DELETE", "/v1/flags/dark").status == 204)
        #expect(try server.request("GET", "/v1/flags/dark").status == 404)
        #expect(try server.request("PUT", "/v1/experiments/dark", #"{"variations":["a","b"]}"#).status == 201)
    }

    @Test func `After a flag, an experiment of its key that an earlier release allowed does not take its place`() throws
    {
        let datafile = Self.datafile.replacing(#""key":"alone""#, with: #""key":"plain""#)
        #expect(try server.request("PUT", "/v1/datafile", datafile).status == 201)
        #expect(try server.request("PUT", "/v1/experiments/plain", #"{"traffic":50}"#).status == 200)
        #expect(try server.request("DELETE", "/v1/flags/plain").status == 204)
        #expect(try server.request("GET", "/v1/flags/plain").status == 404)
        #expect(try server.request("PUT", "/v1/experiments/checkout", #"{"variations":["a"]}"#).status == 409)
    }

    @Test func `Experiments of an uploaded datafile are no flags, and its flags are read like others`() throws {
        #expect(try server.request("PUT", "/v1/datafile", Self.datafile).status == 201)
        let keys = try server.request("GET", "/v1/flags")["flags"].array?.map { $0["key"] }
        #expect(keys == ["checkout", "plain"])
        let flag = try server.request("GET", "/v1/flags/checkout")
        #expect(flag["defined_by"] == "datafile" && flag["type"].isNull && flag["version"] == 12)
        #expect(flag["variations"].array?.map { $0["value"]["columns"] } == [1, 3, 2])
        #expect(flag["rules"].array?.map { $0["key"] } == ["test", "301"] && flag["otherwise"].isNull)
        #expect(flag["rules"].array?.first?["experiment"]["weights"]["new"] == 1)
        #expect(try server.request("PUT", "/v1/experiments/alone", #"{"traffic":50}"#).status == 200)
        #expect(try server.request("GET", "/v1/flags")["flags"].array?.count == 2)

        #expect(try server.request("PUT", "/v1/flags/checkout", #"{"tags":["web"]}"#)["tags"] == ["web"])
        let refused = try server.request("PUT", "/v1/flags/checkout", #"{"rules":[]}"#)
        #expect(refused.status == 409 && refused["pointer"] == "/rules")
        #expect(refused["detail"].string?.contains("PUT /v1/datafile") == true)
        #expect(try server.request("PUT", "/v1/flags/checkout", #"{"enabled":false}"#)["enabled"] == false)
        let off = try #require(try evaluations("ada", #","flag_keys":["checkout"]"#).first)
        #expect(off["reason"] == "disabled" && off["value"]["columns"] == 1)
        let on = try server.request("PUT", "/v1/flags/checkout", #"{"enabled":true}"#)
        #expect(on["rules"] == flag["rules"])
        #expect(try evaluations("ada").first?["reason"] == "experiment")
        #expect(try server.request("DELETE", "/v1/flags/checkout").status == 204)
        #expect(try server.request("GET", "/v1/experiments/test")["status"] == "archived")
    }

    private static let datafile = #"""
        {"version":"4","accountId":"1","projectId":"1","revision":"12","sdkKey":"default","groups":[],"events":[],
         "attributes":[],"audiences":[],"typedAudiences":[{"id":"601","name":"Germans","conditions":{"type":"custom_attribute","match":"exact","name":"country","value":"de"}}],
         "experiments":[{"id":"7001","key":"test","layerId":"1","status":"Running","audienceIds":[],"forcedVariations":{},
          "variations":[{"id":"70011","key":"control","featureEnabled":true,"variables":[]},
           {"id":"70012","key":"new","featureEnabled":true,"variables":[{"id":"801","value":"3"}]}],
          "trafficAllocation":[{"entityId":"70011","endOfRange":5000},{"entityId":"70012","endOfRange":10000}]},
          {"id":"7002","key":"alone","layerId":"2","status":"Running","audienceIds":[],"forcedVariations":{},
          "variations":[{"id":"70021","key":"a"}],"trafficAllocation":[{"entityId":"70021","endOfRange":10000}]}],
         "featureFlags":[{"id":"9001","key":"checkout","rolloutId":"30","experimentIds":["7001"],
          "variables":[{"id":"801","key":"columns","type":"integer","defaultValue":"1"}]},
          {"id":"9002","key":"plain","rolloutId":"","experimentIds":[],"variables":[]}],
         "rollouts":[{"id":"30","experiments":[{"id":"301","key":"301","layerId":"30","status":"Running","audienceIds":["601"],"forcedVariations":{},
          "variations":[{"id":"3011","key":"on","featureEnabled":true,"variables":[{"id":"801","value":"2"}]}],
          "trafficAllocation":[{"entityId":"3011","endOfRange":10000}]}]}]}
        """#
}
