import APITestSupport
import JSON
import Testing

/// Bandits as responses show them, and the predictions that SDKs ask for. `TimedRulesTests` has the rules; `BanditTests` lets
/// time pass.
@Suite struct BanditEndpointTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
        let metric = #"{"kind":"conversion","goal":"buy"}"#
        #expect(try server.request("PUT", "/v1/metrics/bought", metric).status == 201)
    }

    @discardableResult
    private func put(_ members: String, variations: String = #"["a","b"]"#) throws -> TestResponse {
        let put = try server.request(
            "PUT", "/v1/experiments/checkout",
            #"{"id":"7checkout","variations":\#(variations),"metrics":{"primary":["bought"]},\#(members)}"#)
        #expect(put.status < 300, "\(put.text)")
        return put
    }

    private func predict(_ instances: String, _ path: String = "/predict/7checkout") throws -> TestResponse {
        try server.request("POST", path, #"{"instances":\#(instances)}"#)
    }

    @Test func `A bandit is shown with its state, and what is shown may be sent back`() throws {
        let created = try put(#""status":"draft","traffic":40,"bandit":{"every":"12h","predict":true}"#)
        #expect(created.status == 201, "\(created.text)")
        #expect(
            created["bandit"] == [
                "every": "12h", "minimum_share": 5, "minimum_users": 100, "predict": true,
                "state": ["looked_at": .null, "due_at": .null, "users": 0, "reason": .null, "variations": []],
            ])
        #expect(created["traffic"] == 40)
        let again = try server.request("PUT", "/v1/experiments/checkout", created.text)
        #expect(again.status == 200 && again.json == created.json, "\(again.text)")
        let datafile = try server.request("GET", "/datafiles/default.json")
        #expect(!datafile.text.contains("bandit"))
        let removed = try server.request("PUT", "/v1/experiments/checkout", #"{"bandit":null}"#)
        #expect(removed.json.object?["bandit"] == nil)
    }

    // MARK: Predictions

    @Test func `Predictions are sticky and split by the weights`() throws {
        try put(#""bandit":{"predict":true}"#, variations: #"[{"key":"a","weight":1},{"key":"b","weight":3}]"#)
        let users = (0..<400).map {
            #"{"visitorId":"u\#($0)","experimentId":"7checkout","attributes":[],"cmabUUID":"x"}"#
        }
        let asked = "[\(users.joined(separator: ","))]"
        let first = try predict(asked)
        #expect(first.status == 200, "\(first.text)")
        let given = try #require(first["predictions"].array).map { $0["variation_id"].string ?? "" }
        let ids = try #require(try server.request("GET", "/v1/experiments/checkout")["variations"].array)
            .map { $0["id"].string ?? "" }
        #expect(given.count == 400 && Set(given) == Set(ids))
        #expect((70...130).contains(given.count { $0 == ids[0] }))
        try put(#""traffic":100"#, variations: #"[{"key":"a","weight":99},{"key":"b","weight":1}]"#)
        #expect(try predict(asked).json == first.json)
        let profile = try server.request("GET", "/v1/profiles/u0")
        #expect(profile["experiment_bucket_map"]["7checkout"]["variation_id"].string == given[0])
        // What this server decides itself is the same.
        for user in 0..<40 {
            let decided = try server.request(
                "POST", "/v1/assign", #"{"user_id":"u\#(user)","experiment":"checkout"}"#)
            #expect(decided["variation_id"].string == given[user])
        }
        try put(#""enrollment":"closed""#)
        #expect(try predict(asked).json == first.json)
        let refused = try predict(#"[{"visitorId":"newcomer"}]"#)
        #expect(refused.status == 409, "\(refused.text)")
    }

    @Test func `An override and a user of another id are predicted as decided`() throws {
        try put(#""bandit":{"predict":true}"#)
        let path = "/v1/profiles/ann/experiments/checkout"
        for key in ["a", "b"] {
            let set = try server.request("PUT", path, #"{"variation_key":"\#(key)","reason":"demo"}"#)
            #expect(set.status < 300, "\(set.text)")
            let id = try predict(#"[{"visitorId":"ann"}]"#)["predictions"].array?.first?["variation_id"]
            let shown = try server.request("GET", "/v1/experiments/checkout")["variations"].array
            #expect(id == shown?.first { $0["key"].string == key }?["id"])
        }
    }

    @Test(arguments: [
        ("7", 400, ""), ("{}", 400, "/instances"), (#"{"instances":[]}"#, 400, "/instances"),
        (#"{"instances":[7]}"#, 400, "/instances/0"), (#"{"instances":[{}]}"#, 400, "/instances/0/visitorId"),
        (#"{"instances":[{"visitorId":""}]}"#, 400, "/instances/0/visitorId"),
        (#"{"instances":[{"visitorId":"u","experimentId":"8"}]}"#, 400, "/instances/0/experimentId"),
    ])
    func `What is no request for predictions is refused, and nobody is enrolled`(
        body: String, status: Int, pointer: String
    ) throws {
        try put(#""bandit":{"predict":true}"#)
        let refused = try server.request("POST", "/predict/7checkout", body)
        #expect(refused.status == status && refused["pointer"].string == pointer, "\(refused.text)")
    }

    @Test func `A rule is found in all projects, unless several have it`() throws {
        try put(#""bandit":{"predict":true}"#)
        #expect(try predict(#"[{"visitorId":"u"}]"#, "/predict/8").status == 404)
        let fields = ["X-Optimizely-SDK-Key: shop"]
        #expect(try server.request("PUT", "/v1/projects/shop", "{}").status == 201)
        let other = #"{"id":"7checkout","variations":["x","y"]}"#
        #expect(try server.request("PUT", "/v1/experiments/other?share=allow", other, fields: fields).status == 201)
        let refused = try predict(#"[{"visitorId":"u"}]"#)
        #expect(refused.status == 409 && refused["detail"].string?.contains("default, shop") == true, "\(refused.text)")
        #expect(try predict(#"[{"visitorId":"u"}]"#, "/predict/7checkout?sdk_key=shop").status == 200)
    }

    @Test func `Results say that users are weighted`() throws {
        try put(#""bandit":{}"#)
        let results = try server.request("GET", "/v1/experiments/checkout/results?goal=buy")
        #expect(results["bandit"] == ["weighted": true, "users": 0, "users_without_probability": 0], "\(results.text)")
    }
}
