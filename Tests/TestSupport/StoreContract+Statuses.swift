import Bucketing
import Chronology
import JSON
import Storage
import Testing

extension StoreContract {
    private static func exposed(
        _ user: Identifier, _ variation: Identifier = "a", at time: Instant, sdkKey: String = "sdk",
        with version: Int64? = nil
    ) -> UserEvent {
        .exposure(
            Exposure(
                userID: user, experimentID: "e", experimentKey: "key of e", variationID: variation, happenedAt: time,
                isChosen: false, sdkKey: sdkKey, enrollsWith: version))
    }

    /// Activates a datafile in which the experiment "e" has a status, at a time of its own.
    ///
    /// - Returns: the datafile, and its time.
    @discardableResult
    private static func set(
        _ status: String, sdkKey: String = "sdk", _ context: Context
    ) async throws -> (version: Int64, time: Instant) {
        let state = status == "draft" ? #""status":"Running","holdfast":{"status":"draft"}"# : #""status":"\#(status)""#
        let content = """
            {"version":"4","revision":"\(status)","accountId":"1","projectId":"1",
            "experiments":[{"id":"e","key":"key of e",\(state),"layerId":"1","audienceIds":[],
            "forcedVariations":{},"variations":[{"id":"a","key":"a"},{"id":"b","key":"b"}],
            "trafficAllocation":[{"entityId":"a","endOfRange":5000},{"entityId":"b","endOfRange":10000}]}],
            "groups":[],"audiences":[],"attributes":[],"events":[],"featureFlags":[],"rollouts":[]}
            """
        context.clock.advance(by: .seconds(10))
        let stored = try #require(try await context.store.activate(content, sdkKey: sdkKey))
        context.clock.advance(by: .seconds(10))
        return (stored.version, stored.storedAt)
    }

    private static func counts(_ context: Context) throws -> (users: [Identifier: UserCounts], notRunning: Int) {
        let tally = try context.store.tally(experimentID: "e", goal: "g")
        return (
            Dictionary(uniqueKeysWithValues: tally.variations.map { ($0.variationID, $0.users) }), tally.notRunning
        )
    }

    /// Whether an experiment was running when a user was exposed.
    static let statuses = [
        StoreContract("Exposures while an experiment was not running are counted apart, whoever was exposed before") {
            context async throws in
            let store = context.store
            try await set("draft", context)
            #expect(try await store.record([exposed("drafted", at: context.clock.now)]) == [.notRunning])
            try await set("Running", context)
            let running = context.clock.now
            let all: [UserEvent] = [
                exposed("u", at: running), exposed("v", "b", at: running), exposed("drafted", "b", at: running),
            ]
            #expect(try await store.record(all) == [.stored, .stored, .stored])
            for status in ["Paused", "Concluded", "Archived", "Not started"] {
                try await set(status, context)
                let now = context.clock.now
                let crossed = [exposed("u", "b", at: now), exposed("v", "a", at: now), exposed("w", at: now)]
                #expect(try await store.record(crossed) == [.notRunning, .notRunning, .notRunning], "\(status)")
            }
            try await set("Running", context)
            let again = [exposed("u", at: context.clock.now), exposed("w", "b", at: context.clock.now)]
            #expect(try await store.record(again) == [.repeated, .stored])
            let found = try counts(context)
            #expect(found.users == ["a": UserCounts(counted: 1), "b": UserCounts(counted: 3)])
            #expect(found.notRunning == 13)
            #expect(
                try store.exposures(after: 0, limit: 9).map(\.hasMultipleVariations) == [false, false, false, false])
            // What users do counts since the exposure that counts.
            _ = try await store.record([
                .goal(GoalEvent(userID: "w", goal: "g", value: 2, happenedAt: running, receivedAt: running)),
                .goal(
                    GoalEvent(
                        userID: "w", goal: "g", value: 3, happenedAt: context.clock.now, receivedAt: context.clock.now)),
            ])
            let sums = try store.tallies(experimentID: "e", goal: "g").map(\.goal)
            #expect(sums.map(\.y.value) == [0, 3])
            #expect(sums.map(\.x.value) == [0, 2])
        },
        StoreContract("The time of an exposure decides, not that of its arrival") { context async throws in
            let store = context.store
            let draft = try await set("draft", context)
            let start = try await set("Running", context)
            let end = try await set("Concluded", context)
            let late = [
                exposed("first", at: start.time), exposed("last", at: end.time - 1), exposed("after", at: end.time),
                exposed("draft", at: start.time - 1), exposed("before", at: draft.time - .days(1)),
            ]
            let outcomes: [EventOutcome] = [.stored, .stored, .notRunning, .notRunning, .notRunning]
            #expect(try await store.record(late) == outcomes)
            try await set("Running", context)
            // It was shown another variation before.
            #expect(try await store.record([exposed("last", "b", at: start.time)]) == [.stored])
            let found = try counts(context)
            #expect(found.users["a"] == UserCounts(counted: 1) && found.users["b"]?.multipleVariations == 1)
            #expect(found.notRunning == 3)
        },
        StoreContract("An exposure enrolls the user if the experiment was running when it happened") {
            context async throws in
            let store = context.store
            try await set("draft", context)
            let start = try await set("Running", context)
            let end = try await set("Paused", context)
            let outcomes = try await store.record([
                exposed("late", at: start.time, with: end.version),
                exposed("paused", at: end.time, with: end.version),
                exposed("draft", at: start.time - 1, with: end.version),
            ])
            #expect(outcomes == [.stored, .notRunning, .notRunning])
            #expect(try context.reader.variations(of: "late") == ["e": "a"])
            #expect(try context.reader.profile(of: "paused") == nil)
            #expect(try context.reader.profile(of: "draft") == nil)
        },
        StoreContract("Projects have histories of their own, and an experiment without one counts as running") {
            context async throws in
            let store = context.store
            let unknown = [exposed("u", at: context.clock.now), exposed("v", at: context.clock.now, sdkKey: "")]
            #expect(try await store.record(unknown) == [.stored, .stored])
            // It may have run elsewhere before.
            let first = try await set("Paused", sdkKey: "one", context)
            try await set("Running", sdkKey: "two", context)
            let now = context.clock.now
            let outcomes = try await store.record([
                exposed("a", at: first.time - 1, sdkKey: "one"), exposed("b", at: now, sdkKey: "one"),
                exposed("c", at: now, sdkKey: "two"), exposed("d", at: now, sdkKey: "three"),
            ])
            #expect(outcomes == [.stored, .notRunning, .stored, .stored])
        },
        StoreContract("Frozen totals keep the number of exposures while the experiment was not running") {
            context async throws in
            let store = context.store
            try await set("Paused", context)
            _ = try await store.record([exposed("u", at: context.clock.now), exposed("u", at: context.clock.now)])
            try await set("Running", context)
            _ = try await store.record([exposed("u", at: context.clock.now)])
            let freeze = ResultsFreeze(experimentID: "e", frozenAt: 7, definition: ["id": "e"])
            _ = try await store.activate("{}", sdkKey: "sdk", freezing: [freeze])
            let frozen = try #require(
                try store.read(.frozenResults(experimentID: "e", goal: "g", frozenAt: 7)) as FrozenResults?)
            #expect(frozen.tally.notRunning == 2 && frozen.tally.variations.map(\.counted) == [1])
        },
    ]
}
