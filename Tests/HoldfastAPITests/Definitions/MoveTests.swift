import APITestSupport
import JSON
import Testing

/// No change of a definition moves users who take part, unless `?moves=allow` says so. `MoveRulesTests` has which do.
@Suite struct MoveTests {
    private let server: any TestServer
    private static let users = (0..<30).map { "user\($0)" }
    private static let variations = #""type":"string","variations":[{"key":"a","value":"A"},{"key":"b","value":"B"}]"#

    init() throws {
        server = try startTestServer()
    }

    private func put(_ body: String, _ target: String = "/v1/flags/banner") throws -> TestResponse {
        try server.request("PUT", target, body)
    }

    private func rule(_ key: String, _ more: String = "") -> String {
        #"{"key":"\#(key)","experiment":{"id":"\#(key)"\#(more)}}"#
    }

    /// Returns the value that the flag gives each user, and enrolls them.
    private func values(of users: [String] = users, _ attributes: String = "{}") throws -> [String] {
        try users.map { user in
            let body = #"{"user_id":"\#(user)","flag_keys":["banner"],"attributes":\#(attributes)}"#
            let evaluations = try server.request("POST", "/v1/evaluations", body)["evaluations"]
            return evaluations.array?.first?["value"].string ?? "none"
        }
    }

    @Test func `A change that moves users is refused with their number, as previewed, until it is allowed to`() throws {
        _ = try put(#"{\#(Self.variations),"rules":[\#(rule("second"))]}"#)
        let (target, body) = ("/v1/flags/banner", #"{"rules":[\#(rule("first")),\#(rule("second"))]}"#)
        let before = try values()
        let revision = try server.request("GET", target)["revision"]
        let preview = try server.request("POST", target + "/preview", body)
        let refused = try put(body, target)
        #expect(preview.status == 200 && preview["moves"] == refused["moves"], "\(preview.text)")
        #expect(refused.status == 409, "\(refused.text)")
        #expect(refused["detail"].string?.contains("?moves=allow") == true)
        #expect(try server.request("GET", target)["revision"] == revision)
        #expect(try values() == before)
        let allowed = try put(body, target + "?moves=allow")
        #expect(allowed.status == 200, "\(allowed.text)")
        let after = try values()
        let moved = zip(before, after).count { $0 != $1 }
        #expect(moved > 0 && refused["moves"]["users"].integer == Int64(moved), "\(moved): \(refused.text)")
        #expect(refused["moves"]["causes"].array?.first?["cause"] == "earlier_experiment")
    }

    @Test func `Known attributes are considered, and unknown ones count as those that admit`() throws {
        _ = try server.request("PUT", "/v1/attributes/country", #"{"type":"string"}"#)
        _ = try put(#"{\#(Self.variations),"rules":[\#(rule("second"))]}"#)
        let some = ["ann", "bob", "cy", "dee"]
        _ = try values(of: some)
        for user in some.prefix(3) {
            let body = #"{"country":"\#(user == "ann" ? "de" : "fr")"}"#
            #expect(try server.request("PATCH", "/v1/profiles/\(user)/attributes", body).status == 200)
        }
        let audience = #"{"type":"custom_attribute","name":"country","value":"de"}"#
        let germans = #"{"key":"germans","audience":\#(audience),"experiment":{}}"#
        let refused = try put(#"{"rules":[\#(germans),\#(rule("second"))]}"#)
        let moves = refused["moves"]
        // Ann is admitted, and nothing is known of Dee.
        #expect(refused.status == 409, "\(refused.text)")
        #expect((moves["users"].integer ?? 0) + (moves["other_experiment"].integer ?? 0) == 2)
        #expect(
            try server.request("PATCH", "/v1/profiles/dee/attributes", #"{"country":"it"}"#).status == 200)
        #expect(
            try server.request("PATCH", "/v1/profiles/ann/attributes", #"{"country":"it"}"#).status == 200)
        #expect(try put(#"{"rules":[\#(germans),\#(rule("second"))]}"#).status == 200)
    }

    @Test func `A segment and a datafile move nobody either`() throws {
        _ = try server.request("PUT", "/v1/attributes/country", #"{"type":"string"}"#)
        let conditions = { (country: String) in
            #"{"conditions":{"type":"custom_attribute","name":"country","value":"\#(country)"}}"#
        }
        _ = try put(conditions("de"), "/v1/segments/there")
        let there = #"{"key":"first","audience":{"segment":"there"},"experiment":{"weights":{"b":1}}}"#
        let second = rule("second", #","weights":{"a":1}"#)
        _ = try put(#"{\#(Self.variations),"rules":[\#(there),\#(second)]}"#)
        for (user, country) in [("ann", "fr"), ("bob", "it")] {
            let body = #"{"country":"\#(country)"}"#
            #expect(try server.request("PATCH", "/v1/profiles/\(user)/attributes", body).status == 200)
        }
        #expect(try values(of: ["ann", "bob"]) == ["A", "A"])
        let refused = try put(conditions("fr"), "/v1/segments/there")
        #expect(refused.status == 409 && refused["moves"]["users"] == 1, "\(refused.text)")
        #expect(try put(conditions("es"), "/v1/segments/there").status == 200)
        #expect(try put(conditions("fr"), "/v1/segments/there?moves=allow").status == 200)
        #expect(try values(of: ["ann", "bob"]) == ["B", "A"])

        let fields = ["X-Optimizely-SDK-Key: default"]
        let datafile = try server.request("GET", "/v1/datafile", fields: fields).text
        #expect(try server.request("PUT", "/v1/datafile", datafile, fields: fields).status == 200)
        let empty = ChangeSamples.empty(revision: "77", sdkKey: "default")
        let gone = try server.request("PUT", "/v1/datafile", empty, fields: fields)
        #expect(gone.status == 409 && gone["moves"]["users"] == 2, "\(gone.text)")
        #expect(gone["moves"]["causes"].array?.allSatisfy { $0["cause"] == "experiment_removed" } == true)
        #expect(try server.request("PUT", "/v1/datafile?moves=allow", empty, fields: fields).status == 200)
    }

    @Test func `The parameter is checked`() throws {
        let refused = try put(#"{"type":"boolean"}"#, "/v1/flags/banner?moves=yes")
        #expect(refused.status == 400 && refused["detail"] == "`moves` must be 'allow' or 'refuse'; got 'yes'")
        #expect(try put(#"{"type":"boolean"}"#, "/v1/flags/banner?moves=refuse").status == 201)
    }
}
