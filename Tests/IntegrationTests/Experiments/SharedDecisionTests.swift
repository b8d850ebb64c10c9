import APITestSupport
import Foundation
import JSON
import PostgreSQLTestSupport
import Synchronization
import Testing

/// Two server processes on one database file decide alike while experiments, overrides, attributes and segments change.
@Suite struct SharedDecisionTests {
    private let directory: TemporaryDirectory
    private let database: String

    init() throws {
        directory = try TemporaryDirectory()
        database = directory.file("holdfast.db")
    }

    private func twoServers() throws -> [ServerProcess] {
        [try ServerProcess(database: database), try ServerProcess(database: database)]
    }

    @Test func `Two processes and many clients agree on one variation per user while the split changes`() throws {
        let servers = try twoServers()
        #expect(try servers[0].request("PUT", "/v1/experiments/checkout", AssignSamples.definition).status == 201)
        let users = (0..<150).map { "user\($0)" }
        let given = Mutex<[String: Set<String>]>([:])
        let done = DispatchGroup()
        for worker in 0..<8 {
            done.enter()
            Thread.detachNewThread {
                defer { done.leave() }
                do {
                    let client = try servers[worker % 2].client()
                    for user in users {
                        let response = try client.request("POST", "/v1/assign", AssignSamples.ask(user))
                        // The other process knows of the experiment within a second.
                        guard response.status != 404 else { continue }
                        let variation = response["variation_id"].string ?? response.text
                        given.withLock { _ = $0[user, default: []].insert(variation) }
                    }
                } catch {
                    Issue.record(error)
                }
            }
        }
        let admin = try servers[1].client()
        var share = 0
        while done.wait(timeout: .now()) == .timedOut {
            share = (share + 2_500) % 10_000
            let body = AssignSamples.weights(share, 10_000 - share)
            _ = try admin.request("PUT", "/v1/experiments/checkout", body, fields: ["X-Optimizely-SDK-Key: default"])
        }
        let all = given.withLock { $0 }
        #expect(all.count == users.count)
        #expect(all.values.allSatisfy { $0.count == 1 })
        for (user, variations) in all {
            let stored = try servers[0].request("GET", "/v1/profiles/\(user)")
            #expect(stored["experiment_bucket_map"]["7001"]["variation_id"].string == variations.first)
        }
        servers.forEach { $0.stop() }
    }

    @Test func `Two processes that are asked at once give an account the variation of its anonymous profile`() throws {
        let servers = try twoServers()
        #expect(try servers[0].request("PUT", "/v1/experiments/checkout", AssignSamples.definition).status == 201)
        let clients = try servers.map { try $0.client() }
        #expect(
            try eventually {
                try clients[1].request("GET", "/v1/assign?user_id=x&experiment=checkout").status == 200
            })
        let done = DispatchGroup()
        let given = Mutex<[String: Set<String>]>([:])
        let users = (0..<100).map { "user\($0)" }
        for worker in 0..<6 {
            done.enter()
            Thread.detachNewThread {
                defer { done.leave() }
                do {
                    let client = try servers[worker % 2].client()
                    for user in users {
                        // A third saves what the anonymous user gets while the others ask.
                        let response =
                            worker < 2
                            ? try client.request("POST", "/v1/assign", AssignSamples.ask("anonymous-\(user)"))
                            : try client.request(
                                "POST", "/v1/assign",
                                #"{"user_id":"\#(user)","anonymous_id":"anonymous-\#(user)","experiment":"checkout"}"#)
                        guard worker >= 2 else { continue }
                        let variation = response["variation_id"].string ?? response.text
                        given.withLock { _ = $0[user, default: []].insert(variation) }
                    }
                } catch {
                    Issue.record(error)
                }
            }
        }
        done.wait()
        for (user, variations) in given.withLock({ $0 }) {
            #expect(variations.count == 1, "\(user)")
            let stored = try clients[0].request("GET", "/v1/profiles/\(user)")
            #expect(stored["experiment_bucket_map"]["7001"]["variation_id"].string == variations.first)
            // The other server's caches follow a merge.
            #expect(
                try clients[1].request("POST", "/v1/profiles/\(user)/merge", #"{"from":"anonymous-\#(user)"}"#).text
                    == stored.text)
            #expect(try clients[0].request("GET", "/v1/profiles/anonymous-\(user)").status == 404)
        }
        servers.forEach { $0.stop() }
    }

    @Test func `A datafile put on one process is used by the other within a second`() throws {
        let servers = try twoServers()
        #expect(try servers[0].request("PUT", "/v1/experiments/checkout", AssignSamples.definition).status == 201)
        let deadline = Date().addingTimeInterval(1)
        var response = try servers[1].request("POST", "/v1/assign", AssignSamples.ask("ada"))
        while response.status == 404, Date() < deadline {
            response = try servers[1].request("POST", "/v1/assign", AssignSamples.ask("ada"))
        }
        #expect(response.status == 200)
        servers.forEach { $0.stop() }
    }

    private static let datafile = #"""
        {"version":"4","accountId":"1","projectId":"2","revision":"1","attributes":[],"audiences":[],"groups":[],
        "featureFlags":[],"rollouts":[],"events":[],
        "experiments":[{"id":"7","key":"checkout","layerId":"8","status":"Running","audienceIds":[],
        "forcedVariations":{},"variations":[{"id":"71","key":"control"},{"id":"72","key":"new"}],
        "trafficAllocation":[{"entityId":"71","endOfRange":10000}]}]}
        """#
    private static let fields = ["X-Optimizely-SDK-Key: tests", "Content-Type: application/json"]

    private static func post(_ server: ServerProcess, _ target: String, _ body: String) throws -> TestResponse {
        try server.request("POST", target, body, fields: fields)
    }

    /// The variation of the experiment `checkout`.
    private static func variation(of user: String, at server: ServerProcess) throws -> String? {
        let response = try post(server, "/v1/activate?experimentKey=checkout", #"{"userId":"\#(user)"}"#)
        return response.json.array?.first?["variationKey"].string
    }

    @Test func `What an override forces is decided by other processes on the database, and after a restart`() throws {
        let server = try ServerProcess(database: database)
        #expect(try server.request("PUT", "/v1/datafile", Self.datafile, fields: Self.fields).status == 201)
        let other = try ServerProcess(database: database)
        #expect(try Self.variation(of: "eva", at: other) == "control")
        let body = #"{"userId":"eva","experimentKey":"checkout","variationKey":"new"}"#
        #expect(try Self.post(server, "/v1/override", body).status == 200)
        #expect(try Self.variation(of: "eva", at: server) == "new")
        #expect(try Self.variation(of: "eva", at: other) == "new")
        #expect(try Self.variation(of: "bob", at: other) == "control")
        other.stop()
        let restarted = try ServerProcess(database: database)
        #expect(try Self.variation(of: "eva", at: restarted) == "new")
        let back = try Self.post(restarted, "/v1/override", #"{"userId":"eva","experimentKey":"checkout"}"#)
        #expect(back["prevVariationKey"] == "new")
        #expect(try Self.variation(of: "eva", at: restarted) == "control")
        restarted.stop()
        server.stop()
    }

    @Test(arguments: [HistoryRun.Setting.Database.sqlite, .postgreSQL(.direct)])
    func `Another process on the database decides by what an override forces once that is acknowledged`(
        _ kind: HistoryRun.Setting.Database
    ) throws {
        let place = try SharedDatabase.make(kind, in: directory)
        let servers = try (0..<2).map { _ in try ServerProcess(database: place.location, place.options) }
        #expect(try servers[0].request("PUT", "/v1/datafile", Self.datafile, fields: Self.fields).status == 201)
        // All loops know the project.
        #expect(try eventually { try Self.variation(of: "eva", at: servers[1]) == "control" })
        for round in 0..<100 {
            let (one, other) = (servers[round % 2], servers[(round + 1) % 2])
            let user = "user\(round)"
            // One whose profile is cached, and one who is new.
            if round % 4 < 2 { #expect(try Self.variation(of: user, at: other) == "control") }
            let body = #"{"userId":"\#(user)","experimentKey":"checkout","variationKey":"new"}"#
            #expect(try Self.post(one, "/v1/override", body).status == 200)
            #expect(try Self.variation(of: user, at: other) == "new", "round \(round)")
            let decided = try Self.post(other, "/v1/decide?keys=checkout", #"{"userId":"\#(user)"}"#)
            #expect(decided.status == 200)
            #expect(
                try Self.post(one, "/v1/override", #"{"userId":"\#(user)","experimentKey":"checkout"}"#).status == 200)
            #expect(try Self.variation(of: user, at: other) == "control", "round \(round)")
        }
        servers.forEach { $0.stop() }
    }

    @Test
    func `A change of an attribute or a segment is what the next decision finds, in another process within a second`()
        throws
    {
        let server = try ServerProcess(database: database)
        let client = try server.client()
        for (method, target, body) in [
            ("PUT", "/v1/attributes/age", #"{"type":"number"}"#),
            (
                "PUT", "/v1/segments/adults",
                #"{"conditions":{"type":"custom_attribute","name":"age","match":"ge","value":18}}"#
            ),
            ("PATCH", "/v1/profiles/tom/attributes", #"{"age":9}"#),
        ] {
            try #require(try client.request(method, target, body).status < 300)
        }
        let other = try ServerProcess(database: database)
        let definition = #"{"variations":["a","b"],"audience":{"segment":"adults"}}"#
        #expect(try client.request("PUT", "/v1/experiments/checkout", definition).status == 201)
        func source(_ server: ServerProcess) throws -> JSONValue {
            try server.request("GET", "/v1/assign?user_id=tom&experiment=checkout")["source"]
        }
        #expect(try eventually { try source(other) == "none" })
        _ = try client.request("PATCH", "/v1/profiles/tom/attributes", #"{"age":18}"#)
        #expect(try source(server) == "bucketed")
        #expect(try source(other) == "bucketed")
        let seniors = #"{"conditions":{"type":"custom_attribute","name":"age","match":"ge","value":65}}"#
        #expect(try client.request("PUT", "/v1/segments/adults", seniors).status == 200)
        #expect(try source(server) == "none")
        #expect(try eventually { try source(other) == "none" })
        other.stop()
    }
}
