import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Testing

/// Edges while their upstream, or the network in between, fails.
@Suite struct EdgeOutageTests {
    private let fixture: EdgeFixture

    init() throws {
        fixture = try EdgeFixture()
    }

    @Test(arguments: [FaultyProxy.Fault.refuses, .swallows])
    func `Known users are answered while the upstream is away, and nothing of the outage is lost`(
        fault: FaultyProxy.Fault
    ) throws {
        let known = (0..<40).map { "known\($0)" }
        var edge = try fixture.edge("edge", ["--upstream-timeout", "500ms", "--max-lag", "3s"])
        let given = try known.map { try edge.assign($0)["variation_id"].string }
        fixture.proxy.fault = fault
        try EdgeFixture.awaitAway(edge)

        func expectKnown() throws {
            for (user, variation) in zip(known, given) {
                let response = try edge.assign(user)
                #expect(response["variation_id"].string == variation)
                #expect(response["source"].string == "stored")
            }
        }
        try expectKnown()
        // A new user gets what the hash says, and the response says that it is not stored.
        let hashed = try edge.assign("new")
        #expect(hashed.status == 200)
        #expect(
            hashed["reasons"].array?.contains { $0.string?.contains("not stored") ?? false } ?? false, "\(hashed.text)")
        #expect(try edge.stored("new") == nil)
        #expect(try edge.request("POST", "/ups/save", #"{"user_id":"x","experiment_bucket_map":{}}"#).status == 503)
        #expect(try edge.request("GET", "/v1/audit").status == 503)

        let exposure =
            #"{"user_id":"new","experiment":"checkout","variation_id":"\#(hashed["variation_id"].string ?? "")"}"#
        #expect(try edge.request("POST", "/v1/exposures", exposure).status == 200)
        for user in known {
            for _ in 0..<2 {
                let goal = #"{"user_id":"\#(user)","goal":"bought","value":1}"#
                #expect(try edge.request("POST", "/v1/events", goal).status == 200)
            }
        }
        #expect(
            try edge.request("POST", "/v1/events", #"{"user_id":"known0","goal":"bought","id":"once"}"#).status == 200)
        #expect(try edge.request("GET", "/readyz").status == 200)

        // Also after a restart, and after the end of the process.
        edge.kill()
        edge = try fixture.edge("edge", ["--upstream-timeout", "500ms", "--max-lag", "3s"], awaiting: false)
        try EdgeFixture.awaitAway(edge)
        #expect(try edge.request("GET", "/readyz").status == 200)
        try expectKnown()
        let waiting = try edge.metric("holdfast_edge_outbox_events")
        #expect(waiting >= 2 * known.count + 2)
        let status = try edge.request("GET", "/info")["edge"]
        #expect(status["upstream_up"] == false && status["copy_complete"] == true)
        #expect(status["outbox_events"].integer.map { Int($0) } == waiting)
        #expect(status["detail"].string?.hasPrefix("the upstream does not respond") == true, "\(status)")

        fixture.proxy.fault = .none
        try EdgeFixture.awaitUp(edge)
        #expect(try edge.awaitMetric("holdfast_edge_outbox_events") { $0 == 0 } == 0)
        for (index, user) in known.enumerated() {
            let events = try fixture.upstream.request("GET", "/v1/profiles/\(user)/events")
            let goals = events.text.components(separatedBy: #""goal":"bought""#).count - 1
            #expect(goals == (index == 0 ? 3 : 2), "\(events.text)")
        }
        // The exposure has enrolled the user.
        #expect(try fixture.upstream.stored("new") == hashed["variation_id"].string)
        #expect(try edge.awaits { try $0.stored("new") == hashed["variation_id"].string })
        #expect(try edge.metric("holdfast_edge_refused_events_total") == 0)
        edge.stop()
    }

    @Test func `A request that is passed on waits only for a moment if the upstream says nothing`() throws {
        let edge = try fixture.edge("edge", ["--upstream-timeout", "1s", "--max-lag", "30s"])
        fixture.proxy.fault = .swallows
        let began = ContinuousClock.now
        let flags = try edge.request("GET", "/v1/flags")
        #expect(flags.status == 504 && flags.field("retry-after") == "1", "\(flags.text)")
        #expect(flags["detail"].string?.hasPrefix("the upstream has not responded in time") == true, "\(flags.text)")
        #expect(try edge.request("PATCH", "/v1/profiles/ada", profile("ada", ["22": "2"])).status == 504)
        #expect(.now - began < .seconds(15))
        edge.stop()
    }

    @Test func `What may take long is given up once the upstream is found to be away`() throws {
        let edge = try fixture.edge("edge", ["--upstream-timeout", "500ms", "--max-lag", "3s"])
        fixture.proxy.fault = .swallows
        let began = ContinuousClock.now
        let changed = try edge.request("PUT", "/v1/experiments/checkout", #"{"status":"paused"}"#)
        #expect(changed.status == 504, "\(changed.text)")
        #expect(.now - began < .seconds(25))
        edge.stop()
    }

    @Test func `With refuse a new user gets an error instead`() throws {
        let edge = try fixture.edge("edge", ["--offline-enrollment", "refuse"])
        _ = try edge.assign("ada")
        fixture.proxy.fault = .refuses
        try EdgeFixture.awaitAway(edge)
        #expect(try edge.assign("new").status == 503)
        #expect(try edge.assign("ada")["source"].string == "stored")
        edge.stop()
    }

    /// How many goals of a user the upstream has.
    private func goals(_ user: String) throws -> Int {
        let events = try fixture.upstream.request("GET", "/v1/profiles/\(user)/events").text
        return events.components(separatedBy: #""goal":"bought""#).count - 1
    }

    private func buy(_ user: String, at edge: ServerProcess) throws {
        #expect(try edge.request("POST", "/v1/events", #"{"user_id":"\#(user)","goal":"bought"}"#).status == 200)
    }

    @Test func `What waits of a user who was erased during an outage does not come back, and the user may`() throws {
        var edge = try fixture.edge()
        for user in ["ada", "bob", "cy"] { _ = try edge.assign(user) }
        fixture.proxy.fault = .refuses
        try EdgeFixture.awaitAway(edge)
        for user in ["ada", "bob", "cy"] { try buy(user, at: edge) }
        let exposure = #"{"user_id":"ada","experiment":"checkout","variation_id":"70011"}"#
        #expect(try edge.request("POST", "/v1/exposures", exposure).status == 200)
        #expect(try fixture.upstream.request("DELETE", "/v1/profiles/ada").status == 200)
        #expect(try fixture.upstream.request("POST", "/v1/profiles/dan/merge", #"{"from":"bob"}"#).status == 200)
        let erased = try edge.metric("holdfast_edge_outbox_events")
        // Accepted after the erasure, further from it than the edge knows the time.
        let deadline = ContinuousClock.now + .seconds(1.5)
        while .now < deadline { _ = try edge.request("GET", "/readyz") }
        try buy("ada", at: edge)
        try buy("bob", at: edge)
        edge.kill()
        fixture.proxy.fault = .none
        edge = try fixture.edge(awaiting: false)
        #expect(try edge.awaitMetric("holdfast_edge_outbox_events") { $0 == 0 } == 0)
        for (user, count) in [("ada", 1), ("bob", 1), ("cy", 1), ("dan", 1)] {
            #expect(try goals(user) == count, "\(user)")
        }
        #expect(try edge.stored("ada") == nil)
        let exposures = try fixture.upstream.request("GET", "/v1/exposures").text
        #expect(!exposures.contains(#""user_id":"ada""#), "\(exposures)")
        let dropped = try edge.metric("holdfast_edge_erased_events_total")
        #expect(dropped > 0 && dropped < erased)
        #expect(try fixture.upstream.metric("holdfast_events_erased_total") == dropped)
        #expect(try edge.metric("holdfast_edge_refused_events_total") == 0)
        edge.stop()
    }

    @Test func `On a healthy line nothing of an edge comes back either, whenever the erasure follows`() throws {
        let edge = try fixture.edge()
        for number in 0..<60 {
            let user = "user\(number)"
            _ = try edge.assign(user)
            try buy(user, at: edge)
            #expect(try fixture.upstream.request("DELETE", "/v1/profiles/\(user)").status == 200)
        }
        #expect(try edge.awaitMetric("holdfast_edge_outbox_events") { $0 == 0 } == 0)
        for number in 0..<60 {
            #expect(try fixture.upstream.request("DELETE", "/v1/profiles/user\(number)").status == 404)
        }
        edge.stop()
    }

    @Test func `What an edge sends after a login through another edge counts for the account`() throws {
        let edge = try fixture.edge("one")
        // Straight to the upstream, while the first one has no line.
        let other = try ServerProcess(
            database: fixture.directory.file("other.db"),
            ["--upstream", "http://127.0.0.1:\(fixture.upstream.port)"])
        #expect(try other.becomesReady())
        fixture.proxy.fault = .refuses
        try EdgeFixture.awaitAway(edge)
        let logins = try (0..<20).map { number -> (anonymous: String, account: String) in
            let anonymous = "anonymous-\(UUID().uuidString.lowercased())"
            // Every other one is known to the upstream.
            if number % 2 == 0 { _ = try fixture.upstream.assign(anonymous) }
            let variation = try edge.assign(anonymous)["variation_id"].string ?? ""
            let exposure = #"{"user_id":"\#(anonymous)","experiment":"checkout","variation_id":"\#(variation)"}"#
            #expect(try edge.request("POST", "/v1/exposures", exposure).status == 200)
            try buy(anonymous, at: edge)
            return (anonymous, "account\(number)")
        }
        for (anonymous, account) in logins {
            let login = #"{"user_id":"\#(account)","anonymous_id":"\#(anonymous)"}"#
            #expect(try other.request("POST", "/v1/logins", login).status == 200)
        }
        fixture.proxy.fault = .none
        #expect(try edge.awaitMetric("holdfast_edge_outbox_events") { $0 == 0 } == 0)
        for (anonymous, account) in logins {
            #expect(try goals(account) == 1)
            #expect(try goals(anonymous) == 0)
            // The entry of the merge names who was known.
            let erased = try fixture.upstream.request("DELETE", "/v1/profiles/\(anonymous)")
            #expect(erased.status == 404 || erased["erased"]["audit_entries"] == 1, "\(erased.text)")
        }
        let results = try fixture.upstream.request("GET", "/v1/experiments/checkout/results?goal=bought")
        let converted = (results["variations"].array ?? []).reduce(0) { $0 + ($1["converted"].integer ?? 0) }
        #expect(converted == 20, "\(results.text)")
        #expect(try !fixture.upstream.request("GET", "/v1/audit").text.contains("anonymous-"))
        for server in [edge, other] { server.stop() }
    }

    @Test func `Logins that wait go in one request, and each has its own result`() async throws {
        let edge = try fixture.edge()
        fixture.proxy.fault = .delays(milliseconds: 50)
        let before = try edge.metric("holdfast_edge_forwarded_requests_total")
        let began = ContinuousClock.now
        let responses = try await withThrowingTaskGroup(of: (Int, TestResponse).self) { group in
            for number in 0..<200 {
                // Every tenth names an id that somebody could guess.
                let anonymous = number % 10 == 0 ? "guessed" : "anonymous-\(UUID().uuidString.lowercased())"
                let login = #"{"user_id":"account\#(number)","anonymous_id":"\#(anonymous)"}"#
                let body = number % 3 == 0 ? "[\(login)]" : login
                group.addTask {
                    let response: TestResponse = try await withCheckedThrowingContinuation { continuation in
                        // A thread each, because requests block.
                        Thread {
                            continuation.resume(with: Result { try edge.request("POST", "/v1/logins", body) })
                        }.start()
                    }
                    return (number, response)
                }
            }
            return try await group.reduce(into: [:]) { $0[$1.0] = $1.1 }
        }
        let seconds = (ContinuousClock.now - began) / .seconds(1)
        for (number, response) in responses {
            let result = response["results"].array?.first ?? .null
            if number % 10 == 0 {
                #expect(number % 3 == 0 ? result["status"] == "refused" : response.status >= 400, "\(response.text)")
            } else if number % 3 == 0 {
                #expect(result["index"] == 0 && result["status"] == "stored", "\(response.text)")
            } else {
                #expect(response["status"] == "stored", "\(response.text)")
            }
        }
        let requests = try edge.metric("holdfast_edge_forwarded_requests_total") - before
        print("200 logins: \(requests) requests, \(200 / seconds) per second")
        #expect(requests < 60)
        edge.stop()
    }

    @Test func `An edge that cannot go on from its place copies all users anew`() throws {
        let users = (0..<30).map { "user\($0)" }
        var edge = try fixture.edge()
        for user in users { _ = try edge.assign(user) }
        fixture.proxy.fault = .refuses
        try EdgeFixture.awaitAway(edge)
        #expect(try edge.request("POST", "/v1/events", #"{"user_id":"user9","goal":"bought"}"#).status == 200)
        edge.stop()
        fixture.proxy.fault = .none
        // Another feed begins, so that the place of the edge means nothing any more.
        fixture.upstream.stop()
        try fixture.restartUpstream(["--feed-retention", "0"])
        #expect(try fixture.upstream.request("DELETE", "/v1/profiles/user3").status == 200)
        #expect(try fixture.upstream.request("DELETE", "/v1/profiles/user7").status == 200)
        let body = #"{"variation_id":"70011"}"#
        for user in ["user1", "user2", "zoe"] {
            #expect(
                try fixture.upstream.request("PUT", "/v1/profiles/\(user)/experiments/checkout", body).status == 200)
        }
        fixture.upstream.stop()
        try fixture.restartUpstream()
        edge = try fixture.edge()
        #expect(edge.child.errors.first(where: { $0.contains("all users are copied") }) != nil)
        for user in users + ["zoe"] {
            #expect(try edge.awaits { try $0.stored(user) == (try fixture.upstream.stored(user)) }, "\(user)")
        }
        #expect(try edge.metric("holdfast_profiles") == (try fixture.upstream.metric("holdfast_profiles")))
        #expect(try edge.awaitMetric("holdfast_edge_outbox_events") { $0 == 0 } == 0)
        #expect(try fixture.upstream.request("GET", "/v1/profiles/user9/events").text.contains(#""goal":"bought""#))
        edge.stop()
    }

    @Test func `A network that delays and cuts connections delays an edge, and nothing else`() throws {
        let (edge, other) = (try fixture.edge("one", ["--upstream-timeout", "5s"]), try fixture.edge("two"))
        var users: [String] = []
        for (index, fault) in [
            FaultyProxy.Fault.delays(milliseconds: 30), .cuts(after: 2_000), .cuts(after: 300), .none,
        ].enumerated() {
            fixture.proxy.fault = fault
            for number in 0..<15 {
                let user = "user\(index)x\(number)"
                users.append(user)
                for server in [edge, other, fixture.upstream] { #expect(try server.assign(user).status == 200) }
            }
        }
        for server in [edge, other] {
            try EdgeFixture.awaitUp(server)
            for user in users {
                let stored = try fixture.upstream.stored(user)
                #expect(try server.awaits { try $0.stored(user) == stored }, "\(user)")
            }
            server.stop()
        }
    }
}
