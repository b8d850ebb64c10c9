import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Synchronization
import TestSupport
import Testing

/// Random edits and uploads by two servers on one database. All servers and an edge must have the same definitions after each,
/// also those that start later, and each version that is kept must stay as it was.
@Suite struct DefinitionRowsTests {
    private let directory: TemporaryDirectory
    private var database: String { directory.file("holdfast.db") }

    init() throws {
        directory = try TemporaryDirectory()
    }

    /// What a random step asks for: a method, a path and a body.
    private static func step(_ random: inout SeededGenerator) -> (method: String, path: String, body: String?) {
        let key = "e\(Int.random(in: 0..<6, using: &random))"
        let number = Int.random(in: 0...100, using: &random)
        switch Int.random(in: 0..<10, using: &random) {
        case 0: return ("DELETE", "/v1/experiments/\(key)", nil)
        case 1:
            return (
                "PUT", "/v1/flags/f\(number % 3)",
                #"{"variations":[{"key":"on","value":{"size":\#(number)}},{"key":"off","value":{}}],"default":"off","rules":[{"type":"delivery","key":"d\#(number % 3)","variation":"on","traffic":\#(number)}]}"#
            )
        case 2: return ("PUT", "/v1/metrics/m\(number % 3)", #"{"goal":"g\#(number)"}"#)
        case 3: return ("PUT", "/v1/holdouts/h\(number % 2)", #"{"share":\#(number % 20)}"#)
        case 4: return ("PUT", "/v1/experiments/\(key)", #"{"status":"paused","description":"\#(number)"}"#)
        case 5:
            return (
                "PUT", "/v1/experiments/g\(number % 4)",
                #"{"group":"g","variations":["a","b"],"traffic":\#(number % 25)}"#
            )
        default:
            return (
                "PUT", "/v1/experiments/\(key)",
                #"{"variations":["a","b"],"traffic":\#(number),"tags":["t\#(number % 5)"],"status":"running"}"#
            )
        }
    }

    private func version(_ server: ServerProcess) throws -> Int64 {
        try server.request("GET", "/v1/datafile/history?limit=1")["datafiles"].array?.first?["version"].integer ?? 0
    }

    /// What SDKs get, and what people see.
    private func published(_ server: ServerProcess) throws -> String {
        try server.request("GET", "/datafiles/default.json").text + server.request("GET", "/v1/definitions").text
    }

    private func datafile(_ server: ServerProcess, _ version: Int64) throws -> String {
        try server.request("GET", "/v1/datafile/history/\(version)").text
    }

    @Test(arguments: 1...2) func `Servers agree about what they store as rows, and a version stays as it was`(
        seed: UInt64
    ) throws {
        var random = SeededGenerator(seed: seed)
        var servers = [try ServerProcess(database: database), try ServerProcess(database: database)]
        let (edgeFile, upstream) = (directory.file("edge.db"), ["--upstream", "http://127.0.0.1:\(servers[0].port)"])
        var edge = try ServerProcess(database: edgeFile, upstream)
        var known: [Int64: String] = [:]
        for number in 1...40 {
            let server = servers[Int.random(in: 0..<2, using: &random)]
            let (method, path, body) = Self.step(&random)
            if let former = known.keys.randomElement(using: &random), Int.random(in: 0..<8, using: &random) == 0 {
                #expect(try server.request("PUT", "/v1/datafile?moves=allow", known[former]).status == 200)
            } else {
                let status = try server.request(method, "\(path)?moves=allow", body).status
                #expect([200, 201, 204, 404, 409, 422].contains(status), "\(method) \(path) \(body ?? "")")
            }
            let current = try version(server)
            guard current > 0 else { continue }
            if known[current] == nil { known[current] = try datafile(server, current) }
            let published = try published(server)
            #expect(published.contains("\"revision\""))
            let other = servers[0] === server ? servers[1] : servers[0]
            #expect(try eventually { try self.published(other) == published })
            #expect(try eventually { try self.published(edge) == published })
            if number.isMultiple(of: 10) {
                servers[1].stop()
                servers[1] = try ServerProcess(database: database)
                #expect(try self.published(servers[1]) == published)
                for (version, content) in known { #expect(try datafile(servers[1], version) == content) }
                edge.stop()
                edge = try ServerProcess(database: edgeFile, upstream)
                #expect(try self.published(edge) == published)
            }
        }
        #expect(known.count > 10)
        for server in servers + [edge] { server.stop() }
    }

    @Test func `An edge has each definition once, however quickly they come through it and beside it`() throws {
        let upstream = try ServerProcess(database: database)
        let (edgeFile, options) = (directory.file("edge.db"), ["--upstream", "http://127.0.0.1:\(upstream.port)"])
        var edge = try ServerProcess(database: edgeFile, options)
        #expect(try edge.becomesReady())
        let servers = [edge, upstream, edge]
        let statuses = Mutex<[Int]>([])
        DispatchQueue.concurrentPerform(iterations: servers.count) { worker in
            for number in 0..<15 {
                let status = try? servers[worker].request(
                    "PUT", "/v1/experiments/e\(worker)-\(number)", #"{"variations":["a","b"]}"#
                ).status
                statuses.withLock { $0.append(status ?? 0) }
            }
        }
        #expect(statuses.withLock { $0 } == Array(repeating: 201, count: 45))
        let published = try published(upstream)
        #expect(try eventually { try self.published(edge) == published })
        // It reads its file as a whole.
        edge.stop()
        edge = try ServerProcess(database: edgeFile, options)
        #expect(try edge.becomesReady())
        #expect(try self.published(edge) == published)
        #expect(published.components(separatedBy: #""layerId""#).count == 46)
        for server in [edge, upstream] { server.stop() }
    }
}
