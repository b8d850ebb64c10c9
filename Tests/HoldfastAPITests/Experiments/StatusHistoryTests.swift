import APITestSupport
import Chronology
import Foundation
import JSON
import Storage
import Testing

/// Who counts when an experiment was not running, or when exposures arrive late.
@Suite struct StatusHistoryTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    private func put(_ body: String) throws {
        let put = try server.request("PUT", "/v1/experiments/e", body)
        #expect(put.status == 200 || put.status == 201, "\(put.text)")
    }

    /// - Returns: how many of the exposures were said to be stored.
    @discardableResult
    private func expose(_ users: [String], _ variation: String, at time: Instant? = nil) throws -> Int {
        let timestamp = time.map { #","timestamp":"\#($0.rfc3339)""# } ?? ""
        let elements = users.map {
            #"{"user_id":"\#($0)","experiment":"e","variation_key":"\#(variation)"\#(timestamp)}"#
        }
        let sent = try server.request("POST", "/v1/exposures", "[\(elements.joined(separator: ","))]")
        #expect(sent.status == 200, "\(sent.text)")
        return (sent["results"].array ?? []).count { $0["status"] == "stored" }
    }

    private func results(_ query: String = "goal=buy") throws -> TestResponse {
        let results = try server.request("GET", "/v1/experiments/e/results?\(query)")
        #expect(results.status == 200, "\(results.text)")
        return results
    }

    private func warning(_ results: TestResponse) -> String? {
        results["warnings"].array?.first { $0["code"] == "not_running" }?["message"].string
    }

    private func users(_ results: TestResponse) -> [Int64?] {
        (results["variations"].array ?? []).map { $0["users"].integer }
    }

    /// A time of the wall clock that no other change has: none was before in its millisecond, and none will be.
    private func moment() -> Instant {
        func next(after time: Instant) -> Instant {
            while true {
                let time = (before: time, now: systemWallClock())
                if time.now > time.before { return time.now }
            }
        }
        let moment = next(after: systemWallClock())
        _ = next(after: moment)
        return moment
    }

    @Test func `Exposures after the conclusion, in a draft and in a pause neither count nor exclude anybody`() throws {
        try put(#"{"variations":["control","new"],"status":"draft"}"#)
        #expect(try expose(["drafted", "gone"], "control") == 2)
        #expect(
            warning(try results()) == "2 exposures happened while the experiment was not running and are not counted")
        #expect(try results()["verdict"]["reasons"].array?.count == 1)
        try put(#"{"status":"running"}"#)
        let (first, second) = ((0..<499).map { "a\($0)" }, (0..<500).map { "b\($0)" })
        try expose(first + ["drafted"], "new")
        try expose(second, "control")
        #expect(users(try results()) == [500, 500])
        let concluded = try server.request("POST", "/v1/experiments/e/conclude", #"{"winner":null}"#)
        #expect(concluded.status == 200, "\(concluded.text)")
        #expect(try expose(first, "control") == 499)
        #expect(try expose(second, "new") == 500)
        #expect(users(try results()) == [500, 500])
        #expect(try results("goal=buy&live=true")["not_running_exposures"].integer == 1_001)
        #expect(try server.request("POST", "/v1/experiments/e/reopen").status == 200)
        try put(#"{"status":"paused"}"#)
        try expose(["paused"], "new")
        try put(#"{"status":"running"}"#)
        _ = try server.request("PUT", "/v1/metrics/buyers", #"{"kind":"conversion","goal":"buy"}"#)
        try put(#"{"metrics":{"primary":["buyers"]}}"#)
        for query in ["goal=buy", ""] {
            let found = try results(query)
            let counts = found["users"]
            #expect(counts["counted"].integer == 1_000 && counts["multiple_variations"].integer == 0, "\(found.text)")
            #expect(found["not_running_exposures"].integer == 1_002)
            #expect(
                warning(found)
                    == "1002 exposures happened while the experiment was not running and are not counted")
        }
        // The user of the pause has no variation yet, and may get the other one.
        try expose(["paused"], "control")
        #expect(users(try results()) == [501, 500])
        let profile = try server.request("GET", "/v1/profiles/gone")
        #expect(profile.status == 404, "\(profile.text)")
    }

    @Test func `A late exposure counts if the experiment ran when it happened`() throws {
        try put(#"{"variations":["control","new"],"status":"draft"}"#)
        let drafted = moment()
        try put(#"{"status":"running"}"#)
        let running = moment()
        try put(#"{"status":"paused"}"#)
        let paused = moment()
        try expose(["late"], "new", at: running)
        try expose(["early"], "new", at: drafted)
        try expose(["pause"], "new", at: paused)
        #expect(users(try results()) == [0, 1])
        #expect(
            warning(try results()) == "2 exposures happened while the experiment was not running and are not counted")
        let enrolled = try server.request("GET", "/v1/profiles/late")
        #expect(enrolled["experiment_bucket_map"].object?.count == 1, "\(enrolled.text)")
        let concluded = try server.request("POST", "/v1/experiments/e/conclude", #"{"winner":null}"#)
        #expect(concluded.status == 200, "\(concluded.text)")
        try expose(["later"], "control", at: running)
        #expect(users(try results()) == [0, 1], "frozen")
        #expect(users(try results("goal=buy&live=true")) == [1, 1])
    }

    @Test func `An uploaded datafile's status counts as well, in every protocol`() throws {
        func upload(_ status: String) throws {
            let datafile = """
                {"version":"4","revision":"\(status)","accountId":"1","projectId":"1",
                "experiments":[{"id":"7","key":"e","status":"\(status)","layerId":"1","audienceIds":[],
                "forcedVariations":{},"variations":[{"id":"71","key":"control"},{"id":"72","key":"new"}],
                "trafficAllocation":[{"entityId":"71","endOfRange":5000},{"entityId":"72","endOfRange":10000}]}],
                "groups":[],"audiences":[],"attributes":[],"events":[],"featureFlags":[],"rollouts":[]}
                """
            let put = try server.request("PUT", "/v1/datafile", datafile)
            #expect(put.status == 200 || put.status == 201, "\(put.text)")
        }
        func report(_ user: String, _ variation: String) throws {
            let snapshot = """
                {"decisions":[{"campaign_id":"1","experiment_id":"7","variation_id":"\(variation)"}],
                "events":[{"entity_id":"1","type":"campaign_activated","key":"campaign_activated","uuid":"\(user)\(variation)",
                "timestamp":\(moment().milliseconds)}]}
                """
            let body = """
                {"account_id":"1","visitors":[{"visitor_id":"\(user)","attributes":[],"snapshots":[\(snapshot)]}]}
                """
            let sent = try server.request("POST", "/sdk/v1/events", body)
            #expect(sent.status == 204, "\(sent.text)")
        }
        try upload("Running")
        try report("u", "71")
        try upload("Paused")
        try report("u", "72")
        try report("v", "72")
        try upload("Running")
        try report("v", "71")
        #expect(users(try results()) == [2, 0])
        #expect(try results()["not_running_exposures"].integer == 2)
        let metrics = try server.request("GET", "/metrics").text
        #expect(metrics.contains("\nholdfast_exposures_not_running_total 2\n"))
    }
}
