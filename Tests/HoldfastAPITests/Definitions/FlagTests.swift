import APITestSupport
import JSON
import Testing

/// `/v1/flags`: what a definition gives users, over every protocol the same. `FlagRulesTests` has the rules.
@Suite struct FlagTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    private static let germans = #"{"type":"custom_attribute","name":"country","value":"de"}"#

    @discardableResult
    private func put(_ body: String, key: String = "banner", fields: [String] = []) throws -> TestResponse {
        try server.request("PUT", "/v1/flags/\(key)", body, fields: fields)
    }

    private func evaluate(_ user: String, _ attributes: String = "{}", key: String = "banner") throws -> JSONValue {
        let body = #"{"user_id":"\#(user)","attributes":\#(attributes),"flag_keys":["\#(key)"]}"#
        return try server.request("POST", "/v1/evaluations", body)["evaluations"].array?.first ?? .null
    }

    private func decide(_ user: String, _ attributes: String = "{}") throws -> TestResponse {
        try server.request(
            "POST", "/v1/decide?keys=banner", #"{"userId":"\#(user)","userAttributes":\#(attributes)}"#,
            fields: ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"])
    }

    // MARK: Values

    @Test(arguments: [
        ("boolean", "true", "false"), ("string", #""Hi""#, #""""#), ("integer", "3", "-9223372036854775808"),
        ("double", "0.25", "3"), ("json", #"{"a":[1,null]}"#, "[]"),
    ])
    func `A flag of each type gives its values`(type: String, first: String, second: String) throws {
        let created = try put(
            #"{"type":"\#(type)","variations":[{"key":"a","value":\#(first)},{"key":"b","value":\#(second)}],"#
                + #""rules":[{"audience":\#(Self.germans),"variation":"a"}],"otherwise":"b"}"#)
        #expect(created.status == 201, "\(created.text)")
        let german = try evaluate("ada", #"{"country":"de"}"#)
        #expect(german["value"].encoded() == Array(first.utf8) && german["variation_key"] == "a")
        #expect(german["reason"] == "targeted" && german["type"].string == type)
        let other = try evaluate("ada")
        #expect(other["value"].double == JSONValue.parsed(second).double, "\(other)")
        #expect(other["variation_key"] == "b" && other["reason"] == "default")
        #expect(other["enabled"].bool == (type != "boolean"))
        let decided = try decide("ada", #"{"country":"de"}"#)
        #expect(decided["variables"]["value"] == JSONValue.parsed(first) && decided["enabled"] == true)
        #expect(try put(#"{"enabled":false}"#)["enabled"] == false)
        let off = try evaluate("ada", #"{"country":"de"}"#)
        #expect(off["reason"] == "disabled" && off["enabled"] == false && off["variation_key"] == nil)
        #expect(off["value"].double == JSONValue.parsed(second).double)
    }

    // MARK: Last use

    @Test func `A flag says when it was last evaluated by name, reported, and when users were exposed`() throws {
        let experiment = #"{"id":"8001","weights":{"off":0,"on":1}}"#
        try put(#"{"type":"boolean","rules":[{"key":"test","experiment":\#(experiment)}]}"#)
        try put(#"{"type":"boolean"}"#, key: "quiet")
        let never = try server.request("GET", "/v1/flags/banner")
        #expect(never["last_evaluated_on"] == .null && never["last_exposed_on"] == .null)
        _ = try evaluate("ada")
        #expect(try server.request("GET", "/v1/flags/banner")["last_evaluated_on"] == .null, "for a client's cache")
        let body = #"{"userId":"ada","decideOptions":["DISABLE_DECISION_EVENT"]}"#
        let fields = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]
        #expect(try server.request("POST", "/v1/decide?keys=banner", body, fields: fields).status == 200)
        let flag = try server.request("GET", "/v1/flags/banner")
        let today = try #require(flag["last_evaluated_on"].string)
        #expect(today.wholeMatch(of: #/\d{4}-\d\d-\d\d/#) != nil)
        func days(_ flag: JSONValue) -> [String: [JSONValue]] {
            Dictionary(
                uniqueKeysWithValues: (flag["variations"].array ?? []).map {
                    ($0["key"].string ?? "", [$0["last_evaluated_on"], $0["last_exposed_on"]])
                })
        }
        #expect(flag["last_exposed_on"] == .null)
        #expect(days(flag.json)["on"]?.first?.string == today)
        #expect(days(flag.json)["off"] == [.null, .null])
        let exposure = #"{"user_id":"bob","experiment":"test","variation_key":"off"}"#
        #expect(try server.request("POST", "/v1/exposures", exposure).status == 200)
        let exposed = try server.request("GET", "/v1/flags/banner")
        #expect(exposed["last_exposed_on"].string == today)
        #expect(days(exposed.json)["off"] == [.null, .string(today)])
        let counts = #"{"id":"r","counts":[{"flag_key":"quiet","variation_key":"on","reason":"rollout","count":2}]}"#
        #expect(try server.request("POST", "/v1/evaluations/counts", counts).status == 200)
        #expect(try server.request("GET", "/v1/flags/quiet")["last_evaluated_on"].string == today)
        let listed = try server.request("GET", "/v1/flags")["flags"].array?.map { $0["last_evaluated_on"].string }
        #expect(listed == [today, today])
        // What is shown may be sent back.
        let again = try put(String(decoding: exposed.body, as: UTF8.self))
        #expect(again.status == 200 && again["revision"] == exposed["revision"], "\(again.text)")
        #expect(try server.request("GET", "/v1/flags?stale=30d")["flags"] == [])
        for wrong in ["30", "0d", "d", "-1d", "1.5d"] {
            let refused = try server.request("GET", "/v1/flags?stale=\(wrong)")
            #expect(refused.status == 400 && refused["detail"].string?.contains("such as 30d") == true, "\(wrong)")
        }
        #expect(try server.request("GET", "/v1/experiments?stale=30d").status == 400)
    }

    // MARK: Rules

    @Test func `The experiment of a rule is an experiment like others`() throws {
        try put(#"{"type":"boolean","rules":[{"key":"test","experiment":{}}]}"#)
        #expect(try server.request("PUT", "/v1/experiments/test", #"{"traffic":0}"#).status == 200)
        #expect(try evaluate("ada")["reason"] == "default")
        #expect(
            try server.request("GET", "/v1/flags/banner")["rules"].array?.first?["experiment"]["traffic"] == 0)
        for (body, pointer) in [
            (#"{"variations":["on","maybe"]}"#, "/variations/1"), (#"{"audience":\#(Self.germans)}"#, "/audience"),
        ] {
            let refused = try server.request("PUT", "/v1/experiments/test", body)
            #expect(refused.status == 409 && refused["pointer"].string == pointer, "\(refused.text)")
        }
        #expect(try server.request("GET", "/v1/experiments/test/results?goal=purchase").status == 200)
        #expect(try server.request("DELETE", "/v1/flags/banner").status == 204)
        #expect(try server.request("GET", "/v1/flags/banner").status == 404)
        #expect(try server.request("GET", "/v1/experiments/test")["status"] == "archived")
        #expect(try server.request("GET", "/v1/experiments/test/results?goal=purchase").status == 200)
        #expect(try server.request("DELETE", "/v1/flags/banner").status == 404)
        let datafile = try server.request("GET", "/v1/datafile", fields: ["X-Optimizely-SDK-Key: default"])
        #expect(datafile["rollouts"] == [] && datafile["featureFlags"] == [] && datafile["status"].isNull)
    }

    // MARK: Refusals

    @Test func `A definition that is wrong stores nothing and names every wrong member`() throws {
        for text in ["[]", "{"] { #expect(try put(text).status == 400) }
        let response = try put(#"{"type":"boolean","rulez":[],"enabled":1,"otherwise":"maybe"}"#)
        #expect(response.status == 422)
        #expect(
            response["errors"].array?.map { $0["pointer"].string } == ["/rulez", "/enabled"], "\(response.text)")
        #expect(try server.request("GET", "/v1/flags/banner").status == 404)
    }

    @Test func `Conditional changes, the audit log and the datafile's tag are as for experiments`() throws {
        #expect(try put(#"{"type":"boolean"}"#, fields: ["If-Match: *"]).status == 412)
        let created = try put(#"{"type":"boolean"}"#, fields: ["If-None-Match: *"])
        let tag = try #require(created.field("etag"))
        #expect(try put(#"{"otherwise":"on"}"#, fields: ["If-Match: \(tag)"]).status == 200)
        #expect(try put(#"{"otherwise":"off"}"#, fields: ["If-Match: \(tag)"]).status == 412)
        #expect(try server.request("DELETE", "/v1/flags/banner", fields: ["If-Match: \(tag)"]).status == 412)
        #expect(try server.request("DELETE", "/v1/flags/banner").status == 204)
        let entries = try server.request("GET", "/v1/audit")["entries"].array ?? []
        #expect(entries.map { $0["action"] } == ["flag.delete", "flag.put", "flag.put"])
        #expect(entries.map { $0["target"] } == ["banner", "banner", "banner"])
        #expect(entries[0]["before"]["flag"]["otherwise"] == "on" && entries[2]["before"].object?["flag"] == nil)
    }
}

extension JSONValue {
    fileprivate static func parsed(_ text: String) -> JSONValue {
        (try? JSONParser().parse(text)) ?? .null
    }
}
