import APITestSupport
import JSON
import Testing

/// Variations of an experiment that come and go, the archive, and overrides by key. `ExperimentRulesTests` has the rules.
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

    private static func ids(_ response: TestResponse) -> [String: String] {
        var ids: [String: String] = [:]
        for variation in response["variations"].array ?? [] {
            ids[variation["key"].string ?? ""] = variation["id"].string
        }
        return ids
    }

    // MARK: Refusals

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
