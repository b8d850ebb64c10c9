import APITestSupport
import JSON
import TestSupport
import Testing

/// The definitions of one server, applied to another one, are the same and decide the same.
@Suite struct PromotionTests {
    private static let audiences = [
        "null", #"{"name":"age","match":"ge","value":30}"#, #"[{"segment":"germans"}]"#,
        #"["not",{"name":"plan","match":"in","value":["free","pro"]}]"#,
    ]

    /// Makes definitions by a history of changes, so that the allocations are not those of new experiments.
    private func fill(_ server: any TestServer, _ random: inout SeededGenerator) throws {
        func any<Element>(_ elements: [Element]) -> Element {
            elements[Int.random(in: elements.indices, using: &random)]
        }
        func put(_ path: String, _ body: String) throws {
            let response = try server.request("PUT", path + "?moves=allow", body)
            // Some changes are not possible, such as of the traffic of a full group.
            #expect([200, 201, 409, 422].contains(response.status), "\(path) \(body): \(response.text)")
        }
        try server.request("PUT", "/v1/attributes/country", #"{"type":"country"}"#)
        try server.request(
            "PUT", "/v1/attributes/plan", #"{"type":"selection","values":["free","pro"],"multiple":true}"#)
        try put("/v1/segments/germans", #"{"conditions":{"name":"country","value":"de"}}"#)
        try put("/v1/metrics/orders", #"{"kind":"conversion","goal":"order","description":"Orders"}"#)
        try put("/v1/metrics/revenue", #"{"kind":"total","goal":"order","cap":500,"window":7,"direction":"decrease"}"#)
        for _ in 0..<40 {
            let key = "e\(Int.random(in: 0..<8, using: &random))"
            var members: [String] = []
            let isNew = try server.request("GET", "/v1/experiments/\(key)").status == 404
            if isNew || Bool.random(using: &random) {
                let weights = any([[1, 1], [1, 3], [2, 1, 5], [33.3, 66.7]])
                let variations = weights.enumerated().map { #"{"key":"v\#($0)","weight":\#($1)}"# }
                members.append(#""variations":[\#(variations.joined(separator: ","))]"#)
            }
            if Bool.random(using: &random) { members.append(#""traffic":\#(any([0, 7.35, 30, 50, 100]))"#) }
            if Bool.random(using: &random) { members.append(#""group":\#(any(["null", "\"g\"", "\"h\""]))"#) }
            if Bool.random(using: &random) { members.append(#""audience":\#(any(Self.audiences))"#) }
            if Bool.random(using: &random) { members.append(#""enrollment":"\#(any(["open", "closed"]))""#) }
            if isNew || Bool.random(using: &random) {
                members.append(#""status":"\#(any(["running", "running", "paused", "draft", "archived"]))""#)
            }
            if Bool.random(using: &random) {
                members.append(#""name":"N","tags":["a","b"],"metrics":{"primary":["orders"],"secondary":["revenue"]}"#)
            }
            if Bool.random(using: &random) { members.append(#""plan":{"alpha":0.01}"#) }
            try put("/v1/experiments/\(key)", "{\(members.joined(separator: ","))}")
            let ending = any(["conclude", "reopen", "", "", "", ""])
            if !ending.isEmpty {
                let body = ending == "conclude" ? #"{"winner":\#(any(["null", "\"v1\""])),"reason":"r"}"# : nil
                try server.request("POST", "/v1/experiments/\(key)/\(ending)?moves=allow", body)
            }
        }
        for _ in 0..<12 {
            let key = "f\(Int.random(in: 0..<4, using: &random))"
            let rules = [
                #"{"key":"\#(key)_d","audience":\#(any(Array(Self.audiences.dropFirst()))),"variation":"on","traffic":40}"#,
                #"{"key":"\#(key)_x","audience":\#(any(Array(Self.audiences.dropFirst()))),"experiment":{"weights":{"off":1,"on":\#(any([1, 3]))},"traffic":\#(any([20, 60])),"group":\#(any(["null", "\"h\""]))}}"#,
                #"{"key":"\#(key)_y","experiment":{"traffic":\#(any([50, 90])),"status":"\#(any(["running", "paused"]))"}}"#,
            ].filter { _ in Bool.random(using: &random) }
            try put(
                "/v1/flags/\(key)",
                #"{"type":"boolean","enabled":\#(any(["true", "true", "false"])),"description":"d","rules":[\#(rules.joined(separator: ","))]}"#
            )
            try put("/v1/experiments/\(key)_y", #"{"hypothesis":"h"}"#)
        }
        try put("/v1/holdouts/all", #"{"share":10,"audience":\#(any(Self.audiences))}"#)
        try put("/v1/holdouts/some", #"{"share":15,"flags":["f0"],"status":"\#(any(["running", "paused"]))"}"#)
    }

    /// What a user gets of every flag.
    private func decisions(_ server: any TestServer, _ user: Int) throws -> String {
        let attributes = #"{"age":\#(user % 60),"country":"\#(user % 3 == 0 ? "de" : "fr")","plan":["free"]}"#
        let response = try server.request(
            "POST", "/v1/decide", #"{"userId":"user\#(user)","userAttributes":\#(attributes)}"#,
            fields: ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"])
        #expect(response.status == 200, "\(response.text)")
        let decisions = response.json.array ?? [response.json]
        return decisions.map {
            "\($0["flagKey"].string ?? "") \($0["ruleKey"].string ?? "") \($0["variationKey"].string ?? "")"
        }
        .sorted().joined(separator: "\n")
    }

    @Test(arguments: 1...4) func `Definitions of any history are the same on an empty server, and decide the same`(
        seed: UInt64
    ) throws {
        var random = SeededGenerator(seed: seed)
        let (staging, production) = (try startTestServer(), try startTestServer())
        try fill(staging, &random)
        let definitions = try staging.request("GET", "/v1/definitions")
        let applied = try production.request("PUT", "/v1/definitions", definitions.text)
        #expect(applied.status == 200, "\(applied.text) to \(definitions.text)")
        let copied = try production.request("GET", "/v1/definitions")
        #expect(copied.text == definitions.text)
        for server in [staging, production] {
            let again = try server.request("PUT", "/v1/definitions", definitions.text)
            #expect(again["changes"] == [], "\(again.text)")
        }
        for user in 0..<100 { #expect(try decisions(staging, user) == decisions(production, user)) }
    }
}
