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

    @Test(arguments: [
        (#"{"name":"mail","match":"in","value":["a@x.de","ann@example.com"]}"#, true),
        (#"{"name":"mail","match":"not_in","value":["a@x.de","b@x.de"]}"#, true),
        (#"{"name":"mail","match":"not_in","value":["ann@example.com"]}"#, false),
        (#"{"name":"mail","match":"in","value":["ANN@example.com"],"ignore_case":true}"#, true),
        (#"{"name":"mail","match":"starts_with","value":"ann@"}"#, true),
        (#"{"name":"mail","match":"starts_with","value":"Ann@"}"#, false),
        (#"{"name":"mail","match":"starts_with","value":"Ann@","ignore_case":true}"#, true),
        (#"{"name":"mail","match":"ends_with","value":"@example.com"}"#, true),
        (#"{"name":"mail","match":"ends_with","value":"@example.org"}"#, false),
        (#"{"name":"mail","match":"substring","value":"EXAMPLE","ignore_case":true}"#, true),
        (#"{"name":"mail","match":"matches","value":"^[a-z]+@example[.](com|org)$"}"#, true),
        (#"{"name":"mail","match":"matches","value":"^A[A-Z]+@"}"#, false),
        (#"["not",{"name":"nothing","match":"starts_with","value":"a"}]"#, false),
    ])
    func `A segment tests texts, of the store and of the request`(condition: String, admits: Bool) throws {
        for name in ["mail", "nothing"] {
            _ = try server.request("PUT", "/v1/attributes/\(name)", #"{"type":"string"}"#)
        }
        let segment = try server.request("PUT", "/v1/segments/s", #"{"conditions":\#(condition)}"#)
        #expect(segment.status == 201, "\(segment.text)")
        #expect(try server.request("GET", "/v1/segments/s").text == segment.text)
        let definition = #"{"variations":["a"],"audience":{"segment":"s"}}"#
        #expect(try server.request("PUT", "/v1/experiments/checkout", definition).status == 201)
        _ = try server.request("PATCH", "/v1/profiles/ann/attributes", #"{"mail":"ann@example.com"}"#)
        #expect(try assign("ann") == (admits ? "bucketed" : "none"))
        #expect(try assign("guest", #"{"mail":"ann@example.com"}"#) == (admits ? "bucketed" : "none"))
        #expect(try server.request("GET", "/v1/segments/s?size=true")["size"] == (admits ? 1 : 0))
    }

    @Test func `Audiences are written for SDKs as they know them, and refuse what they do not know`() throws {
        let audience = #"["and",{"name":"age","match":"not_in","value":[1,2]},{"name":"country","value":"de"}]"#
        let put = try server.request(
            "PUT", "/v1/experiments/checkout", #"{"variations":["a"],"audience":\#(audience)}"#)
        #expect(put.status == 201 && put.json.object?["warnings"] == nil, "\(put.text)")
        #expect(try put["audience"] == JSONParser().parse(audience))
        let datafile = try server.request("GET", "/datafiles/default.json")
        let age: (Int64) -> JSONValue = {
            ["type": "custom_attribute", "name": "age", "match": "exact", "value": .integer($0)]
        }
        #expect(
            try #require(datafile["typedAudiences"].array?.first)["conditions"] == [
                "and", ["not", ["or", age(1), age(2)]], ["type": "custom_attribute", "name": "country", "value": "de"],
            ])
        #expect(try assign("ada", #"{"age":3,"country":"de"}"#) == "bucketed")
        #expect(try assign("eve", #"{"age":2,"country":"de"}"#) == "none")
        for (condition, pointer) in [
            (#"{"name":"country","match":"matches","value":"d."}"#, "/audience/match"),
            (#"{"name":"country","value":"DE","ignore_case":true}"#, "/audience/ignore_case"),
        ] {
            let refused = try server.request(
                "PUT", "/v1/experiments/other", #"{"variations":["a"],"audience":\#(condition)}"#)
            #expect(refused.status == 422 && refused["pointer"].string == pointer, "\(refused.text)")
            #expect(refused["detail"].string?.contains("PUT /v1/segments/NAME") == true)
        }
        let example = try server.request("PUT", "/v1/experiments/other", #"{"variations":["a"],"audience":"x"}"#)
        #expect(example["detail"].string?.contains(#"{"name":"country","match":"exact","value":"de"}"#) == true)
    }

    @Test(arguments: [
        (#"{"name":"agee","value":1}"#, ""), (#"{"name":"country","value":"uk"}"#, ""),
        (#"["not",{"name":"country","match":"in","value":["de","DE"]}]"#, "/1"),
        (#"{"name":"age","match":"substring","value":"1"}"#, ""),
    ])
    func `A condition that nobody meets is stored with a warning`(audience: String, place: String) throws {
        let body = #"{"variations":["a"],"audience":\#(audience)}"#
        let preview = try server.request("POST", "/v1/experiments/e/preview", body)
        let put = try server.request("PUT", "/v1/experiments/e", body)
        let flag = try server.request(
            "PUT", "/v1/flags/f", #"{"type":"boolean","rules":[{"audience":\#(audience),"variation":"on"}]}"#)
        for (response, base) in [(preview, "/audience"), (put, "/audience"), (flag, "/rules/0/audience")] {
            let warning = try #require(response["warnings"].array?.first, "\(response.text)")
            #expect(warning["code"] == "condition_never_met")
            #expect(warning["pointer"].string?.hasPrefix(base + place) == true, "\(response.text)")
        }
        #expect(try server.request("GET", "/v1/experiments/e").json.object?["warnings"] == nil)
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

    @Test(arguments: [#"{"segment":"adults"}"#, #"["and",["not",{"segment":"adults"}]]"#])
    func `A segment within a segment is refused with what to do instead`(conditions: String) throws {
        let refused = try server.request("PUT", "/v1/segments/others", #"{"conditions":\#(conditions)}"#)
        #expect(refused.status == 422 && refused["pointer"].string?.hasSuffix("/segment") == true, "\(refused.text)")
        #expect(refused["detail"].string?.hasPrefix("a segment must not contain another one") == true)
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
        let asking = #"{"audience":{"type":"custom_attribute","name":"age","match":"ge","value":18}}"#
        #expect(try server.request("PUT", "/v1/experiments/checkout", asking).status == 200)
        let used = try server.request("DELETE", "/v1/attributes/age")
        #expect(used.status == 409 && used["detail"].string?.hasSuffix("change them first: 'checkout'") == true)
        #expect(try server.request("PUT", "/v1/experiments/checkout", #"{"status":"paused"}"#).status == 200)
        #expect(try server.request("DELETE", "/v1/attributes/age").status == 204)
    }
}
