import Bucketing
import Chronology
import JSON
import Storage
import Testing

/// What metrics compute, counted from scratch.
extension EventLedger {
    static let series: [SeriesDefinition] = [
        SeriesDefinition(.sum(.init("g", .count), cap: nil)),
        SeriesDefinition(.sum(.init("g", .count), cap: nil), to: .days(3)),
        SeriesDefinition(.sum(.init("h", .value), cap: 2_500_000.5)),
        SeriesDefinition(.sum(.init("h", .count), cap: nil), from: .days(1), to: .days(7)),
        SeriesDefinition(.ratio(.init("g", .value), .init("g", .count))),
        SeriesDefinition(.ratio(.init("h", .value), .init("g", .count)), to: .days(5)),
        SeriesDefinition(.funnel(["g", "h"])),
        SeriesDefinition(.funnel(["h", "g"]), to: .days(4)),
        SeriesDefinition(.sum(.init("g", .value), cap: nil), covariate: .before(.days(3))),
        SeriesDefinition(.sum(.init("h", .count), cap: 2), covariate: .before(.days(20))),
        SeriesDefinition(.ratio(.init("g", .value, cap: 0.5), .init("g", .count))),
        SeriesDefinition(.sum(.init("g", .value), cap: 1.5), covariate: .attribute("amount")),
    ]

    /// Expects the tallies of series to be those of this ledger, in total and for each day.
    func expectSeries(_ tracked: [Identifier: [SeriesDefinition]], of store: any Store) throws {
        for (experiment, definitions) in tracked {
            let stored = try store.read(StoreQuery.series(experimentID: experiment)).filter { !$0.hasGroups }
            #expect(Set(stored.map(\.definition)) == Set(definitions) && stored.count == definitions.count)
            #expect(stored.allSatisfy { $0.state == .filled && $0.since == 0 })
            for series in stored {
                for (step, name) in series.names.enumerated() {
                    let users = Self.users.compactMap { user in
                        tally(of: user, experiment) { contributions(of: user, series, since: $0)[step] }
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
        of user: Identifier, _ series: TrackedSeries, since moment: Instant
    ) -> [GoalTally] {
        let definition = series.definition
        let own = events.filter { $0.userID == user }
        let after = own.filter {
            $0.happenedAt >= moment + definition.from
                && $0.happenedAt < (definition.to.map { moment + $0 } ?? .distantFuture) && $0.happenedAt >= moment
        }
        switch definition.content {
        case .sum(let term, let cap):
            let y = Self.values(term, after)
            let limit = cap ?? .infinity
            let total = min(y.reduce(0, +), limit)
            switch definition.covariate {
            case .before(let time):
                let before = own.filter { $0.happenedAt < moment && $0.happenedAt >= moment - time }
                let x = Self.values(term, before)
                return [Self.tally(y.count, total, before: x.count, min(x.reduce(0, +), limit))]
            case .attribute(let name):
                // The cap is that of the total.
                let number = first(of: user, series.experimentID)?[name.string]?.double
                return [Self.tally(y.count, total, before: number == nil ? 0 : 1, number ?? 0)]
            }
        case .ratio(let first, let second):
            let (y, x) = (Self.values(first, after), Self.values(second, after))
            return [Self.tally(y.count, y.reduce(0, +), before: x.count, x.reduce(0, +))]
        case .funnel(let goals):
            var tallies: [GoalTally] = []
            var last: Instant? = moment
            for goal in goals {
                last = last.flatMap { last in
                    after.filter { $0.goal == goal && $0.happenedAt >= last }.map(\.happenedAt).min()
                }
                tallies.append(Self.tally(last == nil ? 0 : 1, 0, before: 0, 0))
            }
            return tallies
        case .breakdown, .periods: return []
        }
    }

    private static func values(_ term: SeriesDefinition.Term, _ events: [GoalEvent]) -> [Double] {
        events.filter { $0.goal == term.goal }.map { min(term.measure == .count ? 1 : $0.value, term.cap ?? .infinity) }
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

/// Users by the values of attributes, counted from scratch.
extension EventLedger {
    static let breakdowns = ["country", "city"].map { SeriesDefinition(.breakdown($0)) }

    static func randomPayload(_ random: inout SeededGenerator) -> [UInt8] {
        var attributes = JSONObject()
        let (country, city) = (Int.random(in: 0..<5, using: &random), Int.random(in: 0..<60, using: &random))
        if country > 0 { attributes["country"] = .string("country \(country)") }
        let amount = Int.random(in: 0..<9, using: &random)
        if amount > 1 { attributes["amount"] = .integer(Int64(amount)) }
        if city > 2 { attributes["city"] = city.isMultiple(of: 2) ? .integer(Int64(city)) : .string("city \(city)") }
        let payload: JSONValue = ["attributes": .object(attributes)]
        return payload.encoded()
    }

    /// The values that an exposure has for each tracked breakdown, by the number of its series, and of what some series are
    /// adjusted by: what a ledger keeps of its payload.
    func capture(_ exposure: Exposure) -> [UInt8] {
        let attributes = (try? JSONParser().parse(exposure.payload))?.object?["attributes"]?.object
        var values = JSONObject()
        for series in breakdowns where series.experimentID == exposure.experimentID {
            guard let attribute = series.breakdown else { continue }
            let value = attributes?[attribute.string]
            values["\(series.number)"] = .string(value?.string ?? value?.integer.map { "\($0)" } ?? "")
        }
        values["amount"] = attributes?["amount"]
        return JSONValue.object(values).encoded()
    }

    /// What the ledger keeps of the payload of a user's first exposure.
    private func first(of user: Identifier, _ experiment: Identifier) -> JSONObject? {
        let met = exposures.filter { $0.userID == user && $0.experimentID == experiment }
        return met.min { $0.happenedAt < $1.happenedAt }.flatMap { try? JSONParser().parse($0.payload).object }
    }

    /// The index of the user's group; `nil` for a user without.
    private func group(of user: Identifier, _ series: TrackedSeries) -> Int? {
        guard let value = first(of: user, series.experimentID)?["\(series.number)"]?.string else { return nil }
        if value.isEmpty { return BreakdownGroup.none }
        return series.groupValues.firstIndex(of: Identifier(value)).map { $0 + 1 } ?? BreakdownGroup.other
    }

    /// Expects the tallies of all groups to be those of this ledger.
    func expectGroups(of store: any Store) throws {
        for experiment in Self.experiments {
            let all = try store.read(StoreQuery.series(experimentID: experiment))
            for breakdown in all where breakdown.breakdown != nil {
                for goal in Self.goals {
                    try expect(breakdown, goal, store) { total($0, goal, since: $1).tally }
                }
                for series in all where !series.hasGroups {
                    for (step, name) in series.names.enumerated() {
                        try expect(breakdown, name, store) { contributions(of: $0, series, since: $1)[step] }
                    }
                }
            }
        }
    }

    private func expect(
        _ breakdown: TrackedSeries, _ name: Identifier, _ store: any Store,
        _ contribution: (Identifier, Instant) -> GoalTally
    ) throws {
        let experiment = breakdown.experimentID
        let stored = try store.read(
            .breakdown(experimentID: experiment, series: breakdown.number, goal: name, frozenAt: nil))
        var expected: [Int: [(day: Int64, tally: VariationTally)]] = [:]
        for user in Self.users {
            guard let index = group(of: user, breakdown),
                let found = tally(of: user, experiment, goal: { contribution(user, $0) }), found.tally.counted == 1
            else { continue }
            expected[index, default: []].append(found)
        }
        #expect(stored.indices == expected.keys.sorted())
        if expected[BreakdownGroup.other] != nil { #expect(breakdown.groupValues.count == BreakdownGroup.limit) }
        for (index, users) in expected {
            let groups = stored.tally(of: index)
            expect(groups.variations.filter { $0.users != UserCounts() }, sum(users.map(\.tally)))
            for day in Int64(0)...Int64(23) {
                let counted = groups.days.first { $0.day == day }?.variations ?? []
                expect(counted, sum(users.filter { $0.day == day }.map(\.tally)))
            }
        }
    }
}
