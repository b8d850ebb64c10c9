import APITestSupport
import JSON
import Testing

/// A user who logs in: merging the anonymous profile, and deciding beside it.
@Suite struct MergeTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    private func merge(_ anonymous: String, into account: String, _ rule: String? = nil) throws -> TestResponse {
        let member = rule.map { #","on_conflict":"\#($0)""# } ?? ""
        return try server.request("POST", "/v1/profiles/\(account)/merge", #"{"from":"\#(anonymous)"\#(member)}"#)
    }

    private func source(_ user: String, _ experiment: String) throws -> JSONValue {
        try server.request("GET", "/v1/profiles/\(user)/experiments/\(experiment)")["source"]
    }

    @Test func `A merge answers with the account's profile, also when it is repeated`() throws {
        _ = try server.request("POST", "/ups/save", profile("anon", ["11": "a", "22": "a"]))
        _ = try server.request("POST", "/ups/save", profile("ada", ["22": "b"]))
        for _ in 0..<3 {
            let merged = try merge("anon", into: "ada")
            #expect(merged.status == 200)
            #expect(merged.text == profile("ada", ["11": "a", "22": "b"]))
            #expect(try server.request("GET", "/v1/profiles/anon").status == 404)
        }
        #expect(try source("ada", "11") == "merged")
        #expect(try source("ada", "22") == "saved")
        let entries = try server.request("GET", "/v1/audit?action=profile.merge&user_id=ada")["entries"].array
        #expect(entries?.count == 1)
        #expect(entries?.first?["after"]["from"] == "anon")
        server.stop()
    }

    @Test func `With replace the anonymous user's assignments win, but not over an override`() throws {
        _ = try server.request("POST", "/ups/save", profile("anon", ["11": "theirs", "22": "theirs"]))
        _ = try server.request("POST", "/ups/save", profile("ada", ["11": "own"]))
        _ = try server.request("PUT", "/v1/profiles/ada/experiments/22", #"{"variation_id":"forced"}"#)
        let merged = try merge("anon", into: "ada", "replace")
        #expect(merged.text == profile("ada", ["11": "theirs", "22": "forced"]))
        server.stop()
    }

    @Test func `Unknown users are merged into an empty profile`() throws {
        #expect(try merge("nobody", into: "ada").text == profile("ada"))
        #expect(try server.request("GET", "/v1/profiles/ada").status == 404)
        server.stop()
    }

    @Test(arguments: [
        (#"{"from":"ada"}"#, "/from", "`from` must be another user than the one in the path; got 'ada'"),
        (#"{}"#, "/from", "`from` is required"),
        (#"{"from":7}"#, "/from", "`from` must be a string; got a number"),
        (#"{"from":""}"#, "/from", "a user id must be 1 to 1024 bytes long; got none"),
        (
            #"{"from":"x","on_conflict":"both"}"#, "/on_conflict",
            "`on_conflict` must be 'keep' or 'replace'; got 'both'"
        ),
        (
            #"{"from":"x","onconflict":"keep"}"#, "/onconflict",
            "a merge must have no members but `from`, `on_conflict`; got `onconflict`; did you mean `on_conflict`?"
        ),
        ("[]", "", "a merge must be an object; got an array"),
    ])
    func `A wrong merge is refused with the place`(body: String, pointer: String, detail: String) throws {
        _ = try server.request("POST", "/ups/save", profile("x", ["11": "a"]))
        let refused = try server.request("POST", "/v1/profiles/ada/merge", body)
        #expect(refused.status == 400)
        #expect(refused["pointer"].string == pointer && refused["detail"].string == detail)
        #expect(try server.request("GET", "/v1/profiles/ada").status == 404)
        server.stop()
    }

    @Test func `Results count a merged user once, with the goals of before and after the login`() throws {
        _ = try server.request("PUT", "/v1/experiments/checkout", AssignSamples.definition)
        for user in ["anon", "ada"] {
            let body = #"{"user_id":"\#(user)","experiment":"checkout","variation_key":"new"}"#
            #expect(try server.request("POST", "/v1/exposures", body).status == 200)
        }
        for (user, id) in [("anon", "1"), ("anon", "2"), ("ada", "2"), ("ada", "3")] {
            let body = #"{"id":"\#(id)","user_id":"\#(user)","goal":"buy","value":10}"#
            #expect(try server.request("POST", "/v1/events", body).status == 200)
        }
        func new() throws -> (users: JSONValue, events: JSONValue) {
            let results = try server.request("GET", "/v1/experiments/checkout/results?goal=buy")
            let variation = results["variations"].array?.first { $0["variation_key"] == "new" } ?? .null
            return (variation["users"], variation["events"])
        }
        #expect(try new() == (2, 4))
        #expect(try merge("anon", into: "ada").status == 200)
        #expect(try new() == (1, 3))
        #expect(try server.request("DELETE", "/v1/profiles/ada?keep_totals=true").status == 200)
        #expect(try new() == (1, 3))
        #expect(try server.request("GET", "/v1/exposures").text.isEmpty)
        #expect(try server.request("GET", "/v1/events").text.isEmpty)
        server.stop()
    }

    @Test func `Whether totals are kept is true or false`() throws {
        let refused = try server.request("DELETE", "/v1/profiles/ada?keep_totals=yes")
        #expect(refused.status == 400)
        #expect(refused["detail"] == "`keep_totals` must be 'true' or 'false'; got 'yes'")
        server.stop()
    }

    // MARK: anonymous_id

    private func startExperiment() throws {
        _ = try server.request("PUT", "/v1/experiments/checkout", AssignSamples.definition)
        _ = try server.request("POST", "/v1/assign", AssignSamples.ask("anon"))
        _ = try server.request("PUT", "/v1/profiles/anon", profile("anon", ["7001": "70012"]))
        _ = try server.request("PUT", "/v1/experiments/checkout", AssignSamples.weights(10_000, 0))
    }

    @Test func `Beside an anonymous profile a user gets its variation, and keeps it`() throws {
        try startExperiment()
        let ask = #"{"user_id":"ada","anonymous_id":"anon","experiment":"checkout"}"#
        let looked = try server.request("GET", "/v1/assign?user_id=ada&anonymous_id=anon&experiment=checkout")
        #expect(looked["variation_key"] == "new" && looked["source"] == "stored")
        #expect(try server.request("GET", "/v1/profiles/ada").status == 404)
        for _ in 0..<2 {
            let assigned = try server.request("POST", "/v1/assign", ask)
            #expect(assigned["variation_key"] == "new" && assigned["source"] == "stored")
        }
        #expect(try source("ada", "7001") == "merged")
        #expect(try server.request("POST", "/v1/assign", AssignSamples.ask("ada"))["variation_key"] == "new")
        #expect(try server.request("GET", "/v1/profiles/anon").status == 200)
        // Without one, the user is bucketed.
        #expect(try server.request("POST", "/v1/assign", AssignSamples.ask("bob"))["variation_key"] == "control")
        let own = #"{"user_id":"bob","anonymous_id":"anon","experiment":"checkout"}"#
        #expect(try server.request("POST", "/v1/assign", own)["variation_key"] == "control")
        server.stop()
    }

    @Test func `An unknown anonymous profile, and one's own, make no difference`() throws {
        try startExperiment()
        for other in ["nobody", "ada"] {
            let ask = #"{"user_id":"ada","anonymous_id":"\#(other)","experiment":"checkout"}"#
            #expect(try server.request("POST", "/v1/assign", ask)["variation_key"] == "control")
        }
        #expect(try source("ada", "7001") == "bucketed")
        server.stop()
    }

    @Test func `A variation of the anonymous profile that is gone is not used`() throws {
        try startExperiment()
        _ = try server.request("PUT", "/v1/profiles/anon", profile("anon", ["7001": "gone"]))
        let ask = #"{"user_id":"ada","anonymous_id":"anon","experiment":"checkout"}"#
        let assigned = try server.request("POST", "/v1/assign", ask)
        #expect(assigned["variation_key"] == "control" && assigned["source"] == "bucketed")
        #expect(try server.request("GET", "/v1/profiles/ada").text == profile("ada", ["7001": "70011"]))
        server.stop()
    }

    @Test(arguments: ["7", #""""#, "{}"]) func `A wrong anonymous id is refused with the place`(id: String) throws {
        try startExperiment()
        let ask = #"{"user_id":"ada","anonymous_id":\#(id),"experiment":"checkout"}"#
        let refused = try server.request("POST", "/v1/assign", ask)
        #expect(refused.status == 400 && refused["pointer"] == "/anonymous_id")
        let evaluation = try server.request("POST", "/v1/evaluations", #"{"user_id":"ada","anonymous_id":\#(id)}"#)
        #expect(evaluation.status == 400 && evaluation["pointer"] == "/anonymous_id")
        #expect(try server.request("GET", "/v1/profiles/ada").status == 404)
        server.stop()
    }

    @Test(arguments: ["anonymous_id", "anonymousId"])
    func `The Agent's decide takes an anonymous id, too`(member: String) throws {
        let fields = AgentSamples.fields
        _ = try server.request("PUT", "/v1/datafile", MergeSamples.datafile, fields: fields)
        _ = try server.request("PUT", "/v1/profiles/anon", profile("anon", ["7": "72"]))
        func decide(_ body: String) throws -> JSONValue {
            try server.request("POST", "/v1/decide?keys=checkout", body, fields: fields)["variationKey"]
        }
        let ignoring = #"{"userId":"ada","\#(member)":"anon","decideOptions":["IGNORE_USER_PROFILE_SERVICE"]}"#
        #expect(try decide(ignoring) == "control")
        #expect(try server.request("GET", "/v1/profiles/ada").status == 404)
        #expect(try decide(#"{"userId":"ada","\#(member)":"anon"}"#) == "new")
        #expect(try decide(#"{"userId":"ada"}"#) == "new")
        #expect(try decide(#"{"userId":"bob"}"#) == "control")
        let wrong = try server.request("POST", "/v1/decide", #"{"userId":"ada","\#(member)":7}"#, fields: fields)
        #expect(wrong.status == 400)
        server.stop()
    }

    @Test func `Evaluations beside an anonymous profile have its variations`() throws {
        _ = try server.request("PUT", "/v1/datafile", MergeSamples.datafile, fields: AgentSamples.fields)
        _ = try server.request("PUT", "/v1/profiles/anon", profile("anon", ["7": "72"]))
        let evaluated = try server.request("POST", "/v1/evaluations", #"{"user_id":"ada","anonymous_id":"anon"}"#)
        #expect(evaluated["evaluations"].array?.first?["variation_key"] == "new")
        #expect(try source("ada", "7") == "merged")
        server.stop()
    }
}

private enum MergeSamples {
    /// One flag with an experiment that buckets everyone into `control`.
    static let datafile = #"""
        {"version":"4","accountId":"1","projectId":"2","revision":"1","sdkKey":"tests","attributes":[],"audiences":[],
        "groups":[],"rollouts":[],"events":[],
        "featureFlags":[{"id":"5","key":"checkout","rolloutId":"","experimentIds":["7"],"variables":[]}],
        "experiments":[{"id":"7","key":"checkout_test","layerId":"8","status":"Running","audienceIds":[],
        "forcedVariations":{},"variations":[{"id":"71","key":"control","featureEnabled":true},
        {"id":"72","key":"new","featureEnabled":true}],
        "trafficAllocation":[{"entityId":"71","endOfRange":10000}]}]}
        """#
}
