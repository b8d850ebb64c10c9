import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Testing

/// Import and export on the command line, and of a damaged database, and in chunks over a connection.
@Suite struct TransferCommandTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    @Test func `A damaged profile is an error of an export, and of its line of an import`() throws {
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        let client = try server.client()
        #expect(try client.request("POST", "/ups/save", profile("a", ["1": "2"])).status == 200)
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
        server.stop()
    }

    @Test func `An import on the command line keeps to the rules of the servers`() throws {
        let path = directory.file("rules.db")
        let lines = try directory.write(
            profile("a", ["1": "2"]) + "\n" + profile("b", ["1": "2", "3": "4"]) + "\n", to: "lines")
        let imported = try Command(
            "import", "--create", "--database", path, "--max-assignments", "1",
            environment: ["HOLDFAST_ASSIGNMENT_TTL": "1h"],
            input: lines)
        #expect(imported.end == .exit(1))
        #expect(
            imported.errors.contains(
                "line 2 was refused: a profile must have at most 1 assignments; the change adds too many"))
        let stored = try Command("export", "--detail", "--database", path)
        let expiry = try JSONParser().parse(stored.output)["experiment_bucket_map"]["1"]["expires_at"]
        #expect(expiry.string != nil)
    }

    @Test func `An import on the command line keeps assignments as long as their experiment says`() throws {
        let server = try ServerProcess(database: directory.file("lasting.db"))
        _ = try server.request("PUT", "/v1/experiments/e", #"{"id":"1","variations":["a"],"assignment_ttl":"30d"}"#)
        server.stop()
        let lines = try directory.write(profile("a", ["1": "2", "3": "4"]) + "\n", to: "lines")
        #expect(try Command("import", lines, "--database", directory.file("lasting.db")).end == .exit(0))
        let stored = try Command("export", "--detail", "--database", directory.file("lasting.db"))
        let map = try JSONParser().parse(stored.output)["experiment_bucket_map"]
        #expect(map["1"]["expires_at"].string != nil && map["3"]["expires_at"].string == nil, "\(stored.output)")
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
        #expect(
            try Command("export", "--database", path).output == profile("a", ["1": "2"]) + "\n"
                + profile("b", ["1": "2"]))
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
        #expect(
            named.dropLast().enumerated().allSatisfy { $1.hasPrefix("line \($0 + 1) was refused: ") },
            "\(imported.errors)")
        #expect(named.last == "980 more lines were refused")
    }

    @Test func `20,000 lines are imported in chunks that end anywhere, and exported again`() throws {
        let lines = (10_000..<30_000).map { profile("user\($0)", ["1": "v\($0 % 7)", "2": "x"]) + "\n" }.joined()
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        let client = try server.client()
        try client.send("POST /v1/profiles HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        var rest = Array(lines.utf8)[...]
        while !rest.isEmpty {
            let piece = rest.prefix(9_973)
            try client.send(Array("\(String(piece.count, radix: 16))\r\n".utf8) + piece + Array("\r\n".utf8))
            rest = rest.dropFirst(piece.count)
        }
        try client.send("0\r\n\r\n")
        #expect(try client.receive().text == #"{"imported":20000,"refused":0,"errors":[]}"#)
        #expect(try client.request("GET", "/v1/profiles").text == lines)
        server.stop()
    }
}
