import APITestSupport
import JSON
import Testing

/// No change of a definition moves users who take part, unless `?moves=allow` says so.
@Suite struct MoveTests {
    private let server: any TestServer
    private static let users = (0..<300).map { "user\($0)" }
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

    /// Makes a change that moves users: it is refused with their number, and made once it is allowed to.
    ///
    /// - Returns: the refusal.
    @discardableResult
    private func expectRefusal(_ body: String, _ target: String = "/v1/flags/banner") throws -> TestResponse {
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
        return refused
    }

    // MARK: What moves users

    @Test func `An experiment before another one is refused with the number of users whom it moves`() throws {
        _ = try put(#"{\#(Self.variations),"rules":[\#(rule("second"))]}"#)
        _ = try values()
        let refused = try expectRefusal(#"{"rules":[\#(rule("first")),\#(rule("second"))]}"#)
        let others = try #require(refused["moves"]["other_experiment"].integer)
        #expect(refused["moves"]["users"].integer.map { $0 + others } == 300)
        let causes = refused["moves"]["causes"].array ?? []
        #expect(causes.count == 2 && causes.allSatisfy { $0["cause"] == "earlier_experiment" && $0["by"] == "first" })
        #expect(refused["detail"].string?.contains("place it behind 'second'") == true)
    }

    @Test func `Another order is refused, and an experiment at the end moves nobody`() throws {
        _ = try put(#"{\#(Self.variations),"rules":[\#(rule("first", #","traffic":50"#))]}"#)
        _ = try values()
        let appended = #"{"rules":[\#(rule("first")),\#(rule("second"))]}"#
        #expect(try put(appended).status == 200)
        _ = try values()
        // Those whom the hash does not give to `first` have no reason to leave `second`.
        try expectRefusal(#"{"rules":[\#(rule("second")),\#(rule("first"))]}"#)
    }

    @Test func `More traffic of an earlier experiment is refused`() throws {
        _ = try put(#"{\#(Self.variations),"rules":[\#(rule("first", #","traffic":10"#)),\#(rule("second"))]}"#)
        _ = try values()
        let more = #"{"traffic":100}"#
        try expectRefusal(more, "/v1/experiments/first")
        // Less traffic takes nobody, and neither does any of the last experiment.
        #expect(try put(#"{"traffic":10}"#, "/v1/experiments/first").status == 200)
        #expect(try put(#"{"traffic":10}"#, "/v1/experiments/second").status == 200)
        #expect(try put(#"{"traffic":90}"#, "/v1/experiments/second").status == 200)
    }

    @Test func `A variation or a rule that is left out is refused, and one without users is not`() throws {
        let variations = #"{"variations":["a","b","c"]}"#
        _ = try put(variations, "/v1/experiments/banner")
        _ = try put(#"{"variations":["a","b"]}"#, "/v1/experiments/banner")
        _ = try values()
        #expect(try put(variations, "/v1/experiments/banner").status == 200)
        #expect(try put(#"{"variations":["a","b"]}"#, "/v1/experiments/banner").status == 200)
        let refused = try expectRefusal(#"{"variations":["a"]}"#, "/v1/experiments/banner")
        #expect(refused["moves"]["causes"].array?.first?["cause"] == "variation_removed")
        #expect(refused["moves"]["causes"].array?.first?["by"] == "b")
    }

    @Test func `A rule that is left out is refused, and one that was stopped is not`() throws {
        let rules = #"{"rules":[\#(rule("only"))]}"#
        _ = try put(#"{\#(Self.variations),"rules":[\#(rule("only"))]}"#)
        let refused = try expectRefusal(#"{"rules":[]}"#)
        #expect(refused["moves"]["causes"].array?.first?["cause"] == "rule_removed")
        #expect(try put(rules.replacing("\"id\"", with: #""status":"Running","id""#)).status == 200)
        _ = try values()
        #expect(try put(#"{"status":"Paused"}"#, "/v1/experiments/only").status == 200)
        #expect(try put(#"{"rules":[]}"#).status == 200)
    }

    @Test func `An experiment that runs again before others is refused`() throws {
        let paused = rule("first", #","status":"Paused""#)
        _ = try put(#"{\#(Self.variations),"rules":[\#(paused),\#(rule("second"))]}"#)
        try expectRefusal(#"{"status":"Running"}"#, "/v1/experiments/first")
        // Stopping is what the request asks for.
        #expect(try put(#"{"status":"Paused"}"#, "/v1/experiments/first").status == 200)
        #expect(try put(#"{"enabled":false}"#).status == 200)
        #expect(try put(#"{"enabled":true}"#).status == 200)
        #expect(try server.request("DELETE", "/v1/experiments/second").status == 204)
        #expect(try server.request("DELETE", "/v1/flags/banner").status == 204)
    }

    // MARK: What does not

    @Test func `Weights, closed enrollment, texts and deliveries move nobody`() throws {
        let staff = #"{"type":"custom_attribute","name":"staff","value":true}"#
        _ = try put(#"{\#(Self.variations),"rules":[\#(rule("first", #","traffic":30"#)),\#(rule("second"))]}"#)
        let before = try values()
        for body in [
            #"{"description":"d","tags":["t"]}"#, #"{"variations":[{"key":"a","value":"A"},{"key":"b","value":"B"}]}"#,
            #"{"rules":[{"audience":\#(staff),"variation":"a"},\#(rule("first")),\#(rule("second"))]}"#,
            #"{"rules":[\#(rule("first")),\#(rule("second", #","weights":{"a":1,"b":0}"#))]}"#,
            #"{"rules":[\#(rule("first", #","enrollment":"closed""#)),\#(rule("second"))]}"#,
            #"{"rules":[\#(rule("first")),\#(rule("second", #","traffic":0"#))],"otherwise":"b"}"#,
        ] {
            #expect(try put(body).status == 200, "\(body)")
            #expect(try values() == before)
        }
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
