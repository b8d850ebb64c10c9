import APITestSupport
import Foundation
import JSON
import Synchronization
import Testing

/// The write-ahead log of a server whose readers never end.
@Suite struct LogGrowthTests {
    private let directory: TemporaryDirectory
    private let database: String
    private let server: ServerProcess

    init() throws {
        directory = try TemporaryDirectory()
        database = directory.file("holdfast.db")
        server = try ServerProcess(database: database)
    }

    private func logBytes() -> Int {
        let attributes = try? FileManager.default.attributesOfItem(atPath: database + "-wal")
        return (attributes?[.size] as? Int) ?? 0
    }

    /// Writes several MiB to the log.
    private func importProfiles(_ round: Int) throws {
        let long = String(repeating: "v", count: 200)
        let lines = (0..<4_000).map {
            profile("u\(String($0 + 10_000).reversed().map(String.init).joined())", ["1": "\(long)\(round)"])
        }
        #expect(try server.request("POST", "/v1/profiles", lines.joined(separator: "\n"))["imported"] == 4_000)
    }

    @Test func `Clients that look up and export without end keep no log from starting anew`() throws {
        try importProfiles(0)
        // More than the buffers of a connection hold, and nobody takes it.
        let export = try server.client()
        for _ in 0..<20 { try export.send(HTTPClient.head("GET", "/v1/profiles?detail=true")) }
        #expect(try export.receive(isHead: true).status == 200)
        let isOver = Atomic(false)
        let done = DispatchGroup()
        for _ in 0..<2 {
            done.enter()
            Thread.detachNewThread { [server] in
                defer { done.leave() }
                do {
                    let client = try server.client()
                    var number = 0
                    while !isOver.load(ordering: .relaxed) {
                        #expect(try client.request("GET", "/v1/profiles/n\(number)").status == 404)
                        number += 1
                    }
                } catch {
                    Issue.record(error)
                }
            }
        }
        var (written, greatest) = (0, 0)
        for round in 1...12 {
            let commits = try server.metric("holdfast_store_commits_total")
            try importProfiles(round)
            written += try server.metric("holdfast_store_commits_total") - commits
            greatest = max(greatest, logBytes())
        }
        isOver.store(true, ordering: .relaxed)
        done.wait()
        #expect(written > 8)
        #expect(greatest < 28 << 20)
        server.kill()
    }

    @Test func `A program that holds an old state holds up nobody, and the log is gone when it has let go`() throws {
        try importProfiles(0)
        do {
            let other = try DatabaseConnection(database)
            try other.execute("BEGIN")
            let before = try other.text("SELECT commits FROM counters")
            for round in 1...3 { try importProfiles(round) }
            #expect(try other.text("SELECT commits FROM counters") == before)
            #expect(logBytes() > 8 << 20)
        }
        server.stop()
        #expect(logBytes() == 0)
    }
}
