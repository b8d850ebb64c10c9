import APITestSupport
import JSON
import Testing

/// OpenFeature Remote Evaluation Protocol. The real provider is in `PythonClientTests`.
@Suite struct OFREPTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
        #expect(try server.request("PUT", "/v1/datafile", Self.datafile()).status == 201)
    }

    /// Flags of every type, on for all by a delivery; one for Germans; one that is off; and one with an experiment.
    static func datafile(weights: Int = 5_000, revision: Int = 1) -> String {
        let types = [
            ("switch", "boolean", "true"), ("word", "string", "blue"), ("count", "integer", "1"),
            ("rate", "double", "2"),
            ("shape", "json", #"{\"a\":[1,2.5]}"#),
        ]
        let flags = types.enumerated().map { index, flag in
            #"{"id":"f\#(index)","key":"\#(flag.0)","rolloutId":"r\#(index)","experimentIds":[],"variables":[{"id":"v\#(index)","key":"value","type":"\#(flag.1)","defaultValue":"\#(flag.2)"}]}"#
        }
        let rollouts = types.indices.map { rollout("r\($0)", audience: nil) }
        let off = #"{"id":"f8","key":"off","rolloutId":"","experimentIds":[],"variables":[]}"#
        let german = #"{"id":"f9","key":"german","rolloutId":"r9","experimentIds":[],"variables":[]}"#
        let tested = #"{"id":"f10","key":"tested","rolloutId":"","experimentIds":["7"],"variables":[]}"#
        return #"""
            {"version":"4","accountId":"1","projectId":"1","revision":"\#(revision)","sdkKey":"shop","events":[],"groups":[],
            "attributes":[{"id":"501","key":"country"}],"audiences":[],
            "typedAudiences":[{"id":"601","name":"Germans","conditions":["and",{"type":"custom_attribute","match":"exact","name":"country","value":"de"}]}],
            "experiments":[{"id":"7","key":"test","layerId":"8","status":"Running","audienceIds":[],"forcedVariations":{"listed":"b"},
            "variations":[{"id":"71","key":"a","featureEnabled":false},{"id":"72","key":"b","featureEnabled":true}],
            "trafficAllocation":[{"entityId":"71","endOfRange":\#(weights)},{"entityId":"72","endOfRange":10000}]}],
            "featureFlags":[\#((flags + [off, german, tested]).joined(separator: ","))],
            "rollouts":[\#((rollouts + [rollout("r9", audience: "601")]).joined(separator: ","))]}
            """#
    }

    private static func rollout(_ id: String, audience: String?) -> String {
        let audiences = audience.map { "\"\($0)\"" } ?? ""
        return #"""
            {"id":"\#(id)","experiments":[{"id":"\#(id)x","key":"\#(id)x","layerId":"\#(id)","status":"Running",
            "audienceIds":[\#(audiences)],"forcedVariations":{},"variations":[{"id":"\#(id)v","key":"on","featureEnabled":true,"variables":[]}],
            "trafficAllocation":[{"entityId":"\#(id)v","endOfRange":10000}]}]}
            """#
    }

    private func evaluate(_ flag: String, _ context: String, fields: [String] = []) throws -> TestResponse {
        try server.request("POST", "/ofrep/v1/evaluate/flags/\(flag)", #"{"context":\#(context)}"#, fields: fields)
    }

    private func evaluateAll(
        _ context: String = #"{"targetingKey":"ann"}"#, _ query: String = "", fields: [String] = []
    ) throws -> TestResponse {
        try server.request("POST", "/ofrep/v1/evaluate/flags" + query, #"{"context":\#(context)}"#, fields: fields)
    }

    // MARK: Values

    @Test(arguments: [
        ("switch", "true"), ("word", #""blue""#), ("count", "1"), ("rate", "2.0"), ("shape", #"{"a":[1,2.5]}"#),
    ])
    func `A value has its type, also where a number is whole`(flag: String, value: String) throws {
        let response = try evaluate(flag, #"{"targetingKey":"ann"}"#)
        #expect(response.status == 200)
        #expect(response.field("content-type") == "application/json")
        #expect(
            response.text.hasPrefix(
                #"{"key":"\#(flag)","value":\#(value),"reason":"STATIC","variant":"on","metadata":{"#),
            "\(response.text)")
        server.stop()
    }

    @Test(arguments: [
        ("german", #"{"targetingKey":"ann","country":"de"}"#, "TARGETING_MATCH", true, "on"),
        ("german", #"{"targetingKey":"ann","country":"fr"}"#, "DEFAULT", false, ""),
        ("tested", #"{"targetingKey":"listed"}"#, "TARGETING_MATCH", true, "b"),
        ("off", #"{"targetingKey":"ann"}"#, "DISABLED", nil, ""),
    ])
    func `The reason is one of the protocol, and a disabled flag has no value`(
        flag: String, context: String, reason: String, value: Bool?, variant: String
    ) throws {
        let response = try evaluate(flag, context)
        #expect(response.status == 200)
        #expect(response["reason"].string == reason, "\(response.text)")
        #expect(response["value"].bool == value)
        #expect((response.json.object?["value"] == nil) == (value == nil))
        #expect(response["variant"].string == variant)
        for member in try #require(response["metadata"].object) {
            #expect(member.value.object == nil && member.value.array == nil && !member.value.isNull)
        }
        server.stop()
    }

    @Test func `A flag that is on for half of the users is not static`() throws {
        let half = Self.datafile(revision: 2).replacing(#""audienceIds":["601"]"#, with: #""audienceIds":[]"#)
            .replacing(#""r9v","endOfRange":10000"#, with: #""r9v","endOfRange":5000"#)
        #expect(try server.request("PUT", "/v1/datafile", half).status == 200)
        let found = try (0..<40).map { try evaluate("german", #"{"targetingKey":"u\#($0)"}"#) }
        #expect(Set(found.map { $0["value"].bool }) == [true, false])
        #expect(Set(found.map { $0["reason"].string }) == ["DEFAULT"])
        // The others are, until some users are held out.
        #expect(try evaluate("word", #"{"targetingKey":"ann"}"#)["reason"] == "STATIC")
        #expect(try server.request("PUT", "/v1/holdouts/all", #"{"share":5}"#).status == 201)
        #expect(try evaluate("word", #"{"targetingKey":"ann"}"#)["reason"] != "STATIC")
        server.stop()
    }

    @Test func `A user is enrolled, exposed, and keeps the variation when the weights change`() throws {
        let users = (0..<20).map { "u\($0)" }
        func variants() throws -> [JSONValue] {
            try users.map { try evaluate("tested", #"{"targetingKey":"\#($0)"}"#)["variant"] }
        }
        let first = try variants()
        #expect(Set(first.map(\.string)) == ["a", "b"])
        #expect(try evaluate("tested", #"{"targetingKey":"u0"}"#)["metadata"]["holdfastReason"] == "sticky")
        #expect(try server.request("PUT", "/v1/datafile", Self.datafile(weights: 10_000, revision: 2)).status == 200)
        #expect(try variants() == first)
        while try server.request("GET", "/v1/exposures").text.split(separator: "\n").count < users.count {}
        server.stop()
    }

    @Test func `An evaluation records no exposure if it is told not to`() throws {
        let silent = ["X-Record-Exposures: false"]
        #expect(try evaluate("tested", #"{"targetingKey":"ann"}"#, fields: silent).status == 200)
        #expect(try evaluateAll(fields: silent).status == 200)
        #expect(try evaluate("tested", #"{"targetingKey":"bob"}"#).status == 200)
        while try server.request("GET", "/v1/exposures").text.isEmpty {}
        #expect(try server.request("GET", "/v1/exposures").text.contains(#""user_id":"ann""#) == false)
        server.stop()
    }

    @Test func `A page without a targeting key gets what needs no user, and is enrolled in nothing`() throws {
        let response = try evaluateAll(#"{"country":"de"}"#)
        #expect(response.status == 200, "\(response.text)")
        let flags = response["flags"].array ?? []
        func flag(_ key: String) -> JSONValue { flags.first { $0["key"].string == key } ?? .null }
        #expect(flag("word")["value"] == "blue" && flag("german")["value"] == true)
        #expect(flag("tested")["metadata"]["experimentId"].isNull && flag("tested")["variant"] == "")
        #expect(try server.request("GET", "/v1/profiles").text.isEmpty)
        #expect(try server.request("GET", "/v1/exposures").text.isEmpty)
        server.stop()
    }

    @Test(arguments: [
        #""flags":"word, nope""#, #""flags":["word","nope"]"#, #""gofeatureflag":{"flagList":["word","nope"]}"#,
    ])
    func `A context may list the flags of a bulk evaluation`(list: String) throws {
        let flags = try evaluateAll(#"{"targetingKey":"ann",\#(list)}"#)["flags"].array ?? []
        #expect(flags.map { $0["key"] } == ["word", "nope"])
        #expect(flags.first?["value"] == "blue" && flags.last?["errorCode"] == "FLAG_NOT_FOUND")
        server.stop()
    }

    // MARK: Errors

    @Test(arguments: [
        ("", "PARSE_ERROR"), ("{", "PARSE_ERROR"), ("[]", "PARSE_ERROR"), ("{}", "INVALID_CONTEXT"),
        (#"{"context":7}"#, "INVALID_CONTEXT"), (#"{"context":{}}"#, "TARGETING_KEY_MISSING"),
        (#"{"context":{"targetingKey":""}}"#, "TARGETING_KEY_MISSING"),
        (#"{"context":{"targetingKey":null}}"#, "TARGETING_KEY_MISSING"),
        (#"{"context":{"targetingKey":7}}"#, "INVALID_CONTEXT"),
        (#"{"context":{"targetingKey":"a\u0000"}}"#, "INVALID_CONTEXT"),
        (#"{"context":{"targetingKey":"a","country":"\#(String(repeating: "x", count: 5_000))"}}"#, "INVALID_CONTEXT"),
    ])
    func `A request that cannot be evaluated is refused in the protocol's format`(body: String, code: String) throws {
        let one = try server.request("POST", "/ofrep/v1/evaluate/flags/word", body)
        #expect(one.status == 400)
        #expect(one["key"] == "word")
        #expect(one["errorCode"].string == code, "\(one.text)")
        #expect(one["errorDetails"].string?.isEmpty == false)
        let all = try server.request("POST", "/ofrep/v1/evaluate/flags", body)
        // Without a targeting key, all flags that need none have a value.
        let isAnonymous = code == "TARGETING_KEY_MISSING"
        #expect(all.status == (isAnonymous ? 200 : 400))
        #expect(all["errorCode"].string == (isAnonymous ? nil : code))
        server.stop()
    }

    @Test func `An unknown flag, path or method is an error with a code`() throws {
        let unknown = try evaluate("nope%20%2F", #"{"targetingKey":"ann"}"#)
        #expect(unknown.status == 404)
        #expect(
            unknown.text
                == #"{"key":"nope /","errorCode":"FLAG_NOT_FOUND","errorDetails":"no flag has the key 'nope /'"}"#)
        for (method, path, status) in [
            ("GET", "/ofrep/v1/evaluate/flags", 405), ("GET", "/ofrep/v1/configuration", 404),
            ("POST", "/ofrep/v1/evaluate/flags?x=1", 400),
        ] {
            let response = try server.request(method, path, method == "POST" ? "{}" : nil)
            #expect(response.status == status)
            #expect(response["errorCode"] == "GENERAL", "\(response.text)")
        }
        server.stop()
    }

    @Test func `A server without a datafile has no flags`() throws {
        let server = try startTestServer()
        let response = try server.request(
            "POST", "/ofrep/v1/evaluate/flags/x", #"{"context":{"targetingKey":"ann"}}"#)
        #expect(response.status == 404)
        #expect(response["errorCode"] == "FLAG_NOT_FOUND")
        server.stop()
    }

    // MARK: All flags

    @Test func `All flags have an entity tag over values and variants, not over how they were found`() throws {
        let response = try evaluateAll()
        #expect(
            response["flags"].array?.map { $0["key"] } == [
                "switch", "word", "count", "rate", "shape", "off", "german", "tested",
            ])
        // The first evaluation enrolled the user, so the second says that the user takes part already.
        let second = try evaluateAll()
        #expect(second.text != response.text)
        let tag = try #require(second.field("etag"))
        #expect(response.field("etag") == tag)
        let known = try evaluateAll(fields: ["If-None-Match: \(tag)"])
        #expect(known.status == 304)
        #expect(known.body.isEmpty)
        // No new revision, but another body.
        let override = try server.request("PUT", "/v1/profiles/ann/experiments/7", #"{"variation_id":"72"}"#)
        #expect(override.status == 200)
        #expect(try evaluateAll(fields: ["If-None-Match: \(tag)"]).status == 200)
        #expect(try evaluateAll(#"{"targetingKey":"bob"}"#, fields: ["If-None-Match: \(tag)"]).status == 200)
        server.stop()
    }

    @Test func `A stream asks for another evaluation only when the datafile has changed`() throws {
        let streams = try evaluateAll()["eventStreams"]
        #expect(streams.array?.first?["type"] == "sse")
        let target = try #require(streams.array?.first?["endpoint"]["requestUri"].string)
        let stream = try server.stream("GET", target)
        #expect(stream.head.status == 200)
        #expect(stream.head.field("content-type") == "text/event-stream")
        #expect(try server.request("PUT", "/v1/datafile", Self.datafile(revision: 2)).status == 200)
        let event = try #require(try stream.receiveChunk())
        #expect(event.contains(#"event: message"# + "\n" + #"data: {"type":"refetchEvaluation","etag":""#), "\(event)")
        let id = try #require(event.split(separator: "\n").first?.dropFirst(4))
        // Who missed an event is sent it upon reconnecting; who has it is not.
        let late = try server.stream("GET", target)
        #expect(try late.receiveChunk()?.hasPrefix("id: \(id)\n") == true)
        #expect(
            try evaluateAll(#"{"targetingKey":"ann"}"#, "?flagConfigEtag=\(id)&flagConfigLastModified=1").status == 200)
        #expect(try evaluateAll(#"{"targetingKey":"ann"}"#, "?flagConfigEtag=9999").status == 200)
        #expect(try server.request("GET", "/ofrep/v1/changes?sdk_key=nope").status == 404)
        server.stop()
    }

    // MARK: Credentials

    @Test func `A token is sent as bearer or as API key, and a ticket opens the stream alone`() throws {
        let secret = "client-secret-0123456789"
        let server = try startTestServer(
            tokens: "client app \(secret)\nread board read-secret-0123456789\nadmin boss admin-secret-0123456789\n")
        #expect(
            try server.request("PUT", "/v1/datafile", Self.datafile(), token: "admin-secret-0123456789").status == 201)
        let body = #"{"context":{"targetingKey":"ann"}}"#
        let path = "/ofrep/v1/evaluate/flags"
        #expect(try server.request("POST", path, body, token: secret).status == 200)
        let response = try server.request("POST", path, body, fields: ["X-API-Key: \(secret)"])
        #expect(response.status == 200)
        for (fields, status) in [
            ([], 401), (["X-API-Key: nobody"], 401), (["X-API-Key: read-secret-0123456789"], 403),
        ] as [([String], Int)] {
            let refused = try server.request("POST", path, body, fields: fields)
            #expect(refused.status == status)
            #expect(refused["errorCode"] == "GENERAL")
            #expect(refused["errorDetails"].string?.isEmpty == false)
        }
        let target = try #require(response["eventStreams"].array?.first?["endpoint"]["requestUri"].string)
        #expect(!target.contains(secret))
        let ticket = try #require(target.split(separator: "ticket=").last)
        #expect(try server.stream("GET", target).head.status == 200)
        for other in ["", "&ticket=", "&ticket=1.\(ticket.split(separator: ".")[1])", "&ticket=\(ticket)0"] {
            #expect(try server.stream("GET", "/ofrep/v1/changes?sdk_key=shop\(other)").head.status == 401, "\(other)")
        }
        #expect(try server.request("POST", "\(path)?ticket=\(ticket)", body).status == 401)
        server.stop()
    }
}
