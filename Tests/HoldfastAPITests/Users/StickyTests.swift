import APITestSupport
import JSON
import Testing

/// `/v1/sticky`: the documents of GrowthBook's SDKs.
@Suite struct StickyTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    private func patch(_ target: String, _ assignments: String) throws -> TestResponse {
        try server.request("PATCH", target, #"{"assignments":\#(assignments)}"#)
    }

    @Test func `A document is merged key by key, and old bucket versions stay`() throws {
        let target = "/v1/sticky/id/ann"
        #expect(try server.request("GET", target).status == 404)
        let first = try server.request(
            "PATCH", target,
            #"{"attributeName":"id","attributeValue":"ann","assignments":{"checkout__0":"control"}}"#)
        #expect(first.status == 200)
        #expect(
            first.text == #"{"attributeName":"id","attributeValue":"ann","assignments":{"checkout__0":"control"}}"#)
        #expect(
            try patch(target, #"{"search__0":"1","checkout__1":"new"}"#).text
                == #"{"attributeName":"id","attributeValue":"ann","assignments":"#
                + #"{"checkout__0":"control","checkout__1":"new","search__0":"1"}}"#)
        #expect(try patch(target, #"{"search__0":"2"}"#)["assignments"]["search__0"] == "2")
        #expect(try patch(target + "?on_conflict=keep", #"{"search__0":"3"}"#)["assignments"]["search__0"] == "2")
        let read = try server.request("GET", target)
        #expect(read["assignments"].object?.count == 3)
        let tag = try #require(read.field("etag"))
        #expect(try server.request("GET", target, fields: ["If-None-Match: \(tag)"]).status == 304)
    }

    @Test func `A lookup responds with the documents that exist, in the order of the attributes`() throws {
        for (target, variation) in [("/v1/sticky/id/ann", "a"), ("/v1/sticky/device/d%2F1%20%C3%A4", "b")] {
            #expect(try patch(target, #"{"e__0":"\#(variation)"}"#).status == 200)
        }
        let found = try server.request(
            "POST", "/v1/sticky/lookup", #"{"attributes":{"device":"d/1 ä","email":"a@b","id":"ann"}}"#)
        #expect(
            found.text
                == #"{"documents":[{"attributeName":"device","attributeValue":"d/1 ä","assignments":{"e__0":"b"}},"#
                + #"{"attributeName":"id","attributeValue":"ann","assignments":{"e__0":"a"}}]}"#)
        #expect(try server.request("POST", "/v1/sticky/lookup", #"{"attributes":{}}"#).text == #"{"documents":[]}"#)
        // GrowthBook's JavaScript SDK asks for every attribute, with an empty value where a user has none.
        let loggedOut = try server.request("POST", "/v1/sticky/lookup", #"{"attributes":{"id":"","device":"d/1 ä"}}"#)
        #expect(loggedOut["documents"].array?.map { $0["attributeValue"] } == ["d/1 ä"], "\(loggedOut.text)")
    }

    @Test func `Erasing a user erases the documents of this value under every attribute`() throws {
        for target in ["/v1/sticky/id/ann", "/v1/sticky/account/ann", "/v1/sticky/id/bob"] {
            #expect(try patch(target, #"{"e__0":"a"}"#).status == 200)
        }
        #expect(try server.request("DELETE", "/v1/profiles/ann").status == 200)
        #expect(try server.request("GET", "/v1/sticky/id/ann").status == 404)
        #expect(try server.request("GET", "/v1/sticky/account/ann").status == 404)
        #expect(try server.request("GET", "/v1/sticky/id/bob").status == 200)
    }

    @Test func `Deleting a document is recorded in the audit log`() throws {
        #expect(try patch("/v1/sticky/id/ann", #"{"e__0":"a"}"#).status == 200)
        #expect(try server.request("DELETE", "/v1/sticky/id/ann").status == 204)
        #expect(try server.request("DELETE", "/v1/sticky/id/ann").status == 404)
        let entries = try server.request("GET", "/v1/audit?action=sticky.delete")["entries"].array ?? []
        #expect(entries.count == 1)
        #expect(entries.first?["target"] == "id")
        #expect(entries.first?["user_id"] == "ann")
        #expect(entries.first?["before"] == ["e__0": "a"])
    }

    @Test func `A document has at most as many assignments as a profile`() throws {
        let many = (0..<1_000).map { #""e\#($0)__0":"v""# }.joined(separator: ",")
        #expect(try patch("/v1/sticky/id/ann", "{\(many)}").status == 200)
        let refused = try patch("/v1/sticky/id/ann", #"{"one__0":"v"}"#)
        #expect(refused.status == 422)
        #expect(
            refused["detail"] == "a sticky document must have at most 1000 assignments; the change adds too many")
        #expect(refused["pointer"] == "/assignments")
        #expect(try patch("/v1/sticky/id/ann", #"{"e0__0":"w"}"#)["assignments"]["e0__0"] == "w")
    }

    @Test(arguments: [
        ("{}", "/assignments", "`assignments` is required"),
        (#"{"assignments":[]}"#, "/assignments", "`assignments` must be an object; got an array"),
        (#"{"assignments":{"e__0":1}}"#, "/assignments/e__0", "a variation must be a string; got a number"),
        (#"{"assignments":{"e__0":""}}"#, "/assignments/e__0", "a variation must be 1 to 255 bytes long; got 0"),
        (#"{"assignments":{"e":"v"}}"#, "/assignments/e", "'<experiment>__<bucketVersion>'"),
        (#"{"assignments":{"__0":"v"}}"#, "/assignments/__0", "'<experiment>__<bucketVersion>'"),
        (#"{"assignments":{"e__x":"v"}}"#, "/assignments/e__x", "'<experiment>__<bucketVersion>'"),
        (#"{"attributeName":"key","assignments":{}}"#, "/attributeName", "must be as in the path, 'id'; got 'key'"),
        (#"{"attributeValue":1,"assignments":{}}"#, "/attributeValue", "`attributeValue` must be a string"),
        (#"{"assignment":{}}"#, "/assignment", "did you mean `assignments`?"),
    ])
    func `A wrong change is refused and named, and nothing is stored`(
        body: String, pointer: String, detail: String
    ) throws {
        let response = try server.request("PATCH", "/v1/sticky/id/ann", body)
        #expect(response.status == 400)
        #expect(response["pointer"].string == pointer)
        #expect(response["detail"].string?.contains(detail) == true, "\(response.text)")
        #expect(try server.request("GET", "/v1/sticky/id/ann").status == 404)
    }

    @Test func `Wrong names, values and lookups are refused`() throws {
        let long = String(repeating: "x", count: 256)
        #expect(try patch("/v1/sticky/\(long)/ann", #"{"e__0":"v"}"#).status == 400)
        #expect(try patch("/v1/sticky/i%0Ad/ann", #"{"e__0":"v"}"#).status == 400)
        #expect(try patch("/v1/sticky/id/a%00", #"{"e__0":"v"}"#).status == 400)
        #expect(try patch("/v1/sticky/id/\(String(repeating: "x", count: 1_025))", #"{"e__0":"v"}"#).status == 400)
        #expect(try patch("/v1/sticky/id/\(String(repeating: "x", count: 1_024))", #"{"e__0":"v"}"#).status == 200)
        #expect(try patch("/v1/sticky/id/ann?on_conflict=last", #"{"e__0":"v"}"#).status == 400)
        for body in [
            "{}", #"{"attributes":[]}"#, #"{"attributes":{"id":1}}"#, #"{"attributes":{"":"a"}}"#,
        ] {
            let response = try server.request("POST", "/v1/sticky/lookup", body)
            #expect(response.status == 400, "\(body)")
            #expect(response["pointer"].string?.hasPrefix("/attributes") == true, "\(body)")
        }
        let many = (0..<33).map { #""a\#($0)":"v""# }.joined(separator: ",")
        #expect(try server.request("POST", "/v1/sticky/lookup", #"{"attributes":{\#(many)}}"#).status == 400)
    }
}
