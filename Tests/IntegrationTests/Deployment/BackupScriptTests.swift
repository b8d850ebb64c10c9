import APITestSupport
import Foundation
import ProcessTestSupport
import Testing

/// The script of the timer, and the drill.
@Suite struct BackupScriptTests {
    private let directory: TemporaryDirectory
    private let database: String

    init() throws {
        directory = try TemporaryDirectory()
        database = directory.file("holdfast.db")
    }

    private func script(
        _ name: String, _ arguments: [String] = [], _ environment: [String: String] = [:]
    ) throws -> ChildProcess {
        let programs = URL(fileURLWithPath: Executable.holdfast).deletingLastPathComponent().path
        let path = "\(programs):\(ProcessInfo.processInfo.environment["PATH"] ?? "")"
        let variables = ["PATH": path, "HOLDFAST_DATABASE": database, "BACKUP_DIRECTORY": directory.path]
        let child = try ChildProcess(
            "\(DeploymentFile.folder)/\(name)", arguments, environment: variables.merging(environment) { $1 })
        child.wait()
        return child
    }

    private func backups() throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: directory.path)
            .filter { $0.hasPrefix("holdfast-") && $0.hasSuffix("Z.db") }.sorted()
    }

    @Test func `A backup keeps the last copies, and deletes nothing when it fails`() throws {
        let server = try ServerProcess(database: database)
        #expect(try server.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        let old = ["holdfast-20250101T000000Z.db", "holdfast-20250102T000000Z.db", "holdfast-20250103T000000Z.db"]
        for name in old + ["notes.db"] { _ = try directory.write("", to: name) }
        let failed = try script("backup", [], ["BACKUP_KEEP": "2", "HOLDFAST_DATABASE": directory.file("none.db")])
        #expect(failed.wait() != .exit(0))
        #expect(try backups() == old)
        let made = try script("backup", [], ["BACKUP_KEEP": "2"])
        #expect(made.wait() == .exit(0), "\(made.errors.text)")
        let kept = try backups()
        #expect(kept.count == 2 && kept.first == old[2])
        #expect(FileManager.default.fileExists(atPath: directory.file("notes.db")))
        let copy = directory.file(try #require(kept.last))
        #expect(try Command("export", "--database", copy).output == profile("ada", ["11": "1"]))
        for wrong in ["0", "many", "-1"] {
            #expect(try script("backup", [], ["BACKUP_KEEP": wrong]).wait() == .exit(2), "\(wrong)")
        }
        server.stop()
    }

    @Test func `A metric has the time of the last backup, and a backup that fails leaves it`() throws {
        let server = try ServerProcess(database: database)
        #expect(try server.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        let path = directory.file("backup.prom")
        func now() -> Int { Int(Date().timeIntervalSince1970) }
        let begun = now()
        #expect(try script("backup", [], ["BACKUP_METRICS": path]).wait() == .exit(0))
        let text = try String(contentsOfFile: path, encoding: .utf8)
        let sample = try #require(
            text.firstMatch(of: #/\nholdfast_backup_last_success_timestamp_seconds (\d+)\n$/#), "\(text)")
        #expect((begun...now()).contains(try #require(Int(sample.output.1))))
        #expect(text.contains("# TYPE holdfast_backup_last_success_timestamp_seconds gauge\n"))
        // The collector is another user, and reads every file of the folder.
        let mode = try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int
        #expect(mode == 0o644)
        #expect(!FileManager.default.fileExists(atPath: path + ".new"))
        let failed = try script(
            "backup", [], ["BACKUP_METRICS": path, "HOLDFAST_DATABASE": directory.file("none.db")])
        #expect(failed.wait() != .exit(0))
        #expect(try String(contentsOfFile: path, encoding: .utf8) == text)
        server.stop()
    }

    @Test(.enabled(if: Tool.sqlite.isExpected, "sqlite3 is not installed"))
    func `A drill restores a backup, and compares it with the server in use`() throws {
        let tokens = try directory.write("admin a 0123456789abcdef\n", to: "tokens")
        let server = try ServerProcess(database: database, ["--tokens-file", tokens])
        let lines = (0..<100).map { profile("user\($0)", ["11": "1", "12": "2"]) + "\n" }.joined()
        let token = "0123456789abcdef"
        #expect(try server.request("POST", "/v1/profiles", lines, token: token).status == 200)
        let copy = directory.file("holdfast-20261122T000000Z.db")
        #expect(try Command("backup", "--database", database, copy).end == .exit(0))
        let url = "http://127.0.0.1:\(server.port)"
        let passed = try script("restore-drill", [copy, url], ["TOKEN": token])
        #expect(passed.wait() == .exit(0), "\(passed.output.text)\(passed.errors.text)")
        #expect(passed.output.all.first == "restored \(copy): 100 profiles, 200 assignments; 100 profiles were read")
        #expect(passed.output.all.last == "the backup can be restored")
        // The newest of a directory, with a token from the server's file.
        _ = try directory.write("not a database", to: "holdfast-20261121T000000Z.db")
        let found = try script("restore-drill", [directory.path, url], ["TOKENS_FILE": tokens])
        #expect(found.wait() == .exit(0), "\(found.output.text)\(found.errors.text)")
        #expect(found.output.all.first == passed.output.all.first)
        // Tokens that have expired, or are of some projects, are passed over; without another one the drill says so.
        let useless = "admin former \(String(repeating: "f", count: 32)) expires=2020-01-01\n"
        for (lines, end) in [("\(useless)admin ann \(token)\n", 0), (useless, 1)] as [(String, Int32)] {
            let file = try directory.write(lines, to: "other-tokens")
            let drill = try script("restore-drill", [copy, url], ["TOKENS_FILE": file])
            #expect(drill.wait() == .exit(end), "\(drill.output.text)\(drill.errors.text)")
            #expect(drill.errors.text.contains("/metrics cannot be read") == (end == 1))
        }
        let more = (100..<120).map { profile("user\($0)", ["11": "1"]) + "\n" }.joined()
        #expect(try server.request("POST", "/v1/profiles", more, token: token).status == 200)
        let differs = try script("restore-drill", [copy, url], ["TOKEN": token])
        #expect(differs.wait() == .exit(1))
        #expect(differs.errors.text.contains("holdfast_profiles differs by more than 5 percent"))
        #expect(try script("restore-drill", [copy, url], ["TOKEN": token, "TOLERANCE": "20"]).wait() == .exit(0))
        server.stop()
    }

    @Test(.enabled(if: Tool.sqlite.isExpected, "sqlite3 is not installed"))
    func `A drill finds a copy of pages of different moments`() throws {
        do {
            let server = try ServerProcess(database: database)
            let lines = (0..<2_000).map { profile("user\($0)", ["11": "1", "12": "2"]) + "\n" }.joined()
            #expect(try server.request("POST", "/v1/profiles", lines).status == 200)
            server.stop()
        }
        let copy = directory.file("copy.db")
        #expect(try Command("backup", "--database", database, copy).end == .exit(0))
        let connection = try DatabaseConnection(copy)
        // Now a page belongs to nothing, and each profile can still be read.
        try connection.execute("PRAGMA writable_schema = ON")
        try connection.execute("DELETE FROM sqlite_schema WHERE name = 'profiles_expiry'")
        let found = try script("restore-drill", [copy])
        #expect(found.wait() == .exit(1))
        #expect(found.errors.text.contains("the restored copy is damaged:\n"), "\(found.errors.text)")
        #expect(found.errors.text.contains("is never used"))
    }

    @Test(.enabled(if: Tool.sqlite.isExpected, "sqlite3 is not installed"))
    func `A drill finds a damaged profile, and a file that is no backup`() throws {
        do {
            let server = try ServerProcess(database: database)
            #expect(try server.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
            server.stop()
        }
        let copy = directory.file("copy.db")
        #expect(try Command("backup", "--database", database, copy).end == .exit(0))
        #expect(try script("restore-drill", [copy]).wait() == .exit(0))
        do { try DatabaseConnection(copy).execute("UPDATE profiles SET record = x'01ff'") }
        #expect(try script("restore-drill", [copy]).wait() != .exit(0))
        let other = try directory.write("no database at all, but long enough to be one", to: "other")
        let refused = try script("restore-drill", [other])
        #expect(refused.wait() == .exit(1))
        #expect(refused.errors.text.contains("the server did not start on the restored copy"))
        #expect(try script("restore-drill", []).wait() == .exit(2))
        for missing in [directory.file("none"), "/proc/self/task"] {
            let refused = try script("restore-drill", [missing])
            #expect(refused.wait() == .exit(2) && refused.errors.text.hasPrefix("the backup must be a file, or a"))
        }
    }
}
