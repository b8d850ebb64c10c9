import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Testing

/// A database that somebody overwrites in place under a running server: nothing more is acknowledged, the log stays for who
/// restores a backup, and the end of the process says so.
@Suite struct OverwrittenDatabaseTests {
    private let directory: TemporaryDirectory
    private let database: String
    private var log: String { database + "-wal" }

    init() throws {
        directory = try TemporaryDirectory()
        database = directory.file("holdfast.db")
    }

    enum Overwriting: CaseIterable {
        case byBackup, byOlderFile, byOtherDatabase, empty, truncate, emptyLog, otherLog
    }

    private func contents(_ path: String) throws -> Data {
        try Data(contentsOf: URL(fileURLWithPath: path))
    }

    /// Writes to the file that is there, as `cp` and `: >` of a shell do.
    private func overwrite(_ path: String, with bytes: Data) throws {
        let descriptor = open(path, O_WRONLY | O_TRUNC)
        #expect(descriptor >= 0)
        defer { close(descriptor) }
        let written = bytes.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
        #expect(written == bytes.count)
    }

    private func overwrite(_ how: Overwriting, older: Data, backup: String) throws {
        switch how {
        case .byBackup: try overwrite(database, with: contents(backup))
        case .byOlderFile: try overwrite(database, with: older)
        case .byOtherDatabase:
            let other = directory.file("other.db")
            let server = try ServerProcess(database: other)
            for number in 0..<100 {
                #expect(try server.request("POST", "/ups/save", profile("other\(number)", ["1": "1"])).status == 200)
            }
            server.stop()
            try overwrite(database, with: contents(other))
        case .empty: try overwrite(database, with: Data())
        case .truncate: #expect(truncate(database, off_t(try contents(database).count / 2 & ~1_023)) == 0)
        case .emptyLog: try overwrite(log, with: Data())
        case .otherLog: try overwrite(log, with: Data(repeating: 7, count: contents(log).count))
        }
    }

    @Test(arguments: Overwriting.allCases, [true, false])
    func `An overwritten database takes no write, keeps its log, and is restored from a backup`(
        how: Overwriting, isIdle: Bool
    ) throws {
        var server = try ServerProcess(database: database)
        #expect(try server.request("POST", "/ups/save", profile("ada", ["1": "1"])).status == 200)
        server.stop()
        let older = try contents(database)
        server = try ServerProcess(database: database)
        let client = try server.client()
        #expect(try client.request("POST", "/ups/save", profile("bob", ["1": "1"])).status == 200)
        let backup = directory.file("backup.db")
        #expect(try Command("backup", "--database", database, backup).end == .exit(0))
        // A checkpoint, so that the database is later than the copy, and commits after it.
        try DatabaseConnection(database).execute("PRAGMA wal_checkpoint(PASSIVE)")
        #expect(try client.request("POST", "/ups/save", profile("cid", ["1": "1"])).status == 200)
        let logBefore = try contents(log)
        try overwrite(how, older: older, backup: backup)
        if !isIdle {
            for user in ["dan", "eve"] {
                let response = try client.request("POST", "/ups/save", profile(user, ["1": "1"]))
                #expect(response.status == 503, "\(how) \(response.text)")
            }
            #expect(try client.request("GET", "/readyz").status == 503)
            #expect(try client.request("GET", "/v1/profiles/ada").status == 503)
        }
        server.child.send(SIGTERM)
        #expect(server.child.wait() == .exit(1), "\(server.child.errors.text)")
        let text = server.child.errors.text
        #expect(text.contains("must not be overwritten") && text.contains("holdfast restore"), "\(text)")
        switch how {
        case .emptyLog, .otherLog: break
        default:
            #expect(try contents(log).starts(with: logBefore))
            let refused = try Command("serve", "--listen", "127.0.0.1:0", "--database", database)
            #expect(refused.end == .exit(78), "\(refused.errors)")
            #expect(refused.errors.contains("holdfast restore"), "\(refused.errors)")
        }
        let restored = try Command("restore", "--database", database, backup)
        #expect(restored.end == .exit(0), "\(restored.errors)")
        let again = try ServerProcess(database: database)
        #expect(try again.request("GET", "/v1/profiles/bob").status == 200)
        again.stop()
    }

    @Test func `Checkpoints, restarts of the log and VACUUM by other processes are no overwriting`() throws {
        let servers = try (0..<2).map { _ in try ServerProcess(database: database, ServerProcess.smallLog) }
        let clients = try servers.map { try $0.client() }
        let other = try DatabaseConnection(database)
        try other.execute("PRAGMA busy_timeout = 60000")
        for number in 0..<120 {
            for (index, client) in clients.enumerated() {
                // Pages enough for a checkpoint every few saves.
                let map = (0..<20).map { #""\#($0)":{"variation_id":"\#(number)x\#($0)"}"# }.joined(separator: ",")
                let response = try client.request(
                    "POST", "/ups/save", #"{"user_id":"u\#(index)n\#(number)","experiment_bucket_map":{\#(map)}}"#)
                #expect(response.status == 200, "\(response.text)")
            }
            switch number % 12 {
            case 0: try other.execute("PRAGMA wal_checkpoint(PASSIVE)")
            case 3: try other.execute("PRAGMA wal_checkpoint(RESTART)")
            case 6: try other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            case 9 where number > 60: try other.execute("VACUUM")
            default: break
            }
        }
        for server in servers { server.stop() }
        withExtendedLifetime(other) {}
    }
}
