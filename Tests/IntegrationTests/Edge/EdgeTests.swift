import APITestSupport
import Foundation
import Glibc
import JSON
import ProcessTestSupport
import Synchronization
import Testing

/// Edges and their upstream as real processes, while the network works.
@Suite struct EdgeTests {
    private let fixture: EdgeFixture
    private var upstream: ServerProcess { fixture.upstream }

    init() throws {
        fixture = try EdgeFixture()
    }

    @Test func `An edge copies the users that the upstream has, and enrolls others there`() throws {
        let known = (0..<50).map { "known\($0)" }
        let given = try known.map { try upstream.assign($0)["variation_id"].string }
        let edge = try fixture.edge()
        #expect(try known.map { try edge.assign($0)["variation_id"].string } == given)
        #expect(try edge.metric("holdfast_edge_changes_total") == 0)
        let new = try edge.assign("new")
        #expect(new["source"].string == "bucketed")
        #expect(try upstream.stored("new") == new["variation_id"].string)
        // The copy has it before the response.
        #expect(try edge.assign("new")["source"].string == "stored")
        #expect(try edge.metric("holdfast_edge_changes_total") == 1)
        let status = try edge.request("GET", "/info")["edge"]
        #expect(status["upstream"].string == "http://127.0.0.1:\(fixture.proxy.port)")
        #expect(status["upstream_up"] == true && status["copy_complete"] == true && status["outbox_events"] == 0)
        #expect(status["lag_seconds"].double.map { (0..<10).contains($0) } == true, "\(status)")
        edge.stop()
    }

    @Test func `Many clients of two edges and of the upstream get one variation per user while the split changes`()
        throws
    {
        let servers = [try fixture.edge("one"), try fixture.edge("two"), upstream]
        let users = (0..<120).map { "user\($0)" }
        let given = Mutex<[String: Set<String>]>([:])
        let done = DispatchGroup()
        for worker in 0..<6 {
            done.enter()
            Thread.detachNewThread {
                defer { done.leave() }
                do {
                    let client = try servers[worker % 3].client()
                    for user in users {
                        let response = try client.request("POST", "/v1/assign", AssignSamples.ask(user))
                        let variation = response["variation_id"].string ?? response.text
                        given.withLock { _ = $0[user, default: []].insert(variation) }
                    }
                } catch {
                    Issue.record(error)
                }
            }
        }
        var share = 0
        let admin = try upstream.client()
        while done.wait(timeout: .now() + 0.05) == .timedOut {
            share = (share + 2_500) % 10_000
            let response = try admin.request(
                "PUT", "/v1/experiments/checkout?moves=allow", AssignSamples.weights(share, 10_000 - share))
            #expect(response.status == 200, "\(response.text)")
        }
        for (user, variations) in given.withLock({ $0 }) {
            #expect(variations.count == 1, "\(user): \(variations)")
            #expect(try upstream.stored(user) == variations.first)
        }
        for edge in servers.prefix(2) {
            for user in users { #expect(try edge.stored(user) == given.withLock { $0[user]?.first }) }
            edge.stop()
        }
    }

    @Test func `Overrides, erasures, merges, saves and pauses reach edges that are not asked about them`() throws {
        let (edge, other) = (try fixture.edge("one"), try fixture.edge("two"))
        for user in ["ada", "bob", "cy", "dan"] { _ = try edge.assign(user) }
        let former = try #require(try edge.stored("ada"))
        let forced = former == "70011" ? "70012" : "70011"
        let body = #"{"variation_id":"\#(forced)","reason":"support"}"#
        // Through an edge, which has it at once.
        #expect(try edge.request("PUT", "/v1/profiles/ada/experiments/checkout", body).status == 200)
        #expect(try edge.assign("ada")["variation_id"].string == forced)
        #expect(try other.awaits { try $0.assign("ada")["source"].string == "override" })
        #expect(try edge.request("DELETE", "/v1/profiles/ada/experiments/checkout").status == 204)
        #expect(try other.awaits { try $0.stored("ada") == former })

        #expect(try upstream.request("DELETE", "/v1/profiles/bob").status == 200)
        for server in [edge, other] { #expect(try server.awaits { try $0.stored("bob") == nil }) }

        #expect(try other.request("POST", "/v1/profiles/eve/merge", #"{"from":"cy"}"#).status == 200)
        #expect(try other.stored("cy") == nil)
        #expect(try edge.awaits { try $0.stored("cy") == nil })
        #expect(try edge.stored("eve") == (try upstream.stored("eve")))
        #expect(try edge.stored("eve") != nil)

        let saved =
            #"{"user_id":"fay","experiment_bucket_map":{"9":{"variation_id":"v"},"7001":{"variation_id":"70012"}}}"#
        #expect(try edge.request("POST", "/ups/save", saved).status == 200)
        #expect(try other.awaits { try $0.stored("fay") == "70012" })
        #expect(
            try other.request("GET", "/v1/profiles/fay?detail=true").text
                == upstream.request("GET", "/v1/profiles/fay?detail=true").text)

        let paused = try upstream.request("PUT", "/v1/experiments/checkout", #"{"status":"paused"}"#)
        #expect(paused.status == 200, "\(paused.text)")
        for server in [edge, other] {
            #expect(try server.awaits { try $0.assign("dan")["variation_id"].string == nil })
            server.stop()
        }
    }

    @Test func `Stored attributes decide on an edge as on the upstream`() throws {
        let edge = try fixture.edge()
        #expect(try upstream.request("PUT", "/v1/attributes/plan", #"{"type":"string"}"#).status == 201)
        let flag = """
            {"type":"boolean","enabled":true,"variations":[{"key":"on","value":true},{"key":"off","value":false}],
            "rules":[{"audience":[{"name":"plan","match":"exact","value":"pro"}],"variation":"on"}],"otherwise":"off"}
            """
        let made = try upstream.request("PUT", "/v1/flags/premium", flag)
        #expect(made.status == 201, "\(made.text)")
        func value(_ server: ServerProcess) throws -> String? {
            try server.request(
                "POST", "/ofrep/v1/evaluate/flags/premium", #"{"context":{"targetingKey":"ada"}}"#)["variant"].string
        }
        #expect(try edge.awaits { _ in try value(edge) == "off" })
        #expect(try upstream.request("PATCH", "/v1/profiles/ada/attributes", #"{"plan":"pro"}"#).status < 300)
        #expect(try value(upstream) == "on")
        #expect(try edge.awaits { _ in try value(edge) == "on" })
        #expect(try upstream.request("DELETE", "/v1/profiles/ada").status == 200)
        #expect(try edge.awaits { _ in try value(edge) == "off" })
        edge.stop()
    }

    @Test func `Files that are for something else are refused`() throws {
        let path = fixture.directory.file("edge.db")
        let edge = try fixture.edge()
        #expect(throws: TestFailure.self) { try fixture.edge() }
        edge.stop()
        let own = try Command("serve", "--listen", "127.0.0.1:0", "--database", path)
        #expect(own.end == .exit(78))
        #expect(own.errors.contains("it is an edge's copy of another: serve it with --upstream URL"))
        upstream.stop()
        let copy = try Command(
            "serve", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:\(fixture.proxy.port)", "--database",
            fixture.directory.file("upstream.db"))
        #expect(copy.end == .exit(78))
        #expect(copy.errors.contains("it is a database of its own"))
    }

    @Test func `An upstream that refuses the token counts as away`() throws {
        let tokens = try fixture.directory.write(
            "admin root 0123456789abcdef0123\nedge shop fedcba9876543210fedc\nread app 0011223344556677\n", to: "tokens"
        )
        chmod(tokens, 0o600)
        let upstream = try ServerProcess(
            database: fixture.directory.file("guarded.db"), ["--tokens-file", tokens])
        func edge(_ name: String, _ token: String) throws -> ServerProcess {
            try ServerProcess(
                database: fixture.directory.file("\(name).db"), ["--upstream", "http://127.0.0.1:\(upstream.port)"],
                environment: ["HOLDFAST_UPSTREAM_TOKEN": token])
        }
        let refused = try edge("refused", "0000000000000000000000")
        #expect(refused.child.errors.first(where: { $0.contains("the upstream is away") })?.contains("401") ?? false)
        let notReady = try refused.request("GET", "/readyz")
        #expect(notReady.status == 503)
        #expect(
            notReady["detail"].string?.contains("the upstream refuses the token of this edge with 401") == true,
            "\(notReady.text)")
        let forbidden = try edge("forbidden", "0011223344556677")
        #expect(try forbidden.awaits { try $0.request("GET", "/readyz").text.contains("with 403: the scope edge") })
        forbidden.stop()
        let admitted = try edge("admitted", "fedcba9876543210fedc")
        #expect(try admitted.becomesReady())
        // The edge's own callers are not admins of the upstream.
        #expect(try admitted.request("DELETE", "/v1/profiles/ada").status == 401)
        refused.stop()
        admitted.stop()
    }
}
