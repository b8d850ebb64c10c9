import APITestSupport
import Chronology
import JSON
import Testing

@testable import HoldfastAPI

/// `POST /mcp`, without the public client, which `assistant.py` drives.
@Suite struct AssistantTests {
    private let server: any TestServer

    private static let admin = "admin-secret-0123456789"
    private static let other = "other-secret-0123456789"
    private static let reader = "read-secret-0123456789"

    init() throws {
        server = try startTestServer(
            tokens: "admin planner \(Self.admin)\nadmin other \(Self.other)\nread looker \(Self.reader)\n"
                + "read shop shop-secret-0123456789 projects=shop\n")
        #expect(
            try server.request(
                "PUT", "/v1/experiments/checkout", #"{"variations":["control","new"]}"#, token: Self.admin
            ).status == 201)
    }

    private func send(_ message: JSONValue, token: String = reader, fields: [String] = []) throws -> TestResponse {
        try server.request("POST", "/mcp", message.text, token: token, fields: fields)
    }

    /// - Returns: the text of the result, and whether it is an error.
    private func call(
        _ tool: String, _ arguments: JSONValue, token: String = reader
    ) throws -> (text: JSONValue, isError: Bool) {
        let response = try send(
            [
                "jsonrpc": "2.0", "id": 7, "method": "tools/call",
                "params": ["name": .string(tool), "arguments": arguments],
            ], token: token)
        let result = response["result"]
        let text = try #require(result["content"].array?.first?["text"].string, "\(response.text)")
        return ((try? JSONParser().parse(text)) ?? .string(text), result["isError"] == true)
    }

    @Test func `A handshake agrees on a version, and a notification has no response`() throws {
        for (asked, agreed) in [
            ("2025-03-26", "2025-03-26"), ("2025-06-18", "2025-06-18"), ("2025-11-25", "2025-11-25"),
            ("1999-01-01", "2025-11-25"),
        ] as [(JSONValue, JSONValue)] {
            let response = try send([
                "jsonrpc": "2.0", "id": "a", "method": "initialize", "params": ["protocolVersion": asked],
            ])
            #expect(response.status == 200 && response["id"] == "a")
            #expect(response["result"]["protocolVersion"] == agreed)
            #expect(response["result"]["capabilities"]["tools"] == [:])
        }
        let notification = try send(["jsonrpc": "2.0", "method": "notifications/initialized"])
        #expect(notification.status == 202 && notification.body.isEmpty)
        let batch = try send([
            ["jsonrpc": "2.0", "id": 1, "method": "ping"], ["jsonrpc": "2.0", "method": "notifications/initialized"],
        ])
        #expect(batch.json == [["jsonrpc": "2.0", "id": 1, "result": [:]]])
    }

    @Test func `A request without a handshake says its version in the header and in the message`() throws {
        let meta: JSONValue = ["io.modelcontextprotocol/protocolVersion": "2026-07-28"]
        let message: JSONValue = [
            "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": ["_meta": meta],
        ]
        let fields = ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: server/discover"]
        let discovered = try send(message, fields: fields)
        #expect(discovered["result"]["resultType"] == "complete")
        #expect(discovered["result"]["supportedVersions"].array?.contains("2026-07-28") == true)
        let mismatch = try send(message, fields: ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/list"])
        #expect(mismatch.status == 400 && mismatch["error"]["code"] == -32_020)
        let unsupported = try send(message, fields: ["MCP-Protocol-Version: 2030-01-01"])
        #expect(unsupported.status == 400 && unsupported["error"]["code"] == -32_022)
        #expect(unsupported["error"]["data"]["supported"].array?.count == 4)
        let unknown = try send(
            ["jsonrpc": "2.0", "id": 1, "method": "x/y", "params": ["_meta": meta]],
            fields: ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: x/y"])
        #expect(unknown.status == 404 && unknown["error"]["code"] == -32_601)
    }

    @Test func `The list has the tools that the token may call`() throws {
        func names(_ token: String) throws -> Set<String> {
            let response = try send(["jsonrpc": "2.0", "id": 1, "method": "tools/list"], token: token)
            return Set((response["result"]["tools"].array ?? []).compactMap { $0["name"].string })
        }
        let all = try names(Self.admin)
        #expect(all.count == 12)
        #expect(all.subtracting(try names(Self.reader)) == ["preview_experiment", "preview_flag", "apply_change"])
        let client = try server.request("POST", "/mcp", "{}")
        #expect(client.status == 401 && client["error"]["code"] == -32_600)
    }

    @Test func `A tool is a native route with the caller's own token`() throws {
        #expect(try call("list_experiments", [:]).text["experiments"].array?.count == 1)
        #expect(try call("get_experiment", ["key": "checkout"]).text["key"] == "checkout")
        let explained = try call("explain_decision", ["user_id": "ann/ü?", "experiment": "checkout"])
        #expect(explained.text["user_id"] == "ann/ü?" && !explained.isError)
        let missing = try call("get_results", ["key": "nothing"])
        #expect(missing.isError && missing.text["status"] == 404)
        let forbidden = try call("preview_flag", ["key": "x", "flag": [:]])
        #expect(forbidden.isError && forbidden.text["status"] == 403)
        let bound = try call(
            "get_experiment", ["key": "checkout", "project": "default"], token: "shop-secret-0123456789")
        #expect(bound.isError && bound.text["status"] == 403)
    }

    @Test func `A change takes a preview, and nothing that happened since`() throws {
        let body: JSONValue = ["variations": ["control", "new"], "traffic": 50]
        let shown = try call("preview_experiment", ["key": "checkout", "experiment": body], token: Self.admin)
        #expect(shown.text["preview"]["experiment"]["traffic"] == 50)
        let token = shown.text["change_token"]
        #expect(try call("get_experiment", ["key": "checkout"]).text["traffic"] == 100)
        // Of no use to others, and not in any other form.
        #expect(try call("apply_change", ["change_token": token], token: Self.other).isError)
        let text = try #require(token.string)
        #expect(try call("apply_change", ["change_token": .string(text + "A")], token: Self.admin).isError)
        #expect(try call("apply_change", ["change_token": .string("A" + text)], token: Self.admin).isError)
        #expect(try call("get_experiment", ["key": "checkout"]).text["traffic"] == 100)

        let applied = try call("apply_change", ["change_token": token], token: Self.admin)
        #expect(!applied.isError && applied.text["traffic"] == 50)
        let again = try call("apply_change", ["change_token": token], token: Self.admin)
        #expect(again.isError && again.text["status"] == 412)
        let entries = try server.request("GET", "/v1/audit?action=experiment.put", token: Self.admin)["entries"]
        #expect(entries.array?.map { $0["author"] } == ["planner", "planner"])

        // A new flag, which somebody else makes meanwhile.
        let flag: JSONValue = [
            "type": "boolean", "variations": [["key": "on", "value": true]], "otherwise": "on",
        ]
        let previewed = try call("preview_flag", ["key": "banner", "flag": flag], token: Self.admin)
        #expect(previewed.text["preview"]["creates"] == true)
        #expect(try server.request("PUT", "/v1/flags/banner", flag.text, token: Self.other).status == 201)
        let late = try call("apply_change", ["change_token": previewed.text["change_token"]], token: Self.admin)
        #expect(late.isError && late.text["status"] == 412)
    }

    @Test func `The token of a change ends after its time, and with its key`() throws {
        let token = ChangeToken(
            path: "/v1/flags/a", query: [("moves", "allow")], project: "p", body: Array("{}".utf8),
            condition: ("If-Match", "\"1\""), author: "ann", expiry: Instant(secondsSince1970: 7))
        let text = token.text(key: Array("key".utf8))
        let read = try #require(ChangeToken(text, key: Array("key".utf8)))
        #expect(read.path == token.path && read.project == "p" && read.author == "ann" && read.expiry == token.expiry)
        #expect(read.query.map(\.value) == ["allow"] && read.condition?.value == "\"1\"")
        #expect(ChangeToken(text, key: Array("kez".utf8)) == nil)
        for index in text.indices where text[index] != "." {
            let changed = text.replacingCharacter(at: index, with: text[index] == "A" ? "B" : "A")
            #expect(ChangeToken(changed, key: Array("key".utf8)) == nil)
        }
    }

    @Test(arguments: [
        ("https://evil.example", false), ("http://localhost.evil.example", false), ("null", false),
        ("http://localhost:3000", true), ("http://127.0.0.1:8080", true), ("http://[::1]:1", true),
    ])
    func `A page of another origin is refused, whatever name it calls the server by`(origin: String, isTaken: Bool)
        throws
    {
        let response = try send(
            ["jsonrpc": "2.0", "id": 1, "method": "ping"], fields: ["Origin: \(origin)", "Host: evil.example"])
        #expect(response.status == (isTaken ? 200 : 403))
    }

    @Test(arguments: [
        ("[", 400, -32_700), ("[]", 400, -32_600), ("1", 400, -32_600), (#"{"id":1,"method":"ping"}"#, 400, -32_600),
        (#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, 400, -32_600),
        (#"{"jsonrpc":"2.0","id":1,"method":"nothing"}"#, 200, -32_601),
        (#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nothing"}}"#, 200, -32_602),
        (#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_flag"}}"#, 200, -32_602),
        (
            #"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_flag","arguments":{"key":[1]}}}"#,
            200,
            -32_602
        ),
        (
            #"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_flag","arguments":{"key":"a","x":1}}}"#,
            200, -32_602
        ),
    ])
    func `A wrong message is an error of JSON-RPC`(body: String, status: Int, code: Int64) throws {
        let response = try server.request("POST", "/mcp", body, token: Self.reader)
        #expect(response.status == status, "\(response.text)")
        #expect(response["error"]["code"] == .integer(code), "\(response.text)")
    }
}

extension JSONValue {
    fileprivate var text: String { String(decoding: encoded(), as: UTF8.self) }
}

extension String {
    fileprivate func replacingCharacter(at index: Index, with character: Character) -> String {
        var copy = self
        copy.replaceSubrange(index...index, with: [character])
        return copy
    }
}
