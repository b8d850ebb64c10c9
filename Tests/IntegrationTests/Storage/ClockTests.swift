import APITestSupport
import Foundation
import JSON
import Testing

#if PostgreSQL
    import PostgreSQLTestSupport
#endif

/// The wall clock is set back and forth under a running server.
@Suite struct ClockTests {
    private let directory: TemporaryDirectory
    private let clock: SetClock
    private let server: ServerProcess
    private let client: HTTPClient

    init() throws {
        directory = try TemporaryDirectory()
        clock = try SetClock(in: directory)
        server = try ServerProcess(
            database: directory.file("holdfast.db"), ["--assignment-ttl", "10h", "--header-timeout", "500ms"],
            environment: clock.environment)
        client = try server.client()
    }

    private func assignedAt(_ user: String) throws -> Date {
        try date(client.request("GET", "/v1/profiles/\(user)/experiments/11")["assigned_at"].string ?? "")
    }

    private func date(_ text: String) throws -> Date {
        let format = Date.ISO8601FormatStyle(includingFractionalSeconds: true)
        return try #require(try? Date(text, strategy: format), "\(text)")
    }

    @Test func `Times told are those of the clock, and answers do not depend on it`() throws {
        #expect(try client.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        let tag = try #require(try client.request("GET", "/v1/profiles/ada").field("etag"))
        let before = try assignedAt("ada")

        clock.set(hours: -48)
        let same = try client.request("GET", "/v1/profiles/ada", fields: ["If-None-Match: \(tag)"])
        #expect(same.status == 304)
        let date = try #require(same.field("date"))
        #expect(try client.request("POST", "/ups/save", profile("bob", ["11": "1"])).status == 200)
        #expect(try before.timeIntervalSince(assignedAt("bob")) > 47 * 3_600)
        // Saved again, the same assignment is renewed by the clock as it is; its beginning stays.
        #expect(
            try client.request("POST", "/ups/save", profile("ada", ["11": "1"])).text == profile("ada", ["11": "1"]))
        #expect(try assignedAt("ada") == before)
        #expect(try client.request("GET", "/v1/profiles/ada", fields: ["If-None-Match: \(tag)"]).status == 304)
        #expect(try client.request("GET", "/readyz").status == 200)

        clock.set(hours: 0)
        #expect(try client.request("GET", "/livez").field("date") != date)
        server.stop()
    }

    @Test func `An assignment is gone when its time is over, and an override is not`() throws {
        _ = try client.request("PUT", "/v1/profiles/ada/experiments/22", #"{"variation_id":"9"}"#)
        let saved = try client.request("POST", "/ups/save", profile("ada", ["11": "1"]))
        #expect(saved.text == profile("ada", ["11": "1", "22": "9"]))
        let detail = try client.request("GET", "/v1/profiles/ada/experiments/11")
        #expect(detail["expires_at"].string?.hasSuffix("Z") == true)
        clock.set(hours: 11)
        #expect(try client.request("GET", "/v1/profiles/ada/experiments/11").status == 404)
        #expect(try client.request("GET", "/v1/profiles/ada").text == profile("ada", ["22": "9"]))
        #expect(try client.request("POST", "/ups/lookup", #"{"user_id":"ada"}"#).text == profile("ada", ["22": "9"]))
        server.stop()
    }

    @Test func `An assignment is gone when its experiment says so, or else its project, or else the server`() throws {
        #expect(try client.request("PUT", "/v1/projects/shop").status == 201)
        #expect(try client.request("PUT", "/v1/projects/app", #"{"assignment_ttl":"4d"}"#).status == 201)
        for (key, project, lifetime) in [
            ("server", "shop", "null"), ("own", "shop", #""2d""#), ("endless", "shop", #""forever""#),
            ("project", "app", "null"), ("ownOfProject", "app", #""12h""#),
        ] {
            let fields = ["X-Optimizely-SDK-Key: \(project)"]
            let body = #"{"id":"\#(key)","variations":["a","b"],"assignment_ttl":\#(lifetime)}"#
            #expect(try client.request("PUT", "/v1/experiments/\(key)", body, fields: fields).status == 201)
            let asked = #"{"user_id":"ada","experiment":"\#(key)"}"#
            #expect(try client.request("POST", "/v1/assign", asked, fields: fields)["source"] == "bucketed")
        }
        func present() throws -> Set<String> {
            let map = try client.request("GET", "/v1/profiles/ada")["experiment_bucket_map"].object ?? JSONObject()
            return Set(map.map(\.key))
        }
        #expect(try present() == ["server", "own", "endless", "project", "ownOfProject"])
        for (hours, expected) in [
            (11, ["own", "endless", "project", "ownOfProject"]), (13, ["own", "endless", "project"]),
            (49, ["endless", "project"]), (97, ["endless"]), (1_000_000, ["endless"]),
        ] as [(Int64, Set<String>)] {
            clock.set(hours: hours)
            #expect(try present() == expected, "after \(hours) hours")
        }
        // A server that starts knows it, too.
        server.stop()
        let restarted = try ServerProcess(
            database: directory.file("holdfast.db"), ["--assignment-ttl", "10h"], environment: clock.environment)
        #expect(try restarted.request("POST", "/ups/save", profile("bob", ["own": "1", "server": "1"])).status == 200)
        clock.set(hours: 1_000_020)
        #expect(try restarted.request("GET", "/v1/profiles/bob").text == profile("bob", ["own": "1"]))
        restarted.stop()
    }

    @Test func `An assignment that has expired is gone, and comes to no harm when the clock goes back before`() throws {
        #expect(try client.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        clock.set(hours: 9)
        #expect(try client.request("GET", "/v1/profiles/ada").text == profile("ada", ["11": "1"]))
        #expect(try client.request("POST", "/ups/save", profile("bob", ["11": "1"])).status == 200)
        clock.set(hours: 11)
        #expect(try client.request("GET", "/v1/profiles/ada").status == 404)
        #expect(try client.request("GET", "/v1/profiles/bob").status == 200)
        // The background's deletion needs no time of the wall clock to come round.
        #expect(try server.awaitMetric("holdfast_store_expired_assignments_total") { $0 > 0 } == 1)
        clock.set(hours: -100)
        #expect(try client.request("GET", "/v1/profiles/ada").status == 404)
        #expect(try client.request("GET", "/v1/profiles/bob").status == 200)
        #expect(
            try client.request("PATCH", "/v1/profiles/ada", profile("ada", ["11": "2"])).text
                == profile("ada", ["11": "2"]))
        #expect(try client.request("GET", "/readyz").status == 200)
        server.stop()
    }

    @Test func `What has expired does not come back with the clock, and no time is before another`() throws {
        _ = try client.request("PUT", "/v1/experiments/checkout", #"{"variations":["a","b"]}"#)
        #expect(try client.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        clock.set(hours: 11)
        #expect(try client.request("GET", "/v1/profiles/ada").status == 404)
        #expect(try client.request("POST", "/ups/save", profile("bob", ["11": "1"])).status == 200)
        let last = try assignedAt("bob")
        clock.set(hours: 0)
        #expect(try client.request("GET", "/v1/profiles/ada").status == 404)
        for (path, body) in [
            ("/v1/events", #"{"user_id":"bob","goal":"signup"}"#),
            ("/v1/exposures", #"{"user_id":"bob","experiment":"checkout","variation_key":"a"}"#),
        ] {
            let sent = try client.request("POST", path, body)
            #expect(sent.status == 200, "\(sent.text)")
            #expect(try date(client.request("GET", path).json["timestamp"].string ?? "") >= last)
        }
        server.stop()
        let restarted = try ServerProcess(
            database: directory.file("holdfast.db"), ["--assignment-ttl", "10h"], environment: clock.environment)
        #expect(try restarted.request("POST", "/ups/save", profile("cid", ["11": "1"])).status == 200)
        let saved = try restarted.request("GET", "/v1/profiles/cid/experiments/11")
        #expect(try date(saved["assigned_at"].string ?? "") >= last)
        restarted.stop()
    }

    @Test func `Time-outs go on by the time that passes`() throws {
        let slow = try server.client()
        try slow.send("GET /livez HTTP/1.1\r\n")
        clock.set(hours: -1_000)
        #expect(try slow.receive().status == 408)
        // Nobody is idle for a thousand hours because the clock says so.
        clock.set(hours: 1_000)
        #expect(try client.request("GET", "/livez").status == 200)
        clock.set(hours: 0)
        #expect(try client.request("GET", "/livez").status == 200)
        server.stop()
    }

    @Test func `The audit log keeps the order of what was done`() throws {
        for (hours, variation) in [(0, "a"), (-48, "b"), (24, "c")] as [(Int64, String)] {
            clock.set(hours: hours)
            let body = #"{"variation_id":"\#(variation)"}"#
            #expect(try client.request("PUT", "/v1/profiles/ada/experiments/11", body).status == 200)
        }
        let entries = try client.request("GET", "/v1/audit")["entries"].array ?? []
        #expect(entries.map { $0["after"]["variation_id"] } == ["c", "b", "a"])
        let times = entries.compactMap { $0["recorded_at"].string }
        #expect(times.sorted() == [times[1], times[2], times[0]])
        server.stop()
    }
}

#if PostgreSQL
    @Suite struct DatabaseClockTests {
        @Test func `With PostgreSQL, times are those of its server, whatever the clock of the host says`() throws {
            let directory = try TemporaryDirectory()
            let (clock, database) = (try SetClock(in: directory), try TestDatabase())
            clock.set(hours: 11)
            let server = try ServerProcess(database: database.url, environment: clock.environment)
            #expect(try server.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
            let saved = try server.request("GET", "/v1/profiles/ada/experiments/11")["assigned_at"].string ?? ""
            let format = Date.ISO8601FormatStyle(includingFractionalSeconds: true)
            #expect(try abs(Date(saved, strategy: format).timeIntervalSinceNow) < 3_600)
            server.stop()
        }
    }
#endif
