import APITestSupport
import JSON
import Testing

/// The audit log: who did what, and when.
@Suite struct AuditTests {
    private static let tokens = """
        admin on-call on-call-secret-0123456789
        admin data-team data-team-secret-0123456789
        write app write-secret-0123456789

        """
    private static let secret = "on-call-secret-0123456789"

    private let server: any TestServer

    init() throws {
        server = try startTestServer(tokens: Self.tokens)
    }

    @discardableResult
    private func ask(
        _ method: String, _ target: String, _ body: String? = nil, token: String = secret, fields: [String] = []
    ) throws -> TestResponse {
        let response = try server.request(method, target, body, token: token, fields: fields)
        #expect((200..<300).contains(response.status), "\(method) \(target): \(response.text)")
        return response
    }

    private func entries(_ query: String = "") throws -> [JSONValue] {
        try ask("GET", "/v1/audit\(query)")["entries"].array ?? []
    }

    @Test func `Each action of an admin is told with who, what, when, and before and after`() throws {
        let agent = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]
        try ask(
            "PUT", "/v1/experiments/checkout", #"{"id":"7","variations":[{"key":"a","id":"71"},{"key":"b","id":"72"}]}"#
        )
        try ask("PATCH", "/v1/profiles/ada", profile("ada", ["7": "71"]), token: "write-secret-0123456789")
        let id = try ask("PUT", "/v1/profiles/ada/experiments/7", #"{"variation_key":"b"}"#).field("x-request-id")
        try ask("DELETE", "/v1/profiles/ada/experiments/7", token: "data-team-secret-0123456789")
        let forced = #"{"userId":"eve","experimentKey":"checkout","variationKey":"b"}"#
        try ask("POST", "/v1/override", forced, fields: agent)
        let operation = #"""
            {"operations":[{"method":"POST","url":"/v1/override","operationID":"1",\#
            "headers":{"X-Optimizely-SDK-Key":"default","Content-Type":"application/json"},\#
            "body":{"userId":"eve","experimentKey":"checkout","variationKey":""}}]}
            """#
        try ask("POST", "/v1/batch", operation, fields: ["X-Request-Id: by-batch"])
        let datafile = try ask("GET", "/v1/datafile", fields: agent).text
        try ask("PUT", "/v1/datafile", datafile, fields: agent)
        try ask("DELETE", "/v1/experiments/checkout")

        let entries = try entries()
        #expect(
            entries.map { $0["action"] } == [
                "experiment.archive", "datafile.put", "forced_variation.remove", "forced_variation.set",
                "assignment.remove",
                "override.set", "experiment.put",
            ])
        #expect(
            entries.map { $0["author"] } == [
                "on-call", "on-call", "on-call", "on-call", "data-team", "on-call", "on-call",
            ])
        #expect(entries.map { $0["target"] } == ["checkout", "default", "checkout", "checkout", "7", "7", "checkout"])
        #expect(entries.map { $0["user_id"] } == [nil, nil, "eve", "eve", "ada", "ada", nil])
        #expect(entries[2]["request_id"] == "by-batch")
        #expect(entries[5]["request_id"].string == id)
        #expect(entries[5]["before"] == ["variation_id": "71", "source": "saved"])
        #expect(entries[5]["after"] == ["variation_id": "72", "source": "override"])
        #expect(entries[4]["after"] == ["variation_id": "71", "source": "saved"])
        #expect(entries[1]["before"] == ["version": 1, "revision": "1"])
        #expect(entries[1]["after"] == ["version": 2, "revision": "1"])
        #expect(entries[0]["before"]["experiment"]["variations"].array?.count == 2)
        #expect(entries[0]["after"]["version"] == 3 && entries[0]["after"]["revision"] == "2")
        #expect(entries[0]["after"]["experiment"]["status"] == "archived")
        #expect(entries[6]["before"] == nil)
        #expect(entries[6]["after"]["experiment"]["id"] == "7")
        let metrics = try ask("GET", "/metrics").text
        #expect(metrics.contains("\nholdfast_audit_entries_total 7\n"))
    }

    @Test func `Entries are found by what they say, and page by page`() throws {
        for user in ["ada", "bob", "cy"] {
            try ask("PUT", "/v1/profiles/\(user)/experiments/7", #"{"variation_id":"1"}"#)
        }
        try ask("DELETE", "/v1/profiles/bob/experiments/7", token: "data-team-secret-0123456789")
        #expect(try entries("?user_id=bob").count == 2)
        #expect(try entries("?author=data-team").count == 1)
        #expect(try entries("?action=override.set&target=7").count == 3)
        #expect(try entries("?since=2020-01-01T00:00:00Z&until=2999-01-01T00:00:00%2B01:00").count == 4)
        #expect(try entries("?until=2020-01-01T00:00:00Z").isEmpty)

        var seen: [JSONValue] = []
        var next: JSONValue = 1_000
        while let after = next.integer {
            let page = try ask("GET", "/v1/audit?limit=3&after=\(after)")
            seen += page["entries"].array ?? []
            next = page["next"]
        }
        #expect(seen == (try entries()))
    }

    @Test(arguments: [
        "limit=0", "limit=1001", "limit=x", "after=0", "after=x", "since=yesterday", "until=2026-01-31", "action=guess",
        "who=me",
    ])
    func `A query that is wrong is refused`(query: String) throws {
        let response = try server.request("GET", "/v1/audit?\(query)", token: Self.secret)
        #expect(response.status == 400)
        #expect(response["detail"].string?.contains(query.prefix { $0 != "=" }) == true)
    }

    @Test func `An erased user is in no entry any more`() throws {
        try ask("PUT", "/v1/profiles/ada/experiments/7", #"{"variation_id":"only-hers"}"#)
        try ask("DELETE", "/v1/profiles/ada")
        let response = try ask("GET", "/v1/audit")
        #expect(response["entries"].array?.map { $0["action"] } == ["profile.erase", "override.set"])
        #expect(!response.text.contains("ada"))
        #expect(!response.text.contains("only-hers"))
    }
}
