import APITestSupport
import Foundation
import JSON
import Testing

/// What an edge passes on, with real processes and tokens on both sides.
@Suite struct EdgeForwardingTests {
    private static let edgeToken = "edge edge-1 edge-secret-0123456789\n"
    private static let tokens = """
        client page client-secret-0123456789
        read reader read-secret-0123456789
        write app write-secret-0123456789
        admin boss admin-secret-0123456789

        """
    private static let (client, reader, writer, admin) = (
        "client-secret-0123456789", "read-secret-0123456789", "write-secret-0123456789", "admin-secret-0123456789"
    )

    private let directory: TemporaryDirectory
    private let upstream: ServerProcess
    private let edge: ServerProcess

    init() throws {
        directory = try TemporaryDirectory()
        let upstreamTokens = try directory.write(Self.edgeToken + Self.tokens, to: "upstream.tokens")
        upstream = try ServerProcess(database: directory.file("upstream.db"), ["--tokens-file", upstreamTokens])
        edge = try Self.edge("edge", of: upstream, in: directory, token: "edge-secret-0123456789")
        #expect(try edge.answers("/readyz") { $0.status == 200 })
    }

    private static func edge(
        _ name: String, of upstream: ServerProcess, in directory: TemporaryDirectory, token: String
    ) throws -> ServerProcess {
        try ServerProcess(
            database: directory.file("\(name).db"),
            [
                "--upstream", "http://127.0.0.1:\(upstream.port)",
                "--tokens-file", try directory.write(tokens, to: "\(name).tokens"),
            ], environment: ["HOLDFAST_UPSTREAM_TOKEN": token, "HOLDFAST_UPSTREAM_TIMEOUT": "20s"])
    }

    @discardableResult
    private func ask(
        _ method: String, _ target: String, _ body: String? = nil, _ token: String = admin, status: Int = 200
    ) throws -> TestResponse {
        let response = try edge.request(method, target, body, token: token)
        #expect(response.status == status, "\(method) \(target): \(response.text)")
        return response
    }

    private func assigned(_ user: String) throws -> TestResponse {
        try ask("POST", "/v1/assign", AssignSamples.ask(user), Self.client)
    }

    @Test func `What was changed through an edge holds on the edge before it responds`() throws {
        try ask("PUT", "/v1/experiments/checkout", AssignSamples.definition, status: 201)
        // Webhooks are the upstream's.
        let defined = try upstream.request("GET", "/v1/definitions", token: Self.writer)
        for token in [Self.admin, Self.writer] {
            let shown = try ask("GET", "/v1/definitions", nil, token)
            #expect(shown.json == defined.json)
            #expect(shown.field("etag") == nil)
        }
        let first = try assigned("ada")
        #expect(first["source"] == "bucketed")
        #expect(try assigned("ada")["source"] == "stored")
        for variation in ["control", "new", "control"] {
            let override = #"{"variation_key":"\#(variation)","reason":"test"}"#
            try ask("PUT", "/v1/profiles/ada/experiments/checkout", override)
            let now = try assigned("ada")
            #expect(now["source"] == "override" && now["variation_key"].string == variation)
        }
        try ask("DELETE", "/v1/profiles/ada/experiments/checkout", status: 204)
        #expect(try assigned("ada")["variation_id"] == first["variation_id"])
        try ask("PATCH", "/v1/profiles/ada", profile("ada", ["22": "2"]), Self.writer)
        let saved = try ask("GET", "/v1/profiles/ada", nil, Self.reader)
        #expect(saved["experiment_bucket_map"]["22"]["variation_id"] == "2")
        try ask("POST", "/v1/profiles", profile("eve", ["22": "3"]), Self.writer)
        #expect(try ask("GET", "/v1/profiles/eve", nil, Self.reader)["user_id"] == "eve")
        try ask("PUT", "/v1/attributes/plan", #"{"type":"string"}"#, status: 201)
        try ask("PATCH", "/v1/profiles/ada/attributes", #"{"plan":"gold"}"#, Self.client)
        #expect(try ask("GET", "/v1/profiles/ada/attributes")["attributes"]["plan"] == "gold")
        try ask("POST", "/v1/profiles/ada/merge", #"{"from":"eve"}"#, Self.writer)
        try ask("GET", "/v1/profiles/eve", nil, Self.reader, status: 404)
        try ask("PUT", "/v1/experiments/checkout", #"{"status":"paused"}"#)
        #expect(try ask("GET", "/v1/experiments/checkout", nil, Self.reader)["status"] == "paused")
        #expect(try assigned("bob")["variation_id"].isNull)
        try ask("DELETE", "/v1/profiles/ada")
        try ask("GET", "/v1/profiles/ada", nil, Self.reader, status: 404)
        let authors = try ask("GET", "/v1/audit?action=profile.merge")["entries"].array ?? []
        #expect(authors.map { $0["author"].string } == ["app via edge-1"])
        edge.stop()
        upstream.stop()
    }

    @Test func `Events that an edge has taken are in the results that it passes on`() throws {
        try ask("PUT", "/v1/experiments/checkout", AssignSamples.definition, status: 201)
        for user in 0..<20 {
            let variation = try assigned("user-\(user)")["variation_key"].string ?? ""
            let exposure = #"{"user_id":"user-\#(user)","experiment":"checkout","variation_key":"\#(variation)"}"#
            try ask("POST", "/v1/exposures", exposure, Self.client)
            try ask("POST", "/v1/events", #"{"user_id":"user-\#(user)","goal":"buy"}"#, Self.client)
        }
        let hasAll = try edge.answers("/v1/experiments/checkout/results?goal=buy", token: Self.reader) { results in
            let variations = results["variations"].array ?? []
            return variations.reduce(0) { $0 + ($1["converted"].integer ?? 0) } == 20
        }
        #expect(hasAll)
        let lists = try ask("GET", "/v1/flags", nil, Self.reader)
        #expect(lists["flags"].array?.first?["key"] == "checkout")
    }

    @Test func `An edge whose token the upstream refuses is not ready, and gives away nothing`() throws {
        let refused = try Self.edge("refused", of: upstream, in: directory, token: "unknown-secret-0123456789")
        #expect(try refused.request("GET", "/readyz").status == 503)
        let response = try refused.request("GET", "/v1/profiles/ada", token: Self.reader)
        #expect(response.status == 503, "\(response.text)")
        // What is for admins is theirs to ask: the upstream knows them.
        let made = try refused.request("GET", "/v1/audit", token: Self.admin)
        #expect([200, 503].contains(made.status), "\(made.text)")
        #expect(try refused.request("GET", "/v1/audit", token: "edge-secret-0123456789").status != 200)
    }

    @Test func `While the upstream is away, what is passed on fails in time, and serves again with it`() throws {
        try ask("PUT", "/v1/experiments/checkout", AssignSamples.definition, status: 201)
        let known = try assigned("known")
        upstream.kill()
        let began = ContinuousClock.now
        let results = try ask("GET", "/v1/experiments/checkout/results?goal=buy", nil, Self.reader, status: 503)
        #expect(results.field("retry-after") == "1")
        #expect(results["detail"].string?.hasPrefix("the upstream does not respond") == true, "\(results.text)")
        let save = try ask("POST", "/ups/save", profile("known", ["22": "2"]), Self.writer, status: 503)
        #expect(
            save["detail"] == "the upstream of this edge does not respond; nothing was stored; try again later",
            "\(save.text)")
        try ask("DELETE", "/v1/profiles/known", status: 503)
        try ask("PUT", "/v1/experiments/checkout", #"{"status":"paused"}"#, status: 503)
        #expect(.now - began < .seconds(60))
        #expect(try assigned("known")["variation_id"] == known["variation_id"])
        #expect(try ask("GET", "/v1/experiments/checkout", nil, Self.reader)["status"] == "running")
    }
}

extension TestServer {
    /// Waits up to a minute for a response.
    fileprivate func answers(
        _ target: String, token: String? = nil, _ isExpected: (TestResponse) -> Bool
    ) throws -> Bool {
        let deadline = ContinuousClock.now + .seconds(60)
        while .now < deadline {
            if isExpected(try request("GET", target, token: token)) { return true }
        }
        return false
    }
}
