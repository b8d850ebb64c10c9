import APITestSupport
import Foundation
import Glibc
import JSON
import ProcessTestSupport
import Testing

/// Edges whose own files fail, and what they learn late.
@Suite struct EdgeFaultTests {
    private let fixture: EdgeFixture

    init() throws {
        fixture = try EdgeFixture()
    }

    @Test func `An exposure without a variation counts for the one that another edge has given`() throws {
        let (one, other) = (try fixture.edge("one"), try fixture.edge("other", ["--max-lag", "30s"]))
        for number in 0..<20 {
            let user = "user\(number)"
            let variation = try one.assign(user)["variation_id"].string ?? ""
            let exposure = #"{"user_id":"\#(user)","experiment":"checkout"}"#
            let response = try other.request("POST", "/v1/exposures", exposure)
            #expect(response.status == 200, "\(response.text)")
            #expect(
                try other.awaits { _ in
                    try fixture.upstream.request("GET", "/v1/profiles/\(user)/exposures").text.contains(variation)
                })
        }
        // Nobody has assigned this one.
        let exposure = #"{"user_id":"stranger","experiment":"checkout"}"#
        #expect(try other.request("POST", "/v1/exposures", exposure).status == 200)
        #expect(try other.awaitMetric("holdfast_edge_unassigned_exposures_total") { $0 == 1 } == 1)
        #expect(try other.metric("holdfast_edge_refused_events_total") == 0)
        #expect(try other.awaitMetric("holdfast_edge_outbox_events") { $0 == 0 } == 0)
        for number in 2...4 {
            #expect(try other.request("POST", "/v1/exposures", exposure).status == 200)
            let known = try other.awaitMetric("holdfast_edge_unassigned_exposures_total") { $0 == number }
            #expect(known == number)
        }
        one.stop()
        other.stop()
        let log = other.child.errors.text
        let warnings = log.split(separator: "\n").filter { $0.contains("their users have no assignment") }
        #expect(warnings.count == 1 && warnings[0].contains("checkout"), "\(log)")
    }

    @Test func `An outbox is private, and its loss under the edge is noticed`() throws {
        for damage in ["deleted", "truncated"] {
            let edge = try fixture.edge(damage)
            let outbox = fixture.directory.file("\(damage).db-outbox")
            for name in [outbox, outbox + "-wal"] {
                var status = stat()
                #expect(stat(name, &status) == 0 && status.st_mode & 0o777 == 0o600, "\(name)")
            }
            if damage == "deleted" { unlink(outbox) } else { truncate(outbox, 0) }
            #expect(try edge.awaits { try $0.request("GET", "/readyz").text.contains("the outbox") })
            #expect(try edge.request("GET", "/readyz").status == 503)
            // The upstream is there.
            #expect(try edge.request("POST", "/v1/events", #"{"user_id":"ada","goal":"\#(damage)"}"#).status == 200)
            #expect(try fixture.upstream.request("GET", "/v1/profiles/ada/events").text.contains(damage))
        }
    }

    @Test(.enabled(if: SmallFileSystem.canBeMade))
    func `While an edge's disk is full, changes and events pass to the upstream`() throws {
        let directory = try TemporaryDirectory()
        let disk = try SmallFileSystem(at: directory.path, mebibytes: 8)
        let edge = try ServerProcess(
            database: "\(disk.path)/edge.db",
            ["--upstream", "http://127.0.0.1:\(fixture.proxy.port)", "--max-lag", "3s"] + ServerProcess.smallLog,
            environment: ["HOLDFAST_UPSTREAM_TIMEOUT": "20s"])
        #expect(try edge.becomesReady())
        _ = try edge.assign("known")
        let ballast = try disk.fill()
        for number in 0..<40 {
            let user = "user\(number)"
            let assigned = try edge.assign(user)
            #expect(assigned.status == 200, "\(assigned.text)")
            #expect(try fixture.upstream.stored(user) == assigned["variation_id"].string)
            #expect(try edge.stored(user) == assigned["variation_id"].string)
            let bought = try edge.request("POST", "/v1/events", #"{"user_id":"\#(user)","goal":"bought"}"#)
            #expect(bought.status == 200, "\(bought.text)")
            #expect(try edge.request("GET", "/readyz").status == 200)
        }
        #expect(unlink(ballast) == 0)
        #expect(try edge.awaitMetric("holdfast_edge_outbox_events") { $0 == 0 } == 0)
        for number in 0..<40 {
            let events = try fixture.upstream.request("GET", "/v1/profiles/user\(number)/events").text
            #expect(events.components(separatedBy: #""goal":"bought""#).count == 2, "\(events)")
        }
        #expect(try edge.awaits { try $0.request("GET", "/readyz").json == ["status": "ready"] })
        edge.stop()
    }

    @Test func `A damaged copy is kept under another name, and made anew`() throws {
        var edge = try fixture.edge()
        for number in 0..<50 { _ = try edge.assign("user\(number)") }
        let given = try edge.stored("user7")
        edge.stop()
        let file = fixture.directory.file("edge.db")
        let handle = try #require(FileHandle(forWritingAtPath: file))
        for page in 2..<8 {
            try handle.seek(toOffset: UInt64(page) * 1_024)
            try handle.write(contentsOf: Data(repeating: 0xA5, count: 1_024))
        }
        try handle.close()
        edge = try fixture.edge()
        #expect(edge.child.errors.first { $0.contains("the copy was damaged") } != nil)
        #expect(FileManager.default.fileExists(atPath: file + ".damaged-1"))
        #expect(try edge.awaits { try $0.stored("user7") == given })
        edge.stop()
    }

    @Test func `A change that may have been made is not said to be refused`() throws {
        let edge = try fixture.edge("edge", ["--upstream-timeout", "1s", "--max-lag", "30s"])
        fixture.proxy.fault = .swallows
        let saved = try edge.request("POST", "/ups/save", profile("ada", ["22": "2"]))
        #expect(saved.status == 504, "\(saved.text)")
        #expect(saved["detail"].string?.contains("may have been stored or not") == true, "\(saved.text)")
        fixture.proxy.fault = .refuses
        try EdgeFixture.awaitAway(edge)
        let refused = try edge.request("POST", "/ups/save", profile("ada", ["22": "2"]))
        #expect(refused.status == 503 && refused["detail"].string?.contains("nothing was stored") == true)
        edge.stop()
    }

    @Test func `The token for the upstream is read again`() throws {
        func tokens(_ secret: String) throws -> String {
            let path = try fixture.directory.write(
                "admin root 0123456789abcdef0123\nedge shop \(secret)\n", to: "tokens")
            chmod(path, 0o600)
            return path
        }
        func secret(_ secret: String) throws -> String {
            let path = try fixture.directory.write(secret, to: "secret")
            chmod(path, 0o600)
            return path
        }
        let upstream = try ServerProcess(
            database: fixture.directory.file("guarded.db"), ["--tokens-file", try tokens("fedcba9876543210fedc")])
        let edge = try ServerProcess(
            database: fixture.directory.file("edge.db"),
            [
                "--upstream", "http://127.0.0.1:\(upstream.port)", "--upstream-token-file",
                try secret("fedcba9876543210fedc"),
            ])
        #expect(try edge.becomesReady())
        _ = try tokens("aaaaaaaaaaaaaaaaaaaaaaaa")
        upstream.child.send(SIGHUP)
        #expect(upstream.child.errors.first { $0.contains("read the token file again") } != nil)
        #expect(try edge.awaits { try $0.request("GET", "/readyz").text.contains("refuses the token") })
        _ = try secret("aaaaaaaaaaaaaaaaaaaaaaaa")
        edge.child.send(SIGHUP)
        #expect(edge.child.errors.first { $0.contains("read the token for the upstream again") } != nil)
        #expect(try edge.awaits { try $0.request("GET", "/readyz").json == ["status": "ready"] })
        edge.stop()
    }
}
