import Bucketing
import Chronology
import JSON
import Storage
import Testing

extension StoreContract {
    /// An allocation of "a" and "b".
    ///
    /// - Parameter time: after ``noon``.
    private static func period(_ number: Int64, at time: TimeSpan, a: Int, sdkKey: String = "sdk") -> AllocationPeriod {
        AllocationPeriod(
            number: number, sdkKey: sdkKey, since: noon + time,
            allocation: TrafficAllocation(ranges: [.init(entityID: "a", end: a), .init(entityID: "b", end: 10_000)]))
    }

    private static func exposure(
        _ user: Identifier, _ active: AllocationPeriod, _ variation: Identifier = "a", at time: TimeSpan
    ) -> UserEvent {
        .exposure(
            Exposure(
                userID: user, experimentID: "e", experimentKey: "key of e", variationID: variation,
                happenedAt: noon + time, isChosen: false, sdkKey: active.sdkKey, active: active))
    }

    private static func save(_ variation: Identifier, _ store: any Store, of user: Identifier) async throws {
        let map = ExperimentBucketMap([.init(experimentID: "e", variationID: variation)])
        try await store.apply(.save(map, onConflict: .replace), to: user)
    }

    /// Activates a datafile with the experiment "e": "a" has the bucket values up to `end`, "b" the others.
    private static func activate(a end: Int, _ store: any Store) async throws -> AllocationPeriod {
        let content = """
            {"version":"4","revision":"\(end)","accountId":"1","projectId":"1",
            "experiments":[{"id":"e","key":"key of e","status":"Running","layerId":"1","audienceIds":[],
            "forcedVariations":{},"variations":[{"id":"a","key":"a"},{"id":"b","key":"b"}],
            "trafficAllocation":[{"entityId":"a","endOfRange":\(end)},{"entityId":"b","endOfRange":10000}]}],
            "groups":[],"audiences":[],"attributes":[],"events":[],"featureFlags":[],"rollouts":[]}
            """
        let stored = try #require(try await store.activate(content, sdkKey: "sdk"))
        return AllocationPeriod(
            number: stored.version, sdkKey: "sdk", since: stored.storedAt,
            allocation: TrafficAllocation(ranges: [.init(entityID: "a", end: end), .init(entityID: "b", end: 10_000)]))
    }

    static let periods = [
        StoreContract("An import comes before all other users, in parts with one start and the same shares") {
            context async throws in
            let store = context.store
            let author = Author(name: "ann")
            let half = period(AllocationPeriod.imported, at: .days(-9), a: 5_000)
            func begin(_ period: AllocationPeriod, into experiment: Identifier = "e") async throws -> ImportStart {
                try await store.write(
                    .beginImport(
                        into: experiment, period, hasExposures: true,
                        AuditNote(.experimentImport, of: experiment.string), by: author))
            }
            #expect(try await begin(half) == .begun)
            #expect(try await begin(half) == .continued)
            let others = [
                period(AllocationPeriod.imported, at: .days(-9), a: 4_000),
                period(AllocationPeriod.imported, at: .days(-8), a: 5_000),
            ]
            for other in others { #expect(try await begin(other) == .differs(half)) }
            #expect(
                try await store.audit { $0.target = "e" }.map(\.action) == ["experiment.import", "experiment.import"])
            // It counts although the experiment has never run here; a user has one first exposure.
            _ = try await store.record([exposure("u", half, at: .days(-8)), exposure("v", half, "b", at: .days(-7))])
            let here = try await activate(a: 9_000, store)
            _ = try await store.record([
                exposure("u", here, at: here.since - noon), exposure("w", here, at: here.since - noon),
            ])
            let tally = try store.tally(experimentID: "e", goal: "g")
            #expect(tally.periods == [half, here])
            #expect(tally.countedByPeriod == [half.number: ["a": 1, "b": 1], here.number: ["a": 1]])
            #expect(try await begin(half) == .continued)
            // Without an import, what is known here or has users takes none that would come later, or in between.
            let shares = half.allocation
            _ = try await store.record([
                .exposure(
                    Exposure(
                        userID: "u", experimentID: "f", experimentKey: "f", variationID: "a", happenedAt: noon,
                        isChosen: false, sdkKey: "sdk", active: here))
            ])
            #expect(try await begin(half, into: "f") == .hasUsers)
            #expect(try store.tally(experimentID: "f", goal: "g").periods.contains { $0.allocation == shares } == false)
        },
        StoreContract("An import begins before the experiment was known") { context async throws in
            let here = try await activate(a: 9_000, context.store)
            for (offset, start) in [(0, ImportStart.isKnown(since: here.since)), (-1, .begun)]
                as [(TimeSpan, ImportStart)]
            {
                let part = AllocationPeriod(
                    number: AllocationPeriod.imported, sdkKey: "sdk", since: here.since + offset,
                    allocation: here.allocation)
                let note = AuditNote(.experimentImport, of: "e")
                #expect(
                    try await context.store.write(
                        .beginImport(into: "e", part, hasExposures: true, note, by: Author(name: "ann"))) == start
                )
            }
        },
        StoreContract("What users do counts for the period in which they were assigned, if it is tracked") {
            context async throws in
            let store = context.store
            let (first, second) = (period(1, at: 0, a: 5_000), period(2, at: 100, a: 9_000))
            _ = try await store.activate("datafile", sdkKey: "sdk", revision: "1", series: ["e": [.init(.periods)]])
            let series = try #require(try store.read(StoreQuery.series(experimentID: "e")).first)
            #expect(series.hasGroups && series.definition.content == .periods)
            func counts() throws -> [Int: [Double]] {
                let tally = try store.read(
                    .breakdown(experimentID: "e", series: series.number, goal: "g", frozenAt: nil))
                return Dictionary(
                    uniqueKeysWithValues: tally.indices.map { index in
                        let all = tally.tally(of: index).variations
                        return (
                            index,
                            [Double(all.reduce(0) { $0 + $1.counted }), all.reduce(0) { $0 + $1.goal.y.value }]
                        )
                    })
            }
            _ = try await store.record([
                exposure("u", first, at: 1), goal("u", 1, at: 2), exposure("v", first, "b", at: 3),
                exposure("w", second, at: 101), goal("w", 2, at: 102), goal("v", 4, at: 103),
                exposure("anon", second, at: 104), goal("anon", 8, at: 105),
            ])
            #expect(try counts() == [1: [2, 5], 2: [2, 10]])
            // An earlier exposure moves none to another period; a merged user has the earlier one.
            _ = try await store.record([exposure("w", first, at: 50)])
            #expect(try counts() == [1: [2, 5], 2: [2, 10]])
            _ = try await store.merge("anon", into: "u")
            #expect(try counts() == [1: [2, 13], 2: [1, 2]])
            try await store.apply(.erase, to: "w")
            #expect(try counts() == [1: [2, 13]])
            _ = try await store.record([exposure("v", first, "a", at: 9)])
            #expect(try counts() == [1: [1, 9]])
        },
        StoreContract("Totals that are frozen with a datafile stay what they were, whatever is recorded and erased") {
            context async throws in
            let store = context.store
            let first = try await activate(a: 5_000, store)
            let noon = context.clock.now
            func event(_ user: Identifier, _ goal: Identifier, _ value: Double) -> UserEvent {
                .goal(
                    GoalEvent(userID: user, goal: goal, value: value, happenedAt: noon, receivedAt: noon, sdkKey: "sdk")
                )
            }
            func exposure(_ user: Identifier, _ variation: Identifier, daysAgo: Int64 = 0) -> UserEvent {
                .exposure(
                    Exposure(
                        userID: user, experimentID: "e", experimentKey: "key of e", variationID: variation,
                        happenedAt: noon - .days(daysAgo), isChosen: false, sdkKey: "sdk", active: first))
            }
            _ = try await store.record([
                exposure("u", "a"), exposure("v", "a", daysAgo: 1), exposure("w", "b"), event("u", "buy", 0.1),
                event("v", "buy", 1e15), event("w", "buy", 3), event("w", "see", 0),
            ])
            let live = try store.tally(experimentID: "e", goal: "buy")
            let freeze = ResultsFreeze(experimentID: "e", frozenAt: 77, definition: ["id": "e"])
            _ = try await store.activate("{}", sdkKey: "sdk", freezing: [freeze])
            _ = try await store.record([exposure("x", "b"), event("x", "buy", 5), event("u", "late", 1)])
            try await store.apply(.erase, to: "u")
            func frozen(_ goal: Identifier, at time: Instant = 77) throws -> FrozenResults? {
                try store.read(.frozenResults(experimentID: "e", goal: goal, frozenAt: time))
            }
            let kept = try #require(try frozen("buy"))
            #expect(kept.frozenAt == 77 && kept.definition == ["id": "e"])
            #expect(kept.tally.days == live.days && kept.tally.variations == live.variations)
            #expect(kept.tally.periods == live.periods && kept.tally.countedByPeriod == live.countedByPeriod)
            #expect(try frozen("see")?.tally.variations.map(\.goal.converted) == [0, 1])
            #expect(try frozen("late")?.tally.variations.map(\.goal.events) == [0, 0])
            #expect(try frozen("buy", at: 78) == nil)
            let later = ResultsFreeze(experimentID: "e", frozenAt: 78, definition: ["id": "e"])
            #expect(try await store.activate("{}", sdkKey: "sdk", replacing: 0, freezing: [later]) == nil)
            #expect(try frozen("buy", at: 78) == nil)
            _ = try await store.activate("{}", sdkKey: "sdk", freezing: [later])
            #expect(try frozen("buy", at: 78)?.tally.variations.map(\.counted) == [1, 2])
            #expect(try frozen("buy")?.tally.variations.map(\.counted) == [2, 1])
        },
        StoreContract("Users are counted under the allocation that they were exposed under") { context async throws in
            let (first, same, second) = (
                period(1, at: 0, a: 5_000), period(2, at: 10, a: 5_000), period(3, at: 20, a: 9_000)
            )
            _ = try await context.store.record([
                exposure("u", first, at: 1), exposure("v", same, at: 11), exposure("w", second, at: 21),
                exposure("x", second, "b", at: 22),
            ])
            let tally = try context.store.tally(experimentID: "e", goal: "g")
            #expect(tally.periods == [first, second])
            #expect(tally.countedByPeriod == [1: ["a": 2], 3: ["a": 1, "b": 1]])
            #expect(tally.variations.map(\.counted) == [3, 1])
        },
        StoreContract("An allocation that returns begins another period, and a late server counts in its own") {
            context async throws in
            let periods = [period(1, at: 0, a: 5_000), period(2, at: 10, a: 9_000), period(3, at: 20, a: 5_000)]
            _ = try await context.store.record(periods.map { exposure(Identifier("\($0.number)"), $0, at: 30) })
            _ = try await context.store.record([exposure("late", periods[1], at: 40)])
            let tally = try context.store.tally(experimentID: "e", goal: "g")
            #expect(tally.periods == periods)
            #expect(tally.countedByPeriod == [1: ["a": 1], 2: ["a": 2], 3: ["a": 1]])
        },
        StoreContract("A user assigned under an earlier allocation is counted under it, however late the exposure") {
            context async throws in
            let store = context.store
            let (start, ttl) = (context.clock.now - noon, TimeSpan.seconds(100))
            let (first, second) = (period(1, at: start - 5, a: 5_000), period(2, at: start + 50_000, a: 9_000))
            _ = try await store.record([exposure("other", first, at: start)])
            try await save("a", store, of: "u")
            try await save("b", store, of: "w")
            context.clock.advance(by: ttl)
            try await save("a", store, of: "v")
            let time = context.clock.now - noon
            _ = try await store.record(["u", "v", "w"].map { exposure($0, second, at: time) })
            // The exposure of "w" is to another variation than the profile has.
            #expect(
                try store.tally(experimentID: "e", goal: "g").countedByPeriod == [1: ["a": 2], 2: ["a": 2]])
        },
        StoreContract(
            "An allocation is a period even if nobody was exposed before the next one"
        ) {
            context async throws in
            let store = context.store
            let first = try await activate(a: 9_000, store)
            try await save("a", store, of: "u")
            try await save("b", store, of: "v")
            context.clock.advance(by: .seconds(1))
            let second = try await activate(a: 5_000, store)
            _ = try await activate(a: 5_000, store)
            context.clock.advance(by: .seconds(1))
            try await save("b", store, of: "w")
            let time = context.clock.now - noon
            _ = try await store.record(
                [("u", "a"), ("v", "b"), ("w", "b")].map { exposure($0, second, $1, at: time) })
            let tally = try store.tally(experimentID: "e", goal: "g")
            #expect(tally.periods == [first, second])
            #expect(tally.countedByPeriod == [first.number: ["a": 1, "b": 1], second.number: ["b": 1]])
        },
        StoreContract("A clock that is set back puts nobody into an earlier period") { context async throws in
            let store = context.store
            let first = try await activate(a: 9_000, store)
            try await save("a", store, of: "u")
            context.clock.advance(by: .seconds(60))
            let second = try await activate(a: 5_000, store)
            context.clock.advance(by: .seconds(-30))
            try await save("b", store, of: "v")
            let third = try await activate(a: 1_000, store)
            context.clock.advance(by: .seconds(-30))
            try await save("b", store, of: "w")
            let time = store.clock.now() - noon
            _ = try await store.record(
                [("u", "a"), ("v", "b"), ("w", "b")].map { exposure($0, third, $1, at: time) })
            let tally = try store.tally(experimentID: "e", goal: "g")
            #expect(tally.periods.map(\.number) == [first, second, third].map(\.number))
            #expect(tally.countedByPeriod[first.number] == ["a": 1])
            let later = [second, third].map { tally.countedByPeriod[$0.number]?["b"] ?? 0 }
            #expect(later.reduce(0, +) == 2)
        },
        StoreContract("A saved assignment counts from the exposure on, if that happened before") {
            context async throws in
            let store = context.store
            let first = try await activate(a: 9_000, store)
            context.clock.advance(by: .seconds(9))
            let second = try await activate(a: 5_000, store)
            context.clock.advance(by: .seconds(1))
            try await save("a", store, of: "u")
            let time = context.clock.now - noon
            _ = try await store.record([exposure("u", second, at: time - 5_000), exposure("v", second, at: time)])
            #expect(
                try store.tally(experimentID: "e", goal: "g").countedByPeriod
                    == [first.number: ["a": 1], second.number: ["a": 1]])
        },
        StoreContract("Projects have periods of their own, though they share the experiment") { context async throws in
            let one = period(1, at: 0, a: 5_000, sdkKey: "one")
            let other = period(2, at: 10, a: 9_000, sdkKey: "other")
            _ = try await context.store.record([
                exposure("u", one, at: 20), exposure("v", other, at: 20), exposure("w", one, at: 30),
            ])
            #expect(
                try context.store.tally(experimentID: "e", goal: "g").countedByPeriod == [1: ["a": 2], 2: ["a": 1]])
        },
        StoreContract("An exposure without a datafile belongs to no known period") { context async throws in
            _ = try await context.store.record([exposure("u")])
            let tally = try context.store.tally(experimentID: "e", goal: "g")
            #expect(tally.periods.isEmpty)
            #expect(tally.countedByPeriod == [AllocationPeriod.unknown: ["a": 1]])
        },
        StoreContract("Users and what they do count for the day of the first exposure, even one that arrives late") {
            context async throws in
            let store = context.store
            let active = period(1, at: 0, a: 5_000)
            _ = try await store.record([
                exposure("u", active, at: .days(1)), goal("u", 5, at: .days(3)), exposure("v", active, at: .days(2)),
            ])
            let today = noon.day
            var days = try store.tally(experimentID: "e", goal: "g").days
            #expect(days.map(\.day) == [today + 1, today + 2])
            #expect(days.first?.variations.map(\.goal.y.value) == [5])
            _ = try await store.record([exposure("u", active, at: 0)])
            days = try store.tally(experimentID: "e", goal: "g").days
            #expect(days.map(\.day) == [today, today + 2])
            #expect(days.first?.variations.map(\.goal.y.value) == [5])
            #expect(days.last?.variations.map(\.goal.y.value) == [0])
            try await store.apply(.erase, to: "v")
            #expect(try store.tally(experimentID: "e", goal: "g").days.map(\.day) == [today])
        },
        StoreContract("Exposures keep their period") { context async throws in
            let (first, second) = (period(1, at: 0, a: 5_000), period(2, at: 10, a: 9_000))
            _ = try await context.store.record([exposure("u", first, at: 5), exposure("u", second, "b", at: 15)])
            let stored = try #require(try context.store.exposures(after: 0, limit: 9).first)
            #expect(stored.period == 1 && stored.hasMultipleVariations)
            let tally = try context.store.tally(experimentID: "e", goal: "g")
            #expect(tally.users.filter { $0.counts != UserCounts() }.map(\.cohort.period) == [1])
        },
    ]
}
