import APITestSupport
import JSON
import Testing

/// `--approvals 2`: changes of running experiments wait for a second person.
@Suite struct ApprovalTests {
    private let server: any TestServer

    private static let ann = "ann-secret-0123456789"
    private static let bob = "bob-secret-0123456789"

    init() throws {
        server = try startTestServer(
            tokens: "admin ann \(Self.ann)\nadmin bob \(Self.bob)\nadmin ann \(Self.ann)-second\n"
                + "admin other other-secret-0123456789 projects=other\nread eve eve-secret-0123456789\n", approvals: 2)
        for (target, body) in [
            ("attributes/plan", #"{"type":"string"}"#), ("segments/gold", Self.gold("gold")),
            ("metrics/revenue", #"{"kind":"total","goal":"purchase"}"#),
            (
                "experiments/checkout",
                #"{"variations":["a","b"],"audience":{"segment":"gold"},"metrics":{"primary":["revenue"]}}"#
            ),
            ("experiments/idle", #"{"variations":["a","b"],"status":"draft"}"#),
            (
                "experiments/slow",
                #"{"variations":["a","b"],"ramp":{"steps":[{"traffic":5,"for":"1d"},{"traffic":100}]}}"#
            ),
            ("flags/banner", #"{"type":"boolean","rules":[{"experiment":{}}]}"#),
            ("flags/plain", #"{"type":"boolean"}"#), ("metrics/unused", #"{"kind":"total","goal":"view"}"#),
        ] {
            let response = try ask("PUT", "/v1/" + target, body)
            #expect(response.status == 201, "\(response.text)")
        }
    }

    private static func gold(_ value: String) -> String {
        #"{"conditions":{"type":"custom_attribute","name":"plan","value":"\#(value)"}}"#
    }

    @discardableResult
    private func ask(
        _ method: String, _ target: String, _ body: String? = nil, by token: String = ann, fields: [String] = []
    ) throws -> TestResponse {
        try server.request(method, target, body, token: token, fields: fields)
    }

    private func propose(_ method: String, _ target: String, _ body: String? = nil) throws -> (id: String, JSONValue) {
        let response = try ask(method, target, body)
        try #require(response.status == 202, "\(target): \(response.text)")
        let id = try #require(response["proposal"]["id"].string)
        #expect(response.field("location") == "/v1/proposals/\(id)")
        return (id, response["proposal"])
    }

    private func definitions() throws -> String { try ask("GET", "/v1/definitions").text }

    /// Every request that changes what runs, and the experiments that it changes.
    private static let changes: [(String, String, String?, [String])] = [
        ("PUT", "/v1/experiments/checkout", #"{"traffic":50}"#, ["checkout"]),
        ("PUT", "/v1/experiments/checkout", #"{"description":"New"}"#, ["checkout"]),
        ("PUT", "/v1/experiments/checkout", #"{"status":"paused","traffic":50}"#, ["checkout"]),
        ("PUT", "/v1/experiments/checkout", #"{"enrollment":"closed","description":"New"}"#, ["checkout"]),
        ("DELETE", "/v1/experiments/checkout", nil, ["checkout"]),
        ("POST", "/v1/experiments/checkout/conclude", #"{"winner":"b"}"#, ["checkout"]),
        ("PUT", "/v1/experiments/slow", #"{"ramp":null}"#, ["slow"]),
        ("PUT", "/v1/experiments/slow", #"{"status":"archived"}"#, ["slow"]),
        ("PUT", "/v1/flags/banner", #"{"enabled":false,"tags":["x"]}"#, ["banner_experiment"]),
        ("DELETE", "/v1/flags/banner", nil, ["banner_experiment"]),
        ("PUT", "/v1/holdouts/everything", #"{"share":5}"#, ["banner_experiment", "checkout", "slow"]),
        ("PUT", "/v1/metrics/revenue", #"{"kind":"total","goal":"purchase","window":5}"#, ["checkout"]),
        ("PUT", "/v1/segments/gold", gold("silver"), ["checkout"]),
        ("PUT", "/v1/definitions", #"{"experiments":[{"key":"checkout","traffic":7}]}"#, ["checkout"]),
        (
            "PUT", "/v1/definitions",
            #"{"segments":[{"name":"gold","conditions":{"type":"custom_attribute","name":"plan","value":"x"}}]}"#,
            ["checkout"]
        ),
        (
            "PUT", "/v1/datafile?moves=allow",
            #"{"version":"4","accountId":"1","projectId":"1","revision":"1","attributes":[],"audiences":[],"groups":[],"events":[],"rollouts":[],"experiments":[],"featureFlags":[]}"#,
            ["banner_experiment", "checkout", "slow"]
        ),
    ]

    @Test(arguments: changes)
    func `Whatever changes a running experiment waits for another person, and is then made`(
        method: String, target: String, body: String?, experiments: [String]
    ) throws {
        let before = try definitions()
        let (id, proposal) = try propose(method, target, body)
        #expect(proposal["status"] == "pending" && proposal["author"] == "ann")
        let changed = (proposal["experiments"].array ?? []).compactMap(\.string)
        #expect(changed.sorted() == experiments, "\(proposal)")
        #expect(try definitions() == before)
        let shown = try ask("GET", "/v1/proposals/\(id)").json
        #expect(shown == proposal)
        #expect(shown["request"]["target"] == .string(target))
        // Not by its author, whatever the secret, nor by somebody of another project or with another scope.
        for token in [Self.ann, Self.ann + "-second", "other-secret-0123456789", "eve-secret-0123456789"] {
            #expect(try ask("POST", "/v1/proposals/\(id)/approve", by: token).status == 403)
        }
        #expect(try definitions() == before)
        let approved = try ask("POST", "/v1/proposals/\(id)/approve", by: Self.bob)
        #expect(approved.status == 200, "\(approved.text)")
        #expect(approved["status"] == "approved" && approved["decided_by"] == "bob")
        #expect(try definitions() != before)
        #expect(try ask("POST", "/v1/proposals/\(id)/approve", by: Self.bob).status == 409)
        #expect(try ask("POST", "/v1/proposals/\(id)/reject", by: Self.bob).status == 409)
        let entries = try ask("GET", "/v1/audit?limit=2")["entries"].array ?? []
        let made = try #require(entries.first { $0["action"] != "proposal.approve" })
        let approval = try #require(entries.first { $0["action"] == "proposal.approve" })
        #expect(made["author"] == "ann" && approval["author"] == "bob" && approval["target"] == .string(id))
        #expect(made["request_id"] == approval["request_id"])
        if !target.contains("segment"), body?.contains("segment") != true {
            #expect(made["after"]["approved_by"] == "bob", "\(made)")
        }
    }

    @Test(
        arguments: [
            ("PUT", "/v1/experiments/idle", #"{"traffic":50}"#),
            ("PUT", "/v1/experiments/idle", #"{"status":"running"}"#),
            ("PUT", "/v1/experiments/new", #"{"variations":["a","b"]}"#), ("DELETE", "/v1/experiments/idle", nil),
            ("PUT", "/v1/flags/plain", #"{"enabled":false}"#),
            ("PUT", "/v1/metrics/unused", #"{"kind":"total","goal":"x"}"#),
            ("PUT", "/v1/segments/silver", gold("silver")), ("PUT", "/v1/experiments/checkout", #"{"traffic":100}"#),
            ("PUT", "/v1/attributes/plan", #"{"type":"string"}"#),
        ] as [(String, String, String?)])
    func `What leaves running experiments alone needs nobody else`(
        method: String, target: String, body: String?
    ) throws {
        let response = try ask(method, target, body)
        #expect([200, 201, 204].contains(response.status), "\(response.text)")
        #expect(try ask("GET", "/v1/proposals")["proposals"] == [])
    }

    private static let traffic = ("PUT", "/v1/experiments/checkout", #"{"traffic":50}"#)
    private static let tagged = ("PUT", "/v1/flags/banner", #"{"tags":["x"]}"#)
    private typealias Sent = (String, String, String?)

    /// What is proposed, and an edit of it, or of what decides whom it concerns.
    private static let edits: [(Sent, Sent)] = [
        (traffic, ("PUT", "/v1/experiments/checkout", #"{"description":"New"}"#)),
        (traffic, ("PUT", "/v1/experiments/checkout", #"{"status":"paused"}"#)),
        (traffic, ("PUT", "/v1/experiments/checkout", #"{"enrollment":"closed"}"#)),
        (traffic, ("PUT", "/v1/segments/gold", gold("silver"))),
        (traffic, ("PUT", "/v1/metrics/revenue", #"{"kind":"total","goal":"purchase","window":5}"#)),
        (traffic, ("PUT", "/v1/holdouts/everything", #"{"share":5}"#)),
        (traffic, ("PUT", "/v1/definitions", #"{"experiments":[{"key":"checkout","traffic":7}]}"#)),
        (("PUT", "/v1/segments/gold", gold("silver")), ("PUT", "/v1/segments/gold", gold("bronze"))),
        (("PUT", "/v1/segments/gold", gold("silver")), traffic),
        (("PUT", "/v1/metrics/revenue", #"{"kind":"total","goal":"purchase","window":5}"#), traffic),
        (tagged, ("PUT", "/v1/flags/banner", #"{"description":"New"}"#)),
        (tagged, ("PUT", "/v1/experiments/banner_experiment", #"{"traffic":3}"#)),
        (("PUT", "/v1/experiments/banner_experiment", #"{"traffic":3}"#), tagged),
        (("PUT", "/v1/holdouts/everything", #"{"share":5}"#), tagged),
        // What the request would change now and did not when it was proposed.
        (
            (
                "PUT", "/v1/definitions",
                #"{"experiments":[{"key":"checkout","traffic":7},{"key":"idle","traffic":100}]}"#
            ),
            ("PUT", "/v1/experiments/idle", #"{"traffic":50}"#)
        ),
    ]

    @Test(arguments: edits.indices)
    func `An edit of what a proposal changes, or of what it rests on, makes it outdated`(edit: Int) throws {
        let (proposed, edit) = Self.edits[edit]
        let (id, _) = try propose(proposed.0, proposed.1, proposed.2)
        let response = try ask(edit.0, edit.1, edit.2)
        if let other = response["proposal"]["id"].string {
            #expect(try ask("POST", "/v1/proposals/\(other)/approve", by: Self.bob).status == 200)
        } else {
            #expect(response.status == 200, "\(response.text)")
        }
        let before = try definitions()
        let refused = try ask("POST", "/v1/proposals/\(id)/approve", by: Self.bob)
        #expect(
            refused.status == 409 && refused["detail"].string?.contains("has changed since") == true, "\(refused.text)")
        #expect(try definitions() == before)
        guard edit.1 != "/v1/experiments/idle" else { return }
        #expect(try ask("GET", "/v1/proposals/\(id)")["status"] == "outdated")
        #expect(try ask("GET", "/v1/proposals?status=pending")["proposals"] == [])
        #expect(try ask("GET", "/v1/proposals?status=outdated")["proposals"].array?.count == 1)
    }

    @Test(
        arguments: [
            (traffic, ("PUT", "/v1/experiments/checkout", #"{"description":"%"}"#)),
            (
                traffic,
                ("PUT", "/v1/metrics/revenue", #"{"kind":"total","goal":"purchase","description":"%"}"#)
            ), (tagged, ("PUT", "/v1/flags/banner", #"{"description":"%"}"#)),
            (tagged, ("PUT", "/v1/experiments/banner_experiment", #"{"description":"%"}"#)),
        ] as [(Sent, Sent)])
    private func `A proposal is outdated also when what it changes was changed and changed back`(
        proposed: Sent, edit: Sent
    ) throws {
        func describe(_ text: String) throws {
            let response = try ask(edit.0, edit.1, edit.2?.replacing("%", with: text))
            guard let waiting = response["proposal"]["id"].string else { return }
            #expect(try ask("POST", "/v1/proposals/\(waiting)/approve", by: Self.bob).status == 200)
        }
        try describe("A")
        let (id, _) = try propose(proposed.0, proposed.1, proposed.2)
        try describe("B")
        try describe("A")
        #expect(try ask("GET", "/v1/proposals/\(id)")["status"] == "outdated")
        #expect(try ask("POST", "/v1/proposals/\(id)/approve", by: Self.bob).status == 409)
    }

    @Test func `Other edits leave a proposal as it is`() throws {
        let (id, proposal) = try propose("PUT", "/v1/experiments/checkout", #"{"traffic":50}"#)
        for (method, target, body) in [
            ("PUT", "/v1/experiments/idle", #"{"traffic":50}"#), ("DELETE", "/v1/experiments/idle", nil),
            ("PUT", "/v1/experiments/new", #"{"variations":["a","b"]}"#),
            ("PUT", "/v1/flags/plain", #"{"enabled":false}"#),
            ("PUT", "/v1/metrics/unused", #"{"kind":"total","goal":"x"}"#),
            ("PUT", "/v1/segments/silver", Self.gold("silver")), ("PUT", "/v1/attributes/size", #"{"type":"number"}"#),
        ] as [(String, String, String?)] {
            #expect(try ask(method, target, body).status < 300)
        }
        for (target, body) in [("experiments/slow", #"{"ramp":null}"#), ("flags/banner", #"{"tags":["x"]}"#)] {
            let (other, _) = try propose("PUT", "/v1/" + target, body)
            #expect(try ask("POST", "/v1/proposals/\(other)/approve", by: Self.bob).status == 200)
        }
        #expect(try ask("GET", "/v1/proposals/\(id)").json == proposal)
        #expect(try ask("POST", "/v1/proposals/\(id)/approve", by: Self.bob).status == 200)
        #expect(try ask("GET", "/v1/experiments/checkout")["traffic"] == 50)
    }

    @Test func `A rejected proposal is never made`() throws {
        let (id, _) = try propose("PUT", "/v1/experiments/checkout", #"{"traffic":50}"#)
        for (body, status) in [(#"{"reason":7}"#, 400), (#"{"why":""}"#, 400), ("[", 400)] {
            #expect(try ask("POST", "/v1/proposals/\(id)/reject", body).status == status)
        }
        let rejected = try ask("POST", "/v1/proposals/\(id)/reject", #"{"reason":"not now"}"#)
        #expect(rejected["status"] == "rejected" && rejected["decided_by"] == "ann" && rejected["reason"] == "not now")
        let refused = try ask("POST", "/v1/proposals/\(id)/approve", by: Self.bob)
        #expect(
            refused.status == 409
                && refused["detail"] == .string("the proposal '\(id)' must be pending; 'ann' has rejected it"))
        #expect(try ask("GET", "/v1/experiments/checkout")["traffic"] == 100)
        #expect(try ask("GET", "/v1/audit?action=proposal.reject")["entries"].array?.count == 1)
    }

    @Test func `A segment that running experiments of two projects use is refused, because an approval is of one`()
        throws
    {
        #expect(try ask("PUT", "/v1/projects/other").status == 201)
        let other = ["X-Optimizely-SDK-Key: other"]
        let body = #"{"variations":["a","b"],"audience":{"segment":"gold"},"status":"draft"}"#
        #expect(try ask("PUT", "/v1/experiments/theirs", body, fields: other).status == 201)
        let edits: [(String, String, [String])] = [
            ("/v1/segments/gold", Self.gold("silver"), []),
            (
                "/v1/definitions",
                #"{"segments":[{"name":"gold","conditions":{"type":"custom_attribute","name":"plan","value":"x"}}]}"#,
                []
            ),
        ]
        // A draft has no users.
        for (target, body, fields) in edits { #expect(try ask("PUT", target, body, fields: fields).status == 202) }
        let start = try ask("PUT", "/v1/experiments/theirs", #"{"status":"running"}"#, fields: other)
        #expect(start.status == 200, "\(start.text)")
        for (target, body, fields) in edits {
            let refused = try ask("PUT", target, body, fields: fields)
            #expect(refused.status == 409, "\(refused.text)")
            #expect(refused["detail"].string?.contains("one project") == true, "\(refused.text)")
        }
        // The proposals from before must not change what runs now.
        for proposal in try ask("GET", "/v1/proposals")["proposals"].array ?? [] {
            let id = try #require(proposal["id"].string)
            #expect(try ask("POST", "/v1/proposals/\(id)/approve", by: Self.bob).status == 409)
        }
        #expect(try ask("GET", "/v1/segments/gold")["conditions"]["value"] == "gold")
    }

    /// Every request that stops what runs and changes nothing else.
    private static let stops: [Sent] = [
        ("PUT", "/v1/experiments/checkout", #"{"status":"paused"}"#),
        ("PUT", "/v1/experiments/checkout", #"{"enrollment":"closed"}"#),
        ("PUT", "/v1/experiments/checkout", #"{"status":"paused","enrollment":"closed"}"#),
        ("PUT", "/v1/experiments/banner_experiment", #"{"status":"paused"}"#),
        ("POST", "/v1/experiments/slow/ramp", #"{"action":"stop"}"#),
        ("PUT", "/v1/flags/banner", #"{"enabled":false}"#),
        (
            "PUT", "/v1/definitions",
            #"{"experiments":[{"key":"checkout","status":"paused","audience":{"segment":"gold"},"metrics":{"primary":["revenue"]}}]}"#
        ),
    ]

    @Test(arguments: stops)
    func `What only stops is made at once, and recorded as exempt`(
        method: String, target: String, body: String?
    ) throws {
        let before = try definitions()
        let stopped = try ask(method, target, body)
        #expect(stopped.status == 200, "\(stopped.text)")
        #expect(try definitions() != before)
        let entry = try #require(try ask("GET", "/v1/audit?limit=1")["entries"].array?.first)
        #expect(entry["after"]["approval"] == "exempt", "\(entry)")
        #expect(try ask("GET", "/v1/proposals")["proposals"] == [])
    }

    @Test func `The datafile that only pauses is exempt, and one that does more is not`() throws {
        let sdk = ["X-Optimizely-SDK-Key: default"]
        let datafile = try ask("GET", "/v1/datafile", fields: sdk).text
        let paused = datafile.replacing(#""key":"checkout","layerId""#, with: #""key":"checkout", "layerId""#)
            .replacing(#/("key":"checkout", ?.*?"status":)"Running"/#, maxReplacements: 1) {
                "\($0.output.1)\"Paused\""
            }
        #expect(paused != datafile)
        let more = paused.replacing(#""projectId":"default""#, with: #""projectId":"other""#)
        #expect(more != paused)
        #expect(try ask("PUT", "/v1/datafile", more, fields: sdk).status == 202)
        let response = try ask("PUT", "/v1/datafile", paused, fields: sdk)
        #expect(response.status == 200, "\(response.text)")
        #expect(try ask("GET", "/v1/experiments/checkout")["status"] == "paused")
    }

    @Test func `What was stopped counts as running until it is concluded or archived`() throws {
        #expect(try ask("PUT", "/v1/experiments/checkout", #"{"status":"paused"}"#).status == 200)
        for (method, target, body) in [
            ("PUT", "/v1/experiments/checkout", #"{"status":"running"}"#),
            ("PUT", "/v1/experiments/checkout", #"{"traffic":7}"#), ("DELETE", "/v1/experiments/checkout", nil),
        ] as [Sent] {
            _ = try propose(method, target, body)
        }
        #expect(try ask("PUT", "/v1/flags/banner", #"{"enabled":false}"#).status == 200)
        _ = try propose("PUT", "/v1/flags/banner", #"{"enabled":true}"#)
        let (id, _) = try propose("PUT", "/v1/experiments/checkout", #"{"status":"archived"}"#)
        #expect(try ask("POST", "/v1/proposals/\(id)/approve", by: Self.bob).status == 200)
        #expect(try ask("PUT", "/v1/experiments/checkout", #"{"status":"archived","traffic":5}"#).status == 200)
        // What has never run needs nobody else, until it runs.
        for (target, body) in [
            ("experiments/new", #"{"variations":["a","b"],"status":"paused"}"#),
            ("experiments/new", #"{"traffic":50}"#), ("experiments/idle", #"{"status":"paused"}"#),
            ("experiments/idle", #"{"traffic":50}"#),
            ("flags/off", #"{"type":"boolean","enabled":false,"rules":[{"experiment":{}}]}"#),
            ("experiments/off_experiment", #"{"traffic":50}"#), ("flags/off", #"{"enabled":true}"#),
            ("experiments/new", #"{"status":"running"}"#),
        ] {
            let response = try ask("PUT", "/v1/" + target, body)
            #expect([200, 201].contains(response.status), "\(target) \(response.text)")
        }
        for target in ["experiments/new", "experiments/off_experiment"] {
            _ = try propose("PUT", "/v1/" + target, #"{"traffic":5}"#)
        }
        #expect(try ask("PUT", "/v1/experiments/new", #"{"status":"paused"}"#).status == 200)
        _ = try propose("PUT", "/v1/experiments/new", #"{"traffic":6}"#)
    }

    @Test func `The same request is answered with the proposal that waits, which is shown where its object is`() throws
    {
        let (id, proposal) = try propose("PUT", "/v1/experiments/checkout", #"{"traffic":50}"#)
        for token in [Self.ann, Self.bob] {
            let again = try ask("PUT", "/v1/experiments/checkout", #"{"traffic":50}"#, by: token)
            #expect(again.status == 202 && again["proposal"] == proposal, "\(again.text)")
        }
        let (other, _) = try propose("PUT", "/v1/experiments/checkout", #"{"traffic":51}"#)
        #expect(try ask("GET", "/v1/proposals")["proposals"].array?.count == 2)
        func shown(_ value: JSONValue) -> Set<String> {
            Set((value["proposals"].array ?? []).compactMap { $0["id"].string })
        }
        let got = try ask("GET", "/v1/experiments/checkout")
        #expect(shown(got.json) == [id, other])
        #expect(shown(try ask("GET", "/v1/flags/checkout").json) == [id, other])
        for list in ["experiments", "flags"] {
            for element in try ask("GET", "/v1/\(list)")[list].array ?? [] {
                #expect(shown(element) == (element["key"] == "checkout" ? [id, other] : []))
            }
        }
        // What is shown can be sent back.
        #expect(try ask("PUT", "/v1/experiments/checkout", got.text).status == 200)
        let (metric, _) = try propose("PUT", "/v1/metrics/revenue", #"{"kind":"total","goal":"purchase","window":5}"#)
        #expect(shown(try ask("GET", "/v1/metrics/revenue").json) == [metric])
        for waiting in [id, other, metric] { try ask("POST", "/v1/proposals/\(waiting)/reject") }
        #expect(try ask("GET", "/v1/experiments/checkout")["proposals"].isNull)
        // A rejected one is proposed anew.
        #expect(try propose("PUT", "/v1/experiments/checkout", #"{"traffic":50}"#).id != id)
    }

    @Test func `What would be refused is refused at once, and not proposed`() throws {
        #expect(try ask("PUT", "/v1/experiments/checkout", #"{"traffic":101}"#).status == 422)
        #expect(
            try ask("PUT", "/v1/experiments/checkout", #"{"traffic":1}"#, fields: [#"If-Match: "x""#]).status == 412)
        for (method, target, status) in [
            ("GET", "/v1/proposals/nobody", 404), ("POST", "/v1/proposals/nobody/approve", 404),
            ("POST", "/v1/proposals/nobody/reject", 404), ("GET", "/v1/proposals?status=open", 400),
            ("GET", "/v1/proposals?limit=0", 400),
        ] {
            #expect(try ask(method, target).status == status, "\(target)")
        }
        #expect(try ask("GET", "/v1/proposals")["proposals"] == [])
    }

    @Test func `An assistant's change waits, too`() throws {
        func call(_ tool: String, _ arguments: JSONValue) throws -> JSONValue {
            let message: JSONValue = [
                "jsonrpc": "2.0", "id": 7, "method": "tools/call",
                "params": ["name": .string(tool), "arguments": arguments],
            ]
            let text = try ask("POST", "/mcp", String(decoding: message.encoded(), as: UTF8.self))["result"]["content"]
                .array?.first?["text"].string
            return try JSONParser().parse(try #require(text))
        }
        let preview = try call("preview_experiment", ["key": "checkout", "experiment": ["traffic": 50]])
        let held = try call("apply_change", ["change_token": preview["change_token"]])
        #expect(held["proposal"]["status"] == "pending")
        #expect(try ask("GET", "/v1/experiments/checkout")["traffic"] == 100)
        let id = try #require(held["proposal"]["id"].string)
        #expect(try ask("POST", "/v1/proposals/\(id)/approve", by: Self.bob).status == 200)
        #expect(try ask("GET", "/v1/experiments/checkout")["traffic"] == 50)
    }

    @Test func `Responses have the members that the description shows`() throws {
        let paths = try ask("GET", "/openapi.json")["paths"]
        let (id, proposal) = try propose("PUT", "/v1/experiments/checkout", #"{"traffic":50}"#)
        func expectMembers(_ method: String, _ end: String, _ response: JSONValue) throws {
            let described = paths["/v1/proposals\(end)"][method]["responses"]["200"]["content"]["application/json"]
            let names = { (value: JSONValue) in value.object?.members.map(\.key) }
            #expect(names(response) == names(described["example"]), "\(end)")
        }
        try expectMembers("get", "/{id}", proposal)
        try expectMembers("get", "", try ask("GET", "/v1/proposals").json)
        try expectMembers("post", "/{id}/reject", try ask("POST", "/v1/proposals/\(id)/reject").json)
    }
}
