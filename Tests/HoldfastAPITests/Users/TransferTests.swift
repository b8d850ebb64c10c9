import APITestSupport
import JSON
import Testing

/// Export and import of profiles, one JSON object a line.
@Suite struct TransferTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    @Test func `What is exported can be imported elsewhere and is the same`() throws {
        for name in ["b", "a", "ä", "Z", "😀"] { try save(name, ["1": name, "2": "x"]) }
        let exported = try server.request("GET", "/v1/profiles")
        #expect(exported.status == 200)
        #expect(exported.field("content-type") == "application/x-ndjson")
        let expected = ["Z", "a", "b", "ä", "😀"].map { profile($0, ["1": $0, "2": "x"]) + "\n" }
        #expect(exported.text == expected.joined())

        let other = try startTestServer()
        let imported = try other.request("POST", "/v1/profiles", exported.text)
        #expect(imported.text == #"{"imported":5,"refused":0,"errors":[]}"#)
        #expect(try other.request("GET", "/v1/profiles").body == exported.body)
    }

    @Test func `An export goes on behind any user and ends where it is told to`() throws {
        let names = (0..<50).map { "user\(100 + $0)" }
        for name in names { try save(name, ["1": "2"]) }
        var seen: [String] = []
        var target = "/v1/profiles?limit=7"
        while true {
            let lines = try server.request("GET", target).text.split(separator: "\n")
            if lines.isEmpty { break }
            #expect(lines.count <= 7)
            seen += try lines.compactMap { try JSONParser().parse(String($0)).object?["user_id"]?.string }
            target = "/v1/profiles?limit=7&after=\(seen.last ?? "")"
        }
        #expect(seen == names)
        #expect(try server.request("GET", "/v1/profiles?after=user148x").text == profile("user149", ["1": "2"]) + "\n")
    }

    @Test func `Profiles, exposures, events and the audit log are read page by page in the same way`() throws {
        #expect(try server.request("PUT", "/v1/experiments/e", #"{"id":"7","variations":["a"]}"#).status == 201)
        for index in 0..<7 {
            let user = #""user_id":"u\#(index)""#
            #expect(try server.request("POST", "/v1/assign", #"{\#(user),"experiment":"e"}"#).status == 200)
            #expect(try server.request("POST", "/v1/exposures", #"{\#(user),"experiment":"e"}"#).status == 200)
            #expect(try server.request("POST", "/v1/events", #"{\#(user),"goal":"g"}"#).status == 200)
            #expect(
                try server.request("PUT", "/v1/profiles/u\(index)/experiments/8", #"{"variation_id":"x"}"#).status
                    == 200)
        }
        for (target, member) in [
            ("/v1/profiles?format=json", "profiles"), ("/v1/profiles?format=json&detail=true", "profiles"),
            ("/v1/exposures?format=json", "exposures"), ("/v1/events?format=json", "events"),
            ("/v1/audit?action=override.set", "entries"),
        ] {
            for limit in [1, 3, 7, 100] {
                var users: [String] = []
                var after = ""
                var pages = 0
                while true {
                    let page = try server.request("GET", "\(target)&limit=\(limit)\(after)")
                    #expect(page.field("content-type") == "application/json")
                    let elements = try #require(page[member].array, "\(page.text)")
                    #expect(elements.count <= limit)
                    users += elements.compactMap { $0["user_id"].string }
                    pages += 1
                    let next = page["next"]
                    guard !next.isNull, pages < 20 else { break }
                    after = "&after=\(next.string ?? String(decoding: next.encoded(), as: UTF8.self))"
                }
                #expect(pages == (7 + limit - 1) / limit)
                #expect(users.sorted() == (0..<7).map { "u\($0)" }, "\(target) by \(limit)")
            }
            #expect(try server.request("GET", "\(target)&limit=1001").status == 400)
        }
        for target in ["/v1/profiles", "/v1/exposures", "/v1/events"] {
            let lines = try server.request("GET", target).text
            #expect(try server.request("GET", "\(target)?format=lines").text == lines)
            #expect(try server.request("GET", "\(target)?format=xml").status == 400)
        }
    }

    @Test(arguments: ["limit=0", "limit=-1", "limit=x", "after=", "detail=1", "lmit=5", "limit=1&limit=2"])
    func `An export with a wrong parameter is refused`(query: String) throws {
        #expect(try server.request("GET", "/v1/profiles?\(query)").status == 400)
    }

    @Test func `An export with detail tells where assignments came from`() throws {
        _ = try server.request("PUT", "/v1/profiles/ada/experiments/11", #"{"variation_id":"9"}"#)
        let line = try server.request("GET", "/v1/profiles?detail=true")
        #expect(line["experiment_bucket_map"]["11"]["source"] == "override")
    }

    @Test func `An import names the lines that it refused and takes the others`() throws {
        let lines = [
            profile("a", ["1": "2"]), "{", "", profile("b", ["x-y": "2"]), "\r", profile("c", ["1": "2"]) + "\r",
            "[]", profile("d"),
        ]
        let response = try server.request("POST", "/v1/profiles", lines.joined(separator: "\n"))
        #expect(response.status == 200)
        #expect(response["imported"] == 3)
        #expect(response["refused"] == 3)
        let errors = try #require(response["errors"].array)
        #expect(errors.map { $0["line"] } == [2, 4, 7])
        #expect(errors.map { $0["pointer"] } == ["", "/experiment_bucket_map/x-y", ""])
        #expect(errors.first?["detail"].string?.hasPrefix("the line must be JSON: ") == true)
        let stored = [profile("a", ["1": "2"]), profile("c", ["1": "2"]), profile("d")]
        #expect(try server.request("GET", "/v1/profiles").text == stored.map { $0 + "\n" }.joined())
    }

    @Test func `An import merges, leaves overrides, and keeps what is stored where it is asked to`() throws {
        try save("a", ["1": "old"])
        _ = try server.request("PUT", "/v1/profiles/a/experiments/3", #"{"variation_id":"9"}"#)
        let line = profile("a", ["1": "new", "2": "x", "3": "y"])
        _ = try server.request("POST", "/v1/profiles?on_conflict=keep", line)
        #expect(try server.request("GET", "/v1/profiles/a").text == profile("a", ["1": "old", "2": "x", "3": "9"]))
        _ = try server.request("POST", "/v1/profiles", line)
        #expect(try server.request("GET", "/v1/profiles/a").text == profile("a", ["1": "new", "2": "x", "3": "9"]))
    }

    @Test func `What an import tells of refused lines is bounded, however long they are`() throws {
        let line = profile("a", [String(repeating: "-", count: 500_000): "1"])
        let response = try server.request(
            "POST", "/v1/profiles", Array(repeating: line, count: 8).joined(separator: "\n"))
        #expect(response["refused"] == 8)
        #expect(response.body.count < 32_768)
        #expect(response["errors"].array?.map { $0["pointer"] } == Array(repeating: "/experiment_bucket_map", count: 8))
    }

    @Test func `An import says how many refused lines it does not name`() throws {
        let lines = Array(repeating: "{}", count: 1_003) + [profile("a", ["1": "2"])]
        let response = try server.request("POST", "/v1/profiles", lines.joined(separator: "\n"))
        #expect(response["imported"] == 1 && response["refused"] == 1_003)
        #expect(response["errors"].array?.count == 1_000)
        #expect(response["errors_left_out"] == 3)
    }

    @Test(arguments: ["/v1/profiles", "/v1/profiles/attributes"])
    func `An import in which every line was refused is an error, and names them all the same`(path: String) throws {
        let refused = try server.request("POST", path, "{\n[]\n{}")
        #expect(refused.status == 422)
        #expect(refused.field("content-type") == "application/problem+json")
        #expect(refused["detail"].string == "at least one line must be accepted; all 3 were refused")
        #expect(refused["imported"] == 0)
        #expect(refused["refused"] == 3)
        #expect(refused["errors"].array?.map { $0["line"] } == [1, 2, 3])
        #expect(try server.request("POST", path, "\n").status == 200)
    }

    @Test func `What is stored already is imported, not refused`() throws {
        for _ in 0..<2 { #expect(try server.request("POST", "/v1/profiles", profile("a", ["1": "2"])).status == 200) }
        _ = try server.request("PUT", "/v1/attributes/age", #"{"type":"number"}"#)
        for _ in 0..<2 {
            let response = try server.request(
                "POST", "/v1/profiles/attributes", #"{"user_id":"a","attributes":{"age":1}}"#)
            #expect(response.status == 200)
        }
    }

    @Test func `Who sends several objects in one line, as curl does without --data-binary, is told so`() throws {
        let objects = [profile("a", ["1": "2"]), profile("b", ["1": "2"])]
        for body in [objects.joined(), objects.joined(separator: " "), String(repeating: profile("a"), count: 50_000)] {
            let refused = try server.request("POST", "/v1/profiles", body)
            #expect(refused.status == 422)
            #expect(refused["detail"].string?.contains("--data-binary") == true, "\(refused.text)")
        }
        for body in ["{", objects[0] + "x", objects.joined() + "\n{"] {
            #expect(try server.request("POST", "/v1/profiles", body)["detail"].string?.contains("curl") == false)
        }
    }

    @Test func `A line may be as long as a body and not longer`() throws {
        let server = try startTestServer(maxBodyBytes: 1_024)
        let line = profile("a", ["1": "2"])
        let longest = line + String(repeating: " ", count: 1_024 - line.utf8.count)
        let text = [longest, longest + " ", profile("b")].joined(separator: "\n")
        let response = try server.request("POST", "/v1/profiles", text)
        #expect(response["imported"] == 2)
        #expect(response["errors"].array?.map { $0["line"] } == [2])
    }

    private func save(_ userID: String, _ assignments: KeyValuePairs<String, String>) throws {
        #expect(try server.request("POST", "/ups/save", profile(userID, assignments)).status == 200)
    }
}
