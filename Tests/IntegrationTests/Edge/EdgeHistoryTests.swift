import APITestSupport
import Foundation
import ProcessTestSupport
import Synchronization
import TestSupport
import Testing

/// Two edges and their upstream, all of which are killed, behind a network that fails, while clients use and change them.
/// The long form is asked for by `HOLDFAST_TORTURE_SECONDS`.
@Suite struct EdgeHistoryTests {
    private static let options = ["--upstream-timeout", "500ms", "--max-lag", "3s"]

    @Test func `All that edges tell can be explained by what their upstream has decided`() throws {
        let fixture = try EdgeFixture()
        let seed = TortureSettings.seed
        var random = SeededGenerator(seed: seed)
        var edges = [try fixture.edge("one", Self.options), try fixture.edge("two", Self.options)]
        let current = Mutex(fixture.upstream)
        let watch = FeedWatch { current.withLock { $0 } }
        let servers = [("one", edges[0]), ("two", edges[1]), ("upstream", fixture.upstream)]
        let load = EdgeLoad(clients: 6, seed: seed, on: servers)
        var share = 0
        for round in TortureSettings.rounds(short: 6) {
            let fault: FaultyProxy.Fault = [.delays(milliseconds: 20), .cuts(after: 3_000), .swallows, .refuses][
                Int.random(in: 0..<4, using: &random)]
            fixture.proxy.fault = fault
            try load.wait(for: 80)
            fixture.proxy.fault = .none
            if Bool.random(using: &random) { fixture.proxy.forgetConnections() }
            share = (share + 30) % 100
            let isOpen = Int.random(in: 0..<4, using: &random) > 0
            let definition =
                AssignSamples.weights(share, 100 - share).dropLast()
                + #","enrollment":"\#(isOpen ? "open" : "closed")"}"#
            func define(_ server: ServerProcess) throws -> Bool {
                try server.request("PUT", "/v1/experiments/checkout?moves=allow", String(definition)).status == 200
            }
            // An edge that has not noticed the upstream again refuses.
            let isDefined = try define(edges[Int.random(in: 0..<2, using: &random)]) || define(fixture.upstream)
            #expect(isDefined)
            try load.wait(for: 40)
            let victim = Int.random(in: 0..<3, using: &random)
            if victim < 2 {
                let name = ["one", "two"][victim]
                edges[victim].kill()
                edges[victim] = try fixture.edge(name, Self.options, awaiting: false)
                // Until it has caught up it asks the upstream for each user; if that went away now, its copy would show
                // what was before.
                let hasCaughtUp = try edges[victim].awaits {
                    try $0.request("GET", "/metrics").text.contains("\nholdfast_edge_lag_seconds ")
                }
                #expect(hasCaughtUp)
                load.replace(victim, "\(name), process \(round)", edges[victim])
            } else {
                fixture.upstream.kill()
                try load.wait(for: 40)
                try fixture.restartUpstream()
                current.withLock { $0 = fixture.upstream }
                load.replace(2, "upstream, process \(round)", fixture.upstream)
            }
            try load.wait(for: 40)
        }
        let (events, unstored, failed) = load.end()
        #expect(failed.isEmpty, "\(failed.first ?? "")")
        for edge in edges {
            try EdgeFixture.awaitUp(edge)
            for user in EdgeLoad.users {
                let stored = try fixture.upstream.request("GET", "/v1/profiles/\(user)?detail=true").text
                #expect(
                    try edge.awaits { try $0.request("GET", "/v1/profiles/\(user)?detail=true").text == stored },
                    "\(user)")
            }
        }
        let history = EdgeHistory(events: events, states: watch.end())
        let violations = history.violations()
        #expect(violations.isEmpty, "HOLDFAST_TORTURE_SEED=\(seed): \(violations.prefix(5).joined(separator: "\n"))")
        print("edges, seed \(seed): \(events.count) responses explained, \(unstored) were not stored")
        for edge in edges { edge.stop() }
    }

    @Test func `The check finds a variation that nobody gave, and an edge that goes back`() {
        func event(_ server: String, _ times: ClosedRange<UInt64>, _ variation: String?) -> EdgeHistory.Event {
            .init(
                user: "ada", server: server, invokedAt: times.lowerBound, returnedAt: times.upperBound,
                variation: variation)
        }
        let states = ["ada": [EdgeHistory.State(seenAt: 10, variation: "a"), .init(seenAt: 20, variation: "b")]]
        func violations(_ events: EdgeHistory.Event...) -> Int {
            EdgeHistory(events: events, states: states).violations().count
        }
        #expect(violations(event("one", 5...12, "a"), event("one", 13...30, "b"), event("two", 14...40, "a")) == 0)
        #expect(violations(event("one", 5...12, "c")) == 1)
        #expect(violations(event("one", 5...12, "b"), event("one", 13...30, "a")) == 1)
        // Requests at the same time may be answered in any order.
        #expect(violations(event("one", 5...12, "b"), event("one", 11...30, "a")) == 0)
    }

    @Test func `The check allows what an erasure has taken back, and nothing that was before or after`() {
        let states = [
            EdgeHistory.State(seenAt: 10, variation: "a"),
            .init(seenAt: 50, variation: nil, unseenSince: 40, isErasure: true), .init(seenAt: 60, variation: "b"),
        ]
        func violations(_ server: String, _ times: ClosedRange<UInt64>...) -> Int {
            let events = times.map { times in
                EdgeHistory.Event(
                    user: "ada", server: server, invokedAt: times.lowerBound, returnedAt: times.upperBound,
                    variation: "lost")
            }
            return EdgeHistory(events: events, states: ["ada": states]).violations().count
        }
        #expect(violations("one", 5...20, 41...45, 70...80) == 1)
        #expect(violations("upstream", 5...20, 41...45, 70...80) == 2)
    }
}
