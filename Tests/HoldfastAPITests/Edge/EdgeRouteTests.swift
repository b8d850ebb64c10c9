import APITestSupport
import Bucketing
import Foundation
import JSON
import Storage
import Testing

/// What the server gives other servers that follow it as edges: `/edge/v1/…`.
@Suite struct EdgeRouteTests {
    private static let tokens = """
        edge edge-1 edge-secret-0123456789
        edge bound bound-secret-0123456789 projects=default
        admin boss admin-secret-0123456789

        """
    private static let edge = "edge-secret-0123456789"
    private static let admin = "admin-secret-0123456789"

    private let server: any TestServer
    /// Of the experiment `checkout`.
    private let (experiment, control, new): (String, String, String)

    init() throws {
        server = try startTestServer(tokens: Self.tokens)
        let made = try server.request(
            "PUT", "/v1/experiments/checkout", #"{"variations":["control","new"]}"#, token: Self.admin)
        experiment = made["id"].string ?? ""
        let variations = made["variations"].array ?? []
        (control, new) = (variations[0]["id"].string ?? "", variations[1]["id"].string ?? "")
        #expect(try ask("PUT", "/v1/attributes/plan", #"{"type":"string"}"#, Self.admin).status < 300)
    }

    private func ask(
        _ method: String, _ target: String, _ body: String? = nil, _ token: String = edge, _ fields: [String] = []
    ) throws -> TestResponse {
        try server.request(method, target, body, token: token, fields: fields)
    }

    private func lines(_ response: TestResponse) throws -> [JSONValue] {
        #expect(response.status == 200, "\(response.text)")
        #expect(response.field("content-type") == "application/x-ndjson")
        return try response.text.split(separator: "\n").map { try JSONParser().parse(String($0)) }
    }

    private func cursor() throws -> String {
        try lines(ask("GET", "/edge/v1/feed?limit=0")).last?["cursor"].string ?? ""
    }

    private func save(_ users: [String]) throws {
        for user in users {
            #expect(try ask("POST", "/ups/save", profile(user, ["11": "1"]), Self.admin).status == 200)
        }
    }

    private func setPlan(_ user: String, _ plan: String) throws {
        let response = try ask("PATCH", "/v1/profiles/\(user)/attributes", #"{"plan":"\#(plan)"}"#, Self.admin)
        #expect(response.status == 200, "\(response.text)")
    }

    /// Decodes a record of a line.
    private func stored(_ line: JSONValue) throws -> ProfileRecord? {
        guard let text = line["profile"].string else { return nil }
        let bytes = try #require(Base64URL.decode(text.utf8))
        return try ProfileRecord(checking: bytes)
    }

    private func plan(_ value: JSONValue) throws -> String? {
        guard let text = value.string else { return nil }
        let bytes = try #require(Base64URL.decode(text.utf8))
        let record = try #require(AttributeRecord(checking: bytes))
        guard case .text(let plan)? = record[1] else { return nil }
        return plan.string
    }

    // MARK: Users

    @Test func `All users come with both records in the order of their ids, also in parts`() throws {
        try save(["b", "d", "a"])
        for (user, plan) in [("c", "gold"), ("a", "free"), ("e", "gold")] { try setPlan(user, plan) }
        let all = try lines(ask("GET", "/edge/v1/users"))
        #expect(all.dropLast().map { $0["user_id"].string } == ["a", "b", "c", "d", "e"])
        #expect(all.last == ["end": nil])
        let variations = try all.dropLast().map { try stored($0)?.variationID(for: "11") }
        #expect(variations == ["1", "1", nil, "1", nil])
        let plans = try all.dropLast().map { try plan($0["attributes"]) }
        #expect(plans == ["free", nil, "gold", nil, "gold"])
        var (found, after): ([JSONValue], String?) = ([], nil)
        repeat {
            let page = try lines(ask("GET", "/edge/v1/users?limit=1" + (after.map { "&after=\($0)" } ?? "")))
            found += page.dropLast()
            after = page.last?["end"].string
        } while after != nil
        #expect(found == Array(all.dropLast()))
        let named = try lines(ask("POST", "/edge/v1/lookup", #"{"user_ids":["e","nobody","a"]}"#))
        #expect(named[0] == all[4] && named[2] == all[0])
        #expect(named[1] == ["user_id": "nobody", "profile": nil, "attributes": nil])
    }

    @Test func `Many users fill many pages`() throws {
        let lines = (0..<5_000).map { profile("user-\($0)", ["11": "\($0)"]) }.joined(separator: "\n")
        #expect(try ask("POST", "/v1/profiles", lines, Self.admin).status == 200)
        let all = try self.lines(ask("GET", "/edge/v1/users"))
        #expect(all.count == 5_001)
        #expect(Set(all.compactMap { $0["user_id"].string }).count == 5_000)
    }

    // MARK: The feed

    @Test func `The feed has the attributes themselves, and says whether it is at its end`() throws {
        let start = try cursor()
        try setPlan("ada", "gold")
        try save(["ada", "bob"])
        #expect(try ask("POST", "/v1/events", #"{"user_id":"ada","goal":"buy"}"#, Self.admin).status == 200)
        #expect(try ask("DELETE", "/v1/profiles/ada/attributes", nil, Self.admin).status == 200)
        let found = try lines(ask("GET", "/edge/v1/feed?after=\(start)"))
        #expect(
            found.map { $0["kind"].string } == ["attributes", "assignment", "assignment", "attributes", "end"])
        // As they are now.
        #expect(found[0]["record"].isNull && found[0].object?["record"] != nil)
        #expect(found.last?["complete"] == true)
        let part = try lines(ask("GET", "/edge/v1/feed?after=\(start)&limit=2"))
        #expect(part.last?["complete"] == false)
        let rest = try lines(ask("GET", "/edge/v1/feed?after=\(part.last?["cursor"].string ?? "")"))
        #expect(Array(part.dropLast()) + rest == found)
        #expect(try ask("GET", "/edge/v1/feed?after=1-1-0").status == 410)
    }

    // MARK: Definitions

    @Test func `Definitions come with their numbers and the exact datafile, and again only when they change`() throws {
        let first = try ask("GET", "/edge/v1/definitions")
        let datafile = try #require(first["datafiles"].array?.first)
        let content = Base64URL.decode((datafile["content"].string ?? "").utf8) ?? []
        let served = try ask("GET", "/datafiles/default.json", nil, Self.admin).body
        #expect(String(decoding: content, as: UTF8.self) == String(decoding: served, as: UTF8.self))
        #expect(datafile["version"] == first["newest_datafile"])
        #expect(first["attributes"].array?.first?["definition"].string == #"{"type":"string"}"#)
        let end = try cursor()
        #expect(first["feed"].string == end)
        let changes = first["changes"].integer ?? 0
        let version = first["newest_datafile"].integer ?? 0
        #expect(try ask("GET", "/edge/v1/definitions?after=\(changes)").status == 304)
        #expect(try ask("GET", "/edge/v1/definitions?after=\(changes)&wait=1").status == 304)
        let condition = #"{"conditions":{"type":"custom_attribute","name":"plan","value":"gold"}}"#
        #expect(try ask("PUT", "/v1/segments/payers", condition, Self.admin).status == 201)
        let second = try ask("GET", "/edge/v1/definitions?after=\(changes)&datafiles_after=\(version)&wait=30")
        #expect(second["segments"].array?.first?["name"] == "payers")
        #expect(second["datafiles"] == [])
        #expect(second["newest_datafile"].integer == version)
    }

    @Test func `Of a datafile that edits have made an edge gets what has changed since the version that it has`() throws
    {
        func definitions(after version: Int64) throws -> (datafile: JSONValue, bytes: Int) {
            let response = try ask("GET", "/edge/v1/definitions?datafiles_after=\(version)&elements_after=\(version)")
            return (response["datafiles"].array?.first ?? .null, response.text.utf8.count)
        }
        func names(_ datafile: JSONValue, _ member: String) -> Set<String> {
            Set((datafile[member].array ?? []).map { "\($0["list"].string ?? "") \($0["key"].string ?? "")" })
        }
        for number in 0..<50 {
            let body = #"{"variations":["control","new"],"description":"\#(String(repeating: "x", count: 500))"}"#
            #expect(try ask("PUT", "/v1/experiments/e\(number)", body, Self.admin).status == 201)
        }
        let (whole, wholeBytes) = try definitions(after: 0)
        #expect(
            whole["removed"].isNull && names(whole, "elements").isSuperset(of: ["experiments e7", "featureFlags e7"]))
        let version = try #require(whole["version"].integer)
        #expect(try ask("PUT", "/v1/experiments/e7", #"{"traffic":50}"#, Self.admin).status == 200)
        let (change, bytes) = try definitions(after: version)
        #expect(names(change, "elements") == ["experiments e7", "featureFlags e7"])
        #expect(names(change, "removed") == names(change, "elements"))
        #expect(bytes < 5_000 && wholeBytes > 50_000)
        // An upload is whole, and so is what an edge of an earlier release gets.
        let uploaded = try ask("GET", "/datafiles/default.json", nil, Self.admin).text
        let response = try ask("PUT", "/v1/datafile", uploaded, Self.admin)
        #expect(response.status == 200, "\(response.text)")
        let (upload, _) = try definitions(after: version)
        #expect(upload["content"].string != nil && upload["base"].isNull)
        #expect(try ask("PUT", "/v1/experiments/e7", #"{"traffic":60}"#, Self.admin).status == 200)
        #expect(try ask("GET", "/edge/v1/definitions")["datafiles"].array?.first?["content"].string != nil)
    }

    // MARK: Changes

    private func change(_ user: String, _ operation: String) -> String {
        #"{"user_id":"\#(user)","operation":\#(operation)}"#
    }

    private func assign(_ user: String, _ variation: String, with version: Int) -> String {
        change(
            user,
            #"{"kind":"assign","proposals":[{"experiment_id":"\#(experiment)","variation_id":"\#(variation)","replacing":null,"is_from_anonymous_profile":false}],"decided_with":\#(version),"anonymous_id":null}"#
        )
    }

    private func submit(after: String?, _ changes: [String]) throws -> [JSONValue] {
        let cursor = after.map { "\"\($0)\"" } ?? "null"
        return try lines(
            ask("POST", "/edge/v1/changes", #"{"after":\#(cursor),"changes":[\#(changes.joined(separator: ","))]}"#))
    }

    @Test func `Changes get a result each, and the feed behind the edge's cursor follows`() throws {
        let start = try cursor()
        try save(["other"])
        let found = try submit(
            after: start,
            [
                assign("ada", new, with: 1), assign("ada", control, with: 1), assign("bob", new, with: 0),
                change("eve", #"{"kind":"save","map":{"11":"1","22":"2"},"on_conflict":"keep"}"#),
                change("eve", #"{"kind":"replace","map":{"22":"3"}}"#), change("ada", #"{"kind":"erase"}"#),
                change("", #"{"kind":"save","map":{}}"#), change("ada", #"{"kind":"save","map":{"a-b":"1"}}"#),
            ])
        let results = found[0]["results"].array ?? []
        let assigned = try results.prefix(2).map { try stored($0)?.variationID(for: Identifier(experiment)) }
        #expect(assigned == [Identifier(new), Identifier(new)])
        #expect(results.prefix(2).map { $0["changed"].bool } == [true, false])
        #expect(results[2]["error"] == "stale_datafile")
        let (saved, replaced) = (try stored(results[3]), try stored(results[4]))
        #expect(saved?.count == 2)
        #expect(replaced.map { "\($0)" } == "[22: 3 (saved)]")
        #expect(results[5...].map { $0["error"].string } == ["invalid", "invalid", "invalid"])
        #expect(results[5]["reason"].string?.contains("replace, save and assign; got 'erase'") == true)
        #expect(results[7]["reason"].string?.contains("/changes/7/operation/map/a-b") == true)
        #expect(found[0]["more"] == false)
        #expect(found.last?["cursor"] == found[0]["position"])
        #expect(
            found.dropFirst().dropLast().map { $0["user_id"].string } == ["other", "ada", "eve", "eve", "eve", "eve"])
        // The next request begins where this one ended.
        let next = try submit(after: found.last?["cursor"].string, [assign("bob", new, with: 1)])
        #expect(next.dropFirst().dropLast().map { $0["user_id"].string } == ["bob"])
        #expect(try submit(after: nil, [assign("ann", new, with: 1)]).count == 1)
    }

    @Test
    func
        `What was decided with another generation is refused, and a store that lacks what an edge has seen begins another`()
        throws
    {
        func generation() throws -> String {
            let marked = try ask("GET", "/edge/v1/feed?limit=0", nil, Self.edge, ["Holdfast-Edge: 1"])
            #expect(marked.field("holdfast-time") != nil)
            return marked.field("holdfast-generation") ?? ""
        }
        let (first, start) = (try generation(), try cursor())
        #expect(first.split(separator: "-").last.map { start.hasPrefix("\($0)-") } == true, "\(first) \(start)")
        let epoch = String(start.prefix { $0 != "-" })
        func decide(_ generation: String, after: String = "null") throws -> TestResponse {
            let change = self.assign("ada", new, with: 1)
            return try ask(
                "POST", "/edge/v1/changes",
                #"{"after":\#(after),"generation":"\#(generation)","changes":[\#(change)]}"#)
        }
        #expect(try decide(epoch).status == 200)
        #expect(try ask("GET", "/edge/v1/definitions?generation=\(epoch)").status == 200)
        // Not of this store: it must have had another life.
        #expect(try ask("DELETE", "/v1/profiles/ada", nil, Self.admin).status == 200)
        #expect(try decide("abc").status == 410)
        #expect(try ask("GET", "/v1/profiles/ada", nil, Self.admin).status == 404)
        let second = try generation()
        #expect(second != first)
        // Known from now on, as is its own former one.
        for former in ["abc", epoch] { #expect(try decide(former).status == 410) }
        #expect(try ask("GET", "/edge/v1/definitions?generation=\(epoch)").status == 410)
        #expect(try ask("GET", "/edge/v1/feed?after=\(start)").status == 410)
        #expect(try generation() == second)
        // A place that it has never reached.
        let present = String(try cursor().prefix { $0 != "-" })
        #expect(try ask("GET", "/edge/v1/feed?after=\(present)-99999-0").status == 410)
        let third = try generation()
        #expect(third != second)
        // And definitions.
        let newest = String(try cursor().prefix { $0 != "-" })
        #expect(try ask("GET", "/edge/v1/definitions?after=99999&generation=\(newest)").status == 410)
        #expect(try generation() != third)
        let renewals = try ask("GET", "/v1/audit?action=generation.renew", nil, Self.admin)
        #expect(renewals["entries"].array?.count == 3)
        // Only edges are told.
        #expect(try ask("GET", "/edge/v1/feed?limit=0").field("holdfast-generation") == nil)
    }

    // MARK: Events

    private func exposure(_ user: String, _ variation: String, enrolls: Bool = true) -> String {
        #"{"kind":"exposure","user_id":"\#(user)","experiment_id":"\#(experiment)","experiment_key":"checkout","variation_id":"\#(variation)","happened_at":1790000000000,"is_chosen":false,"sdk_key":"default","enrolls":\#(enrolls),"payload":"{}"}"#
    }

    private func goal(_ user: String, _ id: String) -> String {
        #"{"kind":"goal","user_id":"\#(user)","goal":"buy","value":2.5,"happened_at":1790000000000,"received_at":1790000000500,"id":"\#(id)","sdk_key":"","payload":"{\"n\":1}"}"#
    }

    private func send(after: String? = nil, _ events: [String], uses: String = "[]") throws -> TestResponse {
        let cursor = after.map { "\"\($0)\"" } ?? "null"
        return try ask(
            "POST", "/edge/v1/events",
            #"{"after":\#(cursor),"events":[\#(events.joined(separator: ","))],"uses":\#(uses)}"#)
    }

    private func counts(_ response: TestResponse) -> [Int?] {
        [response["stored"].integer, response["repeated"].integer].map { $0.map { Int($0) } }
    }

    @Test func `Entries are taken and refused by their numbers, and exposures without a variation get the user's`()
        throws
    {
        func numbered(_ entry: Int, _ event: String) -> String { #"{"entry":\#(entry),\#(event.dropFirst())"# }
        let unnamed = exposure("ada", new).replacing(#""variation_id":"\#(new)","#, with: "")
        let stranger = exposure("eve", new).replacing(#""variation_id":"\#(new)","#, with: "")
        #expect(try send([exposure("ada", control)]).status == 200)
        let use =
            #"[{"entry":9,"sdk_key":"default","kind":1,"key":"checkout","variation":"new","day":20000},{"entry":8}]"#
        let response = try send(
            [
                numbered(1, goal("bob", "1")), numbered(2, goal("bob", "2").replacing("buy", with: "")),
                numbered(3, unnamed), numbered(4, stranger), numbered(5, #"{"user_id":"a","kind":"x"}"#),
            ], uses: use)
        #expect(response.status == 200, "\(response.text)")
        #expect(Set((response["taken"].array ?? []).compactMap(\.integer)) == [1, 3, 9], "\(response.text)")
        let refused = response["refused"].array ?? []
        #expect(Set(refused.compactMap { $0["entry"].integer }) == [2, 4, 5, 8])
        #expect(refused.filter { $0["unassigned"] == true }.map { $0["entry"].integer } == [4])
        #expect(counts(response) == [1, 1])
    }

    @Test func `Times are corrected, and never in the future`() throws {
        let ahead = goal("ada", "1").replacing("1790000000000", with: "9000000000000")
        #expect(try send([ahead]).status == 200)
        let late = goal("ada", "2").dropLast() + #","lead":3600000}"#
        #expect(try send([String(late)]).status == 200)
        let events = try ask("GET", "/v1/events", nil, Self.admin).text.split(separator: "\n")
        #expect(events.count == 2 && !events[0].contains("2255-"), "\(events)")
        #expect(events[1].contains("2026-09-21T13:13:20"), "\(events)")
    }

    @Test func `Events are counted once, and an exposure enrolls a user who has no assignment`() throws {
        let events = [
            exposure("ada", new), goal("ada", "1"), exposure("bob", control, enrolls: false), goal("bob", "2"),
        ]
        let use = #"[{"sdk_key":"default","kind":1,"key":"checkout","variation":"new","day":20000}]"#
        #expect(try counts(send(events, uses: use)) == [4, 0])
        #expect(try counts(send(events, uses: use)) == [0, 4])
        let ada = try ask("GET", "/v1/profiles/ada", nil, Self.admin)
        #expect(ada["experiment_bucket_map"][experiment]["variation_id"].string == new)
        #expect(try ask("GET", "/v1/profiles/bob", nil, Self.admin).status == 404)
        let exported = try ask("GET", "/v1/events", nil, Self.admin).text.split(separator: "\n")
        #expect(exported.count == 2 && exported[0].contains(#""detail":{"n":1}"#), "\(exported)")
        let results = try ask("GET", "/v1/experiments/checkout/results?goal=buy", nil, Self.admin)
        #expect(results["variations"].array?.map { $0["users"].integer } == [1, 1], "\(results.text)")
    }

    @Test func `What was accepted before an erasure is dropped and counted, and before a login is the account's`()
        throws
    {
        func accepted(_ entry: Int, _ event: String, days: Double = 0) -> String {
            let time = Int((Date().timeIntervalSince1970 - days * 86_400) * 1_000)
            return #"{"entry":\#(entry),"accepted_at":\#(time),\#(event.dropFirst())"#
        }
        try save(["ada", "anonymous", "eve"])
        let unnamed = exposure("stranger", new).replacing(#""variation_id":"\#(new)","#, with: "")
        let waiting = [
            accepted(1, goal("ada", "1")), accepted(2, goal("anonymous", "2")), accepted(3, goal("eve", "3")),
            accepted(4, exposure("ada", new)), accepted(5, unnamed), accepted(6, goal("bob", "6"), days: 8.1),
            // Of an edge of an earlier release.
            #"{"entry":7,\#(goal("ada", "7").dropFirst())"#,
        ]
        #expect(try send([exposure("zoe", control)]).status == 200)
        #expect(try ask("DELETE", "/v1/profiles/ada", nil, Self.admin).status == 200)
        for (account, anonymous) in [("eve", "anonymous"), ("zoe", "stranger")] {
            let merged = try ask("POST", "/v1/profiles/\(account)/merge", #"{"from":"\#(anonymous)"}"#, Self.admin)
            #expect(merged.status == 200)
        }
        let response = try send(after: cursor(), waiting)
        #expect(Set((response["taken"].array ?? []).compactMap(\.integer)) == [1, 2, 3, 4, 5, 7], "\(response.text)")
        #expect(response["refused"].array?.map { $0["entry"] } == [6])
        #expect(response["erased"] == 3)
        // The exposure without a variation has that of the account.
        #expect(counts(response) == [2, 1])
        #expect(try ask("GET", "/v1/profiles/ada/export", nil, Self.admin).status == 404)
        let events = try ask("GET", "/v1/profiles/eve/events", nil, Self.admin).text
        #expect(events.contains(#""id":"2""#) && events.contains(#""id":"3""#), "\(events)")
        #expect(try counts(send([accepted(8, goal("ada", "1"))])) == [1, 0])
        let metrics = try ask("GET", "/metrics", nil, Self.admin).text
        #expect(metrics.contains("\nholdfast_events_erased_total 3\n"))
        #expect(try send(after: "1-1-0", [goal("ada", "5")]).status == 410)
    }

    // MARK: Refusals

    @Test(arguments: [
        ("/edge/v1/changes", #"{"changes":{}}"#, "/changes"),
        ("/edge/v1/changes", #"{"after":1,"changes":[]}"#, "/after"),
        ("/edge/v1/changes", #"{"change":[]}"#, "/change"), ("/edge/v1/changes", "[]", ""),
        ("/edge/v1/changes", "{", ""), ("/edge/v1/lookup", #"{"user_ids":[1]}"#, "/user_ids/0"),
        ("/edge/v1/lookup", #"{"user_ids":[""]}"#, "/user_ids/0"), ("/edge/v1/events", #"{"events":1}"#, "/events"),
        ("/edge/v1/events", #"{"events":[1]}"#, "/events/0"),
        ("/edge/v1/events", #"{"events":[{"user_id":"a","happened_at":-1}]}"#, "/events/0/happened_at"),
        (
            "/edge/v1/events", #"{"events":[{"user_id":"a","happened_at":1,"payload":"[]"}]}"#, "/events/0/payload"
        ),
        (
            "/edge/v1/events", #"{"events":[{"user_id":"a","happened_at":1,"payload":"{}","kind":"x"}]}"#,
            "/events/0/kind"
        ),
        ("/edge/v1/events", #"{"events":[],"uses":[{"kind":9}]}"#, "/uses/0"),
    ])
    func `A malformed request is refused with the place`(path: String, body: String, pointer: String) throws {
        let response = try ask("POST", path, body)
        #expect(response.status == 400, "\(response.text)")
        #expect(response["pointer"].string == pointer, "\(response.text)")
        #expect(response.field("content-type") == "application/problem+json")
    }

    @Test(arguments: [
        "/edge/v1/users?after=", "/edge/v1/users?limit=0", "/edge/v1/users?page=1", "/edge/v1/definitions?after=x",
        "/edge/v1/definitions?wait=31", "/edge/v1/feed?kinds=x", "/edge/v1/feed?values=1",
    ])
    func `A wrong parameter is refused`(target: String) throws {
        #expect(try ask("GET", target).status == 400)
    }

    @Test func `A token that is bound to projects cannot follow`() throws {
        let response = try ask("GET", "/edge/v1/users", nil, "bound-secret-0123456789")
        #expect(response.status == 403)
        #expect(response["detail"].string?.contains("a token for all projects is required") == true)
    }

    // MARK: On behalf of callers

    private func forwarded(_ caller: String) -> [String] { ["Holdfast-On-Behalf-Of: \(caller)"] }

    @Test func `An edge may do for its callers what their scope allows, and its name is recorded`() throws {
        try save(["ada", "bob"])
        let read = forwarded("app; scope=read")
        #expect(try ask("GET", "/v1/profiles/ada", nil, Self.edge, read).status == 200)
        let refused = try ask("POST", "/ups/save", profile("ada"), Self.edge, read)
        #expect(refused.status == 403)
        #expect(refused["detail"].string?.contains("the token 'app via edge-1' has the scope read") == true)
        let write = forwarded("app; scope=write")
        #expect(try ask("POST", "/v1/profiles/ada/merge", #"{"from":"bob"}"#, Self.edge, write).status == 200)
        let audit = try ask("GET", "/v1/audit?action=profile.merge", nil, Self.admin)
        #expect(audit["entries"].array?.first?["author"] == "app via edge-1", "\(audit.text)")
        let bound = forwarded("app; scope=write; projects=shop,app")
        #expect(try ask("GET", "/v1/experiments/checkout", nil, Self.edge, bound).status == 403)
        // Others cannot speak for anybody.
        #expect(try ask("GET", "/v1/whoami", nil, Self.admin, read)["name"] == "boss")
    }

    @Test(arguments: [
        "app; scope=admin", "app; scope=edge", "app; scope=", "app", "", "; scope=read", "a b; scope=read",
        "a%20b; scope=read", "app; scope=read; projects=", "app; scope=read; sdk=1", "app; scope=read; projects=a; x",
    ])
    func `An edge never speaks for an admin, nor unclearly`(caller: String) throws {
        for (method, target) in [("GET", "/v1/profiles/ada"), ("DELETE", "/v1/profiles/ada"), ("GET", "/v1/audit")] {
            let response = try ask(method, target, nil, Self.edge, forwarded(caller))
            #expect(response.status == (caller.isEmpty ? 403 : 400) || response.status == 400, "\(response.text)")
        }
    }
}
