import APITestSupport
import JSON
import Testing

/// The life of an experiment: weights, traffic, variations that come and go, the archive, and overrides by key.
@Suite struct ExperimentTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    private func put(_ body: String, key: String = "checkout") throws -> TestResponse {
        try server.request("PUT", "/v1/experiments/\(key)", body)
    }

    private func assign(_ user: String) throws -> TestResponse {
        try server.request("POST", "/v1/assign", "{\"user_id\":\"\(user)\",\"experiment\":\"checkout\"}")
    }

    private static func shares(_ response: TestResponse) -> [Double?]? {
        response["variations"].array?.map { $0["share"].double }
    }

    private static func ids(_ response: TestResponse) -> [String: String] {
        var ids: [String: String] = [:]
        for variation in response["variations"].array ?? [] {
            ids[variation["key"].string ?? ""] = variation["id"].string
        }
        return ids
    }

    // MARK: Weights and traffic

    @Test(arguments: [("1", "1"), ("50", "50"), ("5000", "5000"), ("0.5", "0.5")])
    func `Weights are relative`(control: String, new: String) throws {
        let response = try put(
            #"{"variations":[{"key":"control","weight":\#(control)},{"key":"new","weight":\#(new)}]}"#)
        #expect(response.status == 201)
        #expect(Self.shares(response) == [50, 50])
        #expect(response["traffic"].double == 100)
        #expect(response["variations"].array?.first?["weight"].double == Double(control))
        let users = try (0..<40).map { try assign("user\($0)")["variation_key"].string }
        #expect(users.allSatisfy { $0 != nil })
    }

    @Test func `Traffic says how many take part, and what is left out keeps its value`() throws {
        let first = try put(#"{"variations":[{"key":"control","weight":3},{"key":"new","weight":1}],"traffic":10}"#)
        #expect(Self.shares(first) == [7.5, 2.5])
        #expect(Self.shares(try put(#"{"traffic":100}"#)) == [75, 25])
        #expect(Self.shares(try put(#"{"traffic":0}"#)) == [0, 0])
        #expect(try assign("ada")["variation_id"].isNull)
        let resumed = try put(#"{"traffic":33.33}"#)
        #expect(Self.shares(resumed) == [25, 8.33])
        #expect(resumed["traffic"].double == 33.33)
        let reweighted = try put(#"{"variations":[{"key":"control","weight":1},{"key":"new","weight":1}]}"#)
        #expect(reweighted["traffic"].double == 33.33)
        #expect(try put(#"{"status":"paused"}"#)["traffic"].double == 33.33)
        #expect(try server.request("GET", "/v1/experiments/checkout")["traffic"].double == 33.33)
    }

    @Test(arguments: [0.01, 0.02, 0.05, 1])
    func `Equal parts stay equal, however little traffic there was`(traffic: Double) throws {
        _ = try put(#"{"variations":["a","b","c"],"traffic":\#(traffic)}"#)
        let raised = try put(#"{"traffic":90}"#)
        #expect(Self.shares(raised) == [30, 30, 30])
        _ = try put(#"{"traffic":\#(traffic)}"#)
        let whole = try #require(Self.shares(try put(#"{"traffic":100}"#)))
        #expect(whole.allSatisfy { $0 == 33.33 || $0 == 33.34 })
    }

    @Test(arguments: [0, 0.05, 33.33])
    func `The ratio of an uploaded datafile outlasts little traffic`(traffic: Double) throws {
        let datafile = """
            {"version":"4","projectId":"1","accountId":"1","revision":"1","sdkKey":"default","experiments":[
            {"id":"7","key":"checkout","layerId":"7","status":"Running","audienceIds":[],"forcedVariations":{},
            "variations":[{"id":"a","key":"control"},{"id":"b","key":"new"}],
            "trafficAllocation":[{"entityId":"a","endOfRange":9000},{"entityId":"b","endOfRange":10000}]}],
            "featureFlags":[],"events":[],"audiences":[],"attributes":[],"groups":[],"rollouts":[]}
            """
        #expect(try server.request("PUT", "/v1/datafile", datafile).status == 201)
        #expect(try put(#"{"traffic":\#(traffic)}"#).status == 200)
        #expect(Self.shares(try put(#"{"traffic":100}"#)) == [90, 10])
    }

    @Test func `Equal parts that were rounded have equal weights, so that a response may be sent back`() throws {
        let little = try put(#"{"variations":["a","b"],"traffic":0.03}"#)
        #expect(Self.shares(little) == [0.02, 0.01])
        #expect(little["variations"].array?.map { $0["weight"].double } == [1, 1])
    }

    @Test(arguments: [
        (#"{"variations":["a"],"traffic":101}"#, "/traffic", "`traffic` must be a number from 0 to 100; got 101.0"),
        (
            #"{"variations":["a"],"traffic":"all"}"#, "/traffic",
            "`traffic` must be a number from 0 to 100; got a string"
        ),
        (#"{"variations":[{"key":"a","weight":0},{"key":"b","weight":0}]}"#, "/variations", "at least one weight"),
    ])
    func `Weights and traffic that mean nothing are refused`(body: String, pointer: String, detail: String) throws {
        let response = try put(body)
        #expect(response.status == 422)
        #expect(response["pointer"].string == pointer)
        #expect(response["detail"].string?.hasPrefix(detail) == true, "\(response.text)")
    }

    @Test func `An experiment that is wrong stores nothing and names every wrong member`() throws {
        let response = try put(
            #"""
            {"variants":["a"],"traffic":-1,"status":"on","enrollment":1,"group":7,"id":"a b","key":"other",
            "audience":{"type":"custom_attribute","name":"a","match":"like","value":1},
            "variations":["a",{"weight":1},{"key":"b","weight":"x"},"a"]}
            """#)
        #expect(response.status == 422)
        #expect(
            response["errors"].array?.map { $0["pointer"].string } == [
                "/variants", "/key", "/id", "/status", "/variations/1/key", "/variations/2/weight", "/variations/3",
                "/traffic", "/enrollment", "/group", "/audience/match",
            ], "\(response.text)")
        #expect(response["errors"].array?.first?["detail"].string?.hasSuffix("did you mean `variations`?") == true)
        #expect(try server.request("GET", "/v1/experiments/checkout").status == 404)
        #expect(try put("[]").status == 400)
    }

    @Test func `Weights are shown as they were given; equal parts without weights count as one each`() throws {
        func weights(_ body: String) throws -> [Double?]? {
            try put(body)["variations"].array?.map { $0["weight"].double }
        }
        #expect(try weights(#"{"variations":["a","b"]}"#) == [1, 1])
        let given = #"{"variations":[{"key":"a","weight":2.5},{"key":"b","weight":1}],"traffic":0.07}"#
        #expect(try weights(given) == [2.5, 1])
        #expect(try weights(#"{"traffic":80,"enrollment":"closed"}"#) == [2.5, 1])
        #expect(try weights(#"{"status":"archived"}"#) == [2.5, 1])
    }

    // MARK: Variations

    @Test func `A variation that is left out and put back has its id again, and its users`() throws {
        let both = try put(#"{"variations":["control","new"]}"#)
        _ = try put(#"{"variations":[{"key":"control","weight":0},{"key":"new","weight":1}]}"#)
        #expect(try assign("ada")["variation_key"] == "new")
        #expect(try put(#"{"variations":["control"]}"#).status == 409)
        let alone = try server.request(
            "PUT", "/v1/experiments/checkout?moves=allow", #"{"variations":["control"]}"#)
        #expect(Self.ids(alone) == ["control": Self.ids(both)["control"]])
        let back = try put(#"{"variations":["control","new"]}"#)
        #expect(Self.ids(back) == Self.ids(both))
        let response = try assign("ada")
        #expect(response["variation_key"] == "new" && response["source"] == "stored")
    }

    @Test func `An id that was given comes back with its variation`() throws {
        let both = try put(#"{"id":"7","variations":[{"key":"control","id":"70"},{"key":"new","id":"71"}]}"#)
        _ = try put(#"{"variations":["control"]}"#)
        _ = try put(#"{"variations":["control","other"]}"#)
        #expect(Self.ids(try put(#"{"variations":["new","control"]}"#)) == Self.ids(both))
    }

    @Test func `Two servers give a variation the same id`() throws {
        let other = try startTestServer()
        let body = #"{"id":"7","variations":["control","new"]}"#
        let responses = [try put(body), try other.request("PUT", "/v1/experiments/checkout", body)]
        #expect(Self.ids(responses[0]) == Self.ids(responses[1]))
        #expect(Set(Self.ids(responses[0]).values).count == 2)
        other.stop()
    }

    // MARK: Archive

    @Test func `Deleting archives: results stay, and only a status takes the experiment out of the archive`() throws {
        _ = try put(#"{"variations":["control","new"]}"#)
        let variation = try assign("ada")["variation_id"]
        _ = try server.request("POST", "/v1/exposures", #"{"user_id":"ada","experiment":"checkout"}"#)
        for _ in 0..<2 { #expect(try server.request("DELETE", "/v1/experiments/checkout").status == 204) }
        #expect(try server.request("GET", "/v1/experiments/checkout")["status"] == "archived")
        #expect(try assign("bob")["variation_id"].isNull)
        let results = try server.request("GET", "/v1/experiments/checkout/results?goal=purchase")
        #expect(results.status == 200, "\(results.text)")

        let refused = try put(#"{"variations":["red","blue"]}"#)
        #expect(refused.status == 409)
        #expect(refused["detail"].string?.contains("is archived") == true)
        #expect(try put(#"{"status":"running"}"#).status == 200)
        #expect(try assign("ada")["variation_id"] == variation)
        let actions = try server.request("GET", "/v1/audit?action=experiment.archive")["entries"].array
        #expect(actions?.count == 1)
        #expect(try server.request("DELETE", "/v1/experiments/unknown").status == 404)
    }

    @Test(arguments: [
        ("Running", "running"), ("PAUSED", "paused"), ("Not started", "not_started"), ("not_started", "not_started"),
        ("archived", "archived"),
    ])
    func `A status is accepted in any case, shown in lower case, and served to SDKs as Optimizely writes it`(
        given: String, name: String
    ) throws {
        #expect(try put(#"{"variations":["a"],"status":"\#(given)"}"#)["status"].string == name)
        let datafile = try server.request("GET", "/datafiles/default.json")
        let status = try #require(datafile["experiments"].array?.first)["status"].string
        #expect(status == name.prefix(1).uppercased() + name.dropFirst().replacing("_", with: " "))
        #expect(try put(#"{"variations":["a"],"status":"off"}"#).status == 422)
    }

    // MARK: Overrides by key

    @Test func `An override names the experiment by its key or its id`() throws {
        _ = try put(
            #"{"id":"7001","variations":[{"key":"control","id":"70"},{"key":"new-look","id":"71"}]}"#, key: "check-out")
        for name in ["check-out", "7001"] {
            let path = "/v1/profiles/ann/experiments/\(name)"
            let response = try server.request("PUT", path, #"{"variation_key":"new-look"}"#)
            #expect(
                response["experiment_id"] == "7001" && response["experiment_key"] == "check-out", "\(response.text)")
            #expect(response["variation_id"] == "71" && response["variation_key"] == "new-look")
            #expect(response["known"] == true)
            #expect(try server.request("GET", path).text == response.text)
            #expect(try server.request("GET", "/v1/profiles/ann").text == profile("ann", ["7001": "71"]))
            #expect(try server.request("DELETE", path).status == 204)
            #expect(try server.request("GET", path).status == 404)
        }
    }

    @Test func `An override of an experiment that no datafile has is stored, and says so`() throws {
        let response = try server.request("PUT", "/v1/profiles/ann/experiments/checkout", #"{"variation_id":"a"}"#)
        #expect(response.status == 200)
        #expect(response["known"] == false && response["experiment_key"].isNull && response["variation_key"].isNull)
        #expect(try server.request("GET", "/v1/profiles/ann").text == profile("ann", ["checkout": "a"]))
        #expect(
            try server.request("PUT", "/v1/profiles/ann/experiments/check-out", #"{"variation_id":"a"}"#).status == 400)
    }

    @Test func `A key that two projects have for different experiments is not guessed`() throws {
        for (key, id) in [("one", "1001"), ("two", "1002")] {
            #expect(try server.request("PUT", "/v1/projects/\(key)").status == 201)
            let response = try server.request(
                "PUT", "/v1/experiments/checkout", "{\"id\":\"\(id)\",\"variations\":[\"a\"]}",
                fields: ["X-Optimizely-SDK-Key: \(key)"])
            #expect(response.status == 201)
        }
        let response = try server.request("PUT", "/v1/profiles/ann/experiments/checkout", #"{"variation_key":"a"}"#)
        #expect(response.status == 409)
        #expect(response["detail"].string?.contains("1001, 1002") == true)
        #expect(try server.request("PUT", "/v1/profiles/ann/experiments/1002", #"{"variation_key":"a"}"#).status == 200)
    }
}
