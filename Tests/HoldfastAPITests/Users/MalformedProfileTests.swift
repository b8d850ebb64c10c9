import APITestSupport
import JSON
import Testing

/// A body that is no valid profile, and the member that is wrong.
struct MalformedProfile: Sendable, CustomTestStringConvertible {
    let body: [UInt8]
    let pointer: String

    init(_ body: String, at pointer: String) {
        self.init(Array(body.utf8), at: pointer)
    }

    init(_ body: [UInt8], at pointer: String) {
        self.body = body
        self.pointer = pointer
    }

    var testDescription: String {
        let text = String(decoding: body, as: UTF8.self)
        return text.count > 80 ? "\(text.prefix(80))… (\(body.count) bytes)" : text
    }
}

extension MalformedProfile {
    private static let map = "/experiment_bucket_map"

    /// A whole profile whose one assignment is this text.
    private static func entry(_ text: String) -> String {
        #"{"user_id":"ada","experiment_bucket_map":{"11":{"variation_id":"2"},"22":\#(text)}}"#
    }

    private static func key(_ text: String) -> String {
        #"{"user_id":"ada","experiment_bucket_map":{"11":{"variation_id":"2"},"\#(text)":{"variation_id":"1"}}}"#
    }

    private static func user(_ text: String) -> String {
        #"{"user_id":\#(text),"experiment_bucket_map":{"11":{"variation_id":"2"}}}"#
    }

    private static func long(_ count: Int) -> String {
        String(repeating: "a", count: count)
    }

    static let notJSON = [
        MalformedProfile("", at: ""),
        MalformedProfile(" ", at: ""),
        MalformedProfile("{", at: ""),
        MalformedProfile("profile", at: ""),
        MalformedProfile("user_id=ada&experiment_bucket_map=%7B%7D", at: ""),
        MalformedProfile("\u{FEFF}" + profile("ada", ["11": "2"]), at: ""),
        MalformedProfile(profile("ada", ["11": "2"]) + "}", at: ""),
        MalformedProfile(profile("ada", ["11": "2"]) + profile("ada", ["11": "3"]), at: ""),
        MalformedProfile("{'user_id':'ada','experiment_bucket_map':{}}", at: ""),
        MalformedProfile(#"{"user_id":"ada","experiment_bucket_map":{},}"#, at: ""),
        MalformedProfile(#"{"user_id":"ada" "experiment_bucket_map":{}}"#, at: ""),
        MalformedProfile(#"{/* one */"user_id":"ada","experiment_bucket_map":{}}"#, at: ""),
        MalformedProfile(user("\"a\nb\""), at: "/user_id"),
        MalformedProfile(user(#""\x41""#), at: "/user_id"),
        MalformedProfile(user(#""\ud800""#), at: "/user_id"),
        MalformedProfile(
            Array(#"{"user_id":""#.utf8) + [0xFF] + Array(#"","experiment_bucket_map":{}}"#.utf8), at: "/user_id"),
        MalformedProfile(entry(#"{"variation_id":"1}"#), at: "\(map)/22/variation_id"),
        MalformedProfile(#"{"user_id":"ada","experiment_bucket_map":{},"note":01}"#, at: "/note"),
        MalformedProfile(#"{"user_id":"ada","experiment_bucket_map":{},"note":NaN}"#, at: "/note"),
        MalformedProfile(#"{"user_id":"ada","experiment_bucket_map":{},"user_id":"bob"}"#, at: "/user_id"),
        MalformedProfile(key("11"), at: "\(map)/11"),
        MalformedProfile(String(repeating: "[", count: 100_000), at: String(repeating: "/0", count: 64)),
    ]

    static let wrongMembers = [
        MalformedProfile("null", at: ""),
        MalformedProfile("true", at: ""),
        MalformedProfile("17", at: ""),
        MalformedProfile("\"ada\"", at: ""),
        MalformedProfile("[]", at: ""),
        MalformedProfile("[\(profile("ada"))]", at: ""),
        MalformedProfile(user("null"), at: "/user_id"),
        MalformedProfile(user("17"), at: "/user_id"),
        MalformedProfile(user("true"), at: "/user_id"),
        MalformedProfile(user("[\"ada\"]"), at: "/user_id"),
        MalformedProfile(user("{}"), at: "/user_id"),
        MalformedProfile(user("\"\""), at: "/user_id"),
        MalformedProfile(user(#""a\u0000b""#), at: "/user_id"),
        MalformedProfile(user("\"\(long(1_025))\""), at: "/user_id"),
        MalformedProfile(#"{"user_id":"ada"}"#, at: map),
        MalformedProfile(#"{"user_id":"ada","experiment_bucket_map":null}"#, at: map),
        MalformedProfile(#"{"user_id":"ada","experiment_bucket_map":[]}"#, at: map),
        MalformedProfile(#"{"user_id":"ada","experiment_bucket_map":"{}"}"#, at: map),
        MalformedProfile(#"{"user_id":"ada","experiment_bucket_map":0}"#, at: map),
        MalformedProfile(#"{"user_id":"ada","Experiment_Bucket_Map":{}}"#, at: map),
    ]

    static let wrongAssignments = [
        MalformedProfile(key(""), at: "\(map)/"),
        MalformedProfile(key("a b"), at: "\(map)/a b"),
        MalformedProfile(key("a-b"), at: "\(map)/a-b"),
        MalformedProfile(key("a_b"), at: "\(map)/a_b"),
        MalformedProfile(key("a/b"), at: "\(map)/a~1b"),
        MalformedProfile(key("a~b"), at: "\(map)/a~0b"),
        MalformedProfile(key("ä"), at: "\(map)/ä"),
        MalformedProfile(key("١"), at: "\(map)/١"),
        MalformedProfile(key(#"11\n"#), at: "\(map)/11\n"),
        MalformedProfile(key(long(256)), at: "\(map)/\(long(256))"),
        MalformedProfile(entry("null"), at: "\(map)/22"),
        MalformedProfile(entry("\"1\""), at: "\(map)/22"),
        MalformedProfile(entry("1"), at: "\(map)/22"),
        MalformedProfile(entry("[]"), at: "\(map)/22"),
        MalformedProfile(entry("{}"), at: "\(map)/22/variation_id"),
        MalformedProfile(entry(#"{"variationId":"1"}"#), at: "\(map)/22/variation_id"),
        MalformedProfile(entry(#"{"variation_id":null}"#), at: "\(map)/22/variation_id"),
        MalformedProfile(entry(#"{"variation_id":1}"#), at: "\(map)/22/variation_id"),
        MalformedProfile(entry(#"{"variation_id":true}"#), at: "\(map)/22/variation_id"),
        MalformedProfile(entry(#"{"variation_id":{}}"#), at: "\(map)/22/variation_id"),
        MalformedProfile(entry(#"{"variation_id":""}"#), at: "\(map)/22/variation_id"),
        MalformedProfile(entry("{\"variation_id\":\"\(long(256))\"}"), at: "\(map)/22/variation_id"),
    ]
}

@Suite struct MalformedProfileTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    @Test(arguments: MalformedProfile.notJSON + MalformedProfile.wrongMembers + MalformedProfile.wrongAssignments)
    func `A malformed profile is refused, with the member that is wrong, and nothing is stored`(
        malformed: MalformedProfile
    ) throws {
        #expect(try server.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        let before = try server.request("GET", "/v1/profiles?detail=true").body
        for (method, target) in [("POST", "/ups/save"), ("PUT", "/v1/profiles/ada"), ("PATCH", "/v1/profiles/ada")] {
            let response = try server.response(to: TestRequest(method, target, bytes: malformed.body))
            #expect(response.status == 400, "\(method) \(target): \(response.text)")
            #expect(response.field("content-type") == "application/problem+json")
            #expect(response["status"] == 400)
            #expect(response["pointer"] == .string(malformed.pointer), "\(method) \(target): \(response.text)")
            #expect(response["detail"].string?.isEmpty == false)
        }
        #expect(try server.request("GET", "/v1/profiles?detail=true").body == before)
    }

    @Test func `A save needs a user id`() throws {
        let response = try server.request("POST", "/ups/save", #"{"experiment_bucket_map":{}}"#)
        #expect(response.status == 400)
        #expect(response["pointer"] == "/user_id")
    }

    @Test func `Members beside those of the schema are let pass`() throws {
        let body = #"{"x":[1,{"y":null}],"user_id":"ada","experiment_bucket_map":{"11":{"variation_id":"1","z":2}}}"#
        #expect(try server.request("POST", "/ups/save", body).text == profile("ada", ["11": "1"]))
    }

    @Test(arguments: [
        ("", "/variation_id"), ("{}", "/variation_id"), ("[]", ""), (#"{"variation_id":5}"#, "/variation_id"),
        (#"{"variation_id":""}"#, "/variation_id"), (#"{"variation_id":"1","reason":7}"#, "/reason"),
        (#"{"variation_id":"1","reason":""}"#, "/reason"), (#"{"variation_id":"1","resaon":"x"}"#, "/resaon"),
        (#"{"variation_id":"1","reason":"\#(String(repeating: "é", count: 128))"}"#, "/reason"),
        (#"{"variation_id":"1","expires_at":"tomorrow"}"#, "/expires_at"),
        (#"{"variation_id":"1","expires_at":"2020-01-31T12:00:00Z"}"#, "/expires_at"),
    ])
    func `A malformed override is refused`(body: String, pointer: String) throws {
        let response = try server.request("PUT", "/v1/profiles/ada/experiments/11", body)
        #expect(response.status == 400)
        #expect(response["pointer"] == .string(body.isEmpty ? "" : pointer))
        #expect(try server.request("GET", "/v1/profiles/ada").status == 404)
    }

    @Test(arguments: ["a-b", "%20", "%C3%A4", String(repeating: "a", count: 256)])
    func `An experiment id in a path is checked`(experimentID: String) throws {
        let path = "/v1/profiles/ada/experiments/\(experimentID)"
        #expect(try server.request("PUT", path, #"{"variation_id":"1"}"#).status == 400)
        #expect(try server.request("GET", path).status == 400)
        #expect(try server.request("DELETE", path).status == 400)
    }
}
