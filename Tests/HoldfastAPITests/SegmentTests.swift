import APITestSupport
import JSON
import Testing

/// Stored attributes and segments as audiences.
@Suite struct SegmentTests {
    private let server: any TestServer
    private static let adults = #"{"type":"custom_attribute","name":"age","match":"ge","value":18}"#

    init() throws {
        server = try startTestServer()
        for (method, target, body) in [
            ("PUT", "/v1/attributes/age", #"{"type":"number"}"#),
            ("PUT", "/v1/attributes/country", #"{"type":"country"}"#),
            ("PUT", "/v1/segments/adults", #"{"conditions":\#(Self.adults)}"#),
            ("PATCH", "/v1/profiles/ada/attributes", #"{"age":36}"#),
            ("PATCH", "/v1/profiles/tom/attributes", #"{"age":9}"#),
        ] {
            try #require(try server.request(method, target, body).status < 300)
        }
    }

    private func assign(_ user: String, _ attributes: String = "{}") throws -> JSONValue {
        let body = #"{"user_id":"\#(user)","experiment":"checkout","attributes":\#(attributes)}"#
        return try server.request("POST", "/v1/assign", body)["source"]
    }

    @Test(arguments: [adults, #"{"segment":"adults"}"#, #"["or",{"segment":"adults"},["and",{"segment":"adults"}]]"#])
    func `An audience finds what is stored, and what the request says goes first`(audience: String) throws {
        let definition = #"{"variations":["a","b"],"audience":\#(audience)}"#
        #expect(try server.request("PUT", "/v1/experiments/checkout", definition).status == 201)
        #expect(try server.request("GET", "/v1/assign?user_id=ada&experiment=checkout")["source"] == "bucketed")
        #expect(try assign("ada", #"{"age":17}"#) == "none")
        #expect(try assign("ada", #"{"age":null}"#) == "none")
        #expect(try assign("ada", #"{"country":"de"}"#) == "bucketed")
        #expect(try assign("tom") == "none")
        #expect(try assign("tom", #"{"age":18}"#) == "bucketed")
        #expect(try assign("nobody") == "none")
    }

    @Test func `decide and activate find what is stored, with and without the profile`() throws {
        let definition = #"{"variations":["a"],"audience":{"segment":"adults"}}"#
        #expect(try server.request("PUT", "/v1/experiments/checkout", definition).status == 201)
        let datafile = try server.request("GET", "/v1/datafile", fields: ["X-Optimizely-SDK-Key: default"]).json
        var root = try #require(datafile.object)
        let id = try #require(root["experiments"]?.array?.first?["id"].string)
        root["featureFlags"] = [
            ["id": "f", "key": "flag", "experimentIds": [.string(id)], "rolloutId": "", "variables": []]
        ]
        let fields = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]
        let changed = String(decoding: JSONValue.object(root).encoded(), as: UTF8.self)
        #expect(try server.request("PUT", "/v1/datafile", changed, fields: fields).status < 300)
        for (user, variation) in [("ada", "a"), ("tom", ""), ("nobody", "")] {
            let activated = try server.request(
                "POST", "/v1/activate?experimentKey=checkout", #"{"userId":"\#(user)"}"#, fields: fields)
            #expect(activated.json.array?.first?["variationKey"] == .string(variation))
            for options in ["[]", #"["IGNORE_USER_PROFILE_SERVICE"]"#] {
                let body = #"{"userId":"\#(user)","decideOptions":\#(options)}"#
                let decided = try server.request("POST", "/v1/decide?keys=flag", body, fields: fields)
                #expect(decided["variationKey"] == .string(variation), "\(options)")
                #expect(decided["userContext"]["attributes"] == [:], "what is stored is not told")
            }
        }
    }

    @Test func `A segment tells its size and its users, resumed anywhere`() throws {
        let lines = (100..<300).map { #"{"user_id":"u\#($0)","attributes":{"age":\#($0 % 2 == 0 ? 40 : 4)}}"# }
        _ = try server.request("POST", "/v1/profiles/attributes", lines.joined(separator: "\n"))
        let size = try server.request("GET", "/v1/segments/adults?size=true")
        #expect(size["size"] == 101)
        #expect(size["examined"] == 202)
        let users = try server.request("GET", "/v1/segments/adults/users")
        #expect(users.field("content-type") == "application/x-ndjson")
        let expected = ["ada"] + stride(from: 100, to: 300, by: 2).map { "u\($0)" }
        #expect(users.text == expected.map { #"{"user_id":"\#($0)"}"# + "\n" }.joined())
        let some = try server.request("GET", "/v1/segments/adults/users?after=u150&limit=2")
        #expect(some.text == #"{"user_id":"u152"}"# + "\n" + #"{"user_id":"u154"}"# + "\n")
        #expect(try server.request("GET", "/v1/segments/adults/users?limit=0").status == 400)
        #expect(try server.request("GET", "/v1/segments/none/users").status == 404)
    }

    @Test(arguments: [
        (adults, 1), (#"{"segment":"adults"}"#, 1), (#"["not",{"segment":"adults"}]"#, 1),
        (#"["or",{"segment":"adults"},{"type":"custom_attribute","name":"age","match":"lt","value":18}]"#, 2),
        (#"["and",{"segment":"adults"},{"type":"custom_attribute","name":"country","value":"de"}]"#, 0),
        (#"{"type":"custom_attribute","name":"sent by apps","value":"x"}"#, 0),
    ])
    func `The users whom an audience would admit are counted`(audience: String, size: Int) throws {
        let count = try server.request("POST", "/v1/audiences/size", #"{"audience":\#(audience)}"#)
        #expect(count.text == #"{"size":\#(size),"examined":2}"#)
    }

    @Test(arguments: [
        (#"{"audience":{"segment":"adlts"}}"#, 422, "no segment has the name 'adlts'"),
        (#"{"conditions":[]}"#, 400, nil), ("{}", 400, "`audience` is required"), (#"{"audience":null}"#, 422, nil),
    ])
    func `An audience that makes no sense is not counted`(body: String, status: Int, detail: String?) throws {
        let response = try server.request("POST", "/v1/audiences/size", body)
        #expect(response.status == status, "\(response.text)")
        if let detail { #expect(response["detail"] == .string(detail)) }
    }

    @Test func `What is in use is not deleted, and conditions that make no sense are refused`() throws {
        let unknown = #"{"variations":["a"],"audience":["not",{"segment":"adlts"}]}"#
        #expect(try server.request("PUT", "/v1/experiments/checkout", unknown).status == 422)
        let definition = #"{"variations":["a"],"audience":["not",{"segment":"adults"}]}"#
        #expect(try server.request("PUT", "/v1/experiments/checkout", definition).status == 201)
        #expect(try server.request("DELETE", "/v1/segments/adults").status == 409)
        #expect(try server.request("DELETE", "/v1/attributes/age").status == 409)
        #expect(try server.request("PUT", "/v1/experiments/checkout", #"{"audience":null}"#).status == 200)
        let conditions =
            #"["or",{"type":"custom_attribute","name":"agee","value":1},{"type":"custom_attribute","name":"age","value":"1"}]"#
        let refused = try server.request("PUT", "/v1/segments/adults", #"{"conditions":\#(conditions)}"#)
        #expect(refused.status == 422)
        #expect(refused["errors"].array?.map { $0["pointer"] } == ["/conditions/1/name", "/conditions/2/value"])
        #expect(try server.request("DELETE", "/v1/segments/adults").status == 204)
        #expect(try server.request("DELETE", "/v1/segments/adults").status == 404)
        #expect(try server.request("DELETE", "/v1/attributes/age").status == 204)
    }
}
