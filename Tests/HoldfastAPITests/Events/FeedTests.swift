import APITestSupport
import Foundation
import JSON
import Testing

/// `GET /v1/feed`.
@Suite struct FeedTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    private func lines(_ query: String) throws -> [JSONValue] {
        let response = try server.request("GET", "/v1/feed?\(query)")
        #expect(response.status == 200, "\(response.text)")
        #expect(response.field("content-type") == "application/x-ndjson")
        return try response.text.split(separator: "\n").map { try JSONParser().parse(String($0)) }
    }

    private func save(_ user: String, _ variation: String) throws {
        #expect(try server.request("POST", "/ups/save", profile(user, ["11": variation])).status == 200)
    }

    private func text(_ line: JSONValue?, _ member: String) -> String { line?.object?[member]?.string ?? "" }

    @Test func `Lines say what was committed, and each cursor goes on behind its line`() throws {
        let start = text(try lines("limit=0").last, "cursor")
        try save("ada", "1")
        let override = #"{"variation_id":"2","reason":"demo"}"#
        #expect(try server.request("PUT", "/v1/profiles/ada/experiments/22", override).status == 200)
        #expect(try server.request("PUT", "/v1/attributes/age", #"{"type":"number"}"#).status < 300)
        #expect(try server.request("PATCH", "/v1/profiles/ada/attributes", #"{"age":7}"#).status == 200)
        #expect(try server.request("POST", "/v1/events", #"{"user_id":"ada","goal":"paid","id":"e-1"}"#).status == 200)
        #expect(try server.request("POST", "/v1/profiles/bob/merge", #"{"from":"ada"}"#).status == 200)
        let found = try lines("after=\(start)")
        #expect(
            found.map { text($0, "kind") } == [
                "assignment", "assignment", "attributes", "goal", "assignment", "attributes", "merge", "end",
            ])
        #expect(text(found[0], "variation_id") == "1" && text(found[0], "source") == "saved")
        #expect(text(found[1], "reason") == "demo" && text(found[1], "source") == "override")
        #expect(found[2].object?["attributes"]?.array?.compactMap(\.string) == ["age"])
        #expect(text(found[3], "id") == "e-1" && text(found[3], "goal") == "paid")
        #expect(text(found[6], "user_id") == "bob" && text(found[6], "from") == "ada")
        for (index, line) in found.enumerated() {
            let rest = try lines("after=\(text(line, "cursor"))")
            #expect(rest.map { text($0, "cursor") } == found.dropFirst(min(index + 1, 7)).map { text($0, "cursor") })
        }
        #expect(try lines("after=oldest").count == found.count)
        #expect(try lines("").count == 1, "it begins now")
        #expect(try server.request("DELETE", "/v1/profiles/bob").status == 200)
        // What was bob's is not delivered any more; what is left of ada is bob's since the merge.
        #expect(
            try lines("after=\(start)").map { text($0, "kind") + " " + text($0, "user_id") }
                == ["merge bob", "erasure bob", "end "])
    }

    @Test func `A request that waits gets nothing once its token has ended`() throws {
        let expiry = Date(timeIntervalSinceNow: 3).ISO8601Format()
        let robot = "robot-secret-0123456789"
        let server = try startTestServer(tokens: "export robot \(robot) expires=\(expiry)\n")
        let response = try server.request("GET", "/v1/feed?wait=20", token: robot)
        #expect(response.status == 401, "\(response.text)")
    }

    @Test func `Kinds and a limit choose lines, and the last line is a cursor in any case`() throws {
        for index in 0..<10 { try save("u\(index)", "1") }
        var users: [String] = []
        var cursor = "oldest"
        while true {
            let page = try lines("after=\(cursor)&limit=3&kinds=assignment,goal")
            #expect(page.count <= 4 && text(page.last, "kind") == "end")
            cursor = text(page.last, "cursor")
            if page.count == 1 { break }
            users += page.dropLast().map { text($0, "user_id") }
        }
        #expect(users == (0..<10).map { "u\($0)" })
        let others = try lines("after=oldest&kinds=erasure")
        #expect(others.count == 1)
        #expect(text(others[0], "cursor") == cursor)
    }

    @Test func `A reader waits only if there is nothing for it, and not for ever`() throws {
        let cursor = text(try lines("limit=0").last, "cursor")
        try save("early", "1")
        let found = try lines("after=\(cursor)&wait=30")
        #expect(text(found.first, "user_id") == "early" && found.count == 2)
        #expect(try lines("after=\(text(found.last, "cursor"))&wait=1").count == 1)
    }

    @Test(arguments: [
        ("after=x", 400, "cursor"), ("after=1-0-0", 400, "cursor"), ("kinds=exposures", 400, "kinds"),
        ("limit=-1", 400, "limit"), ("limit=10001", 400, "limit"), ("wait=31", 400, "wait"), ("since=1", 400, "since"),
        ("after=1-1-0", 410, "limit=0"),
    ])
    func `What a reader asks for wrongly is named`(query: String, status: Int, detail: String) throws {
        let response = try server.request("GET", "/v1/feed?\(query)")
        #expect(response.status == status)
        #expect(response.field("content-type") == "application/problem+json")
        #expect(response["detail"].string?.contains(detail) == true, "\(response.text)")
    }
}
