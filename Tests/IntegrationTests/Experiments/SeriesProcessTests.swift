import APITestSupport
import JSON
import ProcessTestSupport
import TestSupport
import Testing

/// Metrics that are filled with earlier events while their server is killed.
@Suite struct SeriesProcessTests {
    private static let users = 6_000
    private static let cap = 60
    private static let results = "/v1/experiments/e/results?metric=spending"

    /// What the test has sent: the values of each user, by id.
    private struct Ledger {
        var values = Array(repeating: [Int](), count: SeriesProcessTests.users)

        /// Counts anew: the sum of what the users of a variation contribute.
        func sum(of variation: Int) -> Int {
            values.indices.filter { $0 % 2 == variation }.reduce(0) {
                $0 + min(values[$1].reduce(0, +), SeriesProcessTests.cap)
            }
        }
    }

    @Test func `A metric that is filled while its server is killed again and again equals a recount`()
        throws
    {
        let directory = try TemporaryDirectory()
        let database = directory.file("holdfast.db")
        var server = try ServerProcess(database: database)
        var (ledger, random) = (Ledger(), SeededGenerator(seed: 9))
        let body = #"{"id":"7","variations":[{"key":"a","id":"70"},{"key":"b","id":"71"}]}"#
        #expect(try server.request("PUT", "/v1/experiments/e", body).status == 201)
        for first in stride(from: 0, to: Self.users, by: 1_000) {
            let users = first..<first + 1_000
            try send(
                "exposures", users.map { #"{"user_id":"u\#($0)","experiment":"e","variation_id":"7\#($0 % 2)"}"# },
                server)
            for _ in 0..<2 { try spend(users.map { $0 }, &ledger, &random, server) }
        }
        let metric = #"{"kind":"total","goal":"buy","cap":\#(Self.cap)}"#
        #expect(try server.request("PUT", "/v1/metrics/spending", metric).status == 201)
        let measured = try server.request("PUT", "/v1/experiments/e", #"{"metrics":{"primary":["spending"]}}"#)
        #expect(measured.status == 200, "\(measured.text)")

        var interruptions = 0
        var (isFilling, sums) = try read(server)
        while isFilling, interruptions < 5 {
            let former = sums
            while isFilling, sums == former { (isFilling, sums) = try read(server) }
            // In the middle of it, unless the rest was done within a moment.
            server.kill()
            server = try ServerProcess(database: database)
            (isFilling, sums) = try read(server)
            if isFilling { interruptions += 1 }
            // Users who are filled already, and others.
            try spend((0..<50).map { _ in Int.random(in: 0..<Self.users, using: &random) }, &ledger, &random, server)
        }
        #expect(interruptions > 0)
        let deadline = ContinuousClock.now + .seconds(120)
        while isFilling, .now < deadline { (isFilling, sums) = try read(server) }
        #expect(!isFilling)
        (_, sums) = try read(server)
        #expect(sums == [ledger.sum(of: 0), ledger.sum(of: 1)])
        server.stop()
    }

    /// Lets users spend something.
    private func spend(
        _ users: [Int], _ ledger: inout Ledger, _ random: inout SeededGenerator, _ server: ServerProcess
    ) throws {
        let events = users.map { user in
            let value = Int.random(in: 1...50, using: &random)
            ledger.values[user].append(value)
            return #"{"user_id":"u\#(user)","goal":"buy","value":\#(value)}"#
        }
        try send("events", events, server)
    }

    private func send(_ path: String, _ elements: [String], _ server: ServerProcess) throws {
        let sent = try server.request("POST", "/v1/\(path)", "[\(elements.joined(separator: ","))]")
        #expect(sent.status == 200 && !sent.text.contains("refused"), "\(sent.text)")
    }

    /// Returns the sum of the metric for each variation, and whether it is still being filled.
    private func read(_ server: ServerProcess) throws -> (isFilling: Bool, sums: [Int]) {
        let shown = try server.request("GET", Self.results)
        guard shown.status == 200, let variations = shown["variations"].array else { throw TestFailure(shown.text) }
        let sums = variations.map { variation in
            let mean = variation["estimate"]["mean"].double ?? 0
            return Int((mean * Double(variation["users"].integer ?? 0)).rounded())
        }
        return (shown["metric"]["filling"] == true, sums)
    }
}
