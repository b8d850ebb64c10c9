import APITestSupport
import JSON
import Testing

/// Webhooks in `/v1/definitions`.
@Suite struct WebhookDefinitionTests {
    private let server: any TestServer
    private static let (all, shop) = ("unbound-secret-0123456789", "shop-secret-0123456789")
    private static let (robot, other) = ("robot-secret-0123456789", "other-secret-0123456789")

    init() throws {
        server = try startTestServer(
            tokens: """
                admin all \(Self.all)
                admin shop \(Self.shop) projects=shop
                definitions robot \(Self.robot)
                admin other \(Self.other)

                """, approvals: 2)
        for key in ["main", "shop"] { #expect(try ask("PUT", "/v1/projects/\(key)", "{}").status < 300) }
    }

    @discardableResult
    private func ask(
        _ method: String, _ target: String, _ body: String? = nil, token: String = all, project: String? = nil,
        fields: [String] = []
    ) throws -> TestResponse {
        try server.request(
            method, target, body, token: token,
            fields: fields + (project.map { ["X-Optimizely-SDK-Key: \($0)"] } ?? []))
    }

    private func changes(_ response: TestResponse) -> [String] {
        #expect(response.status == 200, "\(response.text)")
        return (response["changes"].array ?? []).map {
            "\($0["action"].string ?? "") \($0["kind"].string ?? "") \($0["key"].string ?? "")"
        }
    }

    private static let url = #""url":"https://hooks.example/secret/path""#

    @Test func `Webhooks are applied with other definitions, and what is read changes nothing`() throws {
        let body = #"""
            {"flags":[{"key":"banner","type":"boolean"}],"webhooks":[{"key":"ops",\#(Self.url),"events":["flag.*"]},
            {"key":"own",\#(Self.url),"sdk_key":"main","format":"slack","enabled":false}]}
            """#
        let created = ["create flag banner", "create webhook ops", "create webhook own"]
        let preview = try ask("POST", "/v1/definitions/preview", body)
        #expect(changes(preview) == created)
        #expect(try ask("GET", "/v1/webhooks")["webhooks"] == [])
        let applied = try ask("PUT", "/v1/definitions", body, fields: ["If-Match: \(preview["basis"].string ?? "")"])
        #expect(changes(applied) == created)
        let warnings = (applied["warnings"].array ?? []).compactMap { $0["message"].string }
        #expect(warnings.count == 2 && warnings[0].contains("POST /v1/webhooks/ops/rotate"), "\(applied.text)")
        #expect(!applied.text.contains("whsec_"))
        let read = try ask("GET", "/v1/definitions")
        #expect(
            read["webhooks"].array == [
                ["key": "ops", "url": "https://hooks.example/secret/path", "events": ["flag.*"], "enabled": true],
                [
                    "key": "own", "url": "https://hooks.example/secret/path", "sdk_key": "main", "format": "slack",
                    "enabled": false,
                ],
            ], "\(read.text)")
        for same in [body, read.text] {
            let again = try ask("PUT", "/v1/definitions", same)
            #expect(changes(again) == [] && again["warnings"] == [], "\(again.text)")
        }
        // What is left out has its default, but `enabled` stays.
        let changed = try ask("PUT", "/v1/definitions", #"{"webhooks":[{"key":"own",\#(Self.url),"sdk_key":"main"}]}"#)
        #expect(changes(changed) == ["change webhook own"])
        let own = try ask("GET", "/v1/webhooks/own")
        #expect(own["format"] == "standard" && own["enabled"] == false)
        let moved = #"{"webhooks":[{"key":"ops","url":"https://hooks.example/other"}]}"#
        let difference = try ask("POST", "/v1/definitions/preview", moved)
        #expect(changes(difference) == ["change webhook ops"])
        #expect(!difference.text.contains("secret/path") && difference.text.contains("https://hooks.example/…"))
        let audit = try ask("GET", "/v1/audit?target=ops").text
        #expect(audit.contains("webhook.put") && !audit.contains("secret/path"))
    }

    @Test func `Everything that is wrong with webhooks is told with its place, and nothing is applied`() throws {
        try ask("PUT", "/v1/webhooks/shops", #"{\#(Self.url),"sdk_key":"shop"}"#)
        let body = #"""
            {"flags":[{"key":"banner","type":"boolean"}],"webhooks":[{"key":"a b",\#(Self.url)},{"key":"new"},
            {"key":"ftp","url":"ftp://x","events":["flag.putt"],"secret":"whsec_x"},{"key":"file",\#(Self.url),"secret_file":"x"},
            {"key":"nowhere",\#(Self.url),"sdk_key":"shop"},{"key":"shops",\#(Self.url)}]}
            """#
        let refused = try ask("PUT", "/v1/definitions", body)
        #expect(refused.status == 422, "\(refused.text)")
        #expect(
            refused["errors"].array?.compactMap { $0["pointer"].string } == [
                "/webhooks/0", "/webhooks/1/url", "/webhooks/2/secret", "/webhooks/2/url", "/webhooks/2/events/0",
                "/webhooks/3/secret_file", "/webhooks/4/sdk_key", "/webhooks/5",
            ], "\(refused.text)")
        #expect(refused.text.contains("did you mean 'flag.put'?"))
        #expect(refused.text.contains("it is of the project 'shop'"))
        #expect(try ask("GET", "/v1/flags/banner").status == 404)
        #expect(try ask("GET", "/v1/webhooks")["webhooks"].array?.count == 1)
    }

    @Test func `Only webhooks of the project are pruned, and only if there is a list of them`() throws {
        for (key, project) in [("global", "null"), ("own", #""main""#), ("shops", #""shop""#)] {
            try ask("PUT", "/v1/webhooks/\(key)", #"{\#(Self.url),"sdk_key":\#(project)}"#)
        }
        try ask("PUT", "/v1/flags/banner", #"{"type":"boolean"}"#)
        let flag = #""flags":[{"key":"banner"}]"#
        #expect(changes(try ask("PUT", "/v1/definitions?prune=true", "{\(flag)}")) == [])
        let body = #"{\#(flag),"webhooks":[]}"#
        #expect(try ask("PUT", "/v1/definitions?prune=true&max_removals=0", body).status == 422)
        #expect(changes(try ask("PUT", "/v1/definitions?prune=true", body)) == ["remove webhook own"])
        let left = try ask("GET", "/v1/webhooks")["webhooks"].array?.map { $0["key"] }
        #expect(left == ["global", "shops"])
    }

    @Test func `Who may not see webhooks plans everything else, and an admin applies that plan`() throws {
        try ask("PUT", "/v1/webhooks/ops", "{\(Self.url)}")
        #expect(!(try ask("GET", "/v1/definitions", token: Self.robot).text.contains("webhooks")))
        let body =
            #"{"flags":[{"key":"banner","type":"boolean"}],"webhooks":[{"key":"ops",\#(Self.url),"format":"teams"}]}"#
        let plan = try ask("POST", "/v1/definitions/preview", body, token: Self.robot)
        #expect(changes(plan) == ["create flag banner"])
        #expect(plan["warnings"].array?.compactMap { $0["code"] } == ["webhooks_not_compared"])
        let basis = "If-Match: \(plan["basis"].string ?? "")"
        #expect(changes(try ask("PUT", "/v1/definitions", body, fields: [basis])).count == 2)
        // The same plan once more is for other definitions, also if only a webhook differs.
        let next = try ask("POST", "/v1/definitions/preview", body, token: Self.robot)["basis"].string ?? ""
        try ask("PUT", "/v1/webhooks/ops", #"{"enabled":false}"#)
        #expect(try ask("PUT", "/v1/definitions", body, fields: ["If-Match: \(next)"]).status == 412)
    }

    @Test func `A token that is bound to a project manages that project's webhooks only`() throws {
        try ask("PUT", "/v1/webhooks/global", "{\(Self.url)}")
        let own = #"{"webhooks":[{"key":"own",\#(Self.url),"sdk_key":"shop"}]}"#
        for expected in [["create webhook own"], []] {
            #expect(changes(try ask("PUT", "/v1/definitions", own, token: Self.shop, project: "shop")) == expected)
        }
        let shown = try ask("GET", "/v1/definitions", token: Self.shop, project: "shop")
        #expect(shown["webhooks"].array?.map { $0["key"] } == ["own"])
        for (body, reason) in [
            (#"{"webhooks":[{"key":"new",\#(Self.url)}]}"#, "must be a project of the token"),
            (#"{"webhooks":[{"key":"global",\#(Self.url)}]}"#, "may not use the webhook 'global'"),
        ] {
            let refused = try ask("PUT", "/v1/definitions", body, token: Self.shop, project: "shop")
            #expect(refused.status == 422 && refused.text.contains(reason), "\(refused.text)")
        }
    }

    @Test func `Webhooks wait with the change that a second person must approve`() throws {
        #expect(try ask("PUT", "/v1/experiments/checkout", #"{"variations":["a","b"]}"#).status == 201)
        let body = #"""
            {"experiments":[{"key":"checkout","variations":["a","b"],"traffic":50}],"webhooks":[{"key":"ops",\#(Self.url)}]}
            """#
        let held = try ask("PUT", "/v1/definitions", body)
        #expect(held.status == 202, "\(held.text)")
        let id = held["proposal"]["id"].string ?? ""
        #expect(try ask("GET", "/v1/webhooks")["webhooks"] == [])
        let shown = try ask("GET", "/v1/proposals/\(id)").text
        #expect(shown.contains("webhook.put") && !shown.contains("secret/path"), "\(shown)")
        #expect(try ask("POST", "/v1/proposals/\(id)/approve", token: Self.other).status == 200)
        #expect(try ask("GET", "/v1/webhooks/ops")["url"] == "https://hooks.example/secret/path")
        #expect(try ask("GET", "/v1/experiments/checkout")["traffic"] == 50)
    }
}
