import Bucketing
import Foundation
import JSON
import Testing

/// All profiles out and in, one JSON object a line.
@Suite struct TransferTests {
    private let directory: TemporaryDirectory
    private let server: ServerProcess
    private let client: HTTPClient

    init() throws {
        directory = try TemporaryDirectory()
        server = try ServerProcess(database: directory.file("holdfast.db"))
        client = try server.client()
    }

    @Test func `What is exported can be imported elsewhere and is the same`() throws {
        for name in ["b", "a", "ä", "Z", "😀"] { try save(name, ["1": name, "2": "x"]) }
        let exported = try client.request("GET", "/v1/profiles")
        #expect(exported.status == 200)
        #expect(exported.field("content-type") == "application/x-ndjson")
        let expected = ["Z", "a", "b", "ä", "😀"].map { profile($0, ["1": $0, "2": "x"]) + "\n" }
        #expect(exported.text == expected.joined())

        let other = try ServerProcess(database: directory.file("other.db"))
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
            let lines = try client.request("GET", target).text.split(separator: "\n")
            if lines.isEmpty { break }
            #expect(lines.count <= 7)
            seen += try lines.compactMap { try JSONParser().parse(String($0)).object?["user_id"]?.string }
            target = "/v1/profiles?limit=7&after=\(seen.last ?? "")"
        }
        #expect(seen == names)
        #expect(try client.request("GET", "/v1/profiles?after=user148x").text == profile("user149", ["1": "2"]) + "\n")
    }

    @Test func `Profiles, exposures, events and the audit log are read page by page in the same way`() throws {
        #expect(try client.request("PUT", "/v1/experiments/e", #"{"id":"7","variations":["a"]}"#).status == 201)
        for index in 0..<7 {
            let user = #""user_id":"u\#(index)""#
            #expect(try client.request("POST", "/v1/assign", #"{\#(user),"experiment":"e"}"#).status == 200)
            #expect(try client.request("POST", "/v1/exposures", #"{\#(user),"experiment":"e"}"#).status == 200)
            #expect(try client.request("POST", "/v1/events", #"{\#(user),"goal":"g"}"#).status == 200)
            #expect(try client.request("PUT", "/v1/profiles/u\(index)/experiments/8", #"{"variation_id":"x"}"#).status == 200)
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
                    let page = try client.request("GET", "\(target)&limit=\(limit)\(after)")
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
            #expect(try client.request("GET", "\(target)&limit=1001").status == 400)
        }
        for target in ["/v1/profiles", "/v1/exposures", "/v1/events"] {
            let lines = try client.request("GET", target).text
            #expect(try client.request("GET", "\(target)?format=lines").text == lines)
            #expect(try client.request("GET", "\(target)?format=xml").status == 400)
        }
    }

    @Test(arguments: ["limit=0", "limit=-1", "limit=x", "after=", "detail=1", "lmit=5", "limit=1&limit=2"])
    func `An export with a wrong parameter is refused`(query: String) throws {
        #expect(try client.request("GET", "/v1/profiles?\(query)").status == 400)
    }

    @Test func `An export with detail tells where assignments came from`() throws {
        _ = try client.request("PUT", "/v1/profiles/ada/experiments/11", #"{"variation_id":"9"}"#)
        let line = try client.request("GET", "/v1/profiles?detail=true")
        #expect(line["experiment_bucket_map"]["11"]["source"] == "override")
    }

    @Test func `An import names the lines that it refused and takes the others`() throws {
        let lines = [
            profile("a", ["1": "2"]), "{", "", profile("b", ["x-y": "2"]), "\r", profile("c", ["1": "2"]) + "\r",
            "[]", profile("d"),
        ]
        let answer = try client.request("POST", "/v1/profiles", lines.joined(separator: "\n"))
        #expect(answer.status == 200)
        #expect(answer["imported"] == 3)
        #expect(answer["refused"] == 3)
        let errors = try #require(answer["errors"].array)
        #expect(errors.map { $0["line"] } == [2, 4, 7])
        #expect(errors.map { $0["pointer"] } == ["", "/experiment_bucket_map/x-y", ""])
        #expect(errors.first?["detail"].string?.hasPrefix("the line must be JSON: ") == true)
        let stored = [profile("a", ["1": "2"]), profile("c", ["1": "2"]), profile("d")]
        #expect(try client.request("GET", "/v1/profiles").text == stored.map { $0 + "\n" }.joined())
    }

    @Test func `An import merges, leaves overrides, and keeps what is stored where it is asked to`() throws {
        try save("a", ["1": "old"])
        _ = try client.request("PUT", "/v1/profiles/a/experiments/3", #"{"variation_id":"9"}"#)
        let line = profile("a", ["1": "new", "2": "x", "3": "y"])
        _ = try client.request("POST", "/v1/profiles?on_conflict=keep", line)
        #expect(try client.request("GET", "/v1/profiles/a").text == profile("a", ["1": "old", "2": "x", "3": "9"]))
        _ = try client.request("POST", "/v1/profiles", line)
        #expect(try client.request("GET", "/v1/profiles/a").text == profile("a", ["1": "new", "2": "x", "3": "9"]))
    }

    @Test func `What an import tells of refused lines is bounded, however long they are`() throws {
        let line = profile("a", [String(repeating: "-", count: 500_000): "1"])
        let answer = try client.request("POST", "/v1/profiles", Array(repeating: line, count: 8).joined(separator: "\n"))
        #expect(answer["refused"] == 8)
        #expect(answer.body.count < 32_768)
        #expect(answer["errors"].array?.map { $0["pointer"] } == Array(repeating: "/experiment_bucket_map", count: 8))
    }

    @Test func `An import says how many refused lines it does not name`() throws {
        let lines = Array(repeating: "{}", count: 1_003) + [profile("a", ["1": "2"])]
        let answer = try client.request("POST", "/v1/profiles", lines.joined(separator: "\n"))
        #expect(answer["imported"] == 1 && answer["refused"] == 1_003)
        #expect(answer["errors"].array?.count == 1_000)
        #expect(answer["errors_left_out"] == 3)
    }

    @Test func `A damaged profile is an error of an export, and of its line of an import`() throws {
        try save("a", ["1": "2"])
        let database = try DatabaseConnection(directory.file("holdfast.db"))
        try database.execute("UPDATE profiles SET record = x'01ff'")
        let refused = try client.request("GET", "/v1/profiles")
        #expect(refused.status == 503)
        #expect(refused["detail"].string?.contains("the stored profile of 'a' is damaged") == true)
        let lines = [profile("a", ["3": "4"]), profile("b", ["3": "4"])]
        let imported = try client.request("POST", "/v1/profiles", lines.joined(separator: "\n"))
        #expect(imported["imported"] == 1)
        #expect(imported["errors"].array?.map { $0["line"] } == [1])
        let command = try Command("export", "--database", directory.file("holdfast.db"))
        #expect(command.end == .exit(1))
        #expect(command.errors.contains("the stored profile of 'a' is damaged"), "\(command.errors)")
    }

    @Test func `An import on the command line keeps to the rules of the servers`() throws {
        let path = directory.file("rules.db")
        let lines = try directory.write(profile("a", ["1": "2"]) + "\n" + profile("b", ["1": "2", "3": "4"]) + "\n", to: "lines")
        let imported = try Command(
            "import", "--create", "--database", path, "--max-assignments", "1", environment: ["HOLDFAST_ASSIGNMENT_TTL": "1h"],
            input: lines)
        #expect(imported.end == .exit(1))
        #expect(imported.errors.contains("line 2 was refused: a profile must have at most 1 assignments; the change adds too many"))
        let stored = try Command("export", "--detail", "--database", path)
        let expiry = try JSONParser().parse(stored.output)["experiment_bucket_map"]["1"]["expires_at"]
        #expect(expiry.string != nil)
    }

    @Test(arguments: ["/v1/profiles", "/v1/profiles/attributes"])
    func `An import in which every line was refused is an error, and names them all the same`(path: String) throws {
        let refused = try client.request("POST", path, "{\n[]\n{}")
        #expect(refused.status == 422)
        #expect(refused.field("content-type") == "application/problem+json")
        #expect(refused["detail"].string == "at least one line must be accepted; all 3 were refused")
        #expect(refused["imported"] == 0)
        #expect(refused["refused"] == 3)
        #expect(refused["errors"].array?.map { $0["line"] } == [1, 2, 3])
        #expect(try client.request("POST", path, "\n").status == 200)
    }

    @Test func `What is stored already is imported, not refused`() throws {
        for _ in 0..<2 { #expect(try client.request("POST", "/v1/profiles", profile("a", ["1": "2"])).status == 200) }
        _ = try client.request("PUT", "/v1/attributes/age", #"{"type":"number"}"#)
        for _ in 0..<2 {
            let answer = try client.request("POST", "/v1/profiles/attributes", #"{"user_id":"a","attributes":{"age":1}}"#)
            #expect(answer.status == 200)
        }
    }

    @Test func `Who sends several objects in one line, as curl does without --data-binary, is told so`() throws {
        let objects = [profile("a", ["1": "2"]), profile("b", ["1": "2"])]
        for body in [objects.joined(), objects.joined(separator: " "), String(repeating: profile("a"), count: 50_000)] {
            let refused = try client.request("POST", "/v1/profiles", body)
            #expect(refused.status == 422)
            #expect(refused["detail"].string?.contains("--data-binary") == true, "\(refused.text)")
        }
        for body in ["{", objects[0] + "x", objects.joined() + "\n{"] {
            #expect(try client.request("POST", "/v1/profiles", body)["detail"].string?.contains("curl") == false)
        }
    }

    @Test func `An import on the command line reads the file that is named, or standard input`() throws {
        let path = directory.file("imported.db")
        let file = try directory.write(profile("a", ["1": "2"]) + "\n", to: "lines")
        let refused = try Command("import", file, "--database", path)
        #expect(refused.end == .exit(1))
        #expect(refused.errors.contains("--create") && refused.errors.contains(path), "\(refused.errors)")
        #expect(!FileManager.default.fileExists(atPath: path))
        let other = try directory.write(profile("b", ["1": "2"]) + "\n", to: "other")
        for (arguments, input) in [([file, "--create"], "/dev/null"), (["-"], other)] {
            let child = try ChildProcess(Executable.holdfast, ["import", "--database", path] + arguments, input: input)
            #expect(child.wait() == .exit(0))
            #expect(child.output.text == "imported 1, refused 0")
        }
        #expect(try Command("export", "--database", path).output == profile("a", ["1": "2"]) + "\n" + profile("b", ["1": "2"]))
        for (wrong, reason) in [(directory.file("none"), "cannot be read"), (directory.path, "is a directory")] {
            let failed = try Command("import", wrong, "--database", path)
            #expect(failed.end == .exit(1))
            #expect(failed.errors.contains("\(wrong) \(reason)"), "\(failed.errors)")
        }
    }

    @Test func `An import on the command line names the first refused lines and counts the others`() throws {
        // The store refuses every fourth line, the parser the others.
        let lines = (1...1_000).map { $0 % 4 == 0 ? profile("a", ["1": "2", "3": "4"]) : "{" }
        let file = try directory.write(lines.joined(separator: "\n"), to: "lines")
        let path = directory.file("refused.db")
        let imported = try Command("import", file, "--create", "--database", path, "--max-assignments", "1")
        #expect(imported.end == .exit(1))
        #expect(imported.output == "imported 0, refused 1000")
        let named = imported.errors.split(separator: "\n")
        #expect(named.count == 21)
        #expect(named.dropLast().enumerated().allSatisfy { $1.hasPrefix("line \($0 + 1) was refused: ") }, "\(imported.errors)")
        #expect(named.last == "980 more lines were refused")
    }

    @Test func `A line may be as long as a body and not longer`() throws {
        let server = try ServerProcess(database: directory.file("small.db"), ["--max-body-size", "1KiB"])
        let line = profile("a", ["1": "2"])
        let longest = line + String(repeating: " ", count: 1_024 - line.utf8.count)
        let text = [longest, longest + " ", profile("b")].joined(separator: "\n")
        let answer = try server.request("POST", "/v1/profiles", text)
        #expect(answer["imported"] == 2)
        #expect(answer["errors"].array?.map { $0["line"] } == [2])
    }

    @Test func `20,000 lines are imported in chunks that end anywhere, and exported again`() throws {
        let lines = (10_000..<30_000).map { profile("user\($0)", ["1": "v\($0 % 7)", "2": "x"]) + "\n" }.joined()
        try client.send("POST /v1/profiles HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n")
        var rest = Array(lines.utf8)[...]
        while !rest.isEmpty {
            let piece = rest.prefix(9_973)
            try client.send(Array("\(String(piece.count, radix: 16))\r\n".utf8) + piece + Array("\r\n".utf8))
            rest = rest.dropFirst(piece.count)
        }
        try client.send("0\r\n\r\n")
        #expect(try client.receive().text == #"{"imported":20000,"refused":0,"errors":[]}"#)
        #expect(try client.request("GET", "/v1/profiles").text == lines)
    }

    private func save(_ userID: String, _ assignments: KeyValuePairs<String, String>) throws {
        #expect(try client.request("POST", "/ups/save", profile(userID, assignments)).status == 200)
    }
}
