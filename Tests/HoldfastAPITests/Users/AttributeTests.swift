import APITestSupport
import JSON
import Testing

/// Attributes of users: apps set them, few tokens can read them, audiences use them.
@Suite struct AttributeTests {
    private static let tokens = """
        client page client-secret-0123456789
        read dashboard read-secret-0123456789
        write app write-secret-0123456789
        attributes data attributes-secret-0123456789
        admin on-call admin-secret-0123456789

        """

    private let server: any TestServer

    init() throws {
        server = try startTestServer(tokens: Self.tokens)
        for (name, definition) in [
            ("country", #"{"type":"country"}"#), ("age", #"{"type":"number"}"#), ("born", #"{"type":"date"}"#),
            ("likes", #"{"type":"selection","values":["One","Two"],"multiple":true}"#),
        ] {
            try #require(try ask("PUT", "/v1/attributes/\(name)", definition).status == 201)
        }
    }

    private func ask(_ method: String, _ target: String, _ body: String? = nil, as scope: String = "admin") throws
        -> TestResponse
    {
        try server.request(method, target, body, token: "\(scope)-secret-0123456789")
    }

    private func attributes(of user: String) throws -> String {
        try ask("GET", "/v1/profiles/\(user)/attributes").text
    }

    @Test func `Apps set attributes and cannot read them back`() throws {
        let response = try ask(
            "PATCH", "/v1/profiles/ada/attributes", #"{"country":"de","likes":"Two; One"}"#, as: "write")
        #expect(response.status == 200)
        for scope in ["read", "write"] {
            #expect(try ask("GET", "/v1/profiles/ada/attributes", as: scope).status == 403)
            #expect(try ask("GET", "/v1/segments/x/users", as: scope).status == 403)
        }
        #expect(
            try ask("GET", "/v1/profiles/ada/attributes", as: "attributes")["attributes"]["likes"] == ["One", "Two"])
        #expect(try ask("GET", "/v1/segments", as: "attributes").status == 200)
        #expect(try ask("PATCH", "/v1/profiles/ada/attributes", #"{"age":1}"#, as: "attributes").status == 403)
        #expect(try ask("PUT", "/v1/attributes/x", #"{"type":"number"}"#, as: "write").status == 403)
    }

    @Test func `One wrong member and none is stored, and the answer has every wrong one`() throws {
        _ = try ask("PATCH", "/v1/profiles/ada/attributes", #"{"age":30}"#)
        let response = try ask(
            "PATCH", "/v1/profiles/ada/attributes",
            #"{"age":31,"country":"DE","shoe/size":44,"born":"2023-02-29","likes":["Three"],"x":null}"#, as: "write")
        #expect(response.status == 422)
        #expect(response.field("content-type") == "application/problem+json")
        let pointers = response["errors"].array?.map { $0["pointer"].string }
        #expect(pointers == ["/country", "/shoe~1size", "/born", "/likes", "/x"])
        #expect(try attributes(of: "ada") == #"{"user_id":"ada","attributes":{"age":30}}"#)
        #expect(try ask("PATCH", "/v1/profiles/ada/attributes", "[1]").status == 422)
        #expect(try ask("PATCH", "/v1/profiles/ada/attributes", "{").status == 400)
    }

    @Test func `What is stored already is told and committed no second time`() throws {
        _ = try ask("PATCH", "/v1/profiles/ada/attributes", #"{"age":30,"country":"de"}"#)
        let commits = try self.commits()
        let again = try ask("PATCH", "/v1/profiles/ada/attributes", #"{"age":30.0,"country":"de"}"#)
        #expect(again.text == #"{"user_id":"ada","changed":[],"unchanged":["age","country"]}"#)
        #expect(try self.commits() == commits)
        let mixed = try ask("PATCH", "/v1/profiles/ada/attributes", #"{"age":31,"country":"de"}"#)
        #expect(mixed.text == #"{"user_id":"ada","changed":["age"],"unchanged":["country"]}"#)
    }

    @Test(arguments: ["client", "write"])
    func `Who may not read attributes is not told whether a value was stored already`(scope: String) throws {
        _ = try ask("PATCH", "/v1/profiles/ada/attributes", #"{"age":30,"country":"de"}"#)
        for body in [#"{"age":30}"#, #"{"age":31}"#] {
            let response = try ask("PATCH", "/v1/profiles/ada/attributes", body, as: scope)
            #expect(response.text == #"{"user_id":"ada"}"#)
        }
        for _ in 0..<2 {
            let removed = try ask("DELETE", "/v1/profiles/ada/attributes?name=country", as: scope)
            #expect(removed.text == #"{"user_id":"ada"}"#)
        }
        #expect(try attributes(of: "ada") == #"{"user_id":"ada","attributes":{"age":31}}"#)
        let line = #"{"user_id":"ada","attributes":{"age":31}}"#
        let imported = try ask("POST", "/v1/profiles/attributes", line, as: scope)
        #expect(imported.text == #"{"imported":1,"refused":0,"errors":[]}"#)
    }

    private func commits() throws -> Substring? {
        try ask("GET", "/metrics").text.split(separator: "\n").first { $0.hasPrefix("holdfast_store_commits_total ") }
    }

    @Test func `Named attributes are removed, or all, or those of an erased user`() throws {
        let all = #"{"age":30,"country":"de","born":"2000-01-31"}"#
        _ = try ask("PATCH", "/v1/profiles/ada/attributes", all)
        let named = try ask("DELETE", "/v1/profiles/ada/attributes?name=age&name=likes")
        #expect(named.text == #"{"user_id":"ada","removed":["age"]}"#)
        #expect(try ask("DELETE", "/v1/profiles/ada/attributes?name=x").status == 422)
        #expect(try ask("DELETE", "/v1/profiles/ada/attributes?nam=age").status == 400)
        #expect(
            try ask("DELETE", "/v1/profiles/ada/attributes").text == #"{"user_id":"ada","removed":["born","country"]}"#)
        #expect(try ask("DELETE", "/v1/profiles/ada/attributes").text == #"{"user_id":"ada","removed":[]}"#)
        _ = try ask("PATCH", "/v1/profiles/ada/attributes", all)
        #expect(try ask("DELETE", "/v1/profiles/ada").status == 200)
        #expect(try attributes(of: "ada") == #"{"user_id":"ada","attributes":{}}"#)
    }

    @Test func `Many users are set in one request, each whole or not at all`() throws {
        let lines = [
            #"{"user_id":"a","attributes":{"age":1,"country":"de"}}"#,
            #"{"user_id":"b","attributes":{"age":"1","country":"x"}}"#, "",
            #"{"user_id":"a","attributes":{"age":1}}"#,
            #"{"user_id":"a","attributes":{"born":"2000-01-01"},"remove":["age"]}"#,
            #"{"user_id":"","attributes":{}}"#, #"{"user_id":"c","remove":["age","nothing"]}"#, "[]",
            #"{"user_id":"c","attribute":{}}"#,
        ]
        let response = try ask("POST", "/v1/profiles/attributes", lines.joined(separator: "\n"))
        #expect(response["imported"] == 3)
        #expect(response["unchanged"] == 1)
        #expect(response["errors"].array?.map { $0["line"] } == [2, 6, 7, 8, 9])
        #expect(response["errors"].array?.first?["errors"].array?.count == 2)
        #expect(try attributes(of: "a") == #"{"user_id":"a","attributes":{"born":"2000-01-01","country":"de"}}"#)
        #expect(try attributes(of: "b") == #"{"user_id":"b","attributes":{}}"#)
    }

    @Test func `The schema is listed, keeps its types, and forgets the values of what is deleted`() throws {
        #expect(try ask("GET", "/v1/attributes", as: "read")["attributes"].array?.count == 4)
        #expect(try ask("GET", "/v1/attributes/likes", as: "read")["values"] == ["One", "Two"])
        #expect(try ask("PUT", "/v1/attributes/age", #"{"type":"number"}"#).status == 200)
        #expect(try ask("PUT", "/v1/attributes/age", #"{"type":"string"}"#).status == 409)
        #expect(try ask("PUT", "/v1/attributes/likes", #"{"type":"selection","values":["One","Two"]}"#).status == 409)
        #expect(try ask("GET", "/v1/attributes/none").status == 404)
        _ = try ask("PATCH", "/v1/profiles/ada/attributes", #"{"age":30,"country":"de"}"#)
        #expect(try ask("DELETE", "/v1/attributes/age").status == 204)
        #expect(try ask("DELETE", "/v1/attributes/age").status == 404)
        #expect(try attributes(of: "ada") == #"{"user_id":"ada","attributes":{"country":"de"}}"#)
        #expect(try ask("PUT", "/v1/attributes/age", #"{"type":"string"}"#).status == 201)
        #expect(try attributes(of: "ada") == #"{"user_id":"ada","attributes":{"country":"de"}}"#)
    }

    @Test func `Definitions of attributes and segments leave notes in the audit log, with who made them`() throws {
        let condition = #"{"type":"custom_attribute","name":"age","match":"ge","value":18}"#
        for (method, target, body) in [
            ("PUT", "/v1/segments/s", #"{"conditions":\#(condition)}"#),
            ("PUT", "/v1/segments/s", #"{"conditions":\#(condition)}"#),
            ("DELETE", "/v1/segments/s", nil), ("DELETE", "/v1/attributes/age", nil),
        ] {
            #expect(try ask(method, target, body).status < 300)
        }
        let entries = try ask("GET", "/v1/audit?limit=3")["entries"].array ?? []
        #expect(entries.map { $0["action"] } == ["attribute.delete", "segment.delete", "segment.put"])
        #expect(entries.map { $0["before"]["name"] } == [.null, "age", .null])
        #expect(entries.allSatisfy { $0["author"] == "on-call" })
    }
}
