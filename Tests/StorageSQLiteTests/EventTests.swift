import Bucketing
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    @Suite("Exposures, goal events and what is counted of them")
    struct EventTests {
        private let directory: TemporaryDirectory
        private let store: SQLiteStore
        private static let noon: Timestamp = 1_700_000_000_000

        init() throws {
            directory = try TemporaryDirectory()
            store = try SQLiteStore.make(in: directory)
        }

        private static func exposure(
            _ user: Identifier, _ variation: Identifier = "a", at time: Timestamp = 0, isForced: Bool = false
        ) -> UserEvent {
            .exposure(
                Exposure(
                    userID: user, experimentID: "e", experimentKey: "key of e", variationID: variation,
                    happenedAt: noon + time, isForced: isForced, sdkKey: "sdk"))
        }

        private static func goal(
            _ user: Identifier, _ value: Double = 1, at time: Timestamp = 1, id: Identifier? = nil
        ) -> UserEvent {
            .goal(
                GoalEvent(
                    userID: user, goal: "g", value: value, happenedAt: noon + time, receivedAt: noon + max(0, time),
                    senderID: id))
        }

        /// What is counted of the only variation there is.
        private func tally() throws -> VariationTally {
            try #require(try store.tallies(experimentID: "e", goal: "g").first)
        }

        @Test(
            "No number in the file stops the process",
            arguments: [
                "exposures SET happened_at", "user_goals SET after_count", "user_goals SET before_count",
                "variation_users SET counted", "variation_goals SET events",
            ], [Int64.min, Int64.max])
        func damagedNumbers(column: String, number: Int64) async throws {
            _ = try await store.record([Self.exposure("u"), Self.goal("u")])
            try RawDatabase(directory.file("holdfast.db")).execute("UPDATE \(column) = \(number)")
            _ = try? await store.record([Self.goal("u", at: 2), Self.exposure("u", "b", at: 3), Self.exposure("u", at: -9)])
            _ = try tally()
            _ = try? await store.apply(.erase, to: "u")
            store.close()
        }

        @Test("The first exposure of a user counts, and later ones are not stored")
        func firstExposure() async throws {
            #expect(try await store.record([Self.exposure("u"), Self.exposure("u", at: 5)]) == [.stored, .repeated])
            #expect(try store.exposures(after: 0, limit: 9).map(\.exposure.happenedAt) == [Self.noon])
            #expect(try tally().counted == 1)
            let commits = store.statistics().commits
            #expect(try await store.record([Self.exposure("u", at: 9)]) == [.repeated])
            #expect(store.statistics().commits == commits)
        }

        @Test("An event with an id that its user has sent before is known; other users may use the id")
        func senderIDs() async throws {
            _ = try await store.record([Self.exposure("u"), Self.exposure("v")])
            let events = [
                Self.goal("u", id: "1"), Self.goal("u", 5, id: "1"), Self.goal("v", id: "1"), Self.goal("u"), Self.goal("u"),
            ]
            #expect(try await store.record(events) == [.stored, .repeated, .stored, .stored, .stored])
            #expect(try tally().goal.events == 4)
            #expect(try tally().goal.y == CompensatedSum(4))
        }

        @Test("Events before the exposure tell of the time before, and those of long ago of nothing")
        func before() async throws {
            _ = try await store.record([
                Self.goal("u", 7, at: -EventRules.lookBack - 1), Self.goal("u", 3, at: -EventRules.lookBack),
                Self.exposure("u"), Self.goal("u", 4, at: -1), Self.goal("u", 10, at: 0),
            ])
            let goal = try tally().goal
            #expect((goal.x.value, goal.y.value, goal.xy.value) == (7, 10, 70))
            #expect((goal.events, goal.converted, goal.convertedBefore, goal.convertedBoth) == (1, 1, 1, 1))
        }

        @Test("An exposure that is told late, and happened first, moves what counts before and since")
        func lateExposure() async throws {
            _ = try await store.record([Self.exposure("u", at: 10), Self.goal("u", 3, at: 5)])
            #expect(try (tally().goal.x.value, tally().goal.y.value) == (3, 0))
            #expect(try await store.record([Self.exposure("u", at: 2)]) == [.stored])
            #expect(try (tally().goal.x.value, tally().goal.y.value) == (0, 3))
            #expect(try store.exposures(after: 1, limit: 9).map(\.exposure.happenedAt) == [Self.noon + 2])
        }

        @Test("A user who crosses to another variation is left out, and counted with the first")
        func crossing() async throws {
            _ = try await store.record([Self.exposure("u"), Self.goal("u"), Self.exposure("u", "b", at: 5)])
            let tally = try tally()
            #expect((tally.variationID, tally.counted, tally.crossed, tally.forced) == ("a", 0, 1, 0))
            #expect(tally.goal == GoalTally())
        }

        @Test("A user on whom a variation is forced, before or later, is left out")
        func forcing() async throws {
            try await store.apply(.override(experimentID: "e", variationID: "a"), to: "before")
            _ = try await store.record(
                ["before", "after", "told", "tested", "free"].map { Self.exposure($0, isForced: $0 == "told") })
            _ = try await store.record(["before", "after", "told", "tested", "free"].map { Self.goal($0) })
            #expect(try tally().goal.converted == 3)
            try await store.apply(.override(experimentID: "e", variationID: "a"), to: "after")
            _ = try await withCheckedContinuation { continuation in
                store.setForcedVariation(
                    "x", experimentKey: "key of e", userID: "tested", sdkKey: "sdk", by: Author(name: "test")
                ) {
                    continuation.resume(returning: $0)
                }
            }.get()
            let tally = try tally()
            #expect((tally.counted, tally.forced, tally.goal.converted) == (1, 4, 1))
        }

        @Test("Erasing a user takes all of it out of what is stored and counted")
        func erasing() async throws {
            _ = try await store.record([Self.exposure("u"), Self.goal("u", 0.1), Self.exposure("v"), Self.goal("v", 0.7, id: "1")])
            try await store.apply(.erase, to: "v")
            let tally = try tally()
            #expect((tally.counted, tally.goal.converted, tally.goal.y) == (1, 1, CompensatedSum(0.1)))
            #expect(try store.goalEvents(after: 0, limit: 9).map(\.event.userID) == ["u"])
            let left = try RawDatabase(store.configuration.path).value(
                "SELECT count(*) FROM exposures, user_goals WHERE exposures.user_id = 'v' OR user_goals.user_id = 'v'")
            #expect(left == "0")
            #expect(try await store.record([Self.exposure("v"), Self.goal("v", 1, id: "1")]) == [.stored, .stored])
        }

        @Test("Goal events are deleted when they were kept long enough, and stay counted")
        func retention() async throws {
            let directory = try TemporaryDirectory()
            let clock = ManualClock(now: Self.noon)
            let store = try SQLiteStore.make(in: directory, clock: clock) {
                $0.eventRetention = 0
                $0.retentionInterval = 0.01
                $0.retentionBatch = 2
            }
            defer { store.close() }
            _ = try await store.record([Self.exposure("u")] + (1...5).map { Self.goal("u", at: $0) })
            clock.advance(by: .milliseconds(EventRules.minimumRetention + 5))
            while try store.goalEvents(after: 0, limit: 9).count > 1 { try await Task.sleep(for: .milliseconds(1)) }
            #expect(try store.goalEvents(after: 0, limit: 9).map(\.event.happenedAt) == [Self.noon + 5])
            #expect(try store.tallies(experimentID: "e", goal: "g").first?.goal.events == 5)
        }

        @Test("Pages of an export follow each other without gap or overlap")
        func pages() async throws {
            _ = try await store.record((0..<10).map { Self.goal("u", Double($0)) })
            var values: [Double] = []
            var after: Int64 = 0
            while let page = try? store.goalEvents(after: after, limit: 3), let last = page.last {
                values += page.map(\.event.value)
                after = last.number
            }
            #expect(values == (0..<10).map(Double.init))
        }
    }
}
