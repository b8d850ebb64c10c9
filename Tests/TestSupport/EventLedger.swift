import Bucketing
import Chronology
import Storage
import Testing

/// A log of events, from which tallies are counted from scratch: the reference for the tallies of a store.
struct EventLedger {
    static let users: [Identifier] = (0..<12).map { Identifier("user \($0)") }
    static let experiments: [Identifier] = ["e", "f"]
    static let goals: [Identifier] = ["g", "h"]
    /// The allocation periods of the experiments.
    static let periods: [AllocationPeriod] = [0, 700_000_000, 1_400_000_000].enumerated().map { index, since in
        AllocationPeriod(
            number: Int64(index) + 1, sdkKey: "sdk", since: since,
            allocation: TrafficAllocation(ranges: [.init(entityID: "a", end: 5_000 + index)]))
    }

    private(set) var exposures: [Exposure] = []
    private(set) var events: [GoalEvent] = []
    private(set) var overrides: Set<[Identifier]> = []
    /// The breakdowns of experiments that are tracked, as the store has them.
    var breakdowns: [TrackedSeries] = []
    /// What stays of users who were erased with their totals kept, for each experiment and goal.
    private var kept: [[Identifier]: [(day: Int64, tally: VariationTally)]] = [:]

    mutating func record(_ event: UserEvent) {
        switch event {
        case .exposure(var exposure):
            exposure.payload = capture(exposure)
            exposures.append(exposure)
        case .goal(let event):
            let isKnown =
                event.senderID != nil
                && events.contains { $0.userID == event.userID && $0.senderID == event.senderID }
            if !isKnown { events.append(event) }
        }
    }

    mutating func override(_ user: Identifier, _ experiment: Identifier) {
        overrides.insert([user, experiment])
    }

    mutating func erase(_ user: Identifier) {
        exposures.removeAll { $0.userID == user }
        events.removeAll { $0.userID == user }
        overrides = overrides.filter { $0.first != user }
    }

    mutating func eraseKeepingTotals(_ user: Identifier) {
        for experiment in Self.experiments {
            for goal in Self.goals {
                guard let tally = tally(of: user, experiment, goal) else { continue }
                kept[[experiment, goal], default: []].append(tally)
            }
        }
        erase(user)
    }

    mutating func merge(_ anonymous: Identifier, into account: Identifier) {
        // Behind the account's: of two at the same time, the account's counts.
        let taken = exposures.filter { $0.userID == anonymous }
        exposures.removeAll { $0.userID == anonymous }
        exposures += taken.map { exposure in
            var exposure = exposure
            exposure.isChosen = exposure.isChosen || overrides.contains([anonymous, exposure.experimentID])
            exposure.userID = account
            return exposure
        }
        let known = Set(events.filter { $0.userID == account }.compactMap(\.senderID))
        events.removeAll { $0.userID == anonymous && $0.senderID.map(known.contains) ?? false }
        for index in events.indices where events[index].userID == anonymous { events[index].userID = account }
        overrides = overrides.filter { $0.first != anonymous }
    }

    /// What each user contributes, with the day of enrollment.
    private func users(_ experiment: Identifier, _ goal: Identifier) -> [(day: Int64, tally: VariationTally)] {
        Self.users.compactMap { tally(of: $0, experiment, goal) } + (kept[[experiment, goal]] ?? [])
    }

    /// Sums up what users contribute, by variation.
    func sum(_ users: [VariationTally]) -> [VariationTally] {
        var tallies: [Identifier: VariationTally] = [:]
        for one in users {
            var tally = tallies[one.variationID] ?? VariationTally(variationID: one.variationID)
            tally.users += one.users
            tally.goal = tally.goal + one.goal
            tallies[one.variationID] = tally
        }
        return tallies.values.sorted { $0.variationID < $1.variationID }
    }

    /// Returns how many users of each variation count, by period.
    private func countedByPeriod(_ experiment: Identifier) -> [Int64: [Identifier: Int]] {
        var counts: [Int64: [Identifier: Int]] = [:]
        for (period, variation) in Self.users.compactMap({ counted($0, experiment) }) {
            counts[period, default: [:]][variation, default: 0] += 1
        }
        return counts
    }

    /// Returns the period and variation of a user whom results count. An exposure belongs to the period of its
    /// datafile, or of its time if that was earlier; what arrives later does not move it.
    private func counted(
        _ user: Identifier, _ experiment: Identifier
    ) -> (period: Int64, variationID: Identifier)? {
        let met = exposures.filter { $0.userID == user && $0.experimentID == experiment }
        guard let first = met.min(by: { $0.happenedAt < $1.happenedAt }), !met.contains(where: \.isChosen),
            !overrides.contains([user, experiment]), met.allSatisfy({ $0.variationID == first.variationID }),
            let stored = met.first, let active = stored.active
        else { return nil }
        let period = Self.periods.last { $0.since <= min(stored.happenedAt, active.since) } ?? active
        return (period.number, first.variationID)
    }

    /// What one user contributes, and the day of enrollment; `nil` for a user without exposure.
    private func tally(
        of user: Identifier, _ experiment: Identifier, _ goal: Identifier
    ) -> (day: Int64, tally: VariationTally)? {
        tally(of: user, experiment) { total(user, goal, since: $0).tally }
    }

    /// - Parameter goal: what the user did, given the time of the first exposure.
    func tally(
        of user: Identifier, _ experiment: Identifier, goal: (Instant) -> GoalTally
    ) -> (day: Int64, tally: VariationTally)? {
        let met = exposures.filter { $0.userID == user && $0.experimentID == experiment }
        // Of two at the same time, the one that arrived first; `min` returns the first of equals.
        guard let first = met.min(by: { $0.happenedAt < $1.happenedAt }) else { return nil }
        var tally = VariationTally(variationID: first.variationID)
        if met.contains(where: \.isChosen) || overrides.contains([user, experiment]) {
            tally.chosen = 1
        } else if met.contains(where: { $0.variationID != first.variationID }) {
            tally.multipleVariations = 1
        } else {
            tally.counted = 1
            tally.goal = goal(first.happenedAt)
        }
        return (first.happenedAt.day, tally)
    }

    func total(_ user: Identifier, _ goal: Identifier, since moment: Instant) -> UserGoal {
        var total = UserGoal()
        for event in events
        where event.userID == user && event.goal == goal && event.happenedAt >= moment - EventRules.lookBack {
            total.add(event.value, isAfter: event.happenedAt >= moment)
        }
        return total
    }

    /// - Parameter offset: less than a second, so that no two events happen at the same time.
    static func randomEvent(_ random: inout SeededGenerator, offset: TimeSpan = .zero) -> UserEvent {
        let time = Instant(milliseconds: Int64.random(in: 0..<2_000_000, using: &random) * 1_000) + offset
        let user = users.randomElement(using: &random) ?? "0"
        guard Int.random(in: 0..<5, using: &random) == 0 else {
            // Large values that differ little: sums of squares lose their differences.
            let value = Double.random(in: -1...1, using: &random) + (Bool.random(using: &random) ? 1e6 : 0)
            let id = Int.random(in: 0..<2_000, using: &random)
            return .goal(
                GoalEvent(
                    userID: user, goal: goals.randomElement(using: &random) ?? "g", value: value, happenedAt: time,
                    receivedAt: time, senderID: offset == .zero && id % 2 == 0 ? Identifier("\(id % 200)") : nil))
        }
        // Most users stay in one variation.
        let usual: Identifier = (users.firstIndex(of: user) ?? 0).isMultiple(of: 2) ? "a" : "b"
        let crosses = Int.random(in: 0..<60, using: &random) == 0
        return .exposure(
            Exposure(
                userID: user, experimentID: experiments.randomElement(using: &random) ?? "e", experimentKey: "key",
                variationID: crosses ? "c" : usual, happenedAt: time,
                isChosen: Int.random(in: 0..<80, using: &random) == 0, sdkKey: "sdk", payload: randomPayload(&random),
                active: periods.randomElement(using: &random)))
    }

    /// Makes a store know all periods, and nothing else.
    static func registerPeriods(in store: any Store) async throws {
        for experiment in experiments {
            let exposures = periods.map { period in
                UserEvent.exposure(
                    Exposure(
                        userID: Identifier("\(period.number)"), experimentID: experiment, experimentKey: "key",
                        variationID: "a",
                        happenedAt: period.since, isChosen: false, sdkKey: "sdk", active: period))
            }
            _ = try await store.record(exposures)
        }
        for period in periods { try await store.apply(.erase, to: Identifier("\(period.number)")) }
    }

    /// Expects the tallies of a store to be those of this ledger, in total and for each day.
    func expectTallies(of store: any Store, byPeriod: Bool = true) throws {
        for experiment in Self.experiments {
            for goal in Self.goals {
                let tally = try store.tally(experimentID: experiment, goal: goal)
                let counted = tally.variations.filter { $0.counted + $0.multipleVariations + $0.chosen > 0 }
                let users = users(experiment, goal)
                expect(counted, sum(users.map(\.tally)))
                let days = tally.days
                for day in Int64(0)...Int64(23) {
                    let counted = days.first { $0.day == day }?.variations ?? []
                    expect(counted, sum(users.filter { $0.day == day }.map(\.tally)))
                }
                guard byPeriod else { continue }
                let present = tally.countedByPeriod.mapValues { $0.filter { $0.value != 0 } }.filter {
                    !$0.value.isEmpty
                }
                #expect(present == countedByPeriod(experiment))
            }
        }
    }

    func expect(_ counted: [VariationTally], _ expected: [VariationTally]) {
        #expect(counted.map(\.variationID) == expected.map(\.variationID))
        for (counted, expected) in zip(counted, expected) {
            #expect(counted.users == expected.users)
            expectSums(counted.goal, expected.goal)
        }
    }

    private func expectSums(_ counted: GoalTally, _ expected: GoalTally) {
        #expect(
            [counted.events, counted.converted, counted.convertedBefore, counted.convertedBoth]
                == [expected.events, expected.converted, expected.convertedBefore, expected.convertedBoth])
        for sum in [\GoalTally.y, \.yy, \.x, \.xx, \.xy] {
            let (counted, expected) = (counted[keyPath: sum].value, expected[keyPath: sum].value)
            #expect(abs(counted - expected) <= 1e-12 * max(1, abs(expected)))
        }
    }
}
