import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Testing

/// Edges on hosts whose clocks are wrong.
@Suite struct EdgeClockTests {
    private let fixture: EdgeFixture
    private let clock: SetClock

    init() throws {
        fixture = try EdgeFixture()
        clock = try SetClock(in: fixture.directory)
    }

    private func edge() throws -> ServerProcess {
        let edge = try ServerProcess(
            database: fixture.directory.file("edge.db"), ["--upstream", "http://127.0.0.1:\(fixture.proxy.port)"],
            environment: clock.environment.merging(["HOLDFAST_UPSTREAM_TIMEOUT": "20s"]) { $1 })
        #expect(try edge.becomesReady())
        return edge
    }

    @Test(arguments: [Int64(1), -1, 192, -192])
    func `Events, assignments and overrides have the upstream's times`(hours: Int64) throws {
        clock.set(hours: hours)
        var edge = try edge()
        let began = Date().addingTimeInterval(-5)
        let variation = try edge.assign("ada")["variation_id"].string
        let soon = Date().addingTimeInterval(1_800).ISO8601Format()
        let override = #"{"variation_id":"70011","expires_at":"\#(soon)"}"#
        #expect(try edge.request("PUT", "/v1/profiles/bob/experiments/checkout", override).status == 200)
        for number in 0..<10 {
            let exposure = #"{"user_id":"ada\#(number)","experiment":"checkout","variation_id":"70011"}"#
            #expect(try edge.request("POST", "/v1/exposures", exposure).status == 200)
        }
        // The host's clock is corrected meanwhile, and is wrong again.
        clock.set(hours: 0)
        clock.set(hours: hours)
        for number in 0..<10 {
            let now = Date().ISO8601Format()
            let goal = #"{"user_id":"ada\#(number)","goal":"bought","timestamp":"\#(now)"}"#
            #expect(try edge.request("POST", "/v1/events", goal).status == 200)
            #expect(
                try edge.request("POST", "/v1/events", #"{"user_id":"ada\#(number)","goal":"bought"}"#).status == 200)
        }
        #expect(try edge.awaitMetric("holdfast_edge_outbox_events") { $0 == 0 } == 0)
        let counted = try fixture.upstream.request("GET", "/v1/experiments/checkout/results?goal=bought")
        let converted = (counted["variations"].array ?? []).reduce(0) { $0 + ($1["converted"].integer ?? 0) }
        #expect(converted == 10, "\(counted.text)")
        for line in try fixture.upstream.request("GET", "/v1/exposures").text.split(separator: "\n") {
            let text = try JSONParser().parse(String(line))["timestamp"].string ?? ""
            let time = try #require(
                try? Date(text, strategy: Date.ISO8601FormatStyle(includingFractionalSeconds: true)))
            #expect((began...Date().addingTimeInterval(5)).contains(time), "\(text)")
        }
        #expect(abs(try edge.metric("holdfast_edge_clock_offset_seconds") - Int(hours) * 3_600) < 5)
        #expect(edge.child.errors.first { $0.contains("this host's clock differs") } != nil)
        // Also after a restart without the upstream.
        fixture.proxy.fault = .refuses
        edge.stop()
        edge = try self.edge()
        #expect(try edge.assign("bob")["source"].string == "override")
        #expect(try edge.assign("ada")["variation_id"].string == variation)
        edge.stop()
    }

    @Test func `Clocks that agree are not corrected`() throws {
        let edge = try edge()
        for number in 0..<20 { _ = try edge.assign("user\(number)") }
        #expect(try edge.metric("holdfast_edge_clock_offset_seconds") == 0)
        edge.stop()
    }
}
