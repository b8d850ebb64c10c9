import APITestSupport
import Foundation
import Glibc
import JSON
import ProcessTestSupport
import Testing

/// An upstream, behind a proxy that tests break, and its edges.
final class EdgeFixture {
    let directory: TemporaryDirectory
    private(set) var upstream: ServerProcess
    private let database: String
    let proxy: FaultyProxy
    static let ask = #","experiment":"checkout"}"#

    /// - Parameter database: the upstream's; by default a file.
    init(database: String? = nil) throws {
        directory = try TemporaryDirectory()
        self.database = database ?? directory.file("upstream.db")
        upstream = try ServerProcess(database: self.database)
        proxy = try FaultyProxy(to: upstream.port)
        let made = try upstream.request("PUT", "/v1/experiments/checkout", AssignSamples.definition)
        #expect(made.status == 201)
    }

    deinit {
        proxy.close()
    }

    /// Starts an edge, and waits until its copy serves.
    func edge(
        _ name: String = "edge", _ options: [String] = [], environment: [String: String] = [:],
        awaiting isReady: Bool = true
    ) throws -> ServerProcess {
        let edge = try ServerProcess(
            database: directory.file("\(name).db"), ["--upstream", "http://127.0.0.1:\(proxy.port)"] + options,
            environment: ["HOLDFAST_UPSTREAM_TIMEOUT": "20s"].merging(environment) { $1 })
        if isReady {
            #expect(try edge.becomesReady())
            #expect(try edge.awaitMetric("holdfast_edge_copy_complete") { $0 == 1 } == 1)
        }
        return edge
    }

    /// Starts the upstream anew. Its address for edges stays.
    func restartUpstream(_ options: [String] = []) throws {
        upstream = try ServerProcess(database: database, options)
        proxy.lead(to: upstream.port)
    }

    /// Lets something else respond at the upstream's address for edges.
    func replaceUpstream(by port: UInt16) {
        proxy.fault = .refuses
        proxy.lead(to: port)
        proxy.fault = .none
    }

    /// Stops the upstream.
    ///
    /// - Returns: a copy of its database.
    func stopUpstream(keeping name: String) throws -> String {
        upstream.stop()
        let copy = directory.file(name)
        try FileManager.default.copyItem(atPath: database, toPath: copy)
        return copy
    }

    /// Puts a backup in place of the upstream's database.
    func restoreUpstream(from backup: String) throws {
        let restored = try Command("restore", "--database", database, backup)
        #expect(restored.end == .exit(0), "\(restored.errors)")
        for name in try FileManager.default.contentsOfDirectory(atPath: directory.path)
        where name.hasPrefix("upstream.db.2") {
            try FileManager.default.removeItem(atPath: directory.file(name))
        }
    }

    static func awaitAway(_ edge: ServerProcess) throws {
        #expect(try edge.awaitMetric("holdfast_edge_upstream_up") { $0 == 0 } == 0)
    }

    static func awaitUp(_ edge: ServerProcess) throws {
        #expect(try edge.awaitMetric("holdfast_edge_upstream_up") { $0 == 1 } == 1)
    }
}

extension TestServer {
    /// Asks for a user's variation of `checkout`, and stores it.
    func assign(_ user: String) throws -> TestResponse {
        try request("POST", "/v1/assign", AssignSamples.ask(user))
    }

    /// The variation that is stored.
    func stored(_ user: String) throws -> String? {
        try request("GET", "/v1/profiles/\(user)")["experiment_bucket_map"]["7001"]["variation_id"].string
    }

    /// Waits up to a minute until something holds.
    func awaits(_ holds: (Self) throws -> Bool) throws -> Bool {
        try eventually { try holds(self) }
    }
}
