import APITestSupport
import Foundation
import JSON
import Synchronization
import Testing

/// What was acknowledged is there, whatever became of the process.
@Suite struct DurabilityTests {
    private let directory: TemporaryDirectory
    private let database: String

    init() throws {
        directory = try TemporaryDirectory()
        database = directory.file("holdfast.db")
    }

    @Test func `A restart keeps everything`() throws {
        var server = try ServerProcess(database: database)
        #expect(try server.request("POST", "/ups/save", profile("ada", ["11": "1", "22": "2"])).status == 200)
        #expect(try server.request("PUT", "/v1/profiles/bob", profile("bob")).status == 201)
        let override = #"{"variation_id":"9"}"#
        #expect(try server.request("PUT", "/v1/profiles/ada/experiments/22", override).status == 200)
        let before = try server.request("GET", "/v1/profiles?detail=true").body
        server.stop()
        #expect(!FileManager.default.fileExists(atPath: database + "-wal"))

        server = try ServerProcess(database: database)
        #expect(try server.request("GET", "/v1/profiles?detail=true").body == before)
        #expect(
            try server.request("POST", "/ups/save", profile("ada", ["22": "3"])).text
                == profile("ada", ["11": "1", "22": "9"]))
        server.stop()
    }

    @Test func `A kill under concurrent saves loses nothing that was acknowledged`() throws {
        for round in 0..<3 {
            let server = try ServerProcess(database: database)
            let acknowledged = saveUntilKilled(server, round: round)
            #expect(acknowledged.count > 8)

            let restarted = try ServerProcess(database: database)
            let client = try restarted.client()
            #expect(try client.request("GET", "/readyz").status == 200)
            let lost = try acknowledged.filter { userID, text in
                try client.request("GET", "/v1/profiles/\(userID)").text != text
            }
            #expect(lost.isEmpty)
            #expect(try followed(client) == stored(client))
            restarted.stop()
        }
        #expect(try DatabaseConnection(database).text("PRAGMA integrity_check") == "ok")
    }

    /// The variations by user and experiment that somebody has who follows the feed from its beginning.
    private func followed(_ client: HTTPClient) throws -> [String: String] {
        var (found, cursor): ([String: String], String) = ([:], "oldest")
        while true {
            let response = try client.request("GET", "/v1/feed?limit=10000&after=\(cursor)")
            let lines = try response.text.split(separator: "\n").map { try JSONParser().parse(String($0)) }
            for line in lines.dropLast() {
                let key = "\(line["user_id"].string ?? "") \(line["experiment_id"].string ?? "")"
                found[key] = line["variation_id"].string
            }
            cursor = lines.last?["cursor"].string ?? ""
            if lines.count <= 1 { return found }
        }
    }

    private func stored(_ client: HTTPClient) throws -> [String: String] {
        var found: [String: String] = [:]
        for line in try client.request("GET", "/v1/profiles").text.split(separator: "\n") {
            let profile = try JSONParser().parse(String(line))
            for member in profile["experiment_bucket_map"].object ?? JSONObject() {
                found["\(profile["user_id"].string ?? "") \(member.key)"] = member.value["variation_id"].string
            }
        }
        return found
    }

    @Test func `A log that is deleted under the server loses nothing that was acknowledged`() throws {
        var server = try ServerProcess(database: database)
        let client = try server.client()
        #expect(try client.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        #expect(unlink(database + "-wal") == 0)
        // The first refused write may be the server's own.
        #expect(try client.request("PUT", "/v1/profiles/bob", profile("bob")).status == 503)
        let ready = try client.request("GET", "/readyz")
        #expect(ready.status == 503)
        #expect(ready["detail"].string?.contains("write-ahead log") == true, "\(ready.text)")
        #expect(try client.request("GET", "/v1/profiles/ada").status == 200)
        server.kill()

        server = try ServerProcess(database: database)
        #expect(try server.request("GET", "/v1/profiles/ada").text == profile("ada", ["11": "1"]))
        #expect(try server.request("GET", "/v1/profiles/bob").status == 404)
        #expect(try server.request("PUT", "/v1/profiles/bob", profile("bob")).status == 201)
        server.stop()
        #expect(try DatabaseConnection(database).text("PRAGMA integrity_check") == "ok")
    }

    /// Saves with many clients until the process is killed under them.
    ///
    /// - Returns: the last acknowledged profile of each user.
    private func saveUntilKilled(_ server: ServerProcess, round: Int) -> [String: String] {
        let acknowledged = Mutex<[String: String]>([:])
        let enough = DispatchSemaphore(value: 0)
        let clients = DispatchGroup()
        for client in 0..<8 {
            let thread = Thread {
                defer { clients.leave() }
                guard let connection = try? server.client() else { return }
                for number in 0... {
                    let userID = "r\(round)c\(client)u\(number)"
                    let body = profile(userID, ["1": "v\(number)", "2": "w"])
                    guard let response = try? connection.request("POST", "/ups/save", body), response.status == 200
                    else {
                        return
                    }
                    acknowledged.withLock { $0[userID] = response.text }
                    if number == 20 { enough.signal() }
                }
            }
            clients.enter()
            thread.start()
        }
        enough.wait()
        server.kill()
        clients.wait()
        return acknowledged.withLock { $0 }
    }

    // MARK: Events

    @Test func `Events whose request was answered survive kill -9`() throws {
        let events = (0..<100).map { #"{"id":"\#($0)","user_id":"u\#($0)","goal":"g"}"# }.joined(separator: ",")
        let server = try ServerProcess(database: database)
        #expect(try server.request("POST", "/v1/events", "[\(events)]").status == 200)
        server.kill()
        let restarted = try ServerProcess(database: database)
        let repeated = try restarted.request("POST", "/v1/events", "[\(events)]")["results"].array ?? []
        #expect(repeated.count == 100)
        #expect(repeated.allSatisfy { $0["status"] == "repeated" })
    }

    private static func serverWithGoal(_ database: String) throws -> ServerProcess {
        let server = try ServerProcess(database: database)
        #expect(
            try server.request("PUT", "/v1/datafile", AgentSamples.datafile, fields: AgentSamples.fields).status == 201)
        return server
    }

    private func post(_ server: ServerProcess, _ target: String, _ body: String) throws -> TestResponse {
        try server.request("POST", target, body, fields: AgentSamples.fields)
    }

    private func text(_ sql: String) throws -> String {
        try DatabaseConnection(database).text(sql)
    }

    @Test func `A conversion whose request was answered survives kill -9`() throws {
        let server = try Self.serverWithGoal(database)
        let body = #"{"userId":"ada","userAttributes":{"plan":"gold"},"eventTags":{"revenue":42}}"#
        #expect(try post(server, "/v1/track?eventKey=purchase", body).status == 200)
        server.kill()
        let payload = #"{"event_id":"e1","tags":{"revenue":42},"attributes":{"plan":"gold"}}"#
        let stored = try text(
            "SELECT sdk_key || ' ' || user_id || ' ' || goal || ' ' || value || ' ' || payload FROM goal_events")
        #expect(stored == "tests ada purchase 42.0 " + payload)
    }

    @Test func `An impression is stored when the server stops, unless tracking is disabled`() throws {
        let server = try Self.serverWithGoal(database)
        #expect(try post(server, "/v1/activate?experimentKey=checkout", #"{"userId":"ada"}"#).status == 200)
        let untracked = "/v1/activate?experimentKey=checkout&disableTracking=true"
        #expect(try post(server, untracked, #"{"userId":"bob"}"#).status == 200)
        server.stop()
        let payload = #"{"variation_key":"control","flag_key":"","rule_type":"experiment","source":"bucketed"}"#
        let stored = try text(
            """
            SELECT group_concat(sdk_key || ' ' || user_id || ' ' || experiment_id || ' ' || experiment_key || ' '
            || variation_id || ' ' || flags || ' ' || payload) FROM exposures
            """)
        #expect(stored == "tests ada 7 checkout 71 0 " + payload)
    }
}
