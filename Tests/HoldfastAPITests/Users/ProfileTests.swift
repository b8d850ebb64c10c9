import APITestSupport
import JSON
import Testing

/// Profiles and the User Profile Service.
@Suite struct ProfileTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    @Test func `A profile is saved, looked up, overridden and erased`() throws {
        #expect(try server.request("GET", "/v1/profiles/ada").status == 404)
        let saved = try server.request("PUT", "/v1/profiles/ada", profile("ada", ["11": "1", "22": "2"]))
        #expect(saved.status == 201)
        #expect(saved.text == profile("ada", ["11": "1", "22": "2"]))

        let overridden = try server.request("PUT", "/v1/profiles/ada/experiments/11", #"{"variation_id":"9"}"#)
        #expect(overridden.status == 200)
        #expect(overridden["source"] == "override")
        #expect(try server.request("GET", "/v1/profiles/ada").text == profile("ada", ["11": "9", "22": "2"]))

        #expect(try server.request("DELETE", "/v1/profiles/ada").status == 200)
        let nobody = try server.request("DELETE", "/v1/profiles/ada")
        #expect(nobody.status == 404)
        #expect(nobody["detail"] == "nothing is stored about the user")
        #expect(try server.request("GET", "/v1/profiles/ada").status == 404)
        #expect(try server.request("GET", "/v1/profiles/ada/experiments/11").status == 404)
    }

    @Test func `An unknown user of the profile service has an empty map`() throws {
        let response = try server.request("POST", "/ups/lookup", #"{"user_id":"nobody"}"#)
        #expect(response.status == 200)
        #expect(response.text == profile("nobody"))
        #expect(try server.request("GET", "/ups/lookup?user_id=no%20body").text == profile("no body"))
        #expect(try server.request("GET", "/v1/profiles/nobody").status == 404)
    }

    @Test func `The profile service saves with a body and with a query`() throws {
        #expect(try server.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        let map = "%7B%2222%22%3A%7B%22variation_id%22%3A%222%22%7D%7D"
        let response = try server.request("GET", "/ups/save?user_id=ada&experiment_bucket_map=\(map)")
        #expect(response.status == 200)
        #expect(response.text == profile("ada", ["11": "1", "22": "2"]))
        #expect(try server.request("POST", "/ups/lookup", #"{"user_id":"ada"}"#).text == response.text)
    }

    @Test(arguments: ["PATCH /v1/profiles/ada", "POST /ups/save"])
    func `A merge keeps the other experiments, and the last save wins within one`(route: String) throws {
        try save("ada", ["11": "1", "22": "2"])
        let response = try server.request(method(route), target(route), profile("ada", ["22": "7", "33": "3"]))
        #expect(response.status == 200)
        #expect(response.text == profile("ada", ["11": "1", "22": "7", "33": "3"]))
    }

    @Test(arguments: ["PATCH /v1/profiles/ada", "POST /ups/save"])
    func `The first save wins where it is asked to`(route: String) throws {
        try save("ada", ["11": "1"])
        let kept = try server.request(
            method(route), target(route) + "?on_conflict=keep", profile("ada", ["11": "7", "22": "2"]))
        #expect(kept.text == profile("ada", ["11": "1", "22": "2"]))
        #expect(try server.request(method(route), target(route) + "?on_conflict=never", profile("ada")).status == 400)
    }

    @Test(arguments: ["PATCH /v1/profiles/ada", "PUT /v1/profiles/ada", "POST /ups/save"])
    func `An override stays whatever is saved, until it is removed`(route: String) throws {
        try save("ada", ["11": "1"])
        let override = try server.request("PUT", "/v1/profiles/ada/experiments/11", #"{"variation_id":"9"}"#)
        #expect(override.status == 200)
        let saved = try server.request(method(route), target(route), profile("ada", ["11": "2"]))
        #expect(saved.status == 200)
        #expect(saved.text == profile("ada", ["11": "9"]))

        #expect(try server.request("DELETE", "/v1/profiles/ada/experiments/11").status == 204)
        #expect(try server.request("GET", "/v1/profiles/ada").text == profile("ada", ["11": "2"]))
        #expect(try server.request("DELETE", "/v1/profiles/ada/experiments/11").status == 204)
        #expect(try server.request("DELETE", "/v1/profiles/ada/experiments/11").status == 404)
        let free = try server.request(method(route), target(route), profile("ada", ["11": "2"]))
        #expect(free.text == profile("ada", ["11": "2"]))
    }

    @Test func `PUT replaces all but overrides`() throws {
        try save("ada", ["11": "1", "22": "2"])
        _ = try server.request("PUT", "/v1/profiles/ada/experiments/33", #"{"variation_id":"9"}"#)
        let replaced = try server.request("PUT", "/v1/profiles/ada", profile("ada", ["44": "4"]))
        #expect(replaced.status == 200)
        #expect(replaced.text == profile("ada", ["33": "9", "44": "4"]))
    }

    @Test func `PUT takes a body without the user id and refuses one with another's`() throws {
        let response = try server.request("PUT", "/v1/profiles/ada", #"{"experiment_bucket_map":{}}"#)
        #expect(response.status == 201)
        #expect(response.text == profile("ada"))
        let refused = try server.request("PUT", "/v1/profiles/ada", profile("bob", ["11": "1"]))
        #expect(refused.status == 400)
        #expect(refused["pointer"] == "/user_id")
        #expect(try server.request("GET", "/v1/profiles/bob").status == 404)
    }

    @Test func `Detail tells where each assignment came from`() throws {
        try save("ada", ["11": "1", "22": "2"])
        _ = try server.request("PUT", "/v1/profiles/ada/experiments/22", #"{"variation_id":"9"}"#)
        let map = try server.request("GET", "/v1/profiles/ada?detail=true")["experiment_bucket_map"]
        #expect(map["11"]["source"] == "saved")
        #expect(map["22"]["source"] == "override")
        for entry in [map["11"], map["22"]] {
            #expect(entry["assigned_at"].string?.hasSuffix("Z") == true)
            #expect(entry["updated_at"].string?.hasSuffix("Z") == true)
            #expect(entry.object?["expires_at"] == .null)
        }
        let one = try server.request("GET", "/v1/profiles/ada/experiments/22")
        #expect(one["variation_id"] == "9")
        #expect(one["source"] == "override")
        #expect(try server.request("GET", "/v1/profiles/ada?detail=perhaps").status == 400)
        #expect(try server.request("GET", "/v1/profiles/ada?detial=true").status == 400)
    }

    @Test func `An unchanged profile is 304 to who has it`() throws {
        try save("ada", ["11": "1"])
        let first = try server.request("GET", "/v1/profiles/ada")
        let tag = try #require(first.field("etag"))
        let second = try server.request("GET", "/v1/profiles/ada", fields: ["If-None-Match: \(tag)"])
        #expect(second.status == 304)
        #expect(second.field("etag") == tag)
        #expect(try server.request("GET", "/v1/profiles/ada", fields: ["If-None-Match: \"x\", W/\(tag)"]).status == 304)
        try save("ada", ["11": "2"])
        let third = try server.request("GET", "/v1/profiles/ada", fields: ["If-None-Match: \(tag)"])
        #expect(third.status == 200)
        #expect(third.field("etag") != tag)
    }

    @Test func `A batch lookup answers in the order asked, with null for who has no profile`() throws {
        try save("ada", ["11": "1"])
        try save("bob", ["22": "2"])
        let body = #"{"user_ids":["bob","nobody","ada","bob"]}"#
        let response = try server.request("POST", "/v1/profiles/lookup", body)
        let (ada, bob) = (profile("ada", ["11": "1"]), profile("bob", ["22": "2"]))
        #expect(response.text == #"{"profiles":[\#(bob),null,\#(ada),\#(bob)]}"#)
        #expect(try server.request("POST", "/v1/profiles/lookup", #"{"user_ids":[]}"#).text == #"{"profiles":[]}"#)
    }

    @Test func `A batch lookup of 1,000 users is answered and one of 1,001 is refused`() throws {
        func body(_ count: Int) -> String {
            #"{"user_ids":[\#((0..<count).map { "\"u\($0)\"" }.joined(separator: ","))]}"#
        }
        #expect(try server.request("POST", "/v1/profiles/lookup", body(1_000))["profiles"].array?.count == 1_000)
        let refused = try server.request("POST", "/v1/profiles/lookup", body(1_001))
        #expect(refused.status == 400)
        #expect(refused["pointer"] == "/user_ids")
        let wrong = try server.request("POST", "/v1/profiles/lookup", #"{"user_ids":["a",1]}"#)
        #expect(wrong["pointer"] == "/user_ids/1")
    }

    @Test(arguments: ["a b", "a/b", "ä", "日本", "\"", "\\", "?", "%41", "e\u{301}", "😀"])
    func `A user id is any text`(userID: String) throws {
        let path = "/v1/profiles/" + userID.utf8.map { "%" + String(UInt16($0) + 0x100, radix: 16).suffix(2) }.joined()
        let saved = try server.request("PUT", path, #"{"experiment_bucket_map":{"1":{"variation_id":"ü\"2"}}}"#)
        #expect(saved.status == 201)
        let response = try server.request("GET", path)
        #expect(response["user_id"] == .string(userID))
        #expect(response["experiment_bucket_map"]["1"]["variation_id"] == "ü\"2")
    }

    private func save(_ userID: String, _ assignments: KeyValuePairs<String, String>) throws {
        #expect(try server.request("POST", "/ups/save", profile(userID, assignments)).status == 200)
    }

    private func method(_ route: String) -> String {
        String(route.prefix { $0 != " " })
    }

    private func target(_ route: String) -> String {
        String(route.drop { $0 != " " }.dropFirst())
    }
}
