import APITestSupport
import JSON
import Testing

/// `POST /v1/experiments/{key}/preview`: what a change would do, without doing it.
@Suite struct PreviewTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
        let definition = #"{"id":"7","variations":[{"key":"control","id":"71"},{"key":"new","id":"72"}]}"#
        #expect(try server.request("PUT", "/v1/experiments/checkout", definition).status == 201)
    }

    private func preview(_ body: String, key: String = "checkout", _ fields: [String] = []) throws -> TestResponse {
        try server.request("POST", "/v1/experiments/\(key)/preview", body, fields: fields)
    }

    private func codes(_ response: TestResponse) -> [String] {
        response["warnings"].array?.compactMap { $0["code"].string } ?? []
    }

    private func enroll(_ users: Int) throws {
        for user in 0..<users {
            let body = #"{"user_id":"u\#(user)","experiment":"checkout"}"#
            #expect(try server.request("POST", "/v1/assign", body).status == 200)
        }
    }

    @Test func `A preview stores nothing, and says what the change then does`() throws {
        try enroll(40)
        let before = try server.request("GET", "/v1/experiments/checkout")
        let body = #"{"variations":[{"key":"control","weight":9},{"key":"new","weight":1}]}"#
        let preview = try preview(body)
        #expect(preview.status == 200, "\(preview.text)")
        #expect(preview["new_users"] == ["changed": 40.0, "moves": [["from": "new", "to": "control", "share": 40.0]]])
        #expect(
            preview["enrolled"] == ["users": 40, "keep": 40, "change": 0, "lose": 0, "gain": 0, "exposed": 0])
        #expect(codes(preview) == ["weights_changed_midflight"])
        #expect(preview["creates"] == false && preview["audience_changed"] == false)
        #expect(try server.request("GET", "/v1/experiments/checkout").json == before.json)
        #expect(try server.request("PUT", "/v1/experiments/checkout", body).json == preview["experiment"])
        #expect(try self.preview(body)["new_users"]["changed"] == 0.0)
        server.stop()
    }

    @Test func `Weights that a change resets, and a start in the past, are warned of wherever they are given`() throws {
        func warnings(_ body: String, key: String = "checkout") throws -> [String] {
            let previewed = codes(try preview(body, key: key)).filter {
                ["weights_reset", "start_in_past"].contains($0)
            }
            let set = #"{"experiments":[{"key":"\#(key)",\#(body.dropFirst())]}"#
            let planned = codes(try server.request("POST", "/v1/definitions/preview", set))
            let response = try server.request("PUT", "/v1/experiments/\(key)", body)
            #expect(
                response.status < 300 && planned == codes(response) && previewed == planned,
                "\(planned) \(response.text)")
            return planned
        }
        let uneven = #"{"variations":[{"key":"control","weight":9},{"key":"new","weight":1}]}"#
        #expect(try warnings(uneven) == [])
        #expect(try warnings(#"{"variations":["control","new"]}"#) == ["weights_reset"])
        #expect(try warnings(#"{"variations":["control","new","other"]}"#) == [])
        let past = #"{"variations":["a","b"],"schedule":{"start_at":"2016-06-01T08:00:00Z"}}"#
        #expect(try warnings(past, key: "late") == ["start_in_past"])
        let ahead = #"{"variations":["a","b"],"schedule":{"start_at":"2126-06-01T08:00:00Z"}}"#
        #expect(try warnings(ahead, key: "early") == [])
        server.stop()
    }

    @Test func `A new experiment is previewed without warnings`() throws {
        let new = try preview(#"{"variations":["a","b"],"traffic":50}"#, key: "other")
        #expect(new["creates"] == true && codes(new).isEmpty)
        #expect(new["new_users"]["changed"] == 50.0)
        #expect(try server.request("GET", "/v1/experiments/other").status == 404)
    }

    @Test func `A new flag is previewed, and not stored`() throws {
        let body = #"{"type":"boolean","rules":[{"audience":{"name":"plan","value":"pro"},"variation":"on"}]}"#
        let preview = try server.request("POST", "/v1/flags/other/preview", body)
        #expect(preview["creates"] == true && preview["flag"]["type"] == "boolean", "\(preview.text)")
        #expect(preview["moves"]["users"] == 0 && preview["warnings"].array?.isEmpty == true)
        #expect(try server.request("GET", "/v1/flags/other").status == 404)
        #expect(try server.request("PUT", "/v1/attributes/navi", #"{"type":"string"}"#).status == 201)
        let warned = try server.request("POST", "/v1/flags/other/preview", body)["warnings"]
        #expect(warned.array?.first?["pointer"] == "/rules/0/audience/name", "\(warned)")
        let wrong = try server.request("POST", "/v1/flags/other/preview", #"{"type":"colour"}"#)
        let put = try server.request("PUT", "/v1/flags/other", #"{"type":"colour"}"#)
        #expect(put.status == 422 && wrong.status == 422)
        #expect(wrong["detail"] == put["detail"] && wrong["pointer"] == put["pointer"])
    }

    @Test func `What PUT refuses is refused alike`() throws {
        let tag = try #require(try server.request("GET", "/v1/experiments/checkout").field("etag"))
        let wrong = [
            (#"{"variations":[]}"#, "checkout", []), (#"{"traffic":101}"#, "checkout", []), ("{}", "other", []),
            (#"{"id":"8"}"#, "checkout", []), (#"{"nope":1}"#, "checkout", []), ("[", "checkout", []),
            (#"{"audience":[{"segment":"nobody"}]}"#, "checkout", []), ("{}", "checkout", ["If-Match: \"other\""]),
            ("{}", "checkout", ["If-None-Match: \(tag)"]),
        ]
        for (body, key, fields) in wrong {
            let previewed = try preview(body, key: key, fields)
            let put = try server.request("PUT", "/v1/experiments/\(key)", body, fields: fields)
            #expect(put.status >= 400 && previewed.status == put.status, "\(body): \(previewed.text)")
            #expect(previewed["detail"] == put["detail"] && previewed["pointer"] == put["pointer"])
        }
        #expect(try preview("{}", ["If-Match: \(tag)"]).status == 200)
    }

    @Test func `Overrides and users who were only exposed count`() throws {
        #expect(
            try server.request("PUT", "/v1/profiles/ada/experiments/7", #"{"variation_id":"72"}"#).status == 200)
        let exposure = #"{"user_id":"eve","experiment":"checkout","variation_key":"new"}"#
        #expect(try server.request("POST", "/v1/exposures", exposure).status == 200)
        #expect(try server.request("DELETE", "/v1/profiles/eve/experiments/7").status == 204)
        let preview = try preview(#"{"traffic":0}"#)
        #expect(
            preview["enrolled"] == ["users": 1, "keep": 1, "change": 0, "lose": 0, "gain": 0, "exposed": 1])
    }
}
