import Chronology
import Glibc
import JSON
import Storage

/// The simulated apps and users of `holdfast demo`. They use the API over loopback, as real ones do.
struct DemoTraffic: Sendable {
    private let server: HTTPProbe
    /// The number of users in the days before the start.
    private static let pastUsers = 3_000
    /// The number of days before the start. The server refuses events that are older than seven days.
    private static let pastDays = 6.5

    /// The percentage of users who reach each goal, by experiment and variation.
    private static let rates: [String: [String: (purchase: Int, signup: Int)]] = [
        "checkout": ["control": (12, 25), "one-page": (26, 25)],
        "search-ranking": ["bm25": (8, 5), "vector": (8, 5), "hybrid": (9, 7)],
        "newsletter": ["control": (5, 9), "popup": (4, 14)],
    ]

    init(_ server: HTTPProbe) {
        self.server = server
    }

    // MARK: The example

    /// Defines attributes, a segment, metrics, experiments and a flag, and simulates a week of users.
    ///
    /// - Throws: ``Failure`` when the server refuses something.
    func prepare() throws(Failure) {
        try defineAttributes()
        try defineMetrics()
        try defineExperiments()
        try defineFlag()
        let now = systemWallClock()
        for first in stride(from: 0, to: Self.pastUsers, by: 100) {
            try visit(first..<first + 100) { _ in
                now - TimeSpan(days: Double.random(in: 0.02...1) * Self.pastDays)
            }
        }
        try put("profiles/user-7/experiments/checkout", ["variation_key": "one-page"])
    }

    private func defineAttributes() throws(Failure) {
        try put("attributes/country", ["type": "country"])
        try put("attributes/plan", ["type": "selection", "values": ["free", "pro", "team"]])
        try put("attributes/age", ["type": "number"])
        try put(
            "segments/adults-abroad",
            [
                "conditions": [
                    "and", ["type": "custom_attribute", "name": "age", "match": "ge", "value": 18],
                    ["not", ["type": "custom_attribute", "name": "country", "value": "us"]],
                ]
            ])
    }

    private func defineMetrics() throws(Failure) {
        try put(
            "metrics/orders", ["kind": "conversion", "goal": "purchase", "description": "Users who buy something."])
        try put(
            "metrics/revenue", ["kind": "total", "goal": "purchase", "description": "What a user spends."])
        try put("metrics/signups", ["kind": "conversion", "goal": "signup"])
    }

    private func defineExperiments() throws(Failure) {
        try put(
            "experiments/checkout",
            [
                "variations": ["control", "one-page"], "owner": "ann", "tags": ["web", "growth"],
                "hypothesis": "All fields on one page: fewer people give up, and more buy.",
                "metrics": [
                    "primary": ["orders"], "guardrails": [["metric": "signups", "margin": 0.5]],
                    "secondary": ["revenue"], "breakdowns": ["country"],
                ], "plan": ["minimum_effect": 0.2],
            ])
        try put(
            "experiments/search-ranking",
            [
                "variations": [
                    ["key": "bm25", "weight": 1], ["key": "vector", "weight": 1], ["key": "hybrid", "weight": 2],
                ], "traffic": 60, "owner": "bob", "tags": ["search"], "metrics": ["primary": ["revenue", "signups"]],
            ])
        try put(
            "experiments/newsletter",
            [
                "variations": ["control", "popup"], "owner": "ann", "tags": ["growth"],
                "metrics": ["primary": ["signups"], "guardrails": [["metric": "orders", "margin": 0.1]]],
            ])
        try put(
            "experiments/banner",
            ["variations": ["off", "on"], "audience": ["segment": "adults-abroad"], "tags": ["web"]])
        try put("experiments/onboarding", ["variations": ["short", "long"], "status": "paused", "owner": "bob"])
    }

    private func defineFlag() throws(Failure) {
        let isTeam: JSONValue = ["type": "custom_attribute", "name": "plan", "match": "exact", "value": "team"]
        try put(
            "flags/dark-mode",
            [
                "type": "boolean", "tags": ["web"], "otherwise": "off",
                "variations": [["key": "on", "value": true], ["key": "off", "value": false]],
                "rules": [["audience": isTeam, "variation": "on", "traffic": 50]],
            ])
    }

    /// Lets users arrive until the process ends.
    func run(usersPerSecond: Int) {
        var next = Self.pastUsers
        while usersPerSecond > 0 {
            // Every half a second, half of the users of a second arrive.
            usleep(500_000)
            let count = max(1, usersPerSecond / 2)
            // A request fails when the demo ends.
            guard (try? visit(next..<next + count) { _ in systemWallClock() }) != nil else { return }
            next += count
        }
    }

    // MARK: Users

    /// Simulates the visits of users: each user is assigned, sees the experiments, and reaches goals. A third of the
    /// exposures to the popup is lost, so that the sample-ratio check of the newsletter finds a mismatch.
    ///
    /// - Parameters:
    ///   - numbers: the numbers of the users.
    ///   - time: returns the time of a user's visit.
    private func visit(_ numbers: Range<Int>, at time: (Int) -> Instant) throws(Failure) {
        let users = numbers.map { number in (id: "user-\(number)", time: time(number)) }
        let attributes = users.map { Self.attributesLine(of: $0.id) }
        try request("POST", "/v1/profiles/attributes", Array(attributes.joined(separator: "\n").utf8))
        var exposures: [JSONValue] = []
        var goals: [JSONValue] = []
        for (experiment, rates) in Self.rates {
            let asked = JSONValue.array(users.map { ["user_id": .string($0.id), "experiment": .string(experiment)] })
            let response = try request("POST", "/v1/assign", asked.encoded())
            guard let assigned = (try? JSONParser().parse(response))?.array else { continue }
            for (user, assignment) in zip(users, assigned) {
                guard let variation = assignment.object?["variation_key"]?.string, let rate = rates[variation] else {
                    continue
                }
                let isLost = variation == "popup" && Int.random(in: 0..<3) == 0
                if isLost { continue }
                exposures.append([
                    "user_id": .string(user.id), "experiment": .string(experiment),
                    "timestamp": .string(user.time.rfc3339),
                ])
                goals += reachedGoals(of: user.id, visitedAt: user.time, rate)
            }
        }
        if !exposures.isEmpty { try request("POST", "/v1/exposures", JSONValue.array(exposures).encoded()) }
        if !goals.isEmpty { try request("POST", "/v1/events", JSONValue.array(goals).encoded()) }
    }

    /// Returns the goals that a user reaches a minute after a visit, by chance.
    ///
    /// - Parameter rate: the percentage of users who reach each goal.
    private func reachedGoals(
        of userID: String, visitedAt time: Instant, _ rate: (purchase: Int, signup: Int)
    ) -> [JSONValue] {
        var goals: [JSONValue] = []
        let later = min(time + .minutes(1), systemWallClock())
        if Int.random(in: 0..<100) < rate.purchase {
            // From 12 to 90, with many small and few large purchases.
            let value = (exp(Double.random(in: 2.5...4.5)) * 100).rounded() / 100
            goals.append(goal("purchase", userID, later, value))
        }
        if Int.random(in: 0..<100) < rate.signup { goals.append(goal("signup", userID, later, nil)) }
        return goals
    }

    /// Returns a line of NDJSON with random attributes of a user.
    private static func attributesLine(of userID: String) -> String {
        let plan = ["free", "free", "pro", "team"].randomElement() ?? "free"
        let country = ["de", "fr", "us", "jp"].randomElement() ?? "de"
        let age = Int.random(in: 14...80)
        return
            #"{"user_id":"\#(userID)","attributes":{"country":"\#(country)","plan":"\#(plan)","age":\#(age)}}"#
    }

    /// Returns a goal event.
    private func goal(_ name: String, _ user: String, _ time: Instant, _ value: Double?) -> JSONValue {
        [
            "user_id": .string(user), "goal": .string(name), "timestamp": .string(time.rfc3339),
            "value": value.map { .number($0) } ?? .null,
        ]
    }

    // MARK: Requests

    private func put(_ path: String, _ body: JSONValue) throws(Failure) {
        try request("PUT", "/v1/" + path, body.encoded())
    }

    @discardableResult
    private func request(_ method: String, _ path: String, _ body: [UInt8]) throws(Failure) -> String {
        let response = try server.send(method, path, body: body)
        guard (200..<300).contains(response.status) else {
            throw Failure("\(method) \(path) responds \(response.status): \(response.body)")
        }
        return response.body
    }
}
