import APITestSupport
import Chronology
import Foundation
import JSON
import Storage
import Testing

/// Results of some of the users, and as a series, against a recount.
@Suite struct ResultsFilterTests {
    private let server: any TestServer
    /// Some hours before the present time, so that the last events are over.
    private let now = systemWallClock() - .hours(1)
    private let users: [User]

    private struct User {
        var index: Int
        var exposedAt: Instant
        /// The time since the exposure, and the value.
        var events: [(offset: TimeSpan, value: Double)]

        var id: String { "user \(index)" }
        var variation: String { index.isMultiple(of: 2) ? "control" : "new" }
        var planAtExposure: String { index.isMultiple(of: 3) ? "pro" : "free" }
        var planNow: String { index.isMultiple(of: 4) ? "pro" : "free" }
        var date: String { exposedAt.date }
    }

    init() async throws {
        server = try startTestServer()
        let now = now
        users = (0..<90).map { index in
            let exposedAt = now - .days(Int64(index % 6)) - .seconds(Int64(index))
            let events = (0..<index % 5).map { step -> (TimeSpan, Double) in
                (.hours(32 * Int64(step)) + .minutes(1), Double(index % 7 + step) + 0.25)
            }
            return User(
                index: index, exposedAt: exposedAt, events: events.filter { exposedAt + $0.0 < now + .minutes(30) })
        }
        for (target, body) in [
            ("attributes/plan", #"{"type":"string"}"#),
            ("segments/pro", #"{"conditions":{"type":"custom_attribute","name":"plan","value":"pro"}}"#),
            ("metrics/revenue", #"{"kind":"total","goal":"buy","cap":12,"window":3}"#),
            ("metrics/buyers", #"{"kind":"conversion","goal":"buy"}"#),
            ("metrics/mean", #"{"kind":"mean","goal":"buy","cap":5}"#),
            ("metrics/twice", #"{"kind":"funnel","goals":["buy","thank"]}"#),
            (
                "experiments/e",
                #"{"variations":["control","new"],"metrics":{"primary":["revenue"],"secondary":["buyers","mean","twice"],"breakdowns":["plan"]}}"#
            ),
        ] {
            let made = try server.request("PUT", "/v1/\(target)", body)
            #expect(made.status < 300, "\(target): \(made.text)")
        }
        try setPlans(\.planAtExposure)
        try send("exposures") { user in
            [
                #"{"user_id":"\#(user.id)","experiment":"e","variation_key":"\#(user.variation)","timestamp":"\#(user.exposedAt.rfc3339)"}"#
            ]
        }
        try send("events") { user in
            user.events.flatMap { offset, value in
                [
                    #"{"user_id":"\#(user.id)","goal":"buy","value":\#(value),"timestamp":"\#((user.exposedAt + offset).rfc3339)"}"#,
                    #"{"user_id":"\#(user.id)","goal":"thank","timestamp":"\#((user.exposedAt + offset + .seconds(1)).rfc3339)"}"#,
                ]
            }
        }
        try setPlans(\.planNow)
    }

    private func setPlans(_ plan: KeyPath<User, String>) throws {
        for user in users {
            let id = user.id.replacingOccurrences(of: " ", with: "%20")
            let set = try server.request(
                "PATCH", "/v1/profiles/\(id)/attributes", #"{"plan":"\#(user[keyPath: plan])"}"#)
            try #require(set.status < 300, "\(set.text)")
        }
    }

    private func send(_ name: String, _ lines: (User) -> [String]) throws {
        let body = users.flatMap(lines).joined(separator: ",")
        let sent = try server.request("POST", "/v1/\(name)", "[\(body)]")
        #expect(sent.status == 200 && !sent.text.contains("refused"), "\(sent.text)")
    }

    private func get(_ query: String, _ part: String = "results") throws -> TestResponse {
        while true {
            let found = try server.request("GET", "/v1/experiments/e/\(part)?\(query)")
            guard found.status == 200, found["metric"]["filling"] == true else { return found }
        }
    }

    /// What a filter leaves.
    private struct Filter: Sendable, CustomTestStringConvertible {
        var query: String
        var plan: String?
        var planNow: String?
        var days: Double?
        var isEnded = false

        var testDescription: String { query }
    }

    private static let filters = [
        Filter(query: "attribute=plan&value=pro", plan: "pro"), Filter(query: "segment=pro", planNow: "pro"),
        Filter(query: "days=1", days: 1), Filter(query: "days=1.5&segment=pro", planNow: "pro", days: 1.5),
        Filter(query: "window=ended", isEnded: true), Filter(query: "days=2&window=ended", days: 2, isEnded: true),
        Filter(query: "attribute=plan&value=free&segment=pro&days=2", plan: "free", planNow: "pro", days: 2),
    ]

    /// The users who count, by the response where it depends on the present day.
    private func chosen(_ filter: Filter, _ enrolledUntil: String?) -> [User] {
        users.filter { user in
            (filter.plan == nil || user.planAtExposure == filter.plan)
                && (filter.planNow == nil || user.planNow == filter.planNow)
                && (enrolledUntil.map { user.date <= $0 } ?? true)
        }
    }

    private func expect(
        _ found: TestResponse, _ member: String, _ name: String, _ users: [User], _ number: ([User]) -> Double
    ) throws {
        #expect(found.status == 200, "\(found.text)")
        #expect(found["users"]["counted"].integer == Int64(users.count), "\(found.text)")
        for variation in found["variations"].array ?? [] {
            let own = users.filter { $0.variation == variation["variation_key"].string }
            #expect(variation["users"].integer == Int64(own.count))
            let value = variation[member][name].double
            #expect(own.isEmpty || value.map { abs($0 - number(own)) < 1e-9 } ?? false, "\(value ?? -1) \(number(own))")
        }
    }

    private func sum(_ user: User, _ days: Double?, _ value: (Double) -> Double = { $0 }) -> Double {
        let end = days.map { TimeSpan(days: $0) } ?? .longest
        return user.events.filter { $0.offset < end }.reduce(0) { $0 + value($1.value) }
    }

    @Test(arguments: filters)
    private func `Results of some users and times are those of a recount`(filter: Filter) throws {
        let revenue = try get("metric=revenue&\(filter.query)")
        let until = revenue["metric"]["enrolled_until"].string
        #expect((until != nil) == filter.isEnded)
        if let until {
            // Whoever was enrolled on the day before had the time.
            let length = TimeSpan(days: min(filter.days ?? 3, 3))
            #expect([now, now + .days(1)].contains { ($0 - length - .days(1)).date == until })
        }
        let users = chosen(filter, until)
        #expect(!users.isEmpty && users.count < self.users.count || filter.days == 1)
        let days = min(filter.days ?? 3, 3)
        try expect(revenue, "estimate", "mean", users) { own in
            own.reduce(0) { $0 + min(12, sum($1, days)) } / Double(own.count)
        }
        guard !filter.isEnded || filter.days != nil else {
            #expect(try get("metric=buyers&\(filter.query)").status == 422)
            return #expect(try get("goal=buy&\(filter.query)").status == 422)
        }
        try expect(get("metric=buyers&\(filter.query)"), "estimate", "rate", users) { own in
            Double(own.filter { sum($0, filter.days) > 0 }.count) / Double(own.count)
        }
        try expect(get("metric=mean&\(filter.query)"), "estimate", "ratio", users) { own in
            own.reduce(0) { $0 + sum($1, filter.days) { min(5, $0) } }
                / own.reduce(0) { $0 + sum($1, filter.days) { _ in 1 } }
        }
        try expect(get("metric=twice&\(filter.query)"), "estimate", "rate", users) { own in
            Double(own.filter { sum($0, filter.days) > 0 }.count) / Double(own.count)
        }
        try expect(get("goal=buy&metric=value&\(filter.query)"), "value", "mean", users) { own in
            own.reduce(0) { $0 + sum($1, filter.days) } / Double(own.count)
        }
        let all = try get(filter.query)
        #expect(all["metrics"].array?.count == 4 && all["users"]["counted"].integer == Int64(users.count))
        // Who picks users by their results must not decide by them.
        #expect(all["warnings"].array?.contains { $0["code"] == "some_users" } ?? false, "\(all.text)")
        #expect(all["verdict"]["decision"] == "continue" && revenue["filter"] == all["filter"])
    }

    @Test func `A series has the users who were enrolled until each day, and ends with the results`() throws {
        for filter in ["", "&segment=pro"] {
            let series = try get("metric=revenue\(filter)", "results/series")
            let points = series["days"].array ?? []
            let users = users.filter { filter.isEmpty || $0.planNow == "pro" }
            #expect(points.compactMap { $0["day"].string } == Set(users.map(\.date)).sorted(), "\(series.text)")
            for point in points {
                let until = users.filter { $0.date <= point["day"].string ?? "" }
                for variation in point["variations"].array ?? [] {
                    let own = until.filter { $0.variation == variation["variation_key"].string }
                    #expect(variation["users"].integer == Int64(own.count))
                    let mean = own.reduce(0) { $0 + min(12, sum($1, 3)) } / Double(own.count)
                    #expect(own.isEmpty || abs((variation["mean"].double ?? -1) - mean) < 1e-9)
                }
            }
            let whole = try get("metric=revenue\(filter)")["variations"].array?.last?["estimate"]["comparison"]
            let last = points.last?["variations"].array?.last
            #expect(last?["lift"] == whole?["lift"] && last?["p_value"] == whole?["sequential_p_value"])
            let csv = try get("metric=revenue&format=csv\(filter)", "results/series").text
            let lines = csv.split(separator: "\r\n")
            #expect(lines.count == 1 + 2 * points.count && lines[0].hasPrefix("experiment_key,goal,day,"), "\(csv)")
        }
    }

    @Test(arguments: [
        ("goal=buy&attribute=plan", 400, "`value`"), ("goal=buy&value=pro", 400, "`attribute`"),
        ("goal=buy&days=0", 400, "`days`"), ("goal=buy&days=x", 400, "`days`"),
        ("goal=buy&window=open", 400, "`window`"),
        ("goal=buy&breakdown=plan&segment=pro", 400, "`segment`"),
        ("goal=buy&attribute=city&value=a", 422, "`attribute`"),
        ("goal=buy&attribute=plan&value=pr", 422, "did you mean 'pro'"), ("goal=buy&segment=pra", 422, "`segment`"),
        ("goal=buy&window=ended", 422, "`window`"),
    ])
    func `A wrong filter is refused by its name`(query: String, status: Int, text: String) throws {
        for part in ["results", "results/series"] where part == "results" || !query.contains("breakdown") {
            let refused = try get(query, part)
            #expect(refused.status == status && refused.text.contains(text), "\(refused.text)")
        }
    }

    @Test func `Frozen results have groups, and users are counted as they are now only if that is said`() throws {
        #expect(try server.request("POST", "/v1/experiments/e/conclude", #"{"winner":null}"#).status == 200)
        #expect(try get("goal=buy&attribute=plan&value=pro")["users"]["counted"] == 30)
        for query in ["segment=pro", "days=1"] {
            let refused = try get("goal=buy&\(query)")
            #expect(refused.status == 422 && refused.text.contains("`live=true`"), "\(refused.text)")
            #expect(try get("goal=buy&live=true&\(query)").status == 200)
        }
    }
}
