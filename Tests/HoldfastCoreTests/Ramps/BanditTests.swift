import Bucketing
import Chronology
import Definitions
import JSON
import Storage
import TestSupport
import Testing

@testable import HoldfastCore

/// Bandits of several processes on one store, whose clock the tests advance.
@Suite struct BanditTests {
    private let clock = ManualClock()
    private let store: InMemoryStore
    private let process: RampProcess

    init() throws {
        store = InMemoryStore(clock: clock.wallClock)
        process = try RampProcess(store)
    }

    private func create(_ bandit: JSONValue = ["every": "1h"], direction: String = "increase") async throws {
        try await process.edit { definitions throws(CoreError) in
            let metric: JSONValue = ["kind": "conversion", "goal": "buy", "direction": .string(direction)]
            _ = try MetricChange(metric, key: "bought").apply(to: &definitions)
        }
        try await process.put([
            "id": "7", "variations": ["a", "b"], "metrics": ["primary": ["bought"]], "bandit": bandit,
        ])
        try await process.tick()
    }

    private func state() throws -> JSONObject {
        try process.shown()["bandit"]?.object?["state"]?.object ?? JSONObject()
    }

    /// The shares of the variations, in percent.
    private func shares() throws -> [Double] {
        (try process.shown()["variations"]?.array ?? []).compactMap { $0.object?["share"]?.double }
    }

    /// Exposes users of a variation, of whom the first ones buy.
    private func expose(_ users: Range<Int>, to variation: Identifier, buying count: Int) async throws {
        try await process.expose(users, to: variation)
        let now = store.clock.now()
        _ = try await store.record(
            users.prefix(count).map {
                .goal(
                    GoalEvent(
                        userID: Identifier("\(variation)\($0)"), goal: "buy", value: 1, happenedAt: now,
                        receivedAt: now,
                        sdkKey: RampProcess.sdkKey))
            })
    }

    private func entries() async throws -> [AuditEntry] {
        try await store.audit { $0.limit = 1_000 }.filter { $0.action == AuditAction.experimentBandit.rawValue }
            .reversed()
    }

    private func results() async throws -> ExperimentResults {
        let project = try #require(process.catalog.snapshot().projects[RampProcess.sdkKey])
        let experiment = try #require(project.datafile.experiment(key: "e"))
        let series = try store.read(StoreQuery.series(experimentID: "7")).first { $0.definition.content == .periods }
        let periods = try store.read(
            .breakdown(experimentID: "7", series: try #require(series).number, goal: "buy", frozenAt: nil))
        return try ExperimentResults(
            experiment, sdkKey: RampProcess.sdkKey, ResultsQuery(["goal": "buy"]),
            store.tally(experimentID: "7", goal: "buy"), periods: periods, now: clock.now)
    }

    @Test func `New users get the better variation more often, and nobody who takes part is moved`() async throws {
        try await create()
        #expect(try state()["reason"] == "fewer than 100 users in a, b")
        #expect(try shares() == [50, 50])
        try await expose(0..<200, to: "a", buying: 20)
        try await expose(0..<200, to: "b", buying: 60)
        clock.advance(by: .seconds(3_599))
        try await process.tick()
        #expect(try shares() == [50, 50])
        clock.advance(by: .seconds(1))
        try await process.tick()
        #expect(try shares() == [5, 95])
        #expect(try state()["reason"] == .null && state()["users"] == 400)
        #expect(try state()["looked_at"] == .string(clock.now.rfc3339))
        #expect(try state()["due_at"] == .string((clock.now + 3_600_000).rfc3339))
        let chances = try #require(try state()["variations"]?.array).map {
            $0.object?["chance_to_be_best"]?.double ?? 0
        }
        #expect(chances[0] < 1e-3 && chances[1] > 0.999)
        let users = try store.tally(experimentID: "7", goal: "buy").variations.map(\.counted)
        #expect(users == [200, 200])
        let entry = try #require(try await entries().last)
        let audited = try JSONParser().parse(entry.after ?? []).object?["experiment"]?.object
        #expect(audited?["variations"]?.array?.map { $0.object?["weight"] } == [5, 95])
        // Nothing new, and nothing changes.
        clock.advance(by: .seconds(3_600))
        try await process.tick()
        #expect(try shares() == [5, 95])
    }

    @Test func `A look that leaves the weights is no revision, and all processes know it`() async throws {
        try await create()
        let version = try #require(process.catalog.snapshot().projects[RampProcess.sdkKey]?.version)
        let others = try (0..<3).map { _ in try RampProcess(store) }
        for hour in 1...3 {
            clock.advance(by: .seconds(3_600))
            try await process.expose(hour * 10..<hour * 10 + 10, to: "a")
            await withTaskGroup { group in
                for process in others + [process] { group.addTask { await process.scheduler.makeDueChanges() } }
            }
            for process in others + [process] { try await process.tick() }
            #expect(try await entries().count == hour + 1)
            #expect(
                try state()["looked_at"] == .string(clock.now.rfc3339) && state()["users"] == .integer(Int64(hour * 10))
            )
            #expect(try state()["due_at"] == .string((clock.now + 3_600_000).rfc3339))
        }
        let entry = try #require(try await entries().last)
        func users(_ content: [UInt8]?) throws -> JSONValue? {
            let bandit = try JSONParser().parse(content ?? []).object?["experiment"]?.object?["bandit"]?.object
            return bandit?["state"]?.object?["users"]
        }
        #expect(try users(entry.before) == 20 && users(entry.after) == 30)
        // Another time between looks counts from the last one.
        try await process.put(["bandit": ["every": "30m"]])
        #expect(try state()["due_at"] == .string((clock.now + 1_800_000).rfc3339))
        clock.advance(by: .seconds(1_800))
        try await RampProcess(store).tick()
        #expect(try await entries().count == 5)
        try await process.tick()
        #expect(try await entries().count == 5)
        #expect(process.catalog.snapshot().projects[RampProcess.sdkKey]?.version == version + 1)
    }

    @Test func `For a metric that should decrease the lower variation is the better one`() async throws {
        try await create(direction: "decrease")
        try await expose(0..<200, to: "a", buying: 20)
        try await expose(0..<200, to: "b", buying: 60)
        clock.advance(by: .seconds(3_600))
        try await process.tick()
        #expect(try shares() == [95, 5])
    }

    @Test func `Several processes look once, and after all were killed the next that starts`() async throws {
        try await create()
        let others = try (0..<3).map { _ in try RampProcess(store) }
        let before = try await entries().count
        try await expose(0..<150, to: "a", buying: 20)
        try await expose(0..<150, to: "b", buying: 60)
        clock.advance(by: .seconds(3_600))
        await withTaskGroup { group in
            for process in others + [process] { group.addTask { await process.scheduler.makeDueChanges() } }
        }
        #expect(try await entries().count == before + 1)
        clock.advance(by: .seconds(86_400))
        let late = try RampProcess(store)
        try await late.tick()
        try await late.tick()
        #expect(try await entries().count == before + 2)
    }

    @Test func `While the experiment enrolls nobody the bandit does not look`() async throws {
        try await create()
        let before = try await entries().count
        for (pause, run) in [("status", ["paused", "running"]), ("enrollment", ["closed", "open"])] {
            try await process.put([pause: .string(run[0])])
            clock.advance(by: .seconds(86_400))
            try await process.tick()
            #expect(try await entries().count == before)
            try await process.put([pause: .string(run[1])])
        }
    }

    @Test func `Results weight each user by the probability under which the user was enrolled`() async throws {
        try await create()
        try await expose(0..<200, to: "a", buying: 20)
        try await expose(0..<200, to: "b", buying: 60)
        clock.advance(by: .seconds(3_600))
        try await process.tick()
        #expect(try shares() == [5, 95])
        // Everybody buys more often, and most of them got `b`.
        try await expose(1_000..<1_020, to: "a", buying: 10)
        try await expose(1_000..<1_380, to: "b", buying: 190)
        let results = try await results()
        #expect(results.adaptive?.users == 800 && results.adaptive?.usersWithoutProbability == 0)
        let rates = results.variations.map(\.conversion.mean)
        // 0.1 and 0.5, of which each is the rate of half of all users. The plain rate is 30 of 220.
        #expect(abs(rates[0] - 0.3) < 1e-9 && abs(rates[1] - (0.3 + 0.5) / 2) < 1e-9, "\(rates)")
        let difference = try #require(results.variations[1].conversion.comparison)
        #expect(
            abs(difference.numbers.difference - 0.1) < 1e-9
                && difference.numbers.differenceInterval?.contains(0.1) == true)
        #expect(!results.warnings.contains { $0.code == .weightsChanged })
    }

    @Test func `Users who took part before the bandit count with the shares of their time`() async throws {
        try await process.put(["id": "7", "variations": ["a", "b"]])
        try await process.tick()
        try await expose(0..<200, to: "a", buying: 20)
        try await expose(0..<200, to: "b", buying: 60)
        try await create()
        try await process.tick()
        #expect(try shares() == [5, 95])
        #expect(try await results().adaptive?.users == 400)
        try await expose(1_000..<1_020, to: "a", buying: 10)
        try await expose(1_000..<1_380, to: "b", buying: 190)
        #expect(abs(try await results().variations[0].conversion.mean - 0.3) < 1e-9)
    }

    @Test func `A change of the traffic keeps the weights, and of the interval the last look`() async throws {
        try await create()
        try await expose(0..<200, to: "a", buying: 20)
        try await expose(0..<200, to: "b", buying: 60)
        clock.advance(by: .seconds(3_600))
        try await process.tick()
        try await process.put(["traffic": 50])
        #expect(try shares() == [2.5, 47.5])
        let looked = try state()["looked_at"]
        try await process.put(["bandit": ["every": "2h", "minimum_share": 10]])
        #expect(try state()["looked_at"] == looked)
        #expect(try state()["due_at"] == .string((clock.now + 7_200_000).rfc3339))
        try await process.put(["bandit": ["every": "2h", "predict": true]])
        #expect(try shares() == [2.5, 47.5] && process.shown()["traffic"] == 50)
        try await process.put(["enrollment": "closed"])
        #expect(try shares() == [2.5, 47.5] && process.shown()["traffic"] == 50)
        try await process.put(["bandit": ["every": "2h", "predict": false], "enrollment": "open"])
        #expect(try shares() == [2.5, 47.5] && process.shown()["traffic"] == 50)
        try await process.put(["bandit": .null])
        #expect(try process.shown()["bandit"] == nil && shares() == [2.5, 47.5])
    }
}
