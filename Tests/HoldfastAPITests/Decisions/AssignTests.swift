import APITestSupport
import JSON
import Testing

/// Get-or-assign: a user keeps the first variation, whatever changes.
@Suite struct AssignTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    @Test func `A user keeps the variation when the split changes and when the experiment is paused and resumed`()
        throws
    {
        #expect(try server.request("PUT", "/v1/experiments/checkout", AssignSamples.definition).status == 201)
        let users = (0..<100).map { "user\($0)" }
        let before = try users.map { try server.request("POST", "/v1/assign", AssignSamples.ask($0)) }
        #expect(before.allSatisfy { $0["source"] == "bucketed" })
        #expect(Set(before.map { $0["variation_key"].string }) == ["control", "new"])

        #expect(try server.request("PUT", "/v1/experiments/checkout", AssignSamples.weights(0, 10_000)).status == 200)
        #expect(try server.request("PUT", "/v1/experiments/checkout", #"{"status":"paused"}"#).status == 200)
        let paused = try server.request("POST", "/v1/assign", AssignSamples.ask("user0"))
        #expect(paused["variation_id"].isNull)
        #expect(try server.request("PUT", "/v1/experiments/checkout", #"{"status":"running"}"#).status == 200)

        for (user, former) in zip(users, before) {
            let now = try server.request("POST", "/v1/assign", AssignSamples.ask(user))
            #expect(now["variation_id"] == former["variation_id"])
            #expect(now["source"] == "stored")
        }
        #expect(try server.request("POST", "/v1/assign", AssignSamples.ask("late"))["variation_key"] == "new")
        server.stop()
    }

    @Test func `A user whose variation is gone is bucketed again`() throws {
        _ = try server.request("PUT", "/v1/experiments/checkout", AssignSamples.definition)
        _ = try server.request("PUT", "/v1/experiments/checkout", AssignSamples.weights(10_000, 0))
        #expect(try server.request("POST", "/v1/assign", AssignSamples.ask("ada"))["variation_key"] == "control")
        let changed = try server.request("PUT", "/v1/experiments/checkout?moves=allow", #"{"variations":["new"]}"#)
        #expect(changed.status == 200, "\(changed.text)")
        let now = try server.request("POST", "/v1/assign", AssignSamples.ask("ada"))
        #expect(now["variation_key"] == "new")
        #expect(now["source"] == "bucketed")
        #expect(try server.request("GET", "/v1/profiles/ada").text == profile("ada", ["7001": "70012"]))
        server.stop()
    }

    @Test func `Asking without enrolling stores nothing`() throws {
        _ = try server.request("PUT", "/v1/experiments/checkout", AssignSamples.definition)
        let response = try server.request("GET", "/v1/assign?user_id=ada&experiment=checkout")
        #expect(response["source"] == "bucketed")
        #expect(try server.request("GET", "/v1/profiles/ada").status == 404)
        server.stop()
    }

    @Test(arguments: [
        "/v1/assign?user_id=ada&experiment=nope", "/v1/assign?user_id=ada&experiment=nope&sdk_key=default",
    ])
    func `An experiment that the datafile does not have is not found, and no profile is read`(target: String) throws {
        _ = try server.request("PUT", "/v1/experiments/checkout", AssignSamples.definition)
        func lookups() throws -> [Substring] {
            try server.request("GET", "/metrics").text.split(separator: "\n")
                .filter { $0.hasPrefix("holdfast_cache_hits_total ") || $0.hasPrefix("holdfast_cache_misses_total ") }
        }
        let before = try lookups()
        #expect(before.count == 2)
        let response = try server.request("GET", target)
        #expect(response.status == 404)
        #expect(response["pointer"] == "/experiment")
        #expect(try lookups() == before)
    }

    @Test func `The header names the project of whatever names none`() throws {
        for (key, variation) in [("shop", "old"), ("app", "new")] {
            #expect(try server.request("PUT", "/v1/projects/\(key)").status == 201)
            let created = try server.request(
                "PUT", "/v1/experiments/checkout", #"{"id":"\#(key)1","variations":["\#(variation)"]}"#,
                fields: ["X-Optimizely-SDK-Key: \(key)"])
            #expect(created.status == 201, "\(created.text)")
        }
        func ask(_ method: String, _ target: String, _ body: String? = nil, key: String = "app") throws -> TestResponse
        {
            try server.request(method, target, body, fields: ["X-Optimizely-SDK-Key: \(key)"])
        }
        let (one, own) = (AssignSamples.ask("ada"), #"{"user_id":"ada","experiment":"checkout","sdk_key":"shop"}"#)
        #expect(try ask("POST", "/v1/assign", one)["variation_key"] == "new")
        #expect(try ask("POST", "/v1/assign", own)["variation_key"] == "old")
        let both = try ask("POST", "/v1/assign", "[\(one),\(own)]").json
        #expect(both.array?.map { $0["variation_key"] } == ["new", "old"])
        #expect(try ask("GET", "/v1/assign?user_id=bob&experiment=checkout")["variation_key"] == "new")
        #expect(try ask("POST", "/v1/evaluations", #"{"user_id":"ada"}"#)["evaluations"].array?[0]["value"] == "new")
        let seen = #"{"user_id":"ada","experiment":"checkout","variation_key":"new"}"#
        #expect(try ask("POST", "/v1/exposures", seen)["status"] == "stored")
        #expect(try ask("POST", "/v1/exposures", seen, key: "shop").status == 422)
        #expect(try ask("POST", "/v1/events", #"{"user_id":"ada","goal":"g"}"#).status == 200)
        #expect(try server.request("GET", "/v1/events")["sdk_key"] == "app")
        let counts =
            #"{"id":"1","counts":[{"flag_key":"checkout","variation_key":"new","reason":"stored","count":1}]}"#
        #expect(try ask("POST", "/v1/evaluations/counts", counts).status == 200)
        #expect(try ask("POST", "/v1/assign", one, key: "nope").status == 404)
        #expect(try ask("POST", "/v1/evaluations", #"{"user_id":"ada"}"#, key: "nope").status == 404)
        server.stop()
    }

    @Test func `An invalid datafile is refused with every place, and the former one stays active`() throws {
        _ = try server.request("PUT", "/v1/experiments/checkout", AssignSamples.definition)
        let refused = try server.request("PUT", "/v1/datafile", #"{"version":"4","sdkKey":"default"}"#)
        #expect(refused.status == 400)
        #expect((refused["errors"].array?.count ?? 0) > 5)
        #expect(try server.request("GET", "/v1/experiments/checkout").status == 200)
        #expect(try server.request("GET", "/v1/datafile/history")["datafiles"].array?.count == 1)
        server.stop()
    }

    @Test func `A datafile with a contextual bandit is taken with a warning that names the experiment`() throws {
        func datafile(_ bandit: String) -> String {
            """
            {"version":"4","projectId":"1","accountId":"1","revision":"1","sdkKey":"default","experiments":[
            {"id":"7","key":"checkout","layerId":"7","status":"Running","audienceIds":[],"forcedVariations":{}\(bandit),
            "variations":[{"id":"a","key":"control"}],"trafficAllocation":[{"entityId":"a","endOfRange":10000}]}],
            "featureFlags":[],"events":[],"audiences":[],"attributes":[],"groups":[],"rollouts":[]}
            """
        }
        let plain = try server.request("PUT", "/v1/datafile", datafile(""))
        #expect(plain.status == 201 && plain.json.object?["warnings"] == nil, "\(plain.text)")
        let bandit = try server.request(
            "PUT", "/v1/datafile", datafile(#","cmab":{"attributeIds":[],"trafficAllocation":10000}"#))
        #expect(bandit.status == 200)
        #expect(bandit["warnings"].array?.count == 1, "\(bandit.text)")
        #expect(bandit["warnings"].array?.first?.string?.contains("'checkout'") == true)
        server.stop()
    }

    @Test func `A former datafile is read by its version`() throws {
        _ = try server.request("PUT", "/v1/experiments/checkout", AssignSamples.definition)
        let former = try server.request("GET", "/datafiles/default.json")
        _ = try server.request("PUT", "/v1/experiments/other", #"{"variations":["a","b"]}"#)
        let versions = try server.request("GET", "/v1/datafile/history")["datafiles"].array?.map { $0["version"] }
        #expect(versions == [2, 1])
        let first = try server.request("GET", "/v1/datafile/history/1")
        #expect(first.json == former.json)
        let tag = try #require(first.field("etag"))
        #expect(try server.request("GET", "/v1/datafile/history/1", fields: ["If-None-Match: \(tag)"]).status == 304)
        let absent = try server.request("GET", "/v1/datafile/history/3")
        #expect(absent.status == 404)
        #expect(absent["detail"] == "the project 'default' has no datafile of version 3, or keeps it no longer")
        #expect(try server.request("GET", "/v1/datafile/history/0").status == 400)
        #expect(try server.request("GET", "/v1/datafile/history/newest").status == 400)
        server.stop()
    }

    @Test(arguments: [
        (#"{"variations":[]}"#, "/variations"),
        (#"{"variations":["a","a"]}"#, "/variations/1"),
        (#"{"variations":[{"key":"a","weight":-1}]}"#, "/variations/0/weight"),
        (#"{"variations":[{"key":"a","weight":1000001}]}"#, "/variations/0/weight"),
        (#"{"variations":[{"key":"a","weight":1},"b"]}"#, "/variations"),
        (#"{"variations":["a"],"status":"Started"}"#, "/status"),
        (#"{"variations":["a"],"id":"with-dash"}"#, "/id"),
        (#"{"variations":[{"key":"a","id":"1"},{"key":"b","id":"1"}]}"#, "/variations/1/id"),
        (#"{"variations":[{"key":"a","wieght":1}]}"#, "/variations/0/wieght"),
        (#"{"variations":["a"],"wieghts":[1]}"#, "/wieghts"),
        (#"{}"#, "/variations"),
    ])
    func `A wrong experiment is refused with the place`(body: String, pointer: String) throws {
        let response = try server.request("PUT", "/v1/experiments/checkout", body)
        #expect(response.status == 422)
        #expect(response["pointer"].string == pointer)
        #expect(try server.request("GET", "/v1/experiments").status == 404)
        server.stop()
    }

    @Test func `Who names what was read changes nothing else, and what changes nothing is not stored`() throws {
        func put(_ body: String, _ fields: String...) throws -> TestResponse {
            try server.request("PUT", "/v1/experiments/checkout", body, fields: fields)
        }
        #expect(try put(#"{"variations":["a"]}"#, "If-Match: *").status == 412)
        #expect(try put(#"{"variations":["a"]}"#, "If-None-Match: *").status == 201)
        #expect(try put(#"{"variations":["a"]}"#, "If-None-Match: *").status == 412)
        let tag = try #require(try server.request("GET", "/v1/experiments/checkout").field("etag"))
        #expect(try put(#"{"status":"running"}"#).field("etag") == tag)
        #expect(try put(#"{"status":"paused"}"#, "If-Match: \"0123456789abcdef\", \(tag)").status == 200)
        #expect(try put(#"{"status":"running"}"#, "If-Match: \(tag)").status == 412)
        let deletion = try server.request("DELETE", "/v1/experiments/checkout", fields: ["If-Match: \(tag)"])
        #expect(deletion.status == 412)
        let current = try #require(try server.request("GET", "/v1/experiments/checkout").field("etag"))
        #expect(
            try put(#"{"status":"running"}"#, "If-None-Match: \"0123456789abcdef\"", "If-None-Match: \(current)").status
                == 412)
        #expect(try server.request("GET", "/v1/experiments/checkout")["status"] == "paused")
        #expect(try server.request("GET", "/v1/audit")["entries"].array?.count == 2)

        let key = "X-Optimizely-SDK-Key: default"
        let datafile = try server.request("GET", "/v1/datafile", fields: [key])
        func replace(_ fields: String...) throws -> Int {
            try server.request("PUT", "/v1/datafile", datafile.text, fields: [key] + fields).status
        }
        #expect(try replace("If-Match: \(tag)") == 412)
        #expect(try replace("If-None-Match: *") == 412)
        #expect(try replace("If-Match: \(datafile.field("etag") ?? "")") == 200)
    }

    @Test(arguments: [
        ("PUT", "/v1/experiments/checkout?sdk_key=other"), ("DELETE", "/v1/profiles/ada?dry_run=true"),
        ("GET", "/v1/experiments?sdk_key=other"), ("POST", "/v1/assign?x"),
        ("PATCH", "/v1/profiles/ada/attributes?a=b"),
    ])
    func `A parameter of the query that is not known is refused`(method: String, target: String) throws {
        let response = try server.request(method, target, "{}")
        #expect(response.status == 400)
        #expect(response["detail"].string?.contains("the query must have no parameters") == true, "\(response.text)")
        server.stop()
    }

    @Test(arguments: [
        ("PUT", "/v1/attributes/age"), ("PATCH", "/v1/profiles/ada/attributes"),
        ("DELETE", "/v1/profiles/ada/attributes"),
    ])
    func `A condition that is not looked at is not taken to hold`(method: String, target: String) throws {
        let body = #"{"type":"number"}"#
        let response = try server.request(method, target, body, fields: ["If-None-Match: *"])
        #expect(response.status == 501)
        #expect(try server.request("GET", "/v1/attributes")["attributes"] == [])
    }

    @Test func `An id stays with the experiment or variation it was given to`() throws {
        let body = #"{"id":"100","variations":[{"key":"a","id":"1"},"b"]}"#
        let first = try server.request("PUT", "/v1/experiments/price", body)
        #expect(first.status == 201)
        for (key, body, pointer) in [
            ("banner", #"{"id":"100","variations":["on","off"]}"#, "/id"), ("price", #"{"id":"101"}"#, "/id"),
            ("price", #"{"variations":["b",{"key":"a","id":"2"}]}"#, "/variations/1/id"),
        ] {
            let response = try server.request("PUT", "/v1/experiments/\(key)", body)
            #expect(response.status == 409)
            #expect(response["pointer"].string == pointer)
        }
        #expect(try server.request("PUT", "/v1/experiments/price", body).status == 200)
        let former = try server.request("GET", "/v1/experiments/price")
        #expect(former["variations"] == first["variations"])
        #expect(
            try server.request("PUT", "/v1/experiments/price", #"{"variations":["b",{"key":"c","id":"1"}]}"#).status
                == 200)
    }

    @Test(arguments: [
        (#""garbage""#, ""), ("[]", ""), (#"["and"]"#, ""), (#"["not",{"segment":"s"},{"segment":"s"}]"#, ""),
        (#"["foo"]"#, "/0"), ("{}", "/name"), (#"{"segment":1}"#, "/segment"), (#"{"segment":"s","x":1}"#, "/x"),
        (#"["or",{"type":"custom_attribute","name":"age","match":"bogus","value":1}]"#, "/1/match"),
        (#"[{"type":"custom_attribute","nme":"age","value":1}]"#, "/0/nme"),
        (#"{"type":"custom_attribute","name":"age","match":"gt","value":true}"#, "/value"),
        (#"{"type":"custom_attribute","name":"v","match":"semver_ge","value":"one"}"#, "/value"),
    ])
    func `An audience that nobody can be of is refused with the place`(audience: String, pointer: String) throws {
        let response = try server.request(
            "PUT", "/v1/experiments/checkout", #"{"variations":["a"],"audience":\#(audience)}"#)
        #expect(response.status == 422)
        #expect(response["pointer"].string == "/audience" + pointer)
        #expect(try server.request("GET", "/v1/experiments").status == 404)
    }

    @Test func `The hash is that of the reference`() throws {
        for (bucketingID, parentID, value) in [
            ("ppid1", "1886780721", 5254), ("ppid2", "1886780721", 4299), ("ppid3", "1886780721", 5439),
            ("ppid2", "1886780722", 2434),
        ] {
            let body = #"{"bucketing_id":"\#(bucketingID)","parent_id":"\#(parentID)"}"#
            #expect(try server.request("POST", "/v1/bucket", body)["bucket_value"].integer == Int64(value))
        }
        server.stop()
    }
}
