import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import TestSupport
import Testing

/// A team, its servers and its users.
final class Team {
    static let weeks = 52
    private static let newUsersPerWeek = 50
    private static let goal = "purchase"
    /// What a user spends within some days, at most so much.
    private static let spending = (metric: "spending", days: 5, cap: 60)

    private(set) var ledger = YearLedger()
    private(set) var experiments: [TeamExperiment]
    private var holdout = YearHoldout(id: "")
    private let directory: TemporaryDirectory
    private let clock: SetClock
    private var servers: [ServerProcess] = []
    private var clients: [HTTPClient] = []
    private var random = SeededGenerator(seed: 52)
    private var week = 0
    private var events = 0

    private static let hour: Int64 = 3_600_000
    private var now: Int64 { Int64(Date().timeIntervalSince1970 * 1_000) + Int64(week) * 168 * Self.hour }

    init() throws {
        directory = try TemporaryDirectory()
        clock = try SetClock(in: directory)
        experiments = (0..<9).map { number in
            let hasEffect = number % 2 == 0
            return TeamExperiment(
                number: number, start: 1 + number * 5, rates: ["a": 0.3, "b": hasEffect ? 0.65 : 0.3],
                isBroken: number == 3, reopensIn: number % 3 == 1 ? 1 + number * 5 + 12 : nil)
        }
        for _ in 0..<3 {
            servers.append(try start())
            clients.append(try servers[servers.count - 1].client())
        }
    }

    private func start() throws -> ServerProcess {
        try ServerProcess(database: directory.file("holdfast.db"), environment: clock.environment)
    }

    func stop() {
        for server in servers { server.stop() }
    }

    // MARK: The year

    func begin(_ week: Int) throws {
        self.week = week
        clock.set(hours: Int64(week) * 168)
        for experiment in experiments where week > experiment.start && week <= experiment.start + 2 {
            if !experiment.isBroken { try awaitStep(week - experiment.start + 1, of: experiment) }
        }
    }

    private func awaitStep(_ step: Int, of experiment: TeamExperiment) throws {
        try wait(for: experiment) { Int($0["ramp"]["state"]["step"].integer ?? 0) >= step }
    }

    private func wait(for experiment: TeamExperiment, until condition: (TestResponse) -> Bool) throws {
        let deadline = ContinuousClock.now + .seconds(60)
        var shown = try request("GET", "/v1/experiments/\(experiment.key)")
        while !condition(shown) {
            guard .now < deadline else { throw TestFailure("week \(week), \(experiment.key): \(shown.text)") }
            shown = try request("GET", "/v1/experiments/\(experiment.key)")
        }
    }

    /// Does what is due this week about the definitions.
    func administer() throws {
        if week == 0 { try prepare() }
        for index in experiments.indices {
            let experiment = experiments[index]
            let path = "/v1/experiments/\(experiment.key)"
            switch week {
            case experiment.start - 1: try request("PUT", path, experiment.definition, expecting: 201)
            case experiment.start:
                try request("PUT", path, #"{"status":"running"}"#)
                try awaitEverywhere(experiment, "running")
                // The ramp begins in this week, although the clock goes on soon.
                try wait(for: experiment) { $0["ramp"]["state"]["status"] == "active" }
                experiments[index].runningSince = now
            case experiment.concludesIn where !experiment.isBroken:
                experiments[index].frozen = ledger.totals(of: experiment.key)
                let winner = experiment.winner.map { "\"\($0)\"" } ?? "null"
                try request("POST", path + "/conclude", "{\"winner\":\(winner),\"reason\":\"week \(week)\"}")
                try awaitEverywhere(experiment, "concluded")
            case experiment.reopensIn:
                try request("POST", path + "/reopen")
                try awaitEverywhere(experiment, "running")
                experiments[index].runningSince = now
            default: break
            }
            if week == experiment.measuresIn {
                try request("PUT", path, #"{"metrics":{"primary":["\#(Self.spending.metric)"]}}"#)
            }
        }
    }

    /// Defines what lasts for the whole year.
    private func prepare() throws {
        let (metric, days, cap) = Self.spending
        let body = #"{"kind":"total","goal":"\#(Self.goal)","window":\#(days),"cap":\#(cap)}"#
        try request("PUT", "/v1/metrics/\(metric)", body, expecting: 201)
        let share = #"{"share":\#(YearHoldout.share),"metrics":{"primary":["\#(metric)"]}}"#
        let made = try request("PUT", "/v1/holdouts/\(YearHoldout.key)", share, expecting: 201)
        holdout = YearHoldout(id: made["id"].string ?? "")
        // A server that knows the flag knows the holdout, too.
        try request("PUT", "/v1/flags/\(YearHoldout.flag)", #"{"type":"boolean"}"#, expecting: 201)
    }

    /// A server learns of a change of another one within a moment.
    private func awaitEverywhere(_ experiment: TeamExperiment, _ status: String) throws {
        for client in clients {
            let deadline = ContinuousClock.now + .seconds(60)
            while try client.request("GET", "/v1/experiments/\(experiment.key)")["status"].string != status {
                guard .now < deadline else { throw TestFailure("\(experiment.key) is not \(status) everywhere") }
            }
        }
    }

    /// A ramp stops by itself as soon as the split cannot be chance.
    private func awaitAlarms() throws {
        for index in experiments.indices where experiments[index].isBroken && experiments[index].alarmedIn == nil {
            let users = ledger.totals(of: experiments[index].key).mapValues { Double($0.users) }
            guard SampleRatio.isBroken(users["a"] ?? 0, users["b"] ?? 0) else { continue }
            try wait(for: experiments[index]) {
                $0["status"] == "paused" && $0["ramp"]["state"]["status"] == "stopped"
            }
            experiments[index].alarmedIn = week
        }
    }

    /// Kills a server, which comes back.
    func killServer() throws {
        let index = Int.random(in: servers.indices, using: &random)
        servers[index].kill()
        servers[index] = try start()
        clients[index] = try servers[index].client()
    }

    // MARK: Users

    func serveUsers() throws {
        let present = try meetUsers()
        // The others are in no results of the holdout.
        let newcomers = present.filter { ledger.people[$0]?.firstWeek == week }
        for (index, id) in newcomers.enumerated() where index % 2 == 0 { try decide(id) }
        for experiment in experiments where experiment.isVisited(in: week) { try assign(present, experiment) }
        try awaitAlarms()
        try sendPurchases(of: present)
        for id in present where id.hasPrefix("anonymous-") && ledger.people[id]?.firstWeek != week { try logIn(id) }
        let enrolled = ledger.people.values.filter { !$0.assigned.isEmpty }.map(\.id).sorted()
        if let id = enrolled.randomElement(using: &random) {
            try request("DELETE", "/v1/profiles/\(id)")
            ledger.erase(id)
        }
    }

    /// Returns this week's users: new ones, and those of last week.
    private func meetUsers() throws -> [String] {
        for number in 0..<Self.newUsersPerWeek {
            let id =
                number % 4 == 0
                ? "anonymous-\(UUID(numbered: week * 1_000 + number).uuidString.lowercased())" : "user\(week)x\(number)"
            ledger.add(.init(id: id, firstWeek: week))
        }
        return ledger.people.values.filter { $0.firstWeek >= week - 1 }.map(\.id).sorted()
    }

    /// Decides the flag that is in the holdout alone, so that the user counts in its results.
    private func decide(_ id: String) throws {
        let time = now
        let fields = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]
        let decided = try request(
            "POST", "/v1/decide?keys=\(YearHoldout.flag)", #"{"userId":"\#(id)"}"#, fields: fields)
        let isHeldOut = holdout.keepsOut(id)
        #expect((decided["ruleKey"].string == YearHoldout.key) == isHeldOut, "\(id): \(decided.text)")
        ledger.expose(id, to: isHeldOut ? "off" : "rest", in: YearHoldout.key, at: time)
    }

    private func assign(_ ids: [String], _ experiment: TeamExperiment) throws {
        let asked = ids.map { #"{"user_id":"\#($0)","experiment":"\#(experiment.key)"}"# }
        let answers = try request("POST", "/v1/assign", "[\(asked.joined(separator: ","))]").json.array ?? []
        #expect(answers.count == ids.count)
        var exposures: [String] = []
        for (id, answer) in zip(ids, answers) {
            let variation = answer["variation_key"].string
            // A login may have put the user into the holdout. What the user had stays stored.
            guard !holdout.keepsOut(id) else {
                #expect(variation == nil, "week \(week), \(id): \(answer)")
                continue
            }
            guard !experiment.isConcluded(in: week) else {
                #expect(variation == experiment.winner, "week \(week), \(id): \(answer)")
                continue
            }
            let former = ledger.assign(variation, in: experiment.key, to: id)
            // While it is paused nobody has a variation.
            guard experiment.alarmedIn == nil else { continue }
            #expect(former == nil || variation == former, "\(id) was moved in week \(week)")
            if let variation { exposures += expose(id, variation, experiment) }
        }
        try send(exposures, to: "/v1/exposures")
    }

    /// Returns exposures to send: the first one may be reported late, and after a later one. What was seen before the experiment
    /// ran does not count.
    private func expose(_ id: String, _ variation: String, _ experiment: TeamExperiment) -> [String] {
        guard !experiment.isBroken || variation == "a" else { return [] }
        let times = (0...1).map { _ in now - Int64.random(in: 0...48, using: &random) * Self.hour }
        return times.map { time in
            if time >= experiment.runningSince { ledger.expose(id, to: variation, in: experiment.key, at: time) }
            return
                #"{"user_id":"\#(id)","experiment":"\#(experiment.key)","variation_key":"\#(variation)","timestamp":"\#(text(time))"}"#
        }
    }

    /// Whoever buys does so more often with a better variation, up to six days before it is reported, and is reported twice
    /// at times.
    private func sendPurchases(of ids: [String]) throws {
        var sent: [String] = []
        for id in ids {
            let seen = ledger.people[id]?.assigned ?? [:]
            let rate =
                experiments.compactMap { experiment in seen[experiment.key].flatMap { experiment.rates[$0] } }.max()
                ?? 0.3
            guard Double.random(in: 0..<1, using: &random) < rate else { continue }
            events += 1
            let event = (
                id: "p\(events)", time: now - Int64.random(in: 0...144, using: &random) * Self.hour,
                value: Int.random(in: 1...50, using: &random)
            )
            ledger.purchase(event, by: id)
            let line =
                #"{"id":"\#(event.id)","user_id":"\#(id)","goal":"\#(Self.goal)","value":\#(event.value),"timestamp":"\#(text(event.time))"}"#
            sent.append(line)
            if events % 5 == 0 { sent.append(line) }
        }
        try send(sent, to: "/v1/events")
    }

    private func logIn(_ anonymousID: String) throws {
        let account = "account\(week)x\(anonymousID.suffix(12))"
        let body = #"{"user_id":"\#(account)","anonymous_id":"\#(anonymousID)"}"#
        try request("POST", "/v1/logins", body)
        try request("POST", "/v1/logins", body)
        ledger.logIn(anonymousID, as: account)
        try decide(account)
        if let visited = experiments.last(where: { $0.isVisited(in: week) && !$0.isBroken }) {
            try assign([account], visited)
        }
    }

    private func send(_ elements: [String], to path: String) throws {
        guard !elements.isEmpty else { return }
        let results = try request("POST", path, "[\(elements.joined(separator: ","))]")["results"].array ?? []
        #expect(results.count == elements.count)
        let refused = results.first { $0["status"] != "stored" && $0["status"] != "repeated" }
        #expect(refused == nil)
    }

    // MARK: Checks

    /// Compares the present totals of all experiments with the ledger.
    func checkTotals() throws {
        for experiment in experiments where week >= experiment.start {
            let shown = try results(of: experiment, "&live=true")
            #expect(totals(shown) == ledger.totals(of: experiment.key), "week \(week), \(experiment.key)")
            if week >= experiment.measuresIn { try checkSpending("experiments", experiment.key, ["a", "b"]) }
        }
    }

    /// Compares the totals of the holdout with the ledger, as soon as the exposures of all decisions are stored.
    func checkHoldout() throws {
        let (path, variations) = ("/v1/holdouts/\(YearHoldout.key)/results?goal=\(Self.goal)", ["off", "rest"])
        let counted = ledger.totals(of: YearHoldout.key, variations)
        let deadline = ContinuousClock.now + .seconds(60)
        var shown = totals(try request("GET", path))
        while shown != counted, .now < deadline { shown = totals(try request("GET", path)) }
        #expect(shown == counted, "week \(week)")
        try checkSpending("holdouts", YearHoldout.key, variations)
    }

    private func checkSpending(_ list: String, _ key: String, _ variations: [String]) throws {
        let (metric, days, cap) = Self.spending
        let deadline = ContinuousClock.now + .seconds(60)
        func read() throws -> TestResponse {
            try request("GET", "/v1/\(list)/\(key)/results?metric=\(metric)&live=true")
        }
        var shown = try read()
        while shown["metric"]["filling"] == true, .now < deadline { shown = try read() }
        #expect(shown["variations"].array?.count == 2 && shown["metric"]["filling"] == false, "\(shown.text)")
        let counted = ledger.totals(of: key, variations, window: Int64(days) * 24 * Self.hour, cap: cap)
        for variation in shown["variations"].array ?? [] {
            let total = counted[variation["variation_key"].string ?? ""]
            let mean = variation["estimate"]["mean"].double ?? 0
            let sum = mean * Double(variation["users"].integer ?? 0)
            #expect(abs(sum - Double(total?.value ?? -1)) < 1e-6, "week \(week), \(key): \(variation)")
        }
    }

    /// Whatever came later, a conclusion keeps the totals of its moment.
    func checkConclusions() throws {
        for experiment in experiments where experiment.isConcluded(in: week) {
            let shown = try results(of: experiment)
            #expect(totals(shown) == experiment.frozen, "\(experiment.key)")
        }
    }

    /// Compares all verdicts with those of a program in Python, which gets only the numbers of users.
    func checkVerdicts() throws {
        for experiment in experiments where week >= experiment.start {
            let shown = try results(of: experiment)
            let counts = totals(shown)
            let numbers = ["a", "b"].flatMap { [counts[$0]?.users ?? 0, counts[$0]?.converted ?? 0] }.map(String.init)
            let child = try ChildProcess("/usr/bin/env", ["python3", Self.verdictProgram] + numbers)
            #expect(child.wait() == .exit(0), "\(child.errors.text)")
            let words = child.output.text.split(whereSeparator: \.isWhitespace).map(String.init)
            #expect(shown["verdict"]["decision"].string == words.first, "\(experiment.key) \(numbers): \(shown.text)")
            #expect(shown["verdict"]["winner"].string ?? "none" == words.last)
        }
    }

    private static let verdictProgram = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .appendingPathComponent("verdict.py").path

    /// Everybody who is left has what was given first, in every process, concluded experiments included.
    func checkAssignments() throws {
        for (index, person) in ledger.people.values.sorted(by: { $0.id < $1.id }).enumerated() {
            let shown = try clients[index % clients.count].request("GET", "/v1/profiles/\(person.id)")
            for experiment in experiments {
                let stored = shown["experiment_bucket_map"][experiment.id]["variation_id"].string
                let given = person.assigned[experiment.key].map { experiment.id + $0 }
                #expect(stored == given, "\(person.id), \(experiment.key)")
            }
        }
    }

    private func results(of experiment: TeamExperiment, _ options: String = "") throws -> TestResponse {
        try request("GET", "/v1/experiments/\(experiment.key)/results?goal=\(Self.goal)\(options)")
    }

    private func totals(_ shown: TestResponse) -> [String: YearLedger.Total] {
        var totals: [String: YearLedger.Total] = [:]
        for variation in shown["variations"].array ?? [] {
            func number(_ name: String) -> Int { Int(variation[name].integer ?? -1) }
            #expect(number("forced") == 0)
            let mean = variation["value"]["mean"].double ?? 0
            totals[variation["variation_key"].string ?? ""] = .init(
                users: number("users"), crossed: number("multiple_variations"), events: number("events"),
                converted: number("converted"),
                value: Int((mean * Double(number("users"))).rounded()))
        }
        return totals
    }

    // MARK: Requests

    /// Sends a request to any of the servers.
    @discardableResult
    private func request(
        _ method: String, _ target: String, _ body: String? = nil, fields: [String] = [],
        expecting status: Int = 200
    ) throws -> TestResponse {
        let client = clients[Int.random(in: clients.indices, using: &random)]
        let response = try client.request(method, target, body, fields: fields)
        guard response.status == status else {
            throw TestFailure("week \(week), \(method) \(target): \(response.status) \(response.text)")
        }
        return response
    }

    private func text(_ time: Int64) -> String {
        Date(timeIntervalSince1970: Double(time) / 1_000)
            .formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true))
    }
}

extension UUID {
    /// A UUID of version 4 that a test can repeat.
    fileprivate init(numbered number: Int) {
        let text = String(number, radix: 16)
        self =
            UUID(uuidString: "00000000-0000-4000-8000-" + String(repeating: "0", count: 12 - text.count) + text)
            ?? UUID()
    }
}

/// The test of two equal shares in `verdict.py`.
private enum SampleRatio {
    static func isBroken(_ first: Double, _ second: Double) -> Bool {
        func beta(_ x: Double, _ y: Double) -> Double { lgamma(x) + lgamma(y) - lgamma(x + y) }
        let factor = beta(500 + first, 500 + second) - beta(500, 500) + (first + second) * log(2)
        return factor > -log(0.0005)
    }
}
