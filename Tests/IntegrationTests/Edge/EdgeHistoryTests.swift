import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Synchronization
import TestSupport
import Testing

/// Two edges and their upstream, all of which are killed, behind a network that fails, while clients use and change them.
/// The long form is asked for by `HOLDFAST_TORTURE_SECONDS`.
@Suite struct EdgeHistoryTests {
    private static let options = ["--upstream-timeout", "500ms", "--max-lag", "3s"]

    /// What else there may be at the upstream's address: pages and responses of a proxy, and another Holdfast.
    private struct Liars {
        let pages: [Impostor]
        let other: ServerProcess

        init(in directory: TemporaryDirectory) throws {
            pages = [
                try Impostor("200 OK", "Content-Type: text/html\r\n", body: "<html>We will be back</html>"),
                try Impostor("405 Not Allowed", body: "<html>405</html>"), try Impostor("200 OK"),
                try Impostor("304 Not Modified"), try Impostor("410 Gone"),
            ]
            other = try ServerProcess(database: directory.file("other.db"))
            let made = try other.request("PUT", "/v1/experiments/checkout", AssignSamples.definition)
            #expect(made.status == 201)
        }

        func port(_ random: inout SeededGenerator) -> UInt16 {
            let number = Int.random(in: 0...pages.count, using: &random)
            return number < pages.count ? pages[number].port : other.port
        }
    }

    /// Faults of the network, of the upstream's address, of the hosts' clocks and of all processes; and the upstream is
    /// restored from a backup of its last state, which begins another generation.
    @Test func `All that edges tell can be explained by what their upstream has decided`() throws {
        let fixture = try EdgeFixture()
        let seed = TortureSettings.seed
        var random = SeededGenerator(seed: seed)
        let liars = try Liars(in: fixture.directory)
        let names = ["one", "two"]
        let clocks = try names.map { try SetClock(in: fixture.directory, "clock-\($0)") }
        func edge(_ number: Int, awaiting isReady: Bool) throws -> ServerProcess {
            try fixture.edge(
                names[number], Self.options, environment: clocks[number].environment, awaiting: isReady)
        }
        clocks[1].set(hours: 1)
        var edges = [try edge(0, awaiting: true), try edge(1, awaiting: true)]
        let current = Mutex(fixture.upstream)
        let watch = FeedWatch { current.withLock { $0 } }
        let servers = [("one", edges[0]), ("two", edges[1]), ("upstream", fixture.upstream)]
        let load = EdgeLoad(clients: 6, seed: seed, on: servers)
        defer {
            _ = load.end()
            watch.stop()
        }
        var (share, restores, lies) = (0, 0, 0)
        func restartUpstream(_ round: Int) throws {
            try fixture.restartUpstream()
            current.withLock { $0 = fixture.upstream }
            load.replace(2, "upstream, process \(round)", fixture.upstream)
        }
        for round in TortureSettings.rounds(short: 8) {
            if Bool.random(using: &random) {
                fixture.proxy.fault =
                    [.delays(milliseconds: 20), .cuts(after: 3_000), .swallows, .refuses][
                        Int.random(in: 0..<4, using: &random)]
            } else {
                fixture.replaceUpstream(by: liars.port(&random))
                lies += 1
            }
            clocks[Int.random(in: 0..<2, using: &random)].set(
                hours: [0, 1, -1, 30, -200][Int.random(in: 0..<5, using: &random)])
            try load.wait(for: 80)
            fixture.replaceUpstream(by: fixture.upstream.port)
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
            switch Int.random(in: 0..<4, using: &random) {
            case 3:
                let backup = try fixture.stopUpstream(keeping: "backup-\(round).db")
                // What its feed had, which the restored one does not show any more.
                let past = try ServerProcess(database: backup)
                current.withLock { $0 = past }
                try watch.waitForEnd()
                past.stop()
                try fixture.restoreUpstream(from: backup)
                try FileManager.default.removeItem(atPath: backup)
                try restartUpstream(round)
                restores += 1
            case 2:
                fixture.upstream.kill()
                try load.wait(for: 40)
                try restartUpstream(round)
            case let victim:
                edges[victim].kill()
                edges[victim] = try edge(victim, awaiting: false)
                // Until it has caught up it asks the upstream for each user; if that went away now, its copy would show
                // what was before.
                let hasCaughtUp = try edges[victim].awaits {
                    try $0.request("GET", "/metrics").text.contains("\nholdfast_edge_lag_seconds ")
                }
                if !hasCaughtUp {
                    let metrics = try edges[victim].request("GET", "/metrics").text.split(separator: "\n")
                    let state = metrics.filter { $0.hasPrefix("holdfast_edge") }.joined(separator: "\n")
                    Issue.record(
                        "the edge has not caught up: \(try edges[victim].request("GET", "/readyz").text)\(state)")
                }
                load.replace(victim, "\(names[victim]), process \(round)", edges[victim])
            }
            try load.wait(for: 40)
        }
        let (events, unstored, goals, failed) = load.end()
        #expect(failed.isEmpty, "\(failed.first ?? "")")
        for edge in edges {
            try EdgeFixture.awaitUp(edge)
            #expect(try edge.awaitMetric("holdfast_edge_outbox_events") { $0 == 0 } == 0)
            for user in EdgeLoad.users {
                let stored = try fixture.upstream.request("GET", "/v1/profiles/\(user)?detail=true").text
                #expect(
                    try edge.awaits { try $0.request("GET", "/v1/profiles/\(user)?detail=true").text == stored },
                    "\(user)")
            }
            #expect(try edge.metric("holdfast_edge_refused_events_total") == 0)
        }
        let stored = try fixture.upstream.request("GET", "/v1/events").text.split(separator: "\n").compactMap {
            try JSONParser().parse(String($0))["id"].string
        }
        let counts = Dictionary(stored.map { ($0, 1) }, uniquingKeysWith: +)
        let wrong = goals.filter { counts[$0] != 1 } + counts.filter { $0.value > 1 }.keys
        #expect(
            wrong.isEmpty, "HOLDFAST_TORTURE_SEED=\(seed): \(wrong.count) of \(goals.count) goals are not there once")
        #expect(try liars.other.request("GET", "/v1/events").text.isEmpty)
        let history = EdgeHistory(events: events, states: watch.end())
        let violations = history.violations()
        #expect(violations.isEmpty, "HOLDFAST_TORTURE_SEED=\(seed): \(violations.prefix(5).joined(separator: "\n"))")
        print(
            "edges, seed \(seed): \(events.count) responses explained, \(unstored) were not stored, \(goals.count) goals, "
                + "\(lies) lies, \(restores) restores")
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
