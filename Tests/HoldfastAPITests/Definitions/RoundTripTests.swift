import APITestSupport
import JSON
import TestSupport
import Testing

/// What `GET` returns is accepted by `PUT`, and changes nothing.
@Suite struct RoundTripTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
        _ = try server.request("PUT", "/v1/attributes/country", #"{"type":"string"}"#)
        _ = try server.request("PUT", "/v1/segments/germans", #"{"conditions":\#(Self.germans)}"#)
    }

    private static let germans = #"{"type":"custom_attribute","name":"country","value":"de"}"#
    private static let audiences = [
        germans, #"["not",["or",\#(germans)]]"#, #"[{"segment":"germans"}]"#,
        #"["and",\#(germans),{"type":"custom_attribute","name":"age","match":"ge","value":18.5}]"#, "null",
    ]

    private static func any<Element>(_ elements: [Element], _ random: inout SeededGenerator) -> Element {
        elements[Int.random(in: elements.indices, using: &random)]
    }

    /// Sends back what a `GET` returns: as it is, and with other members changed into another order.
    private func expectRoundTrip(_ target: String, _ fields: [String] = []) throws {
        let shown = try server.request("GET", target, fields: fields)
        #expect(shown.status == 200, "\(shown.text)")
        let audited = try server.request("GET", "/v1/audit")["entries"].array?.count
        for body in [shown.json, shown.json.turned] {
            let text = String(decoding: body.encoded(), as: UTF8.self)
            let put = try server.request("PUT", target.prefix { $0 != "?" }.description, text, fields: fields)
            #expect(put.status == 200, "\(put.text) to \(text)")
            #expect(try server.request("GET", target, fields: fields).json == shown.json, "\(text)")
        }
        #expect(try server.request("GET", "/v1/audit")["entries"].array?.count == audited, "\(shown.text)")
    }

    @Test func `Experiments of every kind`() throws {
        var random = SeededGenerator(seed: 7)
        for number in 0..<60 {
            let target = "/v1/experiments/e\(number % 12)"
            let count = Int.random(in: 1...4, using: &random)
            var members: [String] = []
            let weighted = Bool.random(using: &random)
            let variations = (0..<count).map { index in
                let weight = Self.any([1, 2, 0.1, 33.3, 1_000_000], &random)
                return weighted ? #"{"key":"v\#(index)","weight":\#(weight)}"# : #""v\#(index)""#
            }
            members.append(#""variations":[\#(variations.joined(separator: ","))]"#)
            if Bool.random(using: &random) {
                members.append(#""traffic":\#(Self.any([0, 0.02, 3, 7.35], &random))"#)
            }
            if Bool.random(using: &random) {
                let audience = Self.any(Self.audiences, &random)
                members.append(#""audience":\#(audience)"#)
            }
            let status = Self.any(["Running", "Paused", "Not started", "Archived"], &random)
            members.append(#""status":"\#(status)""#)
            if Bool.random(using: &random) { members.append(#""enrollment":"closed""#) }
            if Bool.random(using: &random) {
                members.append(#""group":\#(Self.any(["null", #""g""#], &random))"#)
            }
            let put = try server.request("PUT", target, "{\(members.joined(separator: ","))}")
            // The traffic of a group has its limit.
            #expect(put.status < 300 || put.status == 422, "\(put.text)")
            if try server.request("GET", target).status == 200 { try expectRoundTrip(target) }
        }
    }

    @Test func `Flags of every kind, and the experiments of their rules`() throws {
        var random = SeededGenerator(seed: 8)
        let values = [
            "boolean": ["true", "false"], "string": [#""A""#, #""""#], "integer": ["3", "-4"],
            "double": ["0.25", "3"], "json": [#"{"b":[1,null],"a":2}"#, "[]"],
        ]
        for (type, values) in values {
            let variations = zip(["x", "y"], values).map { #"{"key":"\#($0)","value":\#($1)}"# }
            for number in 0..<6 {
                let rules = (0..<Int.random(in: 0...3, using: &random)).map { index in
                    let audience = Self.any(Array(Self.audiences.dropLast()), &random)
                    let choices = [
                        #""variation":"x","traffic":12.5"#,
                        #""experiment":{"weights":{"y":\#(index + 1),"x":0.3},"traffic":20}"#,
                        #""experiment":{"status":"Paused","enrollment":"closed"}"#,
                    ]
                    return
                        #"{"key":"\#(type)\#(number)\#(index)","audience":\#(audience),\#(Self.any(choices, &random))}"#
                }
                let target = "/v1/flags/\(type)\(number)"
                let isEnabled = Bool.random(using: &random)
                let put = try server.request(
                    "PUT", target,
                    #"{"type":"\#(type)","variations":[\#(variations.joined(separator: ","))],"enabled":\#(isEnabled),"#
                        + #""tags":["t"],"description":"d","rules":[\#(rules.joined(separator: ","))]}"#)
                #expect(put.status == 201, "\(put.text)")
                try expectRoundTrip(target)
                for rule in put["rules"].array ?? [] where rule.object?["experiment"] != nil {
                    try expectRoundTrip("/v1/experiments/\(rule["key"].string ?? "")")
                }
            }
        }
    }

    @Test func `What a datafile brought, and what serves an experiment`() throws {
        let fields = ["X-Optimizely-SDK-Key: brought"]
        #expect(try server.request("PUT", "/v1/datafile", Self.datafile, fields: fields).status == 201)
        for target in ["experiments/test", "experiments/grouped", "experiments/301", "flags/checkout"] {
            try expectRoundTrip("/v1/\(target)", fields)
        }
        let audience = try server.request("GET", "/v1/experiments/test", fields: fields)["audience"]
        #expect(audience == ["or", ["type": "custom_attribute", "match": "exact", "name": "country", "value": "de"]])
        #expect(
            try server.request("PUT", "/v1/experiments/own", #"{"variations":["a"]}"#, fields: fields).status == 201)
        try expectRoundTrip("/v1/flags/own", fields)
    }

    @Test func `Segments and attributes`() throws {
        _ = try server.request(
            "PUT", "/v1/attributes/plan", #"{"type":"selection","values":["a","b"],"multiple":true}"#)
        for target in ["segments/germans", "segments/germans?size=true", "attributes/country", "attributes/plan"] {
            try expectRoundTrip("/v1/\(target)")
        }
    }

    @Test func `A change of what was read is made, and audited with the audience before and after`() throws {
        let body = #"{"variations":["a","b"],"audience":\#(Self.germans)}"#
        #expect(try server.request("PUT", "/v1/experiments/e", body).status == 201)
        var edited = try #require(try server.request("GET", "/v1/experiments/e").json.object)
        #expect(edited["audience"].map { String(decoding: $0.encoded(), as: UTF8.self) } == Self.germans)
        edited["audience"] = [["segment": "germans"]]
        edited["traffic"] = 50
        let text = String(decoding: JSONValue.object(edited).encoded(), as: UTF8.self)
        let put = try server.request("PUT", "/v1/experiments/e", text)
        #expect(put.status == 200 && put["traffic"] == 50 && put["audience"] == [["segment": "germans"]], "\(put.text)")
        let entry = try #require(try server.request("GET", "/v1/audit")["entries"].array?.first)
        #expect(entry["before"]["experiment"]["audience"]["name"] == "country")
        #expect(entry["after"]["experiment"]["audience"] == [["segment": "germans"]])
    }

    @Test func `What belongs to another project is refused, and so is a member that is unknown`() throws {
        #expect(try server.request("PUT", "/v1/experiments/e", #"{"variations":["a"]}"#).status == 201)
        let other = try server.request("PUT", "/v1/experiments/e", #"{"sdk_key":"other","traffic":5}"#)
        #expect(other.status == 400 && other["pointer"] == "/sdk_key", "\(other.text)")
        let unknown = try server.request("PUT", "/v1/experiments/e", #"{"revision":"1","shares":[]}"#)
        #expect(unknown.status == 422 && unknown["pointer"] == "/shares")
        // What the server computes is ignored.
        let ignored = try server.request("PUT", "/v1/experiments/e", #"{"revision":"77","traffic_allocation":[]}"#)
        #expect(ignored.status == 200 && ignored["revision"] == "1")
    }

    private static let datafile = #"""
        {"version":"4","accountId":"1","projectId":"1","revision":"12","events":[],"attributes":[],"audiences":[],
         "typedAudiences":[{"id":"601","name":"Germans","conditions":{"type":"custom_attribute","match":"exact","name":"country","value":"de"}}],
         "groups":[{"id":"g","policy":"random","trafficAllocation":[{"entityId":"7003","endOfRange":5000}],
          "experiments":[{"id":"7003","key":"grouped","layerId":"1","status":"Launched","audienceIds":[],"forcedVariations":{},
          "variations":[{"id":"70031","key":"a"}],"trafficAllocation":[{"entityId":"70031","endOfRange":10000}]}]}],
         "experiments":[{"id":"7001","key":"test","layerId":"1","status":"Running","audienceIds":["601"],
          "audienceConditions":["or","601"],"forcedVariations":{"eve":"new"},
          "variations":[{"id":"70011","key":"control","featureEnabled":true,"variables":[]},
           {"id":"70012","key":"new","featureEnabled":true,"variables":[{"id":"801","value":"3"}]}],
          "trafficAllocation":[{"entityId":"70011","endOfRange":5000},{"entityId":"","endOfRange":6000},{"entityId":"70012","endOfRange":10000}]}],
         "featureFlags":[{"id":"9001","key":"checkout","rolloutId":"30","experimentIds":["7001"],
          "variables":[{"id":"801","key":"columns","type":"integer","defaultValue":"1"},{"id":"802","key":"x","type":"string","defaultValue":"y"}]}],
         "rollouts":[{"id":"30","experiments":[{"id":"301","key":"301","layerId":"30","status":"Running","audienceIds":["601"],"forcedVariations":{},
          "variations":[{"id":"3011","key":"on","featureEnabled":true,"variables":[{"id":"801","value":"2"}]}],
          "trafficAllocation":[{"entityId":"3011","endOfRange":10000}]}]}]}
        """#
}

extension JSONValue {
    /// The same value with the members of objects in reverse order, except where the order says something.
    fileprivate var turned: JSONValue {
        if let list = array { return .array(list.map(\.turned)) }
        guard let object else { return self }
        var turned = JSONObject()
        for member in object.reversed() {
            turned[member.key] = member.key == "weights" ? member.value : member.value.turned
        }
        return .object(turned)
    }
}
