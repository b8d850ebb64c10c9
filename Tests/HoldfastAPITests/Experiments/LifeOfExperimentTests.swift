import APITestSupport
import JSON
import Testing

/// Drafts, copies, what people say about an experiment, and its end.
@Suite struct LifeOfExperimentTests {
    private let server: any TestServer
    private static let sdk = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]
    private static let germans = #"{"type":"custom_attribute","name":"country","value":"de"}"#

    init() throws {
        server = try startTestServer()
    }

    @discardableResult
    private func put(_ body: String, key: String = "checkout", query: String = "") throws -> TestResponse {
        try server.request("PUT", "/v1/experiments/\(key)\(query)", body)
    }

    @discardableResult
    private func post(_ action: String, _ body: String = "", key: String = "checkout") throws -> TestResponse {
        try server.request("POST", "/v1/experiments/\(key)/\(action)", body)
    }

    /// The variation of a user by each protocol: of the experiment, and of the flag that serves it.
    private func variations(_ user: String, _ key: String = "checkout") throws -> [JSONValue] {
        let assigned = try server.request("POST", "/v1/assign", #"{"user_id":"\#(user)","experiment":"\#(key)"}"#)
        let activated = try server.request(
            "POST", "/v1/activate?experimentKey=\(key)", #"{"userId":"\#(user)"}"#, fields: Self.sdk)
        let activatedKey = activated.json.array?.first?["variationKey"] ?? .null
        let evaluated = try server.request(
            "POST", "/v1/evaluations", #"{"user_id":"\#(user)","flag_keys":["\#(key)"]}"#)["evaluations"]
        let decided = try server.request(
            "POST", "/v1/decide?keys=\(key)", #"{"userId":"\#(user)"}"#, fields: Self.sdk)["variationKey"]
        let body = #"{"context":{"targetingKey":"\#(user)"}}"#
        let resolved = try server.request("POST", "/ofrep/v1/evaluate/flags/\(key)", body)
        let bucketeer = try server.request(
            "POST", "/get_evaluation", #"{"user":{"id":"\#(user)"},"featureId":"\#(key)"}"#)
        return [
            assigned["variation_key"], activatedKey == "" ? .null : activatedKey,
            evaluated.array?.first?["variation_key"] ?? .null, decided == "" ? .null : decided, resolved["value"],
            bucketeer["evaluation"]["variationValue"],
        ]
    }

    private func expect(_ variation: JSONValue, _ user: String, _ key: String = "checkout") throws {
        let got = try variations(user, key)
        #expect(got.allSatisfy { $0 == variation }, "\(user): \(got)")
    }

    private func datafile() throws -> TestResponse {
        try server.request("GET", "/datafiles/default.json")
    }

    // MARK: What people say

    @Test func `Texts and tags are stored, shown, audited and searched, and SDKs do not get them`() throws {
        let texts =
            #""name":"Checkout","description":"One page","hypothesis":"More orders","owner":"Ada","tags":["web","q4"]"#
        let created = try put(#"{"variations":["a","b"],\#(texts)}"#)
        #expect(created.status == 201, "\(created.text)")
        for (name, text) in [("name", "Checkout"), ("hypothesis", "More orders"), ("owner", "Ada")] {
            #expect(created[name].string == text)
        }
        #expect(created["tags"] == ["web", "q4"])
        #expect(try server.request("GET", "/v1/experiments?q=more%20orders")["experiments"].array?.count == 1)
        #expect(try server.request("GET", "/v1/experiments?q=nobody")["experiments"].array?.isEmpty == true)
        let entry = try server.request("GET", "/v1/audit")["entries"].array?.first
        #expect(entry?["after"]["experiment"]["hypothesis"] == "More orders")
        #expect(try datafile().text.contains("More orders") == false)
        // What an admin downloads may be uploaded again.
        let whole = try server.request("GET", "/v1/datafile", fields: Self.sdk).text
        #expect(try server.request("PUT", "/v1/datafile", whole).status == 200)
        let changed = try put(#"{"owner":null,"description":"","name":"Pay","tags":[]}"#)
        #expect(changed["name"] == "Pay" && changed["hypothesis"] == "More orders")
        for name in ["owner", "description", "tags"] { #expect(changed.json.object?[name] == nil) }
    }

    // MARK: Drafts and copies

    @Test func `A draft is served to nobody but overrides, until it starts`() throws {
        let draft = try put(#"{"variations":["a","b"],"status":"draft"}"#)
        #expect(draft["status"] == "draft" && draft["enrollment"] == "open" && draft["traffic"] == 100)
        try expect(.null, "ada")
        #expect(try server.request("GET", "/v1/profiles/ada").status == 404)
        let override = #"{"variation_key":"b"}"#
        #expect(try server.request("PUT", "/v1/profiles/eve/experiments/checkout", override).status == 200)
        try expect("b", "eve")
        let exposure = try server.request(
            "POST", "/v1/exposures", #"{"user_id":"bob","experiment":"checkout","variation_key":"a"}"#)
        #expect(exposure.status < 300)
        try expect(.null, "bob")
        let experiment = try datafile()["experiments"].array?.first
        #expect(experiment?["status"] == "Running" && experiment?["trafficAllocation"] == [])
        let started = try put(#"{"status":"running"}"#)
        #expect(started["status"] == "running" && started["variations"] == draft["variations"])
        #expect(try variations("ada").allSatisfy { $0.string != nil })
        let refused = try put(#"{"status":"draft"}"#)
        #expect(refused.status == 409 && refused["pointer"] == "/status", "\(refused.text)")
    }

    @Test func `A rule of a flag may be a draft, also while the flag is off`() throws {
        let rules = #""rules":[{"key":"test","experiment":{"status":"draft"}}]"#
        let created = try server.request("PUT", "/v1/flags/banner", #"{"type":"boolean",\#(rules)}"#)
        #expect(created["rules"].array?.first?["experiment"]["status"] == "draft", "\(created.text)")
        for enabled in [false, true] {
            let flag = try server.request("PUT", "/v1/flags/banner", #"{"enabled":\#(enabled)}"#)
            #expect(flag["rules"] == created["rules"])
        }
    }

    @Test func `A copy is a draft with ids of its own`() throws {
        let texts = #""name":"Checkout","tags":["web"],"audience":\#(Self.germans)"#
        let original = try put(
            #"{"id":"7","variations":[{"key":"a","id":"71","weight":3},{"key":"b","weight":1}],"traffic":20,\#(texts)}"#
        )
        let copy = try put("", key: "again", query: "?from=checkout")
        #expect(copy.status == 201 && copy["status"] == "draft", "\(copy.text)")
        for member in ["traffic", "audience", "name", "tags"] { #expect(copy[member] == original[member]) }
        #expect(copy["id"] != original["id"])
        for (left, right) in zip(copy["variations"].array ?? [], original["variations"].array ?? []) {
            #expect(left["key"] == right["key"] && left["share"] == right["share"] && left["id"] != right["id"])
        }
        let other = try put(#"{"name":"Other","status":"running"}"#, key: "other", query: "?from=checkout")
        #expect(other["name"] == "Other" && other["status"] == "running" && other["traffic"] == 20)
        #expect(try put("", key: "again", query: "?from=checkout").status == 409)
        #expect(try put("", key: "new", query: "?from=chekout")["detail"].string?.contains("'checkout'") == true)
        #expect(try server.request("PUT", "/v1/flags/f?from=checkout", #"{"type":"boolean"}"#).status == 400)
    }

    // MARK: The end

    @Test func `The winner is for everybody over every protocol, and reopening gives everybody back what they had`()
        throws
    {
        try put(#"{"id":"7","variations":["control","new"],"traffic":80}"#)
        let users = (0..<12).map { "user\($0)" }
        let before = try users.map { try variations($0) }
        let profiles = try users.map { try server.request("GET", "/v1/profiles/\($0)").text }
        // Decisions do not wait for their exposures.
        let enrolled = before.count { $0.first != .null }
        var exposures = ""
        while exposures.split(separator: "\n").count < enrolled {
            exposures = try server.request("GET", "/v1/exposures").text
        }
        let concluded = try post("conclude", #"{"winner":"new","reason":"more orders"}"#)
        #expect(concluded.status == 200 && concluded["status"] == "concluded", "\(concluded.text)")
        #expect(concluded["conclusion"]["winner"] == "new" && concluded["conclusion"]["reason"] == "more orders")
        #expect(concluded["conclusion"]["concluded_at"].string?.isEmpty == false)
        for user in users + ["newcomer"] { try expect("new", user) }
        let assigned = try server.request("POST", "/v1/assign", #"{"user_id":"ann","experiment":"checkout"}"#)
        #expect(assigned["source"] == "concluded")
        #expect(try server.request("GET", "/v1/profiles/newcomer").status == 404)
        #expect(try users.map { try server.request("GET", "/v1/profiles/\($0)").text } == profiles)
        #expect(try server.request("GET", "/v1/exposures").text == exposures)
        let read = try server.request("GET", "/v1/experiments/checkout").json
        #expect(try put(String(decoding: read.encoded(), as: UTF8.self)).json == read)

        // What SDKs decide with: the flag has no experiment any more, and delivers the winner.
        let served = try datafile()
        let flag = try #require(served["featureFlags"].array?.first)
        let rollout = try #require(served["rollouts"].array?.first)
        #expect(flag["experimentIds"] == [] && flag["rolloutId"] == rollout["id"])
        #expect(rollout["experiments"].array?.first?["variations"].array?.map { $0["key"] } == ["new"])
        #expect(!served.text.contains("more orders"))
        // Who asks for the experiment itself gets the winner under another id, so that stored assignments stay.
        let delivery = try #require(served["experiments"].array?.first)
        #expect(served["experiments"].array?.count == 1 && delivery["key"] == "checkout" && delivery["id"] != "7")
        #expect(delivery["status"] == "Running" && delivery["variations"].array?.map { $0["key"] } == ["new"])
        #expect(delivery["trafficAllocation"].array?.map { $0["endOfRange"] } == [10_000])
        // What SDKs report of it is no exposure.
        let batch = """
            {"account_id":"1","visitors":[{"visitor_id":"sdk-user","snapshots":[{"decisions":[{"campaign_id":"7",
            "experiment_id":"\(delivery["id"].string ?? "")","variation_id":"\(delivery["variations"].array?.first?["id"]
            .string ?? "")"}],"events":[{"entity_id":"7","key":"campaign_activated"}]}]}]}
            """
        #expect(try server.request("POST", "/sdk/v1/events", batch).status == 204)
        #expect(try server.request("GET", "/v1/exposures").text == exposures)

        let reopened = try post("reopen")
        #expect(reopened["status"] == "running" && reopened.json.object?["conclusion"] == nil, "\(reopened.text)")
        for (user, variations) in zip(users, before) { #expect(try self.variations(user) == variations) }
        #expect(try post("reopen").status == 409)
        #expect(try datafile()["rollouts"] == [])
        let actions = try server.request("GET", "/v1/audit")["entries"].array?.map { $0["action"] }
        #expect(actions == ["experiment.reopen", "experiment.conclude", "experiment.put"])
    }

    @Test func `Results are kept as they were at the conclusion, also when it was undone`() throws {
        try put(#"{"id":"7","variations":["control","new","wild"]}"#)
        func record(_ user: String, _ variation: String) throws {
            let exposure = #"{"user_id":"\#(user)","experiment":"checkout","variation_key":"\#(variation)"}"#
            #expect(try server.request("POST", "/v1/exposures", exposure).status == 200)
            let event = #"{"user_id":"\#(user)","goal":"buy","value":10}"#
            #expect(try server.request("POST", "/v1/events", event).status == 200)
        }
        func results(_ query: String = "") throws -> TestResponse {
            try server.request("GET", "/v1/experiments/checkout/results?goal=buy&by=day\(query)")
        }
        func users(_ results: TestResponse) -> [Int64?] {
            results["variations"].array?.map { $0["users"].integer } ?? []
        }
        try record("ann", "control")
        try record("bob", "new")
        let before = try results()
        #expect(before.json.object?["frozen_at"] == nil && users(before) == [1, 1, 0])
        let frozenAt = try #require(try post("conclude", #"{"winner":"new"}"#)["conclusion"]["frozen_at"].string)
        try record("cy", "new")
        #expect(try server.request("DELETE", "/v1/profiles/ann").status == 200)
        #expect(try put(#"{"variations":["control","new"]}"#).status == 200)
        let frozen = try results()
        #expect(frozen["frozen_at"].string == frozenAt && users(frozen) == [1, 1, 0], "\(frozen.text)")
        for member in ["verdict", "sample_ratio", "variations", "days", "users", "warnings"] {
            #expect(frozen[member] == before[member], "\(member)")
        }
        #expect(try users(results("&live=true")) == [0, 1])
        #expect(try results("&live=true").json.object?["frozen_at"] == nil)
        // Another winner or reason is no other end.
        #expect(try post("conclude", #"{"winner":"control"}"#)["conclusion"]["frozen_at"].string == frozenAt)
        #expect(try server.request("DELETE", "/v1/experiments/checkout").status == 204)
        #expect(try users(results()) == [1, 1, 0])
        try put(#"{"status":"running"}"#)
        #expect(try users(results()) == [0, 1])
        #expect(try results("&frozen_at=\(frozenAt)")["variations"] == before["variations"])
        #expect(try results("&frozen_at=2026-01-31T12:00:00Z").status == 404)
        try post("conclude", #"{"winner":null}"#)
        #expect(try users(results()) == [0, 1])
        #expect(try results("&frozen_at=\(frozenAt)")["variations"] == before["variations"])
        for query in ["&live=yes", "&frozen_at=today", "&live=true&frozen_at=2026-01-31T12:00:00Z"] {
            #expect(try results(query).status == 400)
        }
        let chart = try server.request("GET", "/v1/experiments/checkout/results.svg?goal=buy&frozen_at=\(frozenAt)")
        #expect(chart.status == 200 && chart.text.contains("wild"))
    }

    @Test func `A conclusion that comes with a datafile keeps the results, too`() throws {
        try put(#"{"id":"7","variations":["control","new"]}"#)
        func record(_ user: String) throws {
            let exposure = #"{"user_id":"\#(user)","experiment":"checkout","variation_key":"new"}"#
            #expect(try server.request("POST", "/v1/exposures", exposure).status == 200)
        }
        func users(_ query: String = "") throws -> [Int64?] {
            let results = try server.request("GET", "/v1/experiments/checkout/results?goal=buy\(query)")
            return results["variations"].array?.map { $0["users"].integer } ?? []
        }
        func upload(_ datafile: String) throws -> JSONValue {
            let response = try server.request("PUT", "/v1/datafile", datafile)
            #expect(response.status == 200, "\(response.text)")
            return try server.request("GET", "/v1/experiments/checkout")["conclusion"]["frozen_at"]
        }
        try record("ann")
        let first = try post("conclude", #"{"winner":"new"}"#)["conclusion"]["frozen_at"]
        let known = try server.request(
            "GET", "/v1/datafile", fields: ["X-Optimizely-SDK-Key: default"])
        let timeless = known.text.replacing(/,"frozenAt":[0-9]+/, with: "")
        #expect(timeless != known.text)
        try post("reopen")
        try record("bob")
        let second = try upload(timeless)
        #expect(second.string != nil && second != first)
        for user in ["ann", "bob"] { #expect(try server.request("DELETE", "/v1/profiles/\(user)").status == 200) }
        #expect(try users() == [0, 2] && users("&live=true") == [0, 0])
        // The same conclusion again is no other one.
        #expect(try upload(timeless) == second)
        #expect(try users() == [0, 2])
        // What was kept at a time stays.
        #expect(try upload(known.text) == first)
        #expect(try users() == [0, 1])
        // One of another database, of which nobody is known here, shows those who come.
        try post("reopen")
        let foreign = known.text.replacing(/"frozenAt":[0-9]+/, with: #""frozenAt":1750000000000"#)
        #expect(try upload(foreign) == "2025-06-15T15:06:40.000Z")
        #expect(try users("&frozen_at=2025-06-15T15:06:40Z") == [])
        try post("reopen")
        try record("cy")
        #expect(try upload(foreign) == "2025-06-15T15:06:40.000Z")
        #expect(try users("&frozen_at=2025-06-15T15:06:40Z") == [0, 1])
    }

    @Test func `Without a winner nobody has a variation, and an override waits`() throws {
        try put(#"{"variations":["control","new"]}"#)
        _ = try variations("ada")
        _ = try server.request("PUT", "/v1/profiles/eve/experiments/checkout", #"{"variation_key":"new"}"#)
        #expect(try post("conclude", #"{"winner":null}"#)["conclusion"]["winner"].isNull)
        for user in ["ada", "eve", "newcomer"] { try expect(.null, user) }
        #expect(try post("conclude", #"{"winner":"control"}"#)["conclusion"]["winner"] == "control")
        for user in ["ada", "eve", "newcomer"] { try expect("control", user) }
        try post("reopen")
        try expect("new", "eve")
    }

    @Test func `A concluded rule delivers its winner to its audience, in its place`() throws {
        let rules = #"""
            "rules":[{"key":"first","audience":\#(Self.germans),"experiment":{"weights":{"a":1,"b":1}}},
            {"key":"second","experiment":{"weights":{"b":1,"c":1}}}]
            """#
        let variations = #""variations":[{"key":"a","value":"A"},{"key":"b","value":"B"},{"key":"c","value":"C"}]"#
        let created = try server.request(
            "PUT", "/v1/flags/banner", #"{"type":"string",\#(variations),"otherwise":"c",\#(rules)}"#)
        #expect(created.status == 201, "\(created.text)")
        func value(_ user: String, _ attributes: String) throws -> JSONValue {
            let body = #"{"user_id":"\#(user)","attributes":\#(attributes),"flag_keys":["banner"]}"#
            return try server.request("POST", "/v1/evaluations", body)["evaluations"].array?.first?["value"] ?? .null
        }
        let others = (0..<10).map { "other\($0)" }
        let before = try others.map { try value($0, "{}") }
        let german = try value("german", #"{"country":"de"}"#)
        #expect(try post("conclude", #"{"winner":"b"}"#, key: "first").status == 200)
        for user in ["german", "new1", "new2", "new3"] {
            #expect(try value(user, #"{"country":"de"}"#) == "B")
        }
        // The experiment behind it goes on.
        for (user, variation) in zip(others, before) { #expect(try value(user, "{}") == variation) }
        let flag = try server.request("GET", "/v1/flags/banner")
        #expect(flag["rules"].array?.map { $0["experiment"]["status"] } == ["concluded", "running"])
        let text = String(decoding: flag.json.encoded(), as: UTF8.self)
        #expect(try server.request("PUT", "/v1/flags/banner", text).json == flag.json)
        // It may take users of the experiment behind it again.
        #expect(try post("reopen", key: "first").status == 409)
        #expect(try post("reopen?moves=allow", key: "first").status == 200)
        #expect(try value("german", #"{"country":"de"}"#) == german)

        // Behind a winner for everybody nobody new takes part, and who does goes on.
        let widened = try server.request(
            "PUT", "/v1/flags/banner?moves=allow",
            #"{"rules":[{"key":"first","experiment":{"traffic":0}},{"key":"second","experiment":{}}]}"#)
        #expect(widened.status == 200, "\(widened.text)")
        let taking = try value("taking", "{}")
        #expect(try post("conclude", #"{"winner":"a"}"#, key: "first").status == 200)
        #expect(try value("taking", "{}") == taking)
        for number in 0..<5 { #expect(try value("late\(number)", "{}") == "A") }
    }

    @Test func `What cannot be concluded is refused`() throws {
        try put(#"{"variations":["a","b"],"status":"draft"}"#)
        #expect(try post("conclude", #"{"winner":"a"}"#).status == 409)
        #expect(try put(#"{"status":"concluded"}"#).status == 409)
        try put(#"{"status":"running"}"#)
        for (body, status, pointer) in [
            ("{}", 422, "/winner"), (#"{"winner":"c"}"#, 422, "/winner"), (#"{"winner":1}"#, 400, "/winner"),
            (#"{"winner":"a","why":1}"#, 400, "/why"), ("[]", 400, ""),
        ] {
            let refused = try post("conclude", body)
            #expect(refused.status == status && refused["pointer"].string == pointer, "\(refused.text)")
        }
        #expect(try post("conclude", #"{"winner":"a"}"#, key: "nothing").status == 404)
        #expect(try post("reopen").status == 409)
        #expect(try put(#"{"variations":["b"]}"#).status == 200)
        try post("conclude", #"{"winner":"b"}"#)
        #expect(try put(#"{"variations":["a"]}"#)["pointer"] == "/variations")
        try post("reopen")
        try put(#"{"variations":["a","b"]}"#)
        // Archived it delivers nothing, and another status takes it out of the archive.
        #expect(try post("conclude", #"{"winner":"a"}"#).status == 200)
        #expect(try server.request("DELETE", "/v1/experiments/checkout").status == 204)
        try expect(.null, "ada")
        #expect(try put(#"{"status":"concluded"}"#).status == 200)
        try expect("a", "ada")
        #expect(try put(#"{"status":"running"}"#).json.object?["conclusion"] == nil)
    }
}
