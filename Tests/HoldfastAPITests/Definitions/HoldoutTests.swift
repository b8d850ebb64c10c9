import APITestSupport
import JSON
import Testing

/// Holdouts as a resource: who is held out, and what is measured.
@Suite struct HoldoutTests {
    private let server: any TestServer
    private static let sdk = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]
    private static let users = (0..<60).map { "user\($0)" }

    init() throws {
        server = try startTestServer()
    }

    @discardableResult
    private func put(_ body: String, key: String = "all", query: String = "") throws -> TestResponse {
        try server.request("PUT", "/v1/holdouts/\(key)\(query)", body)
    }

    private func define(_ key: String) throws {
        let response = try server.request("PUT", "/v1/experiments/\(key)", #"{"variations":["a","b"]}"#)
        #expect(response.status < 300, "\(response.text)")
    }

    /// The variation that a flag gives; `off` to who is held out.
    private func decide(_ flag: String, _ user: String) throws -> JSONValue {
        try server.request(
            "POST", "/v1/decide?keys=\(flag)", #"{"userId":"\#(user)"}"#, fields: Self.sdk)["variationKey"]
    }

    private func heldOut(of flag: String) throws -> Set<String> {
        Set(try Self.users.filter { try decide(flag, $0) == "off" })
    }

    /// The counted users of `off` and `rest`.
    private func counts(_ key: String = "all") throws -> [JSONValue] {
        let results = try server.request("GET", "/v1/holdouts/\(key)/results?goal=order")
        #expect(results["baseline"] == "off", "\(results.text)")
        return results["variations"].array?.map { $0["users"] } ?? []
    }

    @Test func `A holdout is created, shown, changed and deleted, and the audit log says so`() throws {
        let created = try put(#"{"share":5,"description":"2026"}"#)
        #expect(created.status == 201 && created["share"] == 5 && created["flags"].isNull, "\(created.text)")
        #expect(try put(created.text).json == created.json)
        #expect(try server.request("GET", "/v1/holdouts")["holdouts"] == [created.json])
        #expect(try put(#"{"status":"paused"}"#)["status"] == "paused")
        #expect(try server.request("DELETE", "/v1/holdouts/all").status == 204)
        #expect(try server.request("GET", "/v1/holdouts/all").status == 404)
        #expect(try server.request("DELETE", "/v1/holdouts/all").status == 404)
        let actions = try server.request("GET", "/v1/audit")["entries"].array?.map { $0["action"] }
        #expect(actions == ["holdout.delete", "holdout.put", "holdout.put"])
        #expect(try put(#"{"share":5}"#)["id"] == created["id"])
    }

    @Test func `Its results compare all who were decided for, held out or not`() throws {
        try define("first")
        try define("second")
        try put(#"{"share":50}"#)
        let held = try heldOut(of: "first")
        _ = try heldOut(of: "second")
        let rest = Self.users.count - held.count
        let expected: [JSONValue] = [.integer(Int64(held.count)), .integer(Int64(rest))]
        // Exposures of decisions are stored in the background.
        let deadline = ContinuousClock.now + .seconds(60)
        while try counts() != expected, .now < deadline {}
        #expect(try counts() == expected)
        let results = try server.request("GET", "/v1/holdouts/all/results?goal=order")
        #expect(results["sample_ratio"]["mismatch"] == false)
        #expect(results["variations"].array?.map { $0["expected_share"] } == [50.0, 50.0])
        #expect(try server.request("GET", "/v1/holdouts/none/results?goal=order").status == 404)
        #expect(try server.request("GET", "/v1/holdouts/all/results.svg?goal=order").status == 200)
    }

    @Test func `Its metrics are compared like those of an experiment, also what was before they were named`() throws {
        try define("first")
        for (key, body) in [
            ("spending", #"{"kind":"total","goal":"order","cap":20}"#), ("orders", #"{"kind":"count","goal":"order"}"#),
            ("returns", #"{"kind":"conversion","goal":"return","direction":"decrease"}"#),
        ] {
            #expect(try server.request("PUT", "/v1/metrics/\(key)", body).status == 201)
        }
        try put(#"{"share":50,"metrics":{"primary":["orders"]}}"#)
        let users = (0..<20).map { "user\($0)" }
        let held = Set(try users.filter { try decide("first", $0) == "off" })
        let deadline = ContinuousClock.now + .seconds(60)
        while try counts().reduce(0, { $0 + ($1.integer ?? 0) }) < 20, .now < deadline {}
        for (index, user) in users.enumerated() {
            let event = #"{"user_id":"\#(user)","goal":"order","value":\#(index)}"#
            #expect(try server.request("POST", "/v1/events", "[\(event),\(event)]").status == 200)
        }
        func sums(_ metric: String) throws -> [Double] {
            var found = try server.request("GET", "/v1/holdouts/all/results?metric=\(metric)")
            while found["metric"]["filling"] == true, .now < deadline {
                found = try server.request("GET", "/v1/holdouts/all/results?metric=\(metric)")
            }
            #expect(found.status == 200 && found["baseline"] == "off", "\(found.text)")
            return (found["variations"].array ?? []).map { variation in
                let sum = (variation["estimate"]["mean"].double ?? 0) * (variation["users"].double ?? 0)
                return (sum * 1_000).rounded() / 1_000
            }
        }
        let rest = users.count - held.count
        #expect(try sums("orders") == [Double(2 * held.count), Double(2 * rest)])
        let metrics = #"{"primary":["spending"],"guardrails":[{"metric":"returns","margin":0.1}]}"#
        let changed = try put(#"{"metrics":\#(metrics)}"#)
        #expect(changed["metrics"]["primary"] == ["spending"], "\(changed.text)")
        #expect(try put(changed.text).json == changed.json)
        let capped = users.enumerated().map { (isHeld: held.contains($1), sum: min(2 * $0, 20)) }
        let expected = [true, false].map { isHeld in
            Double(capped.filter { $0.isHeld == isHeld }.reduce(0) { $0 + $1.sum })
        }
        #expect(try sums("spending") == expected)
        let whole = try server.request("GET", "/v1/holdouts/all/results")
        #expect(whole["metrics"].array?.map { $0["key"] } == ["spending", "returns"], "\(whole.text)")
        #expect(whole["verdict"]["decision"] == "continue" && whole["plan"].isNull)
        // What it no longer measures, and what is measured.
        #expect(try server.request("GET", "/v1/holdouts/all/results?metric=orders").status == 422)
        let refused = try server.request("DELETE", "/v1/metrics/spending")
        #expect(refused.status == 409 && refused.text.contains("'all'"), "\(refused.text)")
        #expect(try put(#"{"metrics":null}"#).json.object?["metrics"] == nil)
        #expect(try server.request("DELETE", "/v1/metrics/spending").status == 204)
        #expect(try server.request("GET", "/v1/holdouts/all/results").status == 400)
    }
}
