import APITestSupport
import JSON
import Testing

/// What one request may ask for: at each limit it is served, one beyond it is refused.
@Suite struct LimitTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    @Test func `A profile holds 1,000 assignments and not one more`() throws {
        func map(_ range: Range<Int>) -> String {
            range.map { #""e\#($0)":{"variation_id":"v"}"# }.joined(separator: ",")
        }
        func body(_ range: Range<Int>) -> String { #"{"user_id":"ada","experiment_bucket_map":{\#(map(range))}}"# }
        let refused = try server.request("POST", "/ups/save", body(0..<1_001))
        #expect(refused.status == 422)
        #expect(refused["pointer"] == "/experiment_bucket_map")
        #expect(try server.request("GET", "/v1/profiles/ada").status == 404)

        let accepted = try server.request("POST", "/ups/save", body(0..<1_000))
        #expect(accepted.status == 200)
        #expect(accepted["experiment_bucket_map"].object?.count == 1_000)
        #expect(try server.request("POST", "/ups/save", body(1_000..<1_001)).status == 422)
        #expect(try server.request("POST", "/ups/save", body(0..<1)).status == 200)
        #expect(try server.request("GET", "/v1/profiles/ada").body == accepted.body)
    }

    @Test func `An experiment has up to 1,000 variations`() throws {
        func definition(_ count: Int) -> String {
            #"{"variations":[\#((0..<count).map { #""v\#($0)""# }.joined(separator: ","))]}"#
        }
        let refused = try server.request("PUT", "/v1/experiments/colours", definition(1_001))
        #expect(refused.status == 422)
        #expect(refused["pointer"] == "/variations")
        #expect(try server.request("GET", "/v1/experiments/colours").status == 404)
        let accepted = try server.request("PUT", "/v1/experiments/colours", definition(1_000))
        #expect(accepted.status == 201)
        #expect(accepted["variations"].array?.count == 1_000)
    }

    @Test func `A user id has up to 1,024 bytes in a path, a query and a body`() throws {
        let longest = String(repeating: "ü", count: 512)
        let (path, tooLong) = (String(repeating: "%C3%BC", count: 512), String(repeating: "%C3%BC", count: 512) + "a")
        #expect(try server.request("POST", "/ups/save", profile(longest, ["1": "2"])).status == 200)
        #expect(try server.request("GET", "/v1/profiles/\(path)")["user_id"] == .string(longest))
        #expect(try server.request("GET", "/ups/lookup?user_id=\(path)")["user_id"] == .string(longest))
        #expect(try server.request("POST", "/ups/save", profile(longest + "a", ["1": "2"]))["pointer"] == "/user_id")
        #expect(try server.request("GET", "/v1/profiles/\(tooLong)").status == 400)
        #expect(try server.request("GET", "/ups/lookup?user_id=\(tooLong)").status == 400)
    }

    @Test func `Up to 1,000 attributes of up to 4,096 bytes count, others that nobody asks for are ignored`() throws {
        let audience = (0..<1_001).map { #"{"name":"a\#($0)","match":"exact","value":"x"}"# }
        let audiences = stride(from: 0, to: 1_001, by: 500).map { audience[$0..<min(1_001, $0 + 500)] }
        for (index, conditions) in audiences.enumerated() {
            let definition =
                #"{"variations":["a"],"audience":["or",\#(conditions.joined(separator: ","))]}"#
            let made = try server.request("PUT", "/v1/experiments/e\(index == 0 ? "" : "\(index)")", definition)
            #expect(made.status == 201, "\(made.text)")
        }
        func attributes(_ count: Int, _ length: Int = 1, name: String = "a") -> String {
            let text = String(repeating: "x", count: length)
            return "{" + (0..<count).map { #""\#(name)\#($0)":"\#(text)""# }.joined(separator: ",") + "}"
        }
        let fields = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]
        for (attributes, status) in [
            (attributes(1_000), 200), (attributes(1_001), 400), (attributes(2, 4_096), 200),
            (attributes(2, 4_097), 400), (attributes(1_001, name: "b"), 200), (attributes(2, 4_097, name: "b"), 200),
        ] {
            let body = #"{"user_id":"u","experiment":"e","attributes":\#(attributes)}"#
            let assigned = try server.request("POST", "/v1/assign", body)
            #expect(assigned.status == status)
            if status == 400 { #expect(assigned["pointer"].string?.hasPrefix("/attributes") == true) }
            let evaluated = #"{"user_id":"u","attributes":\#(attributes)}"#
            #expect(try server.request("POST", "/v1/evaluations", evaluated).status == status)
            let asked = #"{"userId":"u","userAttributes":\#(attributes)}"#
            #expect(try server.request("POST", "/v1/activate?experimentKey=e", asked, fields: fields).status == status)
        }
        let allowed = (0..<1_000).map { #""v\#($0)""# }
        let definition = #"{"type":"selection","multiple":true,"values":[\#(allowed.joined(separator: ","))]}"#
        #expect(try server.request("PUT", "/v1/attributes/sel", definition).status == 201)
        for (values, status) in [(allowed, 200), (allowed + [#""v7""#], 422)] {
            let list = values.joined(separator: ",")
            #expect(try server.request("PATCH", "/v1/profiles/u/attributes", #"{"sel":[\#(list)]}"#).status == status)
            let text = list.replacing("\"", with: "").replacing(",", with: ";")
            #expect(try server.request("PATCH", "/v1/profiles/u/attributes", #"{"sel":"\#(text)"}"#).status == status)
        }
        let unknown = try server.request("PATCH", "/v1/profiles/u/attributes", attributes(1_001))
        #expect(unknown.status == 422)
        #expect(unknown["errors"].array?.count == 1)
    }

    @Test func `A list that is longer than a piece is sent whole`() throws {
        #expect(try server.request("GET", "/v1/segments").text == #"{"segments":[],"next":null}"#)
        #expect(try server.request("PUT", "/v1/attributes/n", #"{"type":"number"}"#).status == 201)
        let condition = #"{"type":"custom_attribute","name":"n","value":1}"#
        let conditions = #"["or",\#(Array(repeating: condition, count: 1_000).joined(separator: ","))]"#
        for index in 0..<12 {
            #expect(
                try server.request("PUT", "/v1/segments/s\(index)", #"{"conditions":\#(conditions)}"#).status == 201)
            let list = try server.request("GET", "/v1/segments")["segments"].array
            #expect(list?.count == index + 1)
            #expect(list?.allSatisfy { $0["conditions"].array?.count == 1_001 } == true)
        }
    }
}
