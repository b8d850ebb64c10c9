import Bucketing
import Storage
import Testing

/// What metrics compute, counted from scratch.
extension EventLedger {
    private static let day: Timestamp = 86_400_000

    static let series: [SeriesDefinition] = [
        SeriesDefinition(.sum(.init("g", .count), cap: nil)),
        SeriesDefinition(.sum(.init("g", .count), cap: nil), to: 3 * day),
        SeriesDefinition(.sum(.init("h", .value), cap: 2_500_000.5)),
        SeriesDefinition(.sum(.init("h", .count), cap: nil), from: day, to: 7 * day),
        SeriesDefinition(.ratio(.init("g", .value), .init("g", .count))),
        SeriesDefinition(.ratio(.init("h", .value), .init("g", .count)), to: 5 * day),
        SeriesDefinition(.funnel(["g", "h"])),
        SeriesDefinition(.funnel(["h", "g"]), to: 4 * day),
    ]

    /// Expects the tallies of series to be those of this ledger, in total and for each day.
    func expectSeries(_ tracked: [Identifier: [SeriesDefinition]], of store: any Store) throws {
        for (experiment, definitions) in tracked {
            let stored = try store.read(StoreQuery.series(experimentID: experiment))
            #expect(Set(stored.map(\.definition)) == Set(definitions) && stored.count == definitions.count)
            #expect(stored.allSatisfy { $0.state == .filled && $0.since == 0 })
            for series in stored {
                for (step, name) in series.names.enumerated() {
                    let users = Self.users.compactMap { user in
                        tally(of: user, experiment) { contributions(of: user, series.definition, since: $0)[step] }
                    }
                    let counted = try store.tally(experimentID: experiment, goal: name)
                    expect(counted.variations.filter { $0.users != UserCounts() }, sum(users.map(\.tally)))
                    for day in Int64(0)...Int64(23) {
                        let counted = counted.days.first { $0.day == day }?.variations ?? []
                        expect(counted, sum(users.filter { $0.day == day }.map(\.tally)))
                    }
                }
            }
        }
    }

    /// What a user contributes to a series; of a funnel to each step.
    private func contributions(
        of user: Identifier, _ definition: SeriesDefinition, since moment: Timestamp
    ) -> [GoalTally] {
        let own = events.filter { $0.userID == user }
        let after = own.filter {
            $0.happenedAt >= moment + definition.from
                && $0.happenedAt < (definition.to.map { moment + $0 } ?? .max) && $0.happenedAt >= moment
        }
        switch definition.content {
        case .sum(let term, let cap):
            let before = own.filter { $0.happenedAt < moment && $0.happenedAt >= moment - EventRules.lookBack }
            let (y, x) = (Self.values(term, after), Self.values(term, before))
            let limit = cap ?? .infinity
            return [
                Self.tally(y.count, min(y.reduce(0, +), limit), before: x.count, min(x.reduce(0, +), limit))
            ]
        case .ratio(let first, let second):
            let (y, x) = (Self.values(first, after), Self.values(second, after))
            return [Self.tally(y.count, y.reduce(0, +), before: x.count, x.reduce(0, +))]
        case .funnel(let goals):
            var tallies: [GoalTally] = []
            var last: Timestamp? = moment
            for goal in goals {
                last = last.flatMap { last in
                    after.filter { $0.goal == goal && $0.happenedAt >= last }.map(\.happenedAt).min()
                }
                tallies.append(Self.tally(last == nil ? 0 : 1, 0, before: 0, 0))
            }
            return tallies
        }
    }

    private static func values(_ term: SeriesDefinition.Term, _ events: [GoalEvent]) -> [Double] {
        events.filter { $0.goal == term.goal }.map { term.measure == .count ? 1 : $0.value }
    }

    private static func tally(_ count: Int, _ y: Double, before: Int, _ x: Double) -> GoalTally {
        var tally = GoalTally()
        tally.events = count
        tally.converted = count > 0 ? 1 : 0
        tally.convertedBefore = before > 0 ? 1 : 0
        tally.convertedBoth = count > 0 && before > 0 ? 1 : 0
        tally.y = CompensatedSum(y)
        tally.yy = CompensatedSum(product: y, y)
        tally.x = CompensatedSum(x)
        tally.xx = CompensatedSum(product: x, x)
        tally.xy = CompensatedSum(product: x, y)
        return tally
    }
}
