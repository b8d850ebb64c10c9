import Bucketing
import Chronology
import JSON
import Storage
import Testing

extension StoreContract {
    private static let country = SeriesDefinition(.breakdown("country"))

    private static func track(
        _ series: [SeriesDefinition], _ context: Context, _ revision: String = "1", freezing: [ResultsFreeze] = []
    ) async throws {
        _ = try await context.store.activate(
            "datafile", sdkKey: "sdk", revision: revision, freezing: freezing, series: ["e": series])
    }

    private static func seen(
        _ user: Identifier, _ attributes: String?, at time: TimeSpan = 0, to variation: Identifier = "a"
    ) -> UserEvent {
        .exposure(
            Exposure(
                userID: user, experimentID: "e", experimentKey: "key", variationID: variation, happenedAt: noon + time,
                isChosen: false, sdkKey: "sdk",
                payload: Array((attributes.map { #"{"attributes":{\#($0)}}"# } ?? "{}").utf8)))
    }

    /// The users of each group and what they did for the goal g, by the value; `none` and `other` for those without.
    private static func groups(
        _ context: Context, of name: Identifier = "g", frozenAt time: Instant? = nil
    ) throws -> [String: [Double]] {
        let series = try context.store.read(StoreQuery.series(experimentID: "e"))
        let breakdown = try #require(series.first { $0.breakdown == "country" })
        let tally = try context.store.read(
            .breakdown(experimentID: "e", series: breakdown.number, goal: name, frozenAt: time))
        let names = ["none"] + breakdown.groupValues.map(\.string)
        let found = tally.indices.map { index in
            let all = tally.tally(of: index).variations
            return (
                index < names.count ? names[index] : "other",
                [Double(all.reduce(0) { $0 + $1.counted }), all.reduce(0) { $0 + $1.goal.y.value }]
            )
        }
        return Dictionary(uniqueKeysWithValues: found)
    }

    public static let breakdowns =
        [
            StoreContract("What users do counts for the group of their attribute at the first exposure") {
                context async throws in
                let store = context.store
                try await track([country, .init(.sum(.init("g", .count), cap: nil))], context)
                _ = try await store.record([
                    goal("u", 8, at: -5), seen("u", #""country":"DE""#), goal("u", 1, at: 5),
                    seen("v", #""country":"FR""#), goal("v", 2, at: 5), seen("w", #""country":null,"other":1"#),
                    goal("w", 4, at: 5), seen("x", #""country":"DE""#), seen("x", #""country":"FR""#, at: 9),
                ])
                #expect(try groups(context) == ["DE": [2, 1], "FR": [1, 2], "none": [1, 4]])
                let series = try store.read(StoreQuery.series(experimentID: "e"))
                let count = try #require(series.first { $0.breakdown == nil }).names[0]
                #expect(try groups(context, of: count) == ["DE": [2, 1], "FR": [1, 1], "none": [1, 1]])
                // An exposure that happened earlier counts instead.
                _ = try await store.record([seen("x", #""country":"FR""#, at: -9)])
                #expect(try groups(context) == ["DE": [1, 1], "FR": [2, 2], "none": [1, 4]])
                try await store.apply(.erase, to: "v")
                #expect(try groups(context) == ["DE": [1, 1], "FR": [1, 0], "none": [1, 4]])
                _ = try await store.record([seen("u", nil, at: 3, to: "b")])
                #expect(try groups(context) == ["FR": [1, 0], "none": [1, 4]])
                #expect(try store.goals(experimentID: "e", limit: 9) == ["g"])
            },
            StoreContract("Attributes that the request lacks are those that are stored at the first exposure") {
                context async throws in
                let store = context.store
                try await store.define(AttributeDefinition(name: "country", number: 0, type: .string))
                try await store.update([1: .set(.text("DE"))], of: "u")
                try await store.update([1: .set(.text("DE"))], of: "v")
                try await track([country], context)
                _ = try await store.record([seen("u", nil), seen("v", #""country":"FR""#), seen("w", nil)])
                try await store.update([1: .set(.text("ES"))], of: "u")
                _ = try await store.record([goal("u", 1, at: 5)])
                #expect(try groups(context) == ["DE": [1, 1], "FR": [1, 0], "none": [1, 0]])
            },
            StoreContract("Numbers, booleans and lists are values, and 20 values have a group of their own") {
                context async throws in
                try await track([country], context)
                let values = ["1", "1.0", "true", #"["a","b"]"#, "{}", #"[1]"#] + (0..<20).map { "\"\($0 + 100)\"" }
                _ = try await context.store.record(
                    values.enumerated().map { seen(Identifier("\($0)"), "\"country\":\($1)") })
                let found = try groups(context)
                #expect(found["1"] == [2, 0] && found["true"] == [1, 0] && found["a, b"] == [1, 0], "\(found)")
                #expect(found["other"] == [5, 0] && found.count == 21 && found["116"] == [1, 0], "\(found)")
            },
            StoreContract("A merged user belongs to the group of the earlier exposure") { context async throws in
                let store = context.store
                try await track([country], context)
                _ = try await store.record([
                    seen("u", #""country":"DE""#, at: 9), goal("u", 1, at: 20), seen("anon", #""country":"FR""#),
                    goal("anon", 2, at: 5), seen("v", #""country":"ES""#), seen("late", #""country":"DE""#, at: 9),
                ])
                _ = try await store.merge("anon", into: "u")
                #expect(try groups(context) == ["FR": [1, 3], "ES": [1, 0], "DE": [1, 0]])
                _ = try await store.merge("late", into: "v")
                _ = try await store.merge("u", into: "new")
                #expect(try groups(context) == ["FR": [1, 3], "ES": [1, 0]])
            },
            StoreContract("Who was exposed before a breakdown was declared has no group, and its end deletes all") {
                context async throws in
                let store = context.store
                let count = SeriesDefinition(.sum(.init("g", .count), cap: nil))
                try await track([count], context)
                _ = try await store.record([seen("u", #""country":"DE""#), goal("u", 1, at: 5)])
                try await track([count, country], context, "2")
                #expect(try groups(context).isEmpty)
                _ = try await store.record([
                    seen("v", #""country":"DE""#), goal("v", 1, at: 5), goal("u", 1, at: 6),
                ])
                #expect(try groups(context) == ["DE": [1, 1]])
                let freeze = ResultsFreeze(experimentID: "e", frozenAt: 77, definition: ["id": "e"])
                try await track([count, country], context, "3", freezing: [freeze])
                _ = try await store.record([goal("v", 1, at: 9)])
                #expect(try groups(context) == ["DE": [1, 2]])
                #expect(try groups(context, frozenAt: 77) == ["DE": [1, 1]])
                try await track([count], context, "4")
                try await track([count, country], context, "5")
                _ = try await store.record([goal("v", 1, at: 10)])
                #expect(try groups(context).isEmpty)
                let filler = try SeriesFiller(store, batch: 2)
                try await filler.run()
                filler.close()
                try await store.apply(.erase, to: "v")
                #expect(try groups(context).isEmpty)
                #expect(try store.read(StoreQuery.series(experimentID: "e")).count == 2)
            },
        ]
}
