import APITestSupport
import JSON
import Testing

/// What apps report with a token of scope `client`: logins and counts of evaluations.
@Suite struct AppReportTests {
    private static let anonymous = "anonymous-9f1c2d6e-7a4b-4c3d-8e2f-0123456789ab"

    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    // MARK: Logins

    private func login(_ user: String, _ anonymous: String = Self.anonymous) -> String {
        #"{"user_id":"\#(user)","anonymous_id":"\#(anonymous)"}"#
    }

    @Test func `A login joins the anonymous user to the account, whose own assignments win`() throws {
        _ = try server.request("POST", "/ups/save", profile(Self.anonymous, ["11": "a", "22": "a"]))
        _ = try server.request("POST", "/ups/save", profile("ada", ["22": "b"]))
        for _ in 0..<2 {
            let joined = try server.request("POST", "/v1/logins", login("ada"))
            #expect(joined.status == 200 && joined["status"] == "stored")
            #expect(try server.request("GET", "/v1/profiles/ada").text == profile("ada", ["11": "a", "22": "b"]))
            #expect(try server.request("GET", "/v1/profiles/\(Self.anonymous)").status == 404)
        }
        let entries = try server.request("GET", "/v1/audit?action=profile.merge&user_id=ada")["entries"].array
        #expect(entries?.count == 1)
        server.stop()
    }

    @Test(arguments: [
        "ada", "anonymous-17", "9f1c2d6e-7a4b-4c3d-8e2f-0123456789ab", "Anonymous-9f1c2d6e-7a4b-4c3d-8e2f-0123456789ab",
        "anonymous-9f1c2d6e-7a4b-1c3d-8e2f-0123456789ab", "anonymous-9f1c2d6e-7a4b-4c3d-ce2f-0123456789ab",
        "anonymous-9f1c2d6e-7a4b-4c3d-8e2f-0123456789a", "anonymous-9f1c2d6e-7a4b-4c3d-8e2f-0123456789abc",
        "anonymous-9f1c2d6e-7a4b-4c3d-8e2f-0123456789ag", "anonymous-9f1c2d6e_7a4b_4c3d_8e2f_0123456789ab",
    ])
    func `An id that can be guessed is refused, and nothing moves`(id: String) throws {
        _ = try server.request("POST", "/ups/save", profile(id, ["11": "a"]))
        let refused = try server.request("POST", "/v1/logins", login("eve", id))
        #expect(refused.status == 400 && refused["pointer"] == "/anonymous_id")
        #expect(try server.request("GET", "/v1/profiles/\(id)").text == profile(id, ["11": "a"]))
        #expect(try server.request("GET", "/v1/profiles/eve").status == 404)
        server.stop()
    }

    @Test func `Each login of an array has its own result`() throws {
        _ = try server.request("POST", "/ups/save", profile(Self.anonymous, ["11": "a"]))
        let results = try server.request("POST", "/v1/logins", "[\(login("eve", "bob")),\(login("ada"))]")["results"]
            .array
        #expect(results?.map { $0["status"] } == ["refused", "stored"])
        #expect(results?.first?["retriable"] == false)
        #expect(results?.first?["problem"]["pointer"] == "/0/anonymous_id")
        #expect(try server.request("GET", "/v1/profiles/ada").text == profile("ada", ["11": "a"]))
        #expect(try server.request("POST", "/v1/logins", "[]").text == #"{"results":[]}"#)
        let same = try server.request("POST", "/v1/logins", login(Self.anonymous))
        #expect(same.status == 400 && same["pointer"] == "/user_id")
        server.stop()
    }

    // MARK: Counts of evaluations

    private func counts(_ id: String, _ count: String) -> String {
        #"{"id":"\#(id)","counts":[\#(count)]}"#
    }

    private func metrics() throws -> [Substring] {
        try server.request("GET", "/metrics").text.split(separator: "\n")
            .filter { $0.hasPrefix("holdfast_client_evaluations_total") }
            .map { $0.dropFirst("holdfast_client_evaluations_total".count) }
    }

    @Test func `Counts are metrics, a repeat counts once, and unknown names become no labels`() throws {
        _ = try server.request("PUT", "/v1/experiments/checkout", #"{"variations":["control","new"]}"#)
        let body = counts(
            "1",
            #"{"flag_key":"checkout","variation_key":"new","reason":"stored","count":3},"#
                + #"{"flag_key":"checkout","variation_key":"x\"y","reason":"stored","count":4},"#
                + #"{"flag_key":"checkout","reason":"disabled","count":2},"#
                + #"{"flag_key":"che\"ck","reason":"flag_not_found","count":5}"#)
        #expect(try server.request("POST", "/v1/evaluations/counts", body)["status"] == "stored")
        #expect(try server.request("POST", "/v1/evaluations/counts", body)["status"] == "repeated")
        let again = counts("2", #"{"flag_key":"checkout","variation_key":"new","reason":"stored","count":1}"#)
        let results = try server.request("POST", "/v1/evaluations/counts", "[\(again),\(again),7]")["results"].array
        #expect(results?.map { $0["status"] } == ["stored", "repeated", "refused"])
        let key = try server.request("GET", "/metrics").text.contains(#"sdk_key="default""#) ? "default" : "tests"
        #expect(
            try metrics() == [
                #"{sdk_key="\#(key)",flag="",variation="",reason="flag_not_found"} 5"#,
                #"{sdk_key="\#(key)",flag="checkout",variation="",reason="disabled"} 2"#,
                #"{sdk_key="\#(key)",flag="checkout",variation="",reason="stored"} 4"#,
                #"{sdk_key="\#(key)",flag="checkout",variation="new",reason="stored"} 4"#,
            ])
        server.stop()
    }

    @Test(arguments: [
        (#"{"flag_key":"a","reason":"stored","count":0}"#, "/counts/0/count"),
        (#"{"flag_key":"a","reason":"stored","count":1.5}"#, "/counts/0/count"),
        (#"{"flag_key":"a","reason":"stored","count":9223372036854775807}"#, "/counts/0/count"),
        (#"{"flag_key":"a","reason":"stored"}"#, "/counts/0/count"),
        (#"{"flag_key":"a","reason":"why","count":1}"#, "/counts/0/reason"),
        (#"{"reason":"stored","count":1}"#, "/counts/0/flag_key"),
        (#"{"flag_key":"a","reason":"stored","count":1,"user":"ada"}"#, "/counts/0/user"),
    ])
    func `A wrong count is refused with the place, and none is counted`(count: String, pointer: String) throws {
        let unknown = try server.request("POST", "/v1/evaluations/counts", counts("1", count))
        #expect(unknown.status == 404)
        _ = try server.request("PUT", "/v1/experiments/checkout", #"{"variations":["control","new"]}"#)
        let refused = try server.request("POST", "/v1/evaluations/counts", counts("1", count))
        #expect(refused.status == 400 && refused["pointer"].string == pointer)
        #expect(try metrics().isEmpty)
        for (body, place) in [
            (#"{"counts":[]}"#, "/id"), (#"{"id":"","counts":[]}"#, "/id"), (#"{"id":"1"}"#, "/counts"),
            (#"{"id":"1","counts":{}}"#, "/counts"),
        ] {
            let refused = try server.request("POST", "/v1/evaluations/counts", body)
            #expect(refused.status == 400 && refused["pointer"].string == place, "\(body)")
        }
        server.stop()
    }
}
