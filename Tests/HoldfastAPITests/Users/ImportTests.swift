import APITestSupport
import Chronology
import Foundation
import JSON
import Storage
import TestSupport
import Testing

/// What happened in an experiment elsewhere, before it came to this server.
@Suite struct ImportTests {
    private let server: any TestServer
    private let now = systemWallClock()

    init() throws {
        server = try startTestServer()
    }

    private func put(_ key: String, _ status: String) throws {
        let body = #"{"variations":["control","new"],"status":"\#(status)"}"#
        let put = try server.request("PUT", "/v1/experiments/\(key)", body)
        #expect(put.status == 201 || put.status == 200, "\(put.text)")
    }

    private func send(
        _ key: String, startedAt: Instant, _ shares: String = #"{"control":9,"new":1}"#, exposures: [String] = [],
        events: [String] = []
    ) throws -> TestResponse {
        let body = """
            {"started_at":"\(startedAt.rfc3339)","shares":\(shares),
            "exposures":[\(exposures.joined(separator: ","))],"events":[\(events.joined(separator: ","))]}
            """
        return try server.request("POST", "/v1/experiments/\(key)/import", body)
    }

    private func exposure(_ user: String, _ variation: String, at time: Instant, _ others: String = "") -> String {
        #"{"user_id":"\#(user)","variation_key":"\#(variation)","timestamp":"\#(time.rfc3339)"\#(others)}"#
    }

    private func event(_ user: String, _ value: Int, at time: Instant) -> String {
        #"{"id":"\#(user)-\#(time.milliseconds)","user_id":"\#(user)","goal":"buy","value":\#(value),"timestamp":"\#(time.rfc3339)"}"#
    }

    private func results(_ key: String) throws -> TestResponse {
        let results = try server.request("GET", "/v1/experiments/\(key)/results?goal=buy")
        #expect(results.status == 200, "\(results.text)")
        return results
    }

    /// Users of a variation who were exposed and bought at some time before now.
    private func users(_ prefix: String, _ key: String = "", age: TimeSpan) -> (exposures: [String], events: [String]) {
        let others = key.isEmpty ? "" : #","experiment":"\#(key)""#
        var (exposures, events): ([String], [String]) = ([], [])
        for index in 0..<200 {
            let (user, variation) = ("\(prefix)\(index)", index % 10 == 0 ? "new" : "control")
            let exposedAt = now - age + .minutes(Int64(index))
            exposures.append(exposure(user, variation, at: exposedAt, others))
            if index % 3 == 0 { events.append(event(user, index, at: exposedAt + .hours(1))) }
            if index % 7 == 0 { events.append(event(user, 5, at: exposedAt - .hours(1))) }
        }
        return (exposures, events)
    }

    @Test func `What is imported gives the results of the same recorded live, under the shares that held then`() throws
    {
        // An experiment has run in equal parts for a week.
        for key in ["live", "moved", "old"] { try put(key, "running") }
        let live = users("live", "live", age: .days(5))
        for (path, elements) in [("exposures", live.exposures), ("events", live.events)] {
            let sent = try server.request("POST", "/v1/\(path)", "[\(elements.joined(separator: ","))]")
            #expect(sent.status == 200 && !sent.text.contains("refused"), "\(sent.text)")
        }
        let moved = users("moved", age: .days(5))
        let old = users("old", age: .days(200))
        for (key, parts, age) in [("moved", moved, TimeSpan.days(6)), ("old", old, .days(201))] {
            let start = now - age
            let first = try send(key, startedAt: start, exposures: parts.exposures)
            #expect(first.status == 200, "\(first.text)")
            #expect(first["exposures"]["stored"] == 200)
            for repeated in [0, 1] {
                let sent = try send(key, startedAt: start, exposures: parts.exposures, events: parts.events)
                #expect(sent.status == 200, "\(sent.text)")
                #expect(sent["exposures"] == ["stored": 0, "repeated": 200])
                let number = JSONValue.integer(Int64(parts.events.count))
                #expect(sent["events"][repeated == 0 ? "stored" : "repeated"] == number, "\(sent.text)")
            }
        }
        let expected = try results("live")
        func figures(_ results: TestResponse) -> [JSONValue] {
            (results["variations"].array ?? []).flatMap { variation in
                ["users", "events", "converted"].map { variation[$0] }
                    + [variation["conversion"]["rate"], variation["value"]["mean"]]
                    + ["difference", "p_value", "sequential_p_value", "cuped"].map {
                        variation["value"]["comparison"][$0]
                    }
            }
        }
        #expect(expected["sample_ratio"]["mismatch"] == true, "in equal parts")
        for key in ["moved", "old"] {
            let found = try results(key)
            #expect(figures(found) == figures(expected), "\(found.text)")
            #expect(found["sample_ratio"]["mismatch"] == false, "\(found.text)")
            let shares = (found["variations"].array ?? []).map { $0["expected_share"].double ?? 0 }
            #expect(shares.count == 2 && abs(shares[0] - 90) < 1e-7, "\(shares)")
        }
        let actions = try server.request("GET", "/v1/audit?action=experiment.import")["entries"].array ?? []
        #expect(actions.count == 6 && actions.last?["after"]["exposures"] == 200)
    }

    @Test func `Imported users keep their variation when the experiment starts here, and may go on`() throws {
        try put("e", "draft")
        let start = now - .days(30)
        let sent = try send("e", startedAt: start, exposures: [exposure("ann", "new", at: start)])
        #expect(sent.status == 200, "\(sent.text)")
        try put("e", "running")
        let assigned = try server.request("POST", "/v1/assign", #"{"user_id":"ann","experiment":"e"}"#)
        #expect(assigned["variation_key"] == "new" && assigned["source"] == "stored", "\(assigned.text)")
        // Others are exposed here, and what happened elsewhere still arrives.
        let live = #"{"user_id":"bob","experiment":"e","variation_key":"control"}"#
        #expect(try server.request("POST", "/v1/exposures", live).status == 200)
        let later = try send("e", startedAt: start, exposures: [exposure("cy", "control", at: now - .seconds(1))])
        #expect(later.status == 200, "\(later.text)")
        let found = try results("e")
        #expect((found["variations"].array ?? []).map { $0["users"] } == [2, 1])
        let periods = found["sample_ratio"]["periods"].array ?? []
        #expect(periods.first?["since"].string == start.rfc3339, "\(found.text)")
    }

    @Test func `An import that does not fit is refused, and stores nothing`() throws {
        try put("e", "running")
        try put("used", "running")
        let live = #"{"user_id":"bob","experiment":"used","variation_key":"control"}"#
        #expect(try server.request("POST", "/v1/exposures", live).status == 200)
        let start = now - .days(30)
        let good = exposure("ann", "new", at: start)
        func expect(_ response: TestResponse, _ status: Int, _ pointer: String?, _ detail: String) {
            #expect(
                response.status == status && response["detail"].string?.contains(detail) == true, "\(response.text)")
            if let pointer { #expect(response["pointer"].string == pointer, "\(response.text)") }
        }
        expect(try send("used", startedAt: start), 409, nil, "before the first exposure")
        expect(try send("none", startedAt: start), 404, nil, "none")
        expect(try send("e", startedAt: now + .days(1)), 422, "/started_at", "in the future")
        let after = try send("e", startedAt: systemWallClock())
        expect(after, 409, "/started_at", "from when on this server has")
        expect(try send("e", startedAt: start, "5"), 400, "/shares", "must be an object")
        expect(try send("e", startedAt: start, #"{"nwe":1}"#), 422, "/shares/nwe", "control, new")
        expect(try send("e", startedAt: start, #"{"control":0,"new":0}"#), 422, "/shares", "above 0")
        expect(try send("e", startedAt: start, #"{"new":-1}"#), 422, "/shares/new", "from 0")
        let early = exposure("ann", "new", at: start - .milliseconds(1))
        expect(try send("e", startedAt: start, exposures: [good, early]), 422, "/exposures/1/timestamp", "before")
        let timeless = #"{"user_id":"ann","variation_key":"new"}"#
        expect(try send("e", startedAt: start, exposures: [timeless]), 422, "/exposures/0/timestamp", "required")
        let without = #"{"user_id":"ann","timestamp":"\#(now.rfc3339)"}"#
        expect(try send("e", startedAt: start, exposures: [without]), 400, "/exposures/0/variation_key", "required")
        let nameless = #"{"user_id":"ann","goal":"buy","timestamp":"\#(now.rfc3339)"}"#
        expect(try send("e", startedAt: start, exposures: [good], events: [nameless]), 422, "/events/0/id", "required")
        #expect(try results("e")["users"]["counted"] == 0)
        #expect(try server.request("GET", "/v1/profiles/ann").status == 404)
        #expect(try send("e", startedAt: start, exposures: [good]).status == 200)
        expect(try send("e", startedAt: start - 1, exposures: [good]), 409, nil, "the same `started_at`")
        let other = try send("e", startedAt: start, #"{"control":0,"new":1}"#, exposures: [good])
        expect(other, 409, nil, "control 90.0%, new 10.0%")
        #expect(try server.request("POST", "/v1/experiments/e/conclude", #"{"winner":null}"#).status == 200)
        expect(try send("e", startedAt: start, exposures: [good]), 409, nil, "must not be over")
        #expect(try results("e")["users"]["counted"] == 1)
    }

    @Test func `Shares have every variation, and are fixed by the first part with exposures`() throws {
        try put("moved", "draft")
        let start = now - .days(7)
        let missing = try send("moved", startedAt: start, #"{"control":100}"#)
        #expect(missing.status == 422 && missing["pointer"] == "/shares", "\(missing.text)")
        #expect(missing["detail"].string?.contains("'new' is missing") == true, "\(missing.text)")
        #expect(try send("moved", startedAt: start, #"{"control":100,"new":0}"#).status == 200)
        let early = event("ada", 5, at: start - .days(1))
        #expect(try send("moved", startedAt: start, #"{"control":1,"new":2}"#, events: [early]).status == 200)
        let shares = #"{"control":50,"new":50}"#
        let first = try send(
            "moved", startedAt: start, shares, exposures: [exposure("ada", "new", at: start + .days(1))])
        #expect(first.status == 200, "\(first.text)")
        #expect(try send("moved", startedAt: start, #"{"control":100,"new":0}"#).status == 409)
        #expect(try send("moved", startedAt: start, shares).status == 200)
    }

    @Test func `Users of a variation that nobody got elsewhere are a mismatch`() throws {
        try put("moved", "draft")
        let start = now - .days(7)
        let exposures = (0..<200).map { index in
            exposure("u\(index)", index % 2 == 0 ? "new" : "control", at: start + .minutes(Int64(index)))
        }
        let sent = try send("moved", startedAt: start, #"{"control":100,"new":0}"#, exposures: exposures)
        #expect(sent.status == 200, "\(sent.text)")
        let ratio = try results("moved")["sample_ratio"]
        #expect(ratio["mismatch"] == true, "\(ratio)")
    }
}
