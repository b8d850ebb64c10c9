import Bucketing
import Chronology
import JSON
import Storage
import Testing

extension StoreContract {
    /// Makes series those of a project.
    private static func track(
        _ series: [Identifier: [SeriesDefinition]], _ store: any Store, _ revision: String
    ) async throws {
        _ = try await store.activate("datafile", sdkKey: "sdk", revision: revision, series: series)
    }

    private static func fill(_ store: any Store, batch: Int = 2) async throws {
        let filler = try SeriesFiller(store, batch: batch)
        defer { filler.close() }
        try await filler.run()
    }

    private static let count = SeriesDefinition(.sum(.init("g", .count), cap: nil))
    private static let capped = SeriesDefinition(.sum(.init("g", .value), cap: 5))

    private static func sums(_ context: Context, of definition: SeriesDefinition, step: Int = 0) throws -> GoalTally {
        let stored = try context.store.read(StoreQuery.series(experimentID: "e"))
        let series = try #require(stored.first { $0.definition == definition })
        return try context.store.tally(experimentID: "e", goal: series.names[step]).variations.first?.goal
            ?? GoalTally()
    }

    public static let series =
        [
            StoreContract("What a user did before a series was tracked counts once it is filled, and only once") {
                context async throws in
                let store = context.store
                _ = try await store.record([exposure("u"), goal("u", 4), exposure("v"), goal("v", 9), goal("w", 1)])
                try await track(["e": [count, capped]], store, "1")
                _ = try await store.record([goal("u", 2, at: 2), exposure("w")])
                #expect(try sums(context, of: count).y.value == 3)
                try await fill(store)
                try await fill(store)
                #expect(try sums(context, of: count).y.value == 4)
                let total = try sums(context, of: capped)
                #expect((total.y.value, total.yy.value, total.converted) == (11, 51, 3))
                #expect(try store.read(StoreQuery.series(experimentID: "e")).allSatisfy { $0.state == .filled })
            },
            StoreContract("A count has a cap of its own, and a mean one for each event") { context async throws in
                let store = context.store
                let count = SeriesDefinition(.sum(.init("g", .count), cap: 2))
                let mean = SeriesDefinition(.ratio(.init("g", .value, cap: 5), .init("g", .count)))
                try await track(["e": [count, mean]], store, "1")
                _ = try await store.record([exposure("u"), exposure("v")])
                for (index, value) in [4.0, 9, 900].enumerated() {
                    _ = try await store.record([goal("u", value, at: .milliseconds(Int64(index) + 2))])
                }
                _ = try await store.record([goal("v", 1, at: 2)])
                try await fill(store)
                let counted = try sums(context, of: count)
                #expect((counted.y.value, counted.yy.value, counted.events) == (3, 5, 4))
                let mean0 = try sums(context, of: mean)
                #expect((mean0.y.value, mean0.x.value) == (15, 4))
            },
            StoreContract("A sum may be adjusted by longer ago, or by the number that an attribute had") {
                context async throws in
                let store = context.store
                func event(daysBefore days: Int64, _ value: Double) -> UserEvent {
                    let time = noon - .days(days)
                    return .goal(
                        GoalEvent(userID: "u", goal: "g", value: value, happenedAt: time, receivedAt: time))
                }
                func exposed(_ user: Identifier, _ attributes: JSONValue) -> UserEvent {
                    let payload: JSONValue = ["attributes": attributes]
                    return .exposure(
                        Exposure(
                            userID: user, experimentID: "e", experimentKey: "key", variationID: "a", happenedAt: noon,
                            isChosen: false, sdkKey: "sdk", payload: payload.encoded()))
                }
                let sum = SeriesDefinition.Content.sum(.init("g", .value), cap: nil)
                let (short, long) = (
                    SeriesDefinition(sum, covariate: .before(.days(3))),
                    SeriesDefinition(sum, covariate: .before(.days(40)))
                )
                let attribute = SeriesDefinition(sum, covariate: .attribute("amount"))
                // One user before the series are tracked, and one after.
                _ = try await store.record([
                    event(daysBefore: 30, 1), event(daysBefore: 10, 2), event(daysBefore: 2, 4),
                    exposed("u", ["amount": 7]),
                ])
                try await track(["e": [short, long, attribute]], store, "1")
                _ = try await store.record([
                    exposed("v", ["amount": 8.5]), exposed("w", ["amount": "many"]), goal("v", 3), goal("u", 5),
                ])
                try await fill(store)
                #expect(try sums(context, of: short).x.value == 4)
                #expect(try sums(context, of: long).x.value == 7)
                let adjusted = try sums(context, of: attribute)
                #expect((adjusted.x.value, adjusted.convertedBefore, adjusted.xy.value) == (15.5, 2, 60.5))
                // An event of long ago arrives late.
                _ = try await store.record([event(daysBefore: 35, 8)])
                #expect(try sums(context, of: long).x.value == 15)
                #expect(try sums(context, of: short).x.value == 4)
            },
            StoreContract("A series that is not tracked any more is deleted, and begins anew when it is tracked again")
            {
                context async throws in
                let store = context.store
                try await track(["e": [count, capped]], store, "1")
                _ = try await store.record([exposure("u"), goal("u", 4), exposure("v"), goal("v", 9)])
                try await fill(store)
                let former = try store.read(StoreQuery.series(experimentID: "e"))
                try await track(["e": [count]], store, "2")
                #expect(try store.read(StoreQuery.series(experimentID: "e")).map(\.definition) == [count])
                try await store.apply(.erase, to: "v")
                try await track(["e": [count, capped]], store, "3")
                _ = try await store.record([goal("u", 1, at: 2)])
                try await fill(store)
                #expect(try sums(context, of: count).y.value == 2)
                #expect(try sums(context, of: capped).y.value == 5)
                let present = try store.read(StoreQuery.series(experimentID: "e"))
                #expect(present.count == 2 && Set(present.map(\.number)).subtracting(former.map(\.number)).count == 1)
                for name in former.filter({ !present.contains($0) }).flatMap(\.names) {
                    #expect(
                        try store.tally(experimentID: "e", goal: name).variations.allSatisfy { $0.goal == GoalTally() })
                }
                #expect(try store.goals(experimentID: "e", limit: 9) == ["g"])
            },
            StoreContract("An edit of another project leaves series as they are") { context async throws in
                try await track(["e": [count]], context.store, "1")
                _ = try await context.store.activate("other", sdkKey: "other")
                #expect(try context.store.read(StoreQuery.series(experimentID: "e")).count == 1)
            },
            StoreContract("The steps of a funnel follow each other, in whatever order the events arrive") {
                context async throws in
                let funnel = SeriesDefinition(.funnel(["g", "h"]))
                try await track(["e": [funnel]], context.store, "1")
                func event(_ goal: Identifier, at time: TimeSpan) -> UserEvent {
                    .goal(
                        GoalEvent(userID: "u", goal: goal, value: 1, happenedAt: noon + time, receivedAt: noon + time))
                }
                _ = try await context.store.record([exposure("u"), event("h", at: 5), event("g", at: 9)])
                #expect(try sums(context, of: funnel, step: 0).converted == 1)
                #expect(try sums(context, of: funnel, step: 1).converted == 0)
                _ = try await context.store.record([event("g", at: 3)])
                #expect(try sums(context, of: funnel, step: 1).converted == 1)
                #expect(try sums(context, of: funnel, step: 1).y.value == 0)
            },
        ] + (1...6).map { recountSeries(seed: $0) }

    private static func recountSeries(seed: UInt64) -> StoreContract {
        StoreContract("After a random history, the totals of metrics are those of a count from scratch (seed \(seed))")
        {
            context async throws in
            let store = context.store
            var random = SeededGenerator(seed: 3_000 + seed)
            var ledger = EventLedger()
            var (tracked, breakdowns): ([Identifier: [SeriesDefinition]], [Identifier: [SeriesDefinition]]) = ([:], [:])
            for step in 0..<60 {
                let users = EventLedger.users.shuffled(using: &random)
                let experiment = EventLedger.experiments.randomElement(using: &random) ?? "e"
                switch Int.random(in: 0..<20, using: &random) {
                case 0:
                    try await store.apply(.erase, to: users[0])
                    ledger.erase(users[0])
                case 1:
                    try await store.apply(.override(experimentID: experiment, variationID: "a"), to: users[0])
                    ledger.override(users[0], experiment)
                case 2...4:
                    try await store.merge(users[1], into: users[0])
                    ledger.merge(users[1], into: users[0])
                case 5, 6:
                    for experiment in EventLedger.experiments {
                        tracked[experiment] = EventLedger.series.filter { _ in
                            Int.random(in: 0..<3, using: &random) > 0
                        }
                        breakdowns[experiment] = EventLedger.breakdowns.filter { _ in
                            Int.random(in: 0..<5, using: &random) > 0
                        }
                    }
                    try await track(tracked.merging(breakdowns) { $0 + $1 }, store, "\(step)")
                    ledger.breakdowns = try EventLedger.experiments.flatMap {
                        try store.read(StoreQuery.series(experimentID: $0)).filter { $0.breakdown != nil }
                    }
                case 7: try await fill(store, batch: 3)
                case 8:
                    // Some steps of the work, as if its process had been killed then.
                    let next = try await store.write(SharedChange.continueSeries(nil, upTo: nil)).next
                    guard let next else { continue }
                    let page = try store.exposures(after: next.after, limit: 4)
                    for stored in page where next.experimentIDs.contains(stored.exposure.experimentID) {
                        try await store.settleSeries(of: stored.exposure.userID, in: stored.exposure.experimentID)
                    }
                    guard Bool.random(using: &random) else { continue }
                    _ = try await store.write(SharedChange.continueSeries(next, upTo: page.last?.number))
                default:
                    let events = (0..<10).map { _ in EventLedger.randomEvent(&random) }
                    _ = try await store.record(events)
                    for event in events { ledger.record(event) }
                }
            }
            try await fill(store, batch: 5)
            try ledger.expectTallies(of: store, byPeriod: false)
            try ledger.expectSeries(tracked, of: store)
            try ledger.expectGroups(of: store)
        }
    }
}

extension Store {
    fileprivate func settleSeries(of userID: Identifier, in experimentID: Identifier) async throws {
        try await write(UserChange.settleSeries(of: userID, in: experimentID))
    }
}
