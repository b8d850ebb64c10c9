public import Bucketing
public import Chronology
import Dispatch
import JSON
public import Storage
import Testing

extension StoreContract {
    public static let noon: Instant = 1_700_000_000_000

    /// An exposure of one experiment.
    ///
    /// - Parameter time: after ``noon``.
    public static func exposure(
        _ user: Identifier, _ variation: Identifier = "a", at time: TimeSpan = 0, isChosen: Bool = false
    ) -> UserEvent {
        .exposure(
            Exposure(
                userID: user, experimentID: "e", experimentKey: "key of e", variationID: variation,
                happenedAt: noon + time, isChosen: isChosen, sdkKey: "sdk"))
    }

    /// A goal event; without an id it is never taken for a repeated one.
    ///
    /// - Parameter time: after ``noon``.
    public static func goal(
        _ user: Identifier, _ value: Double = 1, at time: TimeSpan = 1, id: Identifier? = nil
    ) -> UserEvent {
        .goal(
            GoalEvent(
                userID: user, goal: "g", value: value, happenedAt: noon + time, receivedAt: noon + max(0, time),
                senderID: id))
    }

    /// The tally of the only variation there is.
    private static func tally(_ context: Context) throws -> VariationTally {
        try #require(try context.store.tallies(experimentID: "e", goal: "g").first)
    }

    public static let events =
        periods + statuses + [
            StoreContract("Values that add up to 0 are values, unlike none, and stay so whoever has them") {
                context async throws in
                let store = context.store
                func valued() throws -> [Int] {
                    try store.tallies(experimentID: "e", goal: "g").map(\.goal.valued)
                }
                _ = try await store.record([
                    exposure("u", at: 10), goal("u", -5, at: 11), exposure("v", at: 10), goal("v", 0, at: 11),
                    goal("anonymous", 7, at: 5), goal("anonymous", -7, at: 20),
                ])
                #expect(try valued() == [1])
                _ = try await store.record([goal("u", 5, at: 12)])
                let sums = try #require(try store.tallies(experimentID: "e", goal: "g").first).goal
                #expect((sums.valued, sums.y.value, sums.yy.value, sums.hasValues) == (2, 0, 0, true))
                // What happened before the exposure does not count, until the exposure was earlier.
                _ = try await store.merge("anonymous", into: "v")
                #expect(try valued() == [3])
                _ = try await store.record([exposure("v", at: 1)])
                #expect(try valued() == [4])
                let freeze = ResultsFreeze(experimentID: "e", frozenAt: 7, definition: ["id": "e"])
                _ = try await store.activate("{}", sdkKey: "sdk", freezing: [freeze])
                let frozen = try store.read(.frozenResults(experimentID: "e", goal: "g", frozenAt: 7))
                #expect(frozen?.tally.variations.map(\.goal.valued) == [4])
                try await store.apply(.erase, to: "v")
                #expect(try valued() == [2])
                try await store.apply(.erase, to: "u")
                #expect(try store.tallies(experimentID: "e", goal: "g").allSatisfy { $0.goal == GoalTally() })
            },
            StoreContract("The first exposure of a user counts, and later ones are not stored") {
                context async throws in
                let store = context.store
                #expect(try await store.record([exposure("u"), exposure("u", at: 5)]) == [.stored, .repeated])
                #expect(try store.exposures(after: 0, limit: 9).map(\.exposure.happenedAt) == [noon])
                #expect(try tally(context).counted == 1)
                let commits = store.metrics().commits
                #expect(try await store.record([exposure("u", at: 9)]) == [.repeated])
                #expect(store.metrics().commits == commits)
            },
            StoreContract("The users of an experiment are read in pages, with their totals and attributes") {
                context async throws in
                let store = context.store
                try await store.define(AttributeDefinition(name: "a", number: 0, type: .number))
                _ = try await store.record([
                    exposure("u"), exposure("v", "b", at: .days(1)), exposure("w", isChosen: true), exposure("x"),
                    exposure("x", "b", at: 9), goal("u", 2), goal("u", 3), goal("v", 4, at: -5), goal("y"),
                ])
                _ = try await store.update([1: .set(.number(7))], of: "v")
                var scan = ParticipantScan("e", names: ["g", "h"], withAttributes: true)
                scan.limit = 3
                var found: [Participant] = []
                repeat {
                    let page = try store.read(.participants(scan))
                    #expect(page.participants.count <= 3)
                    found += page.participants
                    scan.after = page.end
                } while scan.after != nil
                #expect(found.map(\.userID) == ["u", "v", "w", "x"])
                #expect(found.map(\.users.counted) == [1, 1, 0, 0] && found[2].users.chosen == 1)
                #expect(found[3].users.multipleVariations == 1)
                #expect(found.map(\.cohort.variationID) == ["a", "b", "a", "a"])
                #expect(found[1].exposedAt == noon + .days(1) && found[1].cohort.day == noon.day + 1)
                #expect(found[0].totals == [UserGoal(afterCount: 2, afterValue: 5, valuedCount: 2), nil])
                #expect(found[1].totals == [UserGoal(beforeCount: 1, beforeValue: 4), nil])
                #expect(found[2].totals == [nil, nil])
                #expect(found.map { $0.attributes != nil } == [false, true, false, false])
                scan.withAttributes = false
                #expect(try store.read(.participants(scan)).participants.allSatisfy { $0.attributes == nil })
            },
            StoreContract("A shortened series counts the events of the first time after each user's exposure") {
                context async throws in
                let store = context.store
                _ = try await store.record([
                    exposure("u"), goal("u", 2), goal("u", 9, at: 9), goal("u", 4, at: 10), goal("u", 8, at: -1),
                    exposure("v", "b", at: 100), goal("v", 3, at: 50), goal("v", 6, at: 105), goal("v", 1, at: 110),
                    exposure("w"), goal("w", 5, at: 10), exposure("x"), goal("x", 7), goal("y", 7),
                ])
                var scan = ParticipantScan("e", names: ["g"])
                scan.limit = 2
                func sums(_ content: SeriesDefinition.Content) throws -> [String: [[Double]?]] {
                    let series = try #require(ShortenedSeries(SeriesDefinition(content), first: 10))
                    let page = try store.read(.participants(scan))
                    let last = try #require(page.participants.last?.userID)
                    let events = try store.read(.events(series, of: scan, through: last))
                    return Dictionary(
                        uniqueKeysWithValues: page.participants.map { participant in
                            let tallies = series.tallies(of: participant, events, totals: participant.totals)
                            return (participant.userID.string, tallies.map { $0.map { [$0.y.value, $0.x.value] } })
                        })
                }
                // What was before the exposure comes from the totals that are stored, with the same cap.
                #expect(try sums(.sum(.init("g", .value), cap: nil)) == ["u": [[11, 8]], "v": [[6, 3]]])
                #expect(try sums(.sum(.init("g", .value), cap: 7)) == ["u": [[7, 7]], "v": [[6, 3]]])
                #expect(try sums(.ratio(.init("g", .value), .init("g", .count))) == ["u": [[11, 2]], "v": [[6, 1]]])
                scan.after = "v"
                #expect(try sums(.sum(.init("g", .value), cap: nil)) == ["w": [[0, 0]], "x": [[7, 0]]])
            },
            StoreContract("The users of all experiments are counted at once, without those whom results leave out") {
                context async throws in
                let store = context.store
                #expect(try store.read(.enrolledUsers).isEmpty)
                let other = Exposure(
                    userID: "u", experimentID: "f", experimentKey: "key of f", variationID: "a", happenedAt: noon,
                    isChosen: false, sdkKey: "sdk")
                _ = try await store.record([
                    exposure("u"), exposure("v", "b"), exposure("w", isChosen: true), .exposure(other),
                ])
                let day = noon.day
                #expect(
                    try store.read(.enrolledUsers) == [
                        "e": EnrolledUsers(count: 2, firstDay: day), "f": EnrolledUsers(count: 1, firstDay: day),
                    ])
                try await store.apply(.erase, to: "u")
                _ = try await store.record([exposure("x", at: .days(-1))])
                #expect(try store.read(.enrolledUsers) == ["e": EnrolledUsers(count: 2, firstDay: day - 1)])
            },
            StoreContract("An event with an id that its user has sent before is known; other users may use the id") {
                context async throws in
                let store = context.store
                _ = try await store.record([exposure("u"), exposure("v")])
                let events = [goal("u", id: "1"), goal("u", 5, id: "1"), goal("v", id: "1"), goal("u"), goal("u")]
                #expect(try await store.record(events) == [.stored, .repeated, .stored, .stored, .stored])
                #expect(try tally(context).goal.events == 4)
                #expect(try tally(context).goal.y == CompensatedSum(4))
            },
            StoreContract("Many events of one user with ids of their own are stored in one go") {
                context async throws in
                _ = try await context.store.record([exposure("u")])
                let events = (0..<100).map { goal("u", id: Identifier("\($0)")) }
                #expect(try await context.store.record(events) == Array(repeating: .stored, count: 100))
                #expect(try await context.store.record(events) == Array(repeating: .repeated, count: 100))
                #expect(try tally(context).goal.events == 100)
            },
            StoreContract("Events before the exposure count for the time before, and those of long ago not at all") {
                context async throws in
                _ = try await context.store.record([
                    goal("u", 7, at: -EventRules.lookBack - 1), goal("u", 3, at: -EventRules.lookBack),
                    exposure("u"), goal("u", 4, at: -1), goal("u", 10, at: 0),
                ])
                let goal = try tally(context).goal
                #expect((goal.x.value, goal.y.value, goal.xy.value) == (7, 10, 70))
                #expect((goal.events, goal.converted, goal.convertedBefore, goal.convertedBoth) == (1, 1, 1, 1))
            },
            StoreContract("An exposure that arrives late, and happened first, moves what counts before and since") {
                context async throws in
                let store = context.store
                _ = try await store.record([exposure("u", at: 10), goal("u", 3, at: 5)])
                #expect(try (tally(context).goal.x.value, tally(context).goal.y.value) == (3, 0))
                let number = try #require(try store.exposures(after: 0, limit: 9).first).number
                #expect(try await store.record([exposure("u", at: 2)]) == [.stored])
                #expect(try (tally(context).goal.x.value, tally(context).goal.y.value) == (0, 3))
                #expect(try store.exposures(after: number, limit: 9).map(\.exposure.happenedAt) == [noon + 2])
            },
            StoreContract("A user exposed to several variations is excluded, and counted under the first") {
                context async throws in
                _ = try await context.store.record([exposure("u"), goal("u"), exposure("u", "b", at: 5)])
                let tally = try tally(context)
                #expect((tally.variationID, tally.counted, tally.multipleVariations, tally.chosen) == ("a", 0, 1, 0))
                #expect(tally.goal == GoalTally())
            },
            StoreContract("A user on whom a variation is forced, before or later, is excluded") {
                context async throws in
                let store = context.store
                try await store.apply(.override(experimentID: "e", variationID: "a"), to: "before")
                try await store.force("x", experimentKey: "key of e", userID: "tested before", sdkKey: "sdk")
                let users: [Identifier] = ["before", "after", "told", "tested", "tested before", "free"]
                _ = try await store.record(users.map { exposure($0, isChosen: $0 == "told") })
                _ = try await store.record(users.map { goal($0) })
                #expect(try tally(context).goal.converted == 3)
                try await store.apply(.override(experimentID: "e", variationID: "a"), to: "after")
                try await store.force("x", experimentKey: "key of e", userID: "tested", sdkKey: "sdk")
                let tally = try tally(context)
                #expect((tally.counted, tally.chosen, tally.goal.converted) == (1, 5, 1))
            },
            StoreContract("Erasing a user removes all of it from what is stored and tallied") { context async throws in
                let store = context.store
                _ = try await store.record([exposure("u"), goal("u", 0.1), exposure("v"), goal("v", 0.7, id: "1")])
                try await store.apply(.erase, to: "v")
                let tally = try tally(context)
                #expect((tally.counted, tally.goal.converted, tally.goal.y) == (1, 1, CompensatedSum(0.1)))
                #expect(try store.goalEvents(after: 0, limit: 9).map(\.event.userID) == ["u"])
                #expect(try store.exposures(after: 0, limit: 9).map(\.exposure.userID) == ["u"])
                #expect(try await store.record([exposure("v"), goal("v", 1, id: "1")]) == [.stored, .stored])
            },
            StoreContract("Events that were received before this store itself erased their user are stored in order") {
                context async throws in
                let received = DispatchTime.now().uptimeNanoseconds
                try await context.store.apply(.erase, to: "user")
                _ = try await context.store.record([exposure("user")], receivedAt: received)
                #expect(try context.store.exposures(after: 0, limit: 10).count == 1)
            },
            StoreContract("Pages of an export follow each other without gap or overlap") { context async throws in
                let store = context.store
                _ = try await store.record((0..<10).map { goal("u", Double($0)) })
                var values: [Double] = []
                var after: Int64 = 0
                while let page = try? store.goalEvents(after: after, limit: 3), let last = page.last {
                    values += page.map(\.event.value)
                    after = last.number
                }
                #expect(values == (0..<10).map(Double.init))
            },
            StoreContract("The events of one user are read in pages, the last first") { context async throws in
                let store = context.store
                let events = (0..<5).flatMap { [goal("u", Double($0)), goal("v", 9)] }
                _ = try await store.record([exposure("v"), exposure("u")] + events)
                #expect(try store.goalEvents(of: "u", limit: 9).map(\.event.value) == [4, 3, 2, 1, 0])
                let page = try store.goalEvents(of: "u", limit: 2)
                #expect(page.map(\.event.value) == [4, 3])
                let last = try #require(page.last).number
                #expect(try store.goalEvents(of: "u", before: last, limit: 2).map(\.event.value) == [2, 1])
                let found = try #require(try store.exposures(of: "u", limit: 9).first)
                #expect((found.exposure.userID, found.exposure.variationID) == ("u", "a"))
                #expect(try store.exposures(of: "u", before: found.number, limit: 9).isEmpty)
                _ = try await store.record([exposure("u", at: -1)])
                #expect(try store.exposures(of: "u", limit: 9).map(\.exposure.happenedAt) == [noon - 1])
                try await store.apply(.erase, to: "u")
                #expect(try store.exposures(of: "u", limit: 9).isEmpty)
                #expect(try store.goalEvents(of: "u", limit: 9).isEmpty)
                #expect(try store.goalEvents(of: "v", limit: 9).count == 5)
            },
            StoreContract("The goals that users of an experiment reached are listed in order") { context async throws in
                func event(_ goal: Identifier, of user: Identifier) -> UserEvent {
                    .goal(GoalEvent(userID: user, goal: goal, value: 1, happenedAt: noon, receivedAt: noon))
                }
                let events = [exposure("u"), event("z", of: "u"), event("b", of: "u"), event("not exposed", of: "v")]
                _ = try await context.store.record(events)
                #expect(try context.store.goals(experimentID: "e", limit: 9) == ["b", "z"])
                #expect(try context.store.goals(experimentID: "e", limit: 1) == ["b"])
                #expect(try context.store.goals(experimentID: "other", limit: 9).isEmpty)
            },
        ] + (1...8).map { recount(seed: $0) } + (1...4).map { anyOrder(seed: $0) }

    // MARK: Random histories

    private static func recount(seed: UInt64) -> StoreContract {
        StoreContract("After a random history, tallies are those of a count from scratch (seed \(seed))") {
            context async throws in
            let store = context.store
            var random = SeededGenerator(seed: seed)
            var ledger = EventLedger()
            try await EventLedger.registerPeriods(in: store)
            for _ in 0..<60 {
                let user = EventLedger.users.randomElement(using: &random) ?? "0"
                let experiment = EventLedger.experiments.randomElement(using: &random) ?? "e"
                switch Int.random(in: 0..<20, using: &random) {
                case 0:
                    try await store.apply(.erase, to: user)
                    ledger.erase(user)
                case 1:
                    try await store.apply(.override(experimentID: experiment, variationID: "a"), to: user)
                    ledger.override(user, experiment)
                default:
                    let events = (0..<20).map { _ in EventLedger.randomEvent(&random) }
                    _ = try await store.record(events)
                    for event in events { ledger.record(event) }
                }
            }
            try ledger.expectTallies(of: store)
        }
    }

    private static func anyOrder(seed: UInt64) -> StoreContract {
        StoreContract("The order in which events arrive makes no difference (seed \(seed))") { context async throws in
            var random = SeededGenerator(seed: 1_000 + seed)
            var ledger = EventLedger()
            var events: [UserEvent] = []
            for index in 0..<400 {
                let event = EventLedger.randomEvent(&random, offset: .milliseconds(Int64(index)))
                events.append(event)
                ledger.record(event)
            }
            for _ in 0..<3 {
                // Begins anew.
                for user in EventLedger.users { try await context.store.apply(.erase, to: user) }
                var rest = events.shuffled(using: &random)[...]
                while !rest.isEmpty {
                    let count = Int.random(in: 1...50, using: &random)
                    _ = try await context.store.record(Array(rest.prefix(count)))
                    rest = rest.dropFirst(count)
                }
                try ledger.expectTallies(of: context.store, byPeriod: false)
            }
        }
    }
}
