import Bucketing
import Chronology
import Definitions
import JSON
import Storage
import TestSupport
import Testing

@testable import HoldfastCore

/// Ramps and schedules of several processes on one store, whose clock the tests advance.
@Suite struct RampTests {
    private let clock = ManualClock()
    private let store: InMemoryStore
    private let process: RampProcess

    private static let ramp: JSONValue = [
        "steps": [
            ["traffic": 1, "for": "1h"], ["traffic": 5, "for": "1d"], ["traffic": 25, "users": 300], ["traffic": 100],
        ]
    ]

    init() throws {
        store = InMemoryStore(clock: clock.wallClock)
        process = try RampProcess(store)
    }

    private func create(_ ramp: JSONValue = RampTests.ramp) async throws {
        try await process.put(["id": "7", "variations": ["a", "b"], "ramp": ramp])
        try await process.tick()
    }

    private func expect(
        _ status: JSONValue, step: JSONValue, traffic: JSONValue, _ place: SourceLocation = #_sourceLocation
    ) throws {
        let (state, shown) = (try process.state(), try process.shown())
        #expect(state["status"] == status && state["step"] == step, "\(state)", sourceLocation: place)
        #expect(shown["traffic"] == traffic, sourceLocation: place)
    }

    // MARK: Steps

    @Test func `Steps are taken when they are due, and each is in the audit log with its evidence`() async throws {
        try await process.put(["id": "7", "variations": ["a", "b"], "ramp": Self.ramp])
        try expect("waiting", step: 1, traffic: 1)
        try await process.tick()
        try expect("active", step: 1, traffic: 1)
        let start = clock.now
        #expect(try process.state()["due_at"] == .string((start + 3_600_000).rfc3339))
        clock.advance(by: .seconds(3_599))
        try await process.tick()
        try expect("active", step: 1, traffic: 1)
        clock.advance(by: .seconds(1))
        try await process.tick()
        try expect("active", step: 2, traffic: 5)
        try await process.expose(0..<40, to: "a")
        try await process.expose(0..<40, to: "b")
        clock.advance(by: .seconds(86_400))
        try await process.tick()
        try expect("active", step: 3, traffic: 25)
        #expect(try process.state()["due_at"] == .null)
        clock.advance(by: .seconds(864_000))
        try await process.expose(40..<149, to: "a")
        try await process.expose(40..<150, to: "b")
        try await process.tick()
        try expect("active", step: 3, traffic: 25)
        try await process.expose(149..<150, to: "a")
        try await process.tick()
        try expect("completed", step: 4, traffic: 100)
        clock.advance(by: .seconds(864_000))
        try await process.tick()
        let entries = try await process.entries()
        let states = try entries.map { entry in
            try JSONParser().parse(entry.after ?? []).object?["experiment"]?.object?["ramp"]?.object?["state"]?.object
        }
        #expect(states.map { $0?["step"] } == [1, 2, 3, 4])
        #expect(states.map { $0?["users"] } == [0, 0, 80, 300])
        #expect(states[3]?["sample_ratio_p_value"]?.double == 1)
        #expect(Set(entries.map(\.author.name)) == ["experiment schedule"])
    }

    @Test func `Several processes take each step once, also after all were killed`() async throws {
        try await create(["steps": [["traffic": 1, "for": "60s"], ["traffic": 50, "for": "60s"], ["traffic": 100]]])
        let others = try (0..<3).map { _ in try RampProcess(store) }
        for _ in 0..<2 {
            clock.advance(by: .seconds(60))
            await withTaskGroup { group in
                for process in others + [process] { group.addTask { await process.scheduler.makeDueChanges() } }
            }
        }
        try await process.catalog.refresh()
        try expect("completed", step: 3, traffic: 100)
        #expect(try await process.entries().count == 3)
        let late = try RampProcess(store)
        try await late.tick()
        #expect(try await process.entries().count == 3)
    }

    @Test func `A step that was due while no process ran is taken by the next that starts`() async throws {
        try await create(["steps": [["traffic": 1, "for": "60s"], ["traffic": 50, "for": "60s"], ["traffic": 100]]])
        clock.advance(by: .seconds(86_400))
        let late = try RampProcess(store)
        await late.scheduler.makeDueChanges()
        // The next step is due a minute after this one was taken.
        #expect(try late.shown()["traffic"] == 50)
        try await late.tick()
        #expect(try late.shown()["traffic"] == 50)
    }

    @Test(arguments: 1...6)
    func `More traffic takes no bucket value from a variation, and the weights stay`(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        let variations = (0..<Int.random(in: 3...7, using: &random)).map { number -> JSONValue in
            ["key": .string("v\(number)"), "weight": .integer(Int64.random(in: 1...20, using: &random))]
        }
        let weights = variations.map { $0.object?["weight"]?.double }
        var definitions = ProjectDefinitions(projectID: "p")
        var former: [Identifier?] = []
        // Small shares are rounded most.
        for traffic in (1...20).map({ Double($0) / 100 }) + [1, 5, 25, 100] {
            if former.isEmpty {
                let body: JSONValue = ["variations": .array(variations), "traffic": .number(traffic)]
                try ExperimentChange(body, key: "e").apply(to: &definitions)
            } else {
                try ExperimentChange(["traffic": .number(traffic)], key: "e").apply(to: &definitions)
            }
            let experiment = try #require(definitions.experiments["e"])
            let owners = Self.owners(experiment.allocation)
            let taken = former.indices.filter { former[$0] != nil && former[$0] != owners[$0] }
            #expect(taken.isEmpty, "at \(traffic)% of \(weights)")
            #expect(abs(experiment.split.traffic - traffic) < 0.001)
            let shown = experiment.split.weights
            #expect(experiment.variations.map { shown[$0.id] } == weights, "at \(traffic)%")
            former = owners
        }
    }

    /// The variation of each bucket value.
    private static func owners(_ allocation: TrafficAllocation) -> [Identifier?] {
        var owners: [Identifier?] = []
        for range in allocation.ranges {
            let owner = range.entityID.string.isEmpty ? nil : range.entityID
            owners += Array(repeating: owner, count: max(0, range.end - owners.count))
        }
        return owners + Array(repeating: nil, count: Bucketer.bucketCount - owners.count)
    }

    @Test func `A step that is not possible holds the ramp`() async throws {
        try await process.put(["variations": ["x"], "group": "page", "traffic": 60], key: "other")
        try await process.put(["id": "7", "variations": ["a", "b"], "group": "page", "ramp": Self.ramp.first(2, 50)])
        try await process.tick()
        clock.advance(by: .seconds(3_600))
        try await process.tick()
        try expect("held", step: 1, traffic: 1)
        #expect(try process.state()["reason"]?.string?.contains("at most 100% of the traffic together") == true)
        try await process.tick()
        #expect(try await process.entries().count == 2)
    }

    // MARK: Alarms

    @Test(arguments: [
        ("pause", true, "stopped", "paused", 1), ("hold", true, "held", "running", 1),
        ("back", true, "stopped", "running", 0),
        ("back", false, "stopped", "paused", 0),
    ])
    func `A broken sample ratio stops the ramp at the next look`(
        action: String, keep: Bool, status: String, experiment: String, traffic: Int64
    ) async throws {
        try await create([
            "steps": [["traffic": 1, "for": "1h"], ["traffic": 100]], "on_alarm": .string(action), "keep": .bool(keep),
        ])
        try await process.expose(0..<500, to: "a")
        try await process.expose(0..<300, to: "b")
        try await process.tick()
        try expect(.string(status), step: 1, traffic: .integer(traffic))
        #expect(try process.shown()["status"]?.string == experiment)
        #expect(try process.state()["reason"]?.string?.contains("not split") == true)
        clock.advance(by: .seconds(7_200))
        try await process.tick()
        try expect(.string(status), step: 1, traffic: .integer(traffic))
        #expect(try await process.entries().count == 2)
        // The variations have what they had.
        let shares = try process.shown()["variations"]?.array?.map { $0.object?["weight"] }
        #expect(shares == [1, 1])
    }

    @Test(arguments: ["increase", "decrease"])
    func `A guardrail that is certainly worse than its margin allows stops the ramp`(direction: String) async throws {
        try await process.edit { definitions throws(CoreError) in
            let metric: JSONValue = ["kind": "conversion", "goal": "g", "direction": .string(direction)]
            _ = try MetricChange(metric, key: "guard").apply(to: &definitions)
        }
        try await create(["steps": [["traffic": 1, "for": "1h"], ["traffic": 100]]])
        try await process.put(["metrics": ["guardrails": [["metric": "guard", "margin": 0.1]]]])
        for variation in ["a", "b"] as [Identifier] { try await process.expose(0..<130, to: variation) }
        // The variation's users do it less, or more.
        let counts: [Identifier: Int] = direction == "increase" ? ["a": 65, "b": 50] : ["a": 50, "b": 63]
        try await reach("g", counts)
        try await process.tick()
        try expect("active", step: 1, traffic: 1)
        try await reach("g", direction == "increase" ? ["a": 125, "b": 8] : ["a": 8, "b": 125])
        for variation in ["a", "b"] as [Identifier] { try await process.expose(130..<330, to: variation) }
        try await reach("g", direction == "increase" ? ["a": 300, "b": 52] : ["a": 52, "b": 300])
        try await process.tick()
        try expect("stopped", step: 1, traffic: 1)
        #expect(try process.shown()["status"] == "paused")
        #expect(try process.state()["reason"]?.string?.contains("the guardrail 'guard' is worse") == true)
        let monitor = ExperimentMonitor(process.catalog, store: store)
        await monitor.checkAll()
        #expect(monitor.findings.first?.warnings == [.guardrail, .stalled])
    }

    /// Lets the first users of each variation reach a goal.
    private func reach(_ goal: Identifier, _ counts: [Identifier: Int]) async throws {
        let now = clock.now
        let events = counts.flatMap { variation, count in
            (0..<count).map { user in
                UserEvent.goal(
                    GoalEvent(
                        userID: Identifier("\(variation)\(user)"), goal: goal, value: 1, happenedAt: now,
                        receivedAt: now))
            }
        }
        _ = try await store.record(events)
    }

    @Test
    func `Of 3,000 ramps without an effect at most as many are stopped as promised, with a look at every commit`() {
        var random = SeededGenerator(seed: 42)
        let stratum = SampleRatioCheck.Stratum(since: nil, numbers: [1, 2, 3], components: [[1, 1]])
        var stopped = 0
        for _ in 0..<3_000 {
            var counts = [0, 0]
            // Commits of 1 to 64 users, through all steps of the ramp: the ratio stays the same.
            for _ in 0..<30 {
                let users = Int.random(in: 1...64, using: &random)
                let ones = (random.next() >> UInt64(64 - users)).nonzeroBitCount
                counts[0] += ones
                counts[1] += users - ones
                if SampleRatioCheck([stratum], users: [counts]).isMismatch {
                    stopped += 1
                    break
                }
            }
        }
        #expect(Double(stopped) <= 3_000 * SampleRatioCheck.threshold)
    }

    // MARK: By hand

    @Test func `Traffic that is set by hand ends the ramp`() async throws {
        try await create()
        try await process.put(["traffic": 10])
        try expect("ended", step: 1, traffic: 10)
        clock.advance(by: .seconds(3_600))
        try await process.tick()
        try expect("ended", step: 1, traffic: 10)
        try await process.put(["ramp": .null])
        #expect(try process.shown()["ramp"] == nil)
    }

    @Test func `A ramp is stopped and resumed`() async throws {
        try await create()
        clock.advance(by: .seconds(3_600))
        try await process.tick()
        let now = clock.now
        try await control(.stop, at: now)
        clock.advance(by: .seconds(864_000))
        try await process.tick()
        try expect("ended", step: 2, traffic: 5)
        try await control(.resume, at: now)
        try await process.tick()
        try expect("active", step: 2, traffic: 5)
        #expect(try process.state()["since"] == .string(clock.now.rfc3339))
        await #expect(throws: CoreError.self) { try await control(.resume, at: now) }
    }

    private func control(_ control: RampControl, at now: Instant) async throws {
        try await process.edit { definitions throws(CoreError) in
            try definitions.control(rampOf: "e", control, at: now)
        }
    }

    @Test func `While the experiment enrolls nobody the ramp waits, and the step begins again`() async throws {
        try await create()
        clock.advance(by: .seconds(3_000))
        for (pause, run) in [("status", ["paused", "running"]), ("enrollment", ["closed", "open"])] {
            try await process.put([pause: .string(run[0])])
            try await process.tick()
            try expect("waiting", step: 1, traffic: 1)
            clock.advance(by: .seconds(86_400))
            try await process.put([pause: .string(run[1])])
            try await process.tick()
            try expect("active", step: 1, traffic: 1)
            #expect(try process.state()["since"] == .string(clock.now.rfc3339))
        }
    }

    @Test func `A conclusion ends the step at once, and reopening begins it again`() async throws {
        try await create()
        let (start, end) = (clock.now, clock.now + 1_800_000)
        clock.advance(by: .seconds(1_800))
        try await process.edit { definitions throws(CoreError) in
            try definitions.conclude("e", as: ConclusionInput(winner: "a"), at: end, by: "test")
        }
        #expect(try process.shown()["status"] == "concluded")
        try expect("waiting", step: 1, traffic: 1)
        #expect(try process.state()["since"] == .string(end.rfc3339) && process.state()["due_at"] == nil)
        clock.advance(by: .seconds(86_400))
        try await process.tick()
        try expect("waiting", step: 1, traffic: 1)
        // Only the beginning of the step.
        #expect(try await process.entries().count == 1)
        let monitor = ExperimentMonitor(process.catalog, store: store)
        await monitor.checkAll()
        #expect(monitor.findings.map(\.warnings) == [[]])
        try await process.edit { definitions throws(CoreError) in try definitions.reopen("e") }
        try await process.tick()
        try expect("active", step: 1, traffic: 1)
        #expect(try process.state()["since"] != .string(start.rfc3339))
    }

    @Test func `Later steps are changed without beginning anew, and the same ramp changes nothing`() async throws {
        try await create()
        clock.advance(by: .seconds(3_600))
        try await process.tick()
        let shown = try process.shown()
        try await process.put(["ramp": Self.ramp])
        #expect(try process.shown() == shown)
        let since = try process.state()["since"]
        try await process.put([
            "ramp": ["steps": [["traffic": 1, "for": "1h"], ["traffic": 5, "for": "2h"], ["traffic": 50]]]
        ])
        try expect("active", step: 2, traffic: 5)
        #expect(try process.state()["since"] == since)
        #expect(try process.state()["due_at"] == .string((clock.now + 7_200_000).rfc3339))
        try await process.put(["ramp": ["steps": [["traffic": 2, "for": "1h"], ["traffic": 50]]]])
        try expect("waiting", step: 1, traffic: 2)
    }

    // MARK: Schedules

    @Test func `A schedule starts a draft and closes its enrollment, each once`() async throws {
        let (start, end) = (clock.now + 60_000, clock.now + 120_000)
        try await process.put([
            "id": "7", "variations": ["a", "b"], "ramp": Self.ramp,
            "schedule": ["start_at": .string(start.rfc3339), "end_at": .string(end.rfc3339)],
        ])
        try await process.tick()
        #expect(try process.shown()["status"] == "draft")
        clock.advance(by: .seconds(60))
        try await process.tick()
        #expect(try process.shown()["status"] == "running")
        try await process.tick()
        try expect("active", step: 1, traffic: 1)
        clock.advance(by: .seconds(60))
        try await process.tick()
        #expect(try process.shown()["status"] == "running" && process.shown()["enrollment"] == "closed")
        let schedule = try process.shown()["schedule"]?.object
        #expect(schedule?["started_at"] == .string(start.rfc3339) && schedule?["ended_at"] == .string(end.rfc3339))
        try await process.put(["enrollment": "open"])
        try await process.tick()
        #expect(try process.shown()["enrollment"] == "open")
        let later = clock.now + 1_000
        try await process.put(["schedule": ["end_at": .string(later.rfc3339)]])
        clock.advance(by: .seconds(1))
        try await process.tick()
        #expect(try process.shown()["enrollment"] == "closed")
    }

    // MARK: Warnings

    @Test func `Warnings say what somebody should look at`() async throws {
        let monitor = ExperimentMonitor(process.catalog, store: store)
        func warnings(_ key: Identifier = "e") async throws -> Set<ExperimentWarning> {
            try await process.catalog.refresh()
            await monitor.checkAll()
            return try #require(monitor.findings.first { $0.key == key }).warnings
        }
        try await create(["steps": [["traffic": 50, "for": "1d"], ["traffic": 100]], "on_alarm": "hold"])
        #expect(try await warnings() == [])
        clock.advance(by: .seconds(3_600))
        #expect(try await warnings() == [.noExposures])
        try await process.expose(0..<1_000, to: "a")
        #expect(try await warnings() == [.sampleRatio])
        try await process.tick()
        #expect(try await warnings() == [.sampleRatio, .stalled])
        try await process.put(["id": "8", "variations": ["a", "b"], "ramp": Self.ramp], key: "f")
        try await process.tick()
        clock.advance(by: .seconds(3_600))
        #expect(try await warnings("f").contains(.stalled) == false)
        clock.advance(by: .seconds(301))
        #expect(try await warnings("f") == [.stalled])

        let now = clock.now
        try await process.edit { definitions throws(CoreError) in
            try definitions.conclude("f", as: ConclusionInput(winner: "a"), at: now, by: "test")
        }
        #expect(try await warnings("f") == [])
        try await process.expose(0..<1, to: "b", of: "f")
        #expect(try await warnings("f") == [.exposuresAfterEnd])
        clock.advance(by: .seconds(3_600))
        #expect(try await warnings("f") == [])
        try await process.put(["variations": ["a"], "status": "draft"], key: "g")
        try await process.catalog.refresh()
        await monitor.checkAll()
        #expect(monitor.findings.map(\.key) == ["e", "f"])
    }

    @Test func `What somebody should look at comes first`() async throws {
        for key in ["calm", "draft", "paused", "over", "alarm", "winner", "loser", "open"] {
            let status: JSONValue = key == "draft" ? "draft" : key == "paused" ? "paused" : "running"
            try await process.put(["variations": ["a", "b"], "status": status], key: key)
        }
        let now = clock.now
        try await process.edit { definitions throws(CoreError) in
            try definitions.conclude("over", as: ConclusionInput(winner: "a"), at: now, by: "test")
        }
        try await process.catalog.refresh()
        let project = try #require(process.catalog.snapshot().projects.values.first)
        func finding(
            _ key: Identifier, _ decision: Verdict.Decision?, _ warnings: Set<ExperimentWarning> = []
        ) -> (Identifier, ExperimentMonitor.Finding) {
            (key, .init(sdkKey: project.sdkKey, key: key, warnings: warnings, decision: decision))
        }
        let findings = Dictionary(uniqueKeysWithValues: [
            finding("calm", nil), finding("alarm", .ship, [.noExposures]), finding("winner", .ship),
            finding("loser", .stop), finding("open", .continue), finding("paused", .invalid),
        ])
        var selection = ExperimentSelection()
        selection.order = .verdict
        let sorted: [Identifier] = ["alarm", "paused", "winner", "loser", "open", "calm", "over", "draft"]
        #expect(selection.select(from: project, [:], findings).experiments.map(\.key) == sorted)
        selection.isDescending = false
        #expect(selection.select(from: project, [:], findings).experiments.map(\.key) == sorted.reversed())
    }

    @Test func `A look finds the verdict over all metrics, also of what is paused`() async throws {
        let monitor = ExperimentMonitor(process.catalog, store: store)
        try await process.edit { definitions throws(CoreError) in
            _ = try MetricChange(["kind": "conversion", "goal": "g"], key: "g").apply(to: &definitions)
        }
        for key in ["e", "f"] {
            try await process.put(["variations": ["a", "b"], "metrics": ["primary": ["g"]]], key: key)
        }
        try await process.put(["status": "paused"], key: "f")
        try await process.put(["variations": ["a", "b"]], key: "h")
        try await process.catalog.refresh()
        await monitor.checkAll()
        #expect(monitor.findings.map(\.key) == ["e", "h", "f"])
        #expect(monitor.findings.map(\.decision) == [.continue, nil, .continue])
        #expect(monitor.findings.map(\.isPaused) == [false, false, true])
    }
}

extension JSONValue {
    /// Returns a ramp with its first steps, the last of which gets some traffic.
    fileprivate func first(_ count: Int, _ traffic: Int64) -> JSONValue {
        var steps = Array((object?["steps"]?.array ?? []).prefix(count))
        steps[steps.count - 1] = ["traffic": .integer(traffic), "for": "1h"]
        return ["steps": .array(steps)]
    }
}
