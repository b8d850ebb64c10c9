import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Synchronization
import Testing

/// A backup made under load is the database of one moment.
@Suite struct BackupTests {
    private static let writers = 4

    private let directory: TemporaryDirectory
    private let database: String
    private let server: ServerProcess

    init() throws {
        directory = try TemporaryDirectory()
        database = directory.file("holdfast.db")
        server = try ServerProcess(database: database)
    }

    @Test func `A backup under load holds all that was acknowledged before it, and nothing by halves`() throws {
        let acknowledged = Mutex([Int](repeating: 0, count: Self.writers))
        let isOver = Atomic(false)
        let done = DispatchGroup()
        for writer in 0..<Self.writers {
            done.enter()
            Thread.detachNewThread { [server] in
                defer { done.leave() }
                do {
                    let client = try server.client()
                    var number = 0
                    while !isOver.load(ordering: .relaxed) {
                        try Self.write(number, as: writer, client)
                        number += 1
                        acknowledged.withLock { [number] in $0[writer] = number }
                    }
                } catch {
                    Issue.record(error)
                }
            }
        }
        for round in 0..<2 {
            let enough = acknowledged.withLock { $0 }.map { $0 + 25 }
            while !acknowledged.withLock({ zip($0, enough).allSatisfy { $0 >= $1 } }) { usleep(1_000) }
            let before = acknowledged.withLock { $0 }
            let copy = directory.file("copy\(round).db")
            let backup = try Command("backup", "--database", database, copy)
            #expect(backup.end == .exit(0), "\(backup.errors)")
            try expectOneMoment(copy, with: before)
        }
        isOver.store(true, ordering: .relaxed)
        done.wait()
        server.stop()
    }

    @Test func `Who may not read the database may not read the backup`() throws {
        try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: database)
        let copy = directory.file("copy.db")
        #expect(try Command("backup", "--database", database, copy).end == .exit(0))
        let mode = try FileManager.default.attributesOfItem(atPath: copy)[.posixPermissions] as? NSNumber
        #expect(mode?.intValue == 0o600)
        server.stop()
    }

    @Test(.enabled(if: SmallFileSystem.canBeMade, "a file system can only be mounted by the administrator"))
    func `A backup for which there is no room is refused and leaves nothing behind`() throws {
        #expect(try server.request("POST", "/ups/save", profile("ada", ["1": "1"])).status == 200)
        let target = try TemporaryDirectory()
        let disk = try SmallFileSystem(at: target.path)
        for room in [0, 4_096, 16_384] {
            let ballast = try disk.fill(leaving: off_t(room))
            let backup = try Command("backup", "--database", database, target.file("copy.db"))
            #expect(backup.end == .exit(1))
            #expect(backup.errors.contains("full"), "\(backup.errors)")
            #expect(try FileManager.default.contentsOfDirectory(atPath: target.path) == ["ballast"])
            unlink(ballast)
        }
        #expect(try Command("backup", "--database", database, target.file("copy.db")).end == .exit(0))
        server.stop()
    }

    @Test func `A backup into a directory has the date in its name, and the newest is restored`() throws {
        let client = try server.client()
        #expect(try client.request("POST", "/ups/save", profile("ada", ["1": "1"])).status == 200)
        let backups = try TemporaryDirectory()
        try FileManager.default.copyItem(atPath: "/dev/null", toPath: backups.file("holdfast-20200101T000000Z.db"))
        let backup = try Command("backup", "--database", database, backups.path + "/")
        #expect(backup.end == .exit(0), "\(backup.errors)")
        let name = try #require(try FileManager.default.contentsOfDirectory(atPath: backups.path).max())
        #expect(name.wholeMatch(of: /holdfast-\d{8}T\d{6}Z\.db/) != nil)
        #expect(backup.output == "copied \(database) to \(backups.path)/\(name)")
        let refused = try Command("backup", "--database", database, backups.path + "/none/")
        #expect(refused.end == .exit(1) && refused.errors.contains("the directory must exist"))

        let early = try Command("restore", "--database", database, backups.path)
        #expect(early.end == .exit(1) && early.errors.contains("stop its servers first"), "\(early.errors)")
        #expect(try client.request("POST", "/ups/save", profile("bob", ["1": "1"])).status == 200)
        server.stop()
        let restored = try Command("restore", "--database", database, backups.path)
        #expect(restored.end == .exit(0), "\(restored.errors)")
        #expect(restored.output.hasPrefix("restored \(backups.path)/\(name) to \(database): version "))
        #expect(restored.output.contains(", 1 profiles, 1 assignments\nthe former database is now \(database).2"))
        #expect(try Command("export", "--database", database).output == profile("ada", ["1": "1"]))
        let former = try #require(
            try FileManager.default.contentsOfDirectory(atPath: directory.path).first { $0.hasPrefix("holdfast.db.") })
        let kept = try Command("export", "--database", directory.file(former))
        #expect(
            kept.output == [profile("ada", ["1": "1"]), profile("bob", ["1": "1"])].joined(separator: "\n"),
            "\(kept.errors)")
    }

    @Test func `A server killed between the steps of a restore, or beside a copied backup, does not start`() throws {
        #expect(try server.request("POST", "/ups/save", profile("ada", ["1": "1"])).status == 200)
        let copy = directory.file("copy.db")
        #expect(try Command("backup", "--database", database, copy).end == .exit(0))
        server.kill()
        unlink(database)
        try FileManager.default.copyItem(atPath: copy, toPath: database)
        let refused = try Command("serve", "--listen", "127.0.0.1:0", "--database", database)
        #expect(refused.end == .exit(78))
        #expect(refused.errors.contains("must belong to it"), "\(refused.errors)")
        #expect(try Command("restore", "--database", database, copy).end == .exit(0))
        let restored = try ServerProcess(database: database)
        #expect(try restored.request("GET", "/v1/profiles/ada").status == 200)
        restored.stop()
    }

    @Test func `Every command leaves all data in the database file`() throws {
        server.kill()
        let lines = try directory.write(profile("ada", ["1": "1"]) + "\n", to: "lines")
        let log = database + "-wal"
        for arguments in [
            ["migrate"], ["import", lines], ["import", "--dry-run", lines], ["export"], ["backup", "copy.db"],
            ["serve", "--datafile", lines, "--listen", "127.0.0.1:0"],
        ] {
            // What a crash leaves.
            try DatabaseConnection(database).execute("PRAGMA journal_mode = WAL")
            let arguments = arguments.map { $0 == "copy.db" ? directory.file($0) : $0 } + ["--database", database]
            let child = try ChildProcess(Executable.holdfast, arguments)
            #expect(child.wait() == (arguments[0] == "serve" ? .exit(78) : .exit(0)), "\(child.errors.text)")
            #expect(!FileManager.default.fileExists(atPath: log), "\(arguments)")
        }
    }

    /// What each writer does again and again: a new user, a user that all change, and an override with its audit entry.
    private static func write(_ number: Int, as writer: Int, _ client: HTTPClient) throws {
        let user = "w\(writer)n\(number)"
        let value = "\(writer)x\(number)"
        for (method, target, body) in [
            ("POST", "/ups/save", profile(user, ["1": value, "2": value])),
            ("PATCH", "/v1/profiles/all", profile("all", ["1": value, "2": value])),
            ("PUT", "/v1/profiles/\(user)/experiments/3", #"{"variation_id":"9"}"#),
        ] {
            let response = try client.request(method, target, body)
            guard response.status == 200 else { throw TestFailure("\(method) \(target): \(response.text)") }
        }
    }

    private func expectOneMoment(_ copy: String, with acknowledged: [Int]) throws {
        #expect(try DatabaseConnection(copy).text("PRAGMA integrity_check") == "ok")
        let restored = try ServerProcess(database: copy)
        let client = try restored.client()
        #expect(try client.request("GET", "/readyz").status == 200)
        var numbers = [Set<Int>](repeating: [], count: Self.writers)
        var overrides = 0
        let lines = try client.request("GET", "/v1/profiles?detail=true").text.split(separator: "\n")
        for line in lines {
            let profile = try JSONParser().parse(Array(line.utf8))
            let map = profile["experiment_bucket_map"]
            #expect(map["1"]["variation_id"] == map["2"]["variation_id"])
            if map["3"]["source"] == "override" { overrides += 1 }
            let parts = (profile["user_id"].string ?? "").dropFirst().split(separator: "n")
            if parts.count == 2, let writer = Int(parts[0]), let number = Int(parts[1]) {
                numbers[writer].insert(number)
            }
        }
        for (writer, numbers) in numbers.enumerated() {
            // None is missing among those of one writer, who waited for each.
            #expect(numbers == Set(0..<numbers.count))
            #expect(numbers.count >= acknowledged[writer])
        }
        #expect(try restored.metric("holdfast_profiles") == lines.count)
        #expect(try DatabaseConnection(copy).text("SELECT count(*) FROM audit") == "\(overrides)")
        #expect(try client.request("POST", "/ups/save", profile("new", ["1": "1"])).status == 200)
        restored.stop()
    }
}
