import Bucketing
import Chronology
import Storage
import Testing

extension StoreContract {
    private static func text(_ bytes: [UInt8]?) -> String {
        String(decoding: bytes ?? [], as: UTF8.self)
    }

    /// The tallies of the only experiment there is.
    private static func tallies(_ context: Context) throws -> [VariationTally] {
        try context.store.tallies(experimentID: "e", goal: "g").filter {
            $0.counted + $0.multipleVariations + $0.chosen > 0
        }
    }

    private static let admin = Author(name: "on-call")

    public static let merging =
        mergingProfiles + mergingEvents + mergingOthers + assigningBeside + erasingWithTotals
        + (1...8).map { recountMerged(seed: $0) }

    private static let mergingProfiles = [
        StoreContract("Merged with `keep`, the account's assignments win and the anonymous user's fill the gaps") {
            context in
            let start = context.clock.now
            try await context.store.apply(
                .save(["e1": "theirs", "e2": "theirs"], onConflict: .replace), to: "anonymous")
            try await context.store.apply(.save(["e2": "own", "e3": "own"], onConflict: .replace), to: "account")
            context.clock.advance(by: .seconds(60))
            let merged = try await context.store.merge("anonymous", into: "account")
            #expect(merged.changed && merged.profile?.variations == ["e1": "theirs", "e2": "own", "e3": "own"])
            #expect(try context.reader.profile(of: "account") == merged.profile)
            #expect(try context.reader.profile(of: "anonymous") == nil)
            let taken = try #require(merged.profile?["e1"])
            #expect(taken.source == .merged && taken.assignedAt == start && taken.updatedAt == start + 60_000)
            #expect(merged.profile?["e2"]?.source == .saved)
            #expect(context.store.metrics().profiles == 1 && context.store.metrics().assignments == 3)
        },
        StoreContract("Merged with `replace`, the anonymous user's assignments win") { context in
            try await context.store.apply(.save(["e1": "theirs", "same": "v"], onConflict: .replace), to: "anonymous")
            try await context.store.apply(.save(["e1": "own", "same": "v"], onConflict: .replace), to: "account")
            let merged = try await context.store.merge("anonymous", into: "account", .replace)
            #expect(merged.profile?.variations == ["e1": "theirs", "same": "v"])
            #expect(merged.profile?["e1"]?.source == .merged && merged.profile?["same"]?.source == .saved)
        },
        StoreContract("The anonymous user's override ends, and the assignment beneath it is taken over") { context in
            let (store, start) = (context.store, context.clock.now)
            for rule in [ProfileChange.ConflictRule.keep, .replace] {
                try await store.apply(.save(["e1": "beneath"], onConflict: .replace), to: "anonymous")
                for experiment: Identifier in ["e1", "e2", "e3"] {
                    try await store.apply(.override(experimentID: experiment, variationID: "forced"), to: "anonymous")
                }
                try await store.apply(.save(["e3": "own"], onConflict: .replace), to: "account")
                let merged = try await store.merge("anonymous", into: "account", rule)
                #expect(merged.profile?.variations == ["e1": "beneath", "e3": "own"])
                #expect(merged.profile?["e1"]?.source == .merged && merged.profile?["e1"]?.assignedAt == start)
                #expect(try context.reader.profile(of: "anonymous") == nil)
                try await store.apply(.erase, to: "account")
            }
        },
        StoreContract("The account's override stays, over what the account takes over") { context in
            let store = context.store
            for (rule, winner) in [(ProfileChange.ConflictRule.keep, "own"), (.replace, "theirs")] {
                try await store.apply(.save(["e1": "theirs", "e2": "theirs"], onConflict: .replace), to: "anonymous")
                try await store.apply(.save(["e1": "own"], onConflict: .replace), to: "account")
                for experiment: Identifier in ["e1", "e2"] {
                    try await store.apply(.override(experimentID: experiment, variationID: "forced"), to: "account")
                }
                let merged = try await store.merge("anonymous", into: "account", rule)
                #expect(merged.profile?.variations == ["e1": "forced", "e2": "forced"])
                #expect(merged.profile?["e1"]?.layer?.beneath?.variationID == Identifier(winner))
                #expect(merged.profile?["e2"]?.layer?.beneath?.source == .merged)
                try await store.apply(.erase, to: "account")
            }
        },
        StoreContract("An override of the anonymous user does not change who counts in results") { context in
            _ = try await context.store.record([exposure("account")])
            try await context.store.apply(.override(experimentID: "e", variationID: "forced"), to: "anonymous")
            try await context.store.force("forced", experimentKey: "key", userID: "anonymous")
            try await context.store.merge("anonymous", into: "account")
            #expect(try tallies(context).map(\.counted) == [1] && tallies(context).map(\.chosen) == [0])
        },
        StoreContract(
            "A merge beyond the limit of assignments changes nothing", rules: ProfileRules(assignmentLimit: 2)
        ) {
            context in
            let store = context.store
            try await store.apply(.save(["e1": "v", "e2": "v"], onConflict: .replace), to: "anonymous")
            try await store.apply(.save(["e2": "v", "e3": "v"], onConflict: .replace), to: "account")
            _ = try await store.record([exposure("anonymous"), goal("anonymous")])
            await #expect(throws: StorageError.tooManyAssignments(limit: 2)) {
                try await store.merge("anonymous", into: "account")
            }
            #expect(try context.reader.variations(of: "anonymous")?.count == 2)
            #expect(try context.reader.variations(of: "account")?.count == 2)
            #expect(try store.exposures(after: 0, limit: 9).map(\.exposure.userID) == ["anonymous"])
            #expect(try tallies(context).map(\.counted) == [1])
        },
        StoreContract("A repeated merge changes nothing and returns the same profile") { context in
            try await context.store.apply(.save(["e": "v"], onConflict: .replace), to: "anonymous")
            _ = try await context.store.record([exposure("anonymous"), goal("anonymous")])
            let first = try await context.store.merge("anonymous", into: "account")
            context.clock.advance(by: .seconds(1))
            let second = try await context.store.merge("anonymous", into: "account")
            #expect(!second.changed && second.profile == first.profile)
        },
        StoreContract("A merge of two unknown users makes no profile") { context in
            let merged = try await context.store.merge("anonymous", into: "account")
            #expect(!merged.changed && merged.profile == nil)
            #expect(try context.reader.profile(of: "account") == nil)
        },
        StoreContract("The anonymous id can be used anew, and merged again") { context in
            try await context.store.apply(.save(["e1": "v"], onConflict: .replace), to: "anonymous")
            try await context.store.merge("anonymous", into: "account")
            try await context.store.apply(.save(["e1": "late", "e2": "late"], onConflict: .replace), to: "anonymous")
            #expect(try context.reader.variations(of: "anonymous") == ["e1": "late", "e2": "late"])
            let merged = try await context.store.merge("anonymous", into: "account")
            #expect(merged.profile?.variations == ["e1": "v", "e2": "late"])
        },
        StoreContract(
            "Expired assignments are not merged, and what is taken over is renewed",
            rules: ProfileRules(assignmentTTL: .seconds(3_600))
        ) { context in
            try await context.store.apply(.save(["e1": "old", "e2": "old"], onConflict: .replace), to: "anonymous")
            try await context.store.apply(.save(["e3": "old"], onConflict: .replace), to: "account")
            context.clock.advance(by: .seconds(3_000))
            try await context.store.apply(.save(["e3": "new"], onConflict: .replace), to: "anonymous")
            context.clock.advance(by: .seconds(600))
            let merged = try await context.store.merge("anonymous", into: "account")
            #expect(merged.profile?.variations == ["e3": "new"])
            #expect(merged.profile?["e3"]?.expiresAt == context.clock.now + 3_600_000)
        },
    ]

    private static let mergingEvents = [
        StoreContract("Of two exposures the earlier one counts, once") { context in
            _ = try await context.store.record([
                exposure("account", at: 100), exposure("anonymous", at: 50), goal("account", 3, at: 70),
                goal("anonymous", 4, at: 20), goal("anonymous", 5, at: 120),
            ])
            _ = try await context.store.merge("anonymous", into: "account")
            let tally = try #require(try tallies(context).first)
            #expect((tally.counted, tally.multipleVariations, tally.goal.converted, tally.goal.events) == (1, 0, 1, 2))
            #expect((tally.goal.x.value, tally.goal.y.value) == (4, 8))
            let stored = try context.store.exposures(after: 0, limit: 9)
            #expect(stored.map(\.exposure.userID) == ["account"] && stored.map(\.exposure.happenedAt) == [noon + 50])
        },
        StoreContract("Exposures to different variations mark the merged user as exposed to several") { context in
            _ = try await context.store.record([
                exposure("account", "b", at: 100), exposure("anonymous", "a", at: 50), goal("account", at: 200),
            ])
            try await context.store.merge("anonymous", into: "account")
            let tallies = try tallies(context)
            #expect(tallies.map(\.variationID) == ["a"] && tallies.map(\.multipleVariations) == [1])
            #expect(tallies.first?.goal == GoalTally())
        },
        StoreContract("A forced exposure excludes the merged user, and an override that stays behind does not") {
            context in
            _ = try await context.store.record([exposure("anonymous", isChosen: true), exposure("account", at: 5)])
            try await context.store.merge("anonymous", into: "account")
            #expect(try tallies(context).map(\.chosen) == [1])
            _ = try await context.store.record([exposure("second"), goal("second")])
            try await context.store.apply(.override(experimentID: "e", variationID: "a"), to: "other")
            try await context.store.merge("other", into: "second")
            let tally = try #require(try tallies(context).first)
            #expect((tally.counted, tally.chosen, tally.goal.events) == (1, 1, 1))
        },
        StoreContract("The goals of both count, and an event that both have by its sender's id counts once") {
            context in
            _ = try await context.store.record([
                exposure("account"), goal("account", 1, id: "1"), goal("anonymous", 2, id: "1"),
                goal("anonymous", 4, id: "2"), goal("anonymous", 8),
            ])
            let numbers = try context.store.goalEvents(after: 0, limit: 9).filter { $0.event.value != 2 }.map(\.number)
            try await context.store.merge("anonymous", into: "account")
            #expect(try tallies(context).map(\.goal.y.value) == [13])
            let events = try context.store.goalEvents(after: 0, limit: 9)
            #expect(events.map(\.number) == numbers && events.allSatisfy { $0.event.userID == "account" })
            #expect(try await context.store.record([goal("account", 9, id: "2")]) == [.repeated])
        },
        StoreContract("Erasing the account after a merge leaves nothing in the tallies") { context in
            _ = try await context.store.record([exposure("anonymous"), goal("anonymous", 0.1), goal("account", 0.7)])
            try await context.store.merge("anonymous", into: "account")
            try await context.store.apply(.erase, to: "account")
            #expect(try tallies(context).isEmpty)
            #expect(try context.store.tallies(experimentID: "e", goal: "g").allSatisfy { $0.goal == GoalTally() })
            #expect(try context.store.goalEvents(after: 0, limit: 9).isEmpty)
        },
    ]

    private static let mergingOthers = [
        StoreContract("Of each attribute the account's value wins with `keep`, the anonymous user's with `replace`") {
            context in
            var numbers: [UInt32] = []
            for name: Identifier in ["a", "b", "c"] {
                let result = try await context.store.define(AttributeDefinition(name: name, number: 0, type: .number))
                if case .created(let definition) = result { numbers.append(definition.number) }
            }
            try #require(numbers.count == 3)
            for rule in [ProfileChange.ConflictRule.keep, .replace] {
                try await context.store.update(
                    [numbers[0]: .set(.number(1)), numbers[1]: .set(.number(1))], of: "account")
                try await context.store.update(
                    [numbers[1]: .set(.number(2)), numbers[2]: .set(.number(2))], of: "anonymous")
                let merged = try await context.store.merge("anonymous", into: "account", rule)
                #expect(merged.changed)
                let attributes = try context.reader.attributes(of: "account")
                #expect(
                    numbers.map { attributes?[$0] } == [
                        .number(1), .number(rule == .keep ? 1 : 2), .number(2),
                    ])
                #expect(try context.reader.attributes(of: "anonymous") == nil)
            }
        },
        StoreContract("Variations forced for a test do not move; the account's stay") { context in
            try await context.store.force("theirs", experimentKey: "x", userID: "anonymous")
            try await context.store.force("theirs", experimentKey: "y", userID: "anonymous")
            try await context.store.force("own", experimentKey: "y", userID: "account")
            let changes = try context.store.projectChanges()
            try await context.store.merge("anonymous", into: "account", .replace)
            let forced = try context.store.forcedVariations()
            #expect(forced.map(\.userID) == ["account"] && forced.map(\.variationKey) == ["own"])
            #expect(try context.store.projectChanges() > changes)
        },
        StoreContract("A merge is recorded, and what was recorded of the anonymous user is the account's") { context in
            try await context.store.administer(
                .override(experimentID: "e", variationID: "o"), of: "secret-anonymous", by: admin)
            try await context.store.apply(.save(["f": "v"], onConflict: .replace), to: "secret-anonymous")
            try await context.store.merge("secret-anonymous", into: "account", by: admin)
            let entries = try await context.store.audit()
            #expect(entries.map(\.action) == ["profile.merge", "override.set"])
            #expect(entries.map(\.userID) == ["account", "account"])
            #expect(entries.first?.author == admin)
            #expect(
                text(entries.first?.before)
                    == #"{"overrides_of_from":{"e":{"variation_id":"o","source":"override"}}}"#)
            #expect(
                text(entries.first?.after) == #"{"from":"secret-anonymous","on_conflict":"keep","assignments":"#
                    + #"{"f":{"variation_id":"v","source":"merged"}}}"#)
            // A repeated merge is not recorded.
            try await context.store.merge("secret-anonymous", into: "account", by: admin)
            #expect(try await context.store.audit().count == 2)
            try await context.store.administer(.erase, of: "account", by: admin)
            for entry in try await context.store.audit() {
                #expect(entry.userID == nil && !"\(entry.target)\(text(entry.after))".contains("secret"))
            }
        },
    ]

    private static let assigningBeside = [
        StoreContract("Beside an anonymous profile, what was decided without its assignment is not stored") { context in
            let start = context.clock.now
            try await context.store.apply(.save(["e": "theirs"], onConflict: .replace), to: "anonymous")
            context.clock.advance(by: .seconds(1))
            let proposals = ["e", "f"].map { ProfileChange.Candidate(experimentID: $0, variationID: "decided") }
            let result = try await context.store.apply(.assign(proposals, anonymousID: "anonymous"), to: "account")
            // The datafile may lack the variation "theirs".
            #expect(result.profile?.variations == ["f": "decided"])
            #expect(result.profile?["f"]?.source == .bucketed)
            let seen = ProfileChange.Candidate(experimentID: "e", variationID: "theirs", isFromAnonymousProfile: true)
            let next = try await context.store.apply(.assign([seen], anonymousID: "anonymous"), to: "account")
            #expect(next.profile?.variations == ["e": "theirs", "f": "decided"])
            #expect(next.profile?["e"]?.source == .merged && next.profile?["e"]?.assignedAt == start)
            #expect(try context.reader.variations(of: "anonymous") == ["e": "theirs"])
        },
        StoreContract("Beside an anonymous profile, the account's own assignment wins") { context in
            try await context.store.apply(.save(["e": "theirs"], onConflict: .replace), to: "anonymous")
            try await context.store.apply(.save(["e": "own"], onConflict: .replace), to: "account")
            let proposal = ProfileChange.Candidate(
                experimentID: "e", variationID: "theirs", isFromAnonymousProfile: true)
            let result = try await context.store.apply(.assign([proposal], anonymousID: "anonymous"), to: "account")
            #expect(!result.changed && result.profile?.variations == ["e": "own"])
        },
        StoreContract("A borrowed variation is stored only if the anonymous profile still has it") { context in
            let proposal = ProfileChange.Candidate(
                experimentID: "e", variationID: "theirs", isFromAnonymousProfile: true)
            let none = try await context.store.apply(.assign([proposal], anonymousID: "anonymous"), to: "account")
            #expect(!none.changed && none.profile == nil)
            try await context.store.apply(.save(["e": "another"], onConflict: .replace), to: "anonymous")
            let another = try await context.store.apply(.assign([proposal], anonymousID: "anonymous"), to: "account")
            #expect(!another.changed && another.profile == nil)
        },
        StoreContract(
            "Beside an anonymous profile, the assignment beneath an override is taken over, never the override"
        ) { context in
            let store = context.store
            try await store.apply(.save(["e": "beneath"], onConflict: .replace), to: "anonymous")
            for experiment: Identifier in ["e", "f"] {
                try await store.apply(.override(experimentID: experiment, variationID: "forced"), to: "anonymous")
            }
            let proposals = [
                ProfileChange.Candidate(experimentID: "e", variationID: "beneath", isFromAnonymousProfile: true),
                ProfileChange.Candidate(experimentID: "f", variationID: "decided"),
            ]
            let result = try await store.apply(.assign(proposals, anonymousID: "anonymous"), to: "account")
            #expect(result.profile?.variations == ["e": "beneath", "f": "decided"])
            #expect(result.profile?["e"]?.source == .merged && result.profile?["f"]?.source == .bucketed)
        },
        StoreContract("A variation of the anonymous profile that is gone is not taken over") { context in
            try await context.store.apply(.save(["e": "gone"], onConflict: .replace), to: "anonymous")
            let proposal = ProfileChange.Candidate(experimentID: "e", variationID: "new", replacing: "gone")
            let result = try await context.store.apply(.assign([proposal], anonymousID: "anonymous"), to: "account")
            #expect(result.profile?.variations == ["e": "new"])
        },
    ]

    private static let erasingWithTotals = [
        StoreContract("Erased with its totals kept, a user leaves the tallies and nothing else") { context in
            let store = context.store
            try await store.apply(.save(["e": "a"], onConflict: .replace), to: "secret-user")
            try await store.force("x", userID: "secret-user")
            _ = try await store.record([exposure("secret-user"), goal("secret-user", 3)])
            let before = try tallies(context)
            try await store.administer(.eraseKeepingTotals, of: "secret-user", by: admin)
            #expect(try tallies(context) == before && before.first?.goal.y == CompensatedSum(3))
            #expect(try context.reader.profile(of: "secret-user") == nil)
            #expect(try store.exposures(after: 0, limit: 9).isEmpty && store.goalEvents(after: 0, limit: 9).isEmpty)
            #expect(try store.forcedVariations().isEmpty)
            let entries = try await store.audit()
            #expect(entries.allSatisfy { $0.userID == nil && !$0.target.contains("secret") })
            #expect(text(entries.first?.after) == #"{"keep_totals":true}"#)
            // Who comes back is another user.
            _ = try await store.record([exposure("secret-user")])
            #expect(try tallies(context).map(\.counted) == [2])
            try await store.apply(.erase, to: "secret-user")
            #expect(try tallies(context) == before)
        }
    ]

    private static func recountMerged(seed: UInt64) -> StoreContract {
        StoreContract("After random merges and erasures, tallies are those of a count from scratch (seed \(seed))") {
            context async throws in
            let store = context.store
            var random = SeededGenerator(seed: 2_000 + seed)
            var ledger = EventLedger()
            for _ in 0..<80 {
                let users = EventLedger.users.shuffled(using: &random)
                let experiment = EventLedger.experiments.randomElement(using: &random) ?? "e"
                switch Int.random(in: 0..<20, using: &random) {
                case 0:
                    try await store.apply(.erase, to: users[0])
                    ledger.erase(users[0])
                case 1:
                    try await store.apply(.eraseKeepingTotals, to: users[0])
                    ledger.eraseKeepingTotals(users[0])
                case 2:
                    try await store.apply(.override(experimentID: experiment, variationID: "a"), to: users[0])
                    ledger.override(users[0], experiment)
                case 3:
                    try await store.apply(.save([experiment: "b"], onConflict: .replace), to: users[0])
                case 4...8:
                    try await store.merge(users[1], into: users[0], Bool.random(using: &random) ? .keep : .replace)
                    ledger.merge(users[1], into: users[0])
                default:
                    let events = (0..<10).map { _ in EventLedger.randomEvent(&random) }
                    _ = try await store.record(events)
                    for event in events { ledger.record(event) }
                }
            }
            // Assignments, which the ledger does not know, determine periods.
            try ledger.expectTallies(of: store, byPeriod: false)
        }
    }
}
