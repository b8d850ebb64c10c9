import Bucketing
import Chronology
import Storage
import Testing

extension StoreContract {
    static let overriding = [
        StoreContract("An override stays whatever is saved after it") { context in
            let store = context.store
            try await store.apply(.save(["e1": "a"], onConflict: .replace), to: "user")
            try await store.apply(.override(experimentID: "e1", variationID: "forced"), to: "user")
            try await store.apply(.save(["e1": "b"], onConflict: .replace), to: "user")
            try await store.apply(
                .assign([.init(experimentID: "e1", variationID: "c", replacing: "forced")]), to: "user")
            let replaced = try await store.apply(.replace(["e1": "d", "e2": "e"]), to: "user")
            #expect(replaced.profile?.variations == ["e1": "forced", "e2": "e"])
            #expect(replaced.profile?["e1"]?.source == .override)
        },
        StoreContract("An override stays when a replacement does not name it") { context in
            try await context.store.apply(.override(experimentID: "e1", variationID: "forced"), to: "user")
            let replaced = try await context.store.apply(.replace([:]), to: "user")
            #expect(replaced.profile?.variations == ["e1": "forced"])
        },
        StoreContract("An override that is removed makes way for saves") { context in
            try await context.store.apply(.override(experimentID: "e1", variationID: "forced"), to: "user")
            let removed = try await context.store.apply(.remove(experimentID: "e1"), to: "user")
            #expect(removed.changed && removed.profile == .empty)
            let saved = try await context.store.apply(.save(["e1": "a"], onConflict: .keep), to: "user")
            #expect(saved.profile?.variations == ["e1": "a"])
        },
        StoreContract("An override can be changed by another one") { context in
            try await context.store.apply(.override(experimentID: "e1", variationID: "a"), to: "user")
            let second = try await context.store.apply(.override(experimentID: "e1", variationID: "b"), to: "user")
            let third = try await context.store.apply(.override(experimentID: "e1", variationID: "b"), to: "user")
            #expect(second.profile?.variations == ["e1": "b"])
            #expect(second.changed && !third.changed)
        },
        StoreContract("An override of the same variation keeps the time of the assignment") { context in
            let start = context.clock.now
            try await context.store.apply(.save(["e1": "a"], onConflict: .replace), to: "user")
            context.clock.advance(by: .seconds(5))
            let result = try await context.store.apply(.override(experimentID: "e1", variationID: "a"), to: "user")
            #expect(result.profile?["e1"]?.source == .override)
            #expect(result.profile?["e1"]?.assignedAt == start)
            #expect(result.profile?["e1"]?.updatedAt == start + 5_000)
        },
        StoreContract("A removed override gives back the assignment beneath, with source and times") { context in
            let store = context.store
            try await store.apply(.assign([.init(experimentID: "e", variationID: "old")]), to: "user")
            let beneath = try #require(try context.reader.profile(of: "user"))
            context.clock.advance(by: .seconds(5))
            let set = try await store.apply(.override(experimentID: "e", variationID: "new"), to: "user")
            #expect(set.profile?.variations == ["e": "new"])
            #expect(set.profile?["e"]?.layer?.beneath == beneath["e"])
            try await store.apply(.override(experimentID: "e", variationID: "newer"), to: "user")
            let removed = try await store.apply(.remove(experimentID: "e"), to: "user")
            #expect(removed.changed && removed.profile == beneath)
            #expect(try context.reader.profile(of: "user")?.bytes == beneath.bytes)
            let again = try await store.apply(.remove(experimentID: "e"), to: "user")
            #expect(again.changed && again.profile == .empty)
        },
        StoreContract("Saves change what is beneath an override, and late decisions do not") { context in
            let store = context.store
            try await store.apply(.save(["e1": "a", "e2": "a", "e3": "a"], onConflict: .replace), to: "user")
            for experiment: Identifier in ["e1", "e2", "e3", "e4"] {
                try await store.apply(.override(experimentID: experiment, variationID: "forced"), to: "user")
            }
            try await store.apply(.save(["e1": "b", "e4": "b"], onConflict: .replace), to: "user")
            try await store.apply(.save(["e1": "c", "e2": "c"], onConflict: .keep), to: "user")
            try await store.apply(.assign([.init(experimentID: "e3", variationID: "c", replacing: "a")]), to: "user")
            #expect(Set(try context.reader.variations(of: "user")?.values.map { $0 } ?? []) == ["forced"])
            for experiment: Identifier in ["e1", "e2", "e3", "e4"] {
                try await store.apply(.remove(experimentID: experiment), to: "user")
            }
            let profile = try #require(try context.reader.profile(of: "user"))
            #expect(profile.variations == ["e1": "b", "e2": "a", "e3": "a", "e4": "b"])
            #expect(profile.entries.allSatisfy { $0.source == .saved })
        },
        StoreContract("Sending back the variation of an override leaves what is beneath it") { context in
            let store = context.store
            try await store.apply(.save(["e1": "a"], onConflict: .replace), to: "user")
            let beneath = try context.reader.profile(of: "user")?["e1"]
            for experiment: Identifier in ["e1", "e2"] {
                try await store.apply(.override(experimentID: experiment, variationID: "forced"), to: "user")
            }
            let shown: ExperimentBucketMap = ["e1": "forced", "e2": "forced"]
            let saved = try await store.apply(.save(shown, onConflict: .replace), to: "user")
            let replaced = try await store.apply(.replace(shown), to: "user")
            #expect(!saved.changed && !replaced.changed)
            #expect(replaced.profile?["e1"]?.layer?.beneath == beneath)
            #expect(replaced.profile?["e2"]?.layer == nil)
        },
        StoreContract("A replacement removes what is beneath the overrides that it does not name") { context in
            let store = context.store
            try await store.apply(.save(["e1": "a", "e2": "a"], onConflict: .replace), to: "user")
            for experiment: Identifier in ["e1", "e2"] {
                try await store.apply(.override(experimentID: experiment, variationID: "forced"), to: "user")
            }
            try await store.apply(.replace(["e2": "b"]), to: "user")
            for experiment: Identifier in ["e1", "e2"] {
                try await store.apply(.remove(experimentID: experiment), to: "user")
            }
            #expect(try context.reader.variations(of: "user") == ["e2": "b"])
        },
        StoreContract("An override has its author, reason and expiry, and a repeated one changes nothing") { context in
            let (store, end) = (context.store, context.clock.now + 60_000)
            func set(_ reason: String?, _ expiresAt: Instant?, by name: String = "on-call") async throws -> Bool {
                let before = try context.reader.profile(of: "user")
                let operation = ProfileChange.Operation.override(
                    experimentID: "e", variationID: "forced", reason: reason, expiresAt: expiresAt)
                try await store.administer(operation, of: "user", by: Author(name: name))
                return try context.reader.profile(of: "user") != before
            }
            #expect(try await set("ticket 7", end))
            let override = try #require(try context.reader.profile(of: "user")?["e"])
            #expect(override.layer?.author == "on-call" && override.layer?.reason == "ticket 7")
            #expect(override.expiresAt == end && override.layer?.beneath == nil)
            #expect(try await !set("ticket 7", end, by: "another"))
            #expect(try await set("ticket 8", end, by: "another"))
            #expect(try await set("ticket 8", nil))
            #expect(try context.reader.profile(of: "user")?["e"]?.layer?.author == "on-call")
            #expect(try await store.audit().count == 3)
        },
        StoreContract("An override is gone at the moment it expires, and the assignment beneath shows") { context in
            let (store, end) = (context.store, context.clock.now + 60_000)
            try await store.apply(.save(["e1": "a"], onConflict: .replace), to: "user")
            let beneath = try context.reader.profile(of: "user")
            for experiment: Identifier in ["e1", "e2"] {
                try await store.apply(
                    .override(experimentID: experiment, variationID: "forced", expiresAt: end), to: "user")
            }
            context.clock.advance(by: .milliseconds(59_999))
            #expect(try context.reader.variations(of: "user") == ["e1": "forced", "e2": "forced"])
            context.clock.advance(by: .milliseconds(1))
            #expect(try context.reader.profile(of: "user") == beneath)
            #expect(try context.reader.page(after: nil, limit: 10).map(\.profile) == [try #require(beneath)])
            let saved = try await store.apply(.save(["e1": "b"], onConflict: .replace), to: "user")
            #expect(saved.profile?.variations == ["e1": "b"] && saved.profile?["e1"]?.source == .saved)
        },
        StoreContract(
            "Beneath an override an assignment expires and is renewed as without one",
            rules: ProfileRules(assignmentTTL: .seconds(3_600))
        ) { context in
            let store = context.store
            try await store.apply(.save(["e1": "a", "e2": "a"], onConflict: .replace), to: "user")
            for experiment: Identifier in ["e1", "e2"] {
                try await store.apply(.override(experimentID: experiment, variationID: "forced"), to: "user")
            }
            context.clock.advance(by: .seconds(3_000))
            // What the client was shown is as good as what it would have been shown.
            try await store.apply(.save(["e1": "forced"], onConflict: .replace), to: "user")
            context.clock.advance(by: .seconds(600))
            let profile = try #require(try context.reader.profile(of: "user"))
            #expect(profile.variations == ["e1": "forced", "e2": "forced"])
            #expect(profile["e1"]?.layer?.beneath?.variationID == "a" && profile["e2"]?.layer == nil)
            try await store.apply(.remove(experimentID: "e1"), to: "user")
            let removed = try await store.apply(.remove(experimentID: "e2"), to: "user")
            #expect(removed.profile?.variations == ["e1": "a"])
        },
        StoreContract("An exposure before an override expires does not count, and one after it does") { context in
            let end = context.clock.now + 60_000
            for user: Identifier in ["before", "after"] {
                try await context.store.apply(
                    .override(experimentID: "e", variationID: "a", expiresAt: end), to: user)
            }
            context.clock.advance(by: .seconds(120))
            func exposure(of user: Identifier, at time: Instant) -> UserEvent {
                .exposure(
                    Exposure(
                        userID: user, experimentID: "e", experimentKey: "k", variationID: "a", happenedAt: time,
                        isChosen: false, sdkKey: "sdk"))
            }
            _ = try await context.store.record([exposure(of: "before", at: end - 1), exposure(of: "after", at: end)])
            let tallies = try context.store.tallies(experimentID: "e", goal: "g")
            #expect(tallies.map(\.counted) == [1] && tallies.map(\.chosen) == [1])
        },
    ]

    static let restoring = [
        StoreContract("What another database had is restored with source, times and layers") { context in
            let store = context.store
            try await store.apply(.save(["e1": "a", "e2": "a"], onConflict: .replace), to: "user")
            context.clock.advance(by: .seconds(60))
            try await store.administer(
                .override(
                    experimentID: "e1", variationID: "forced", reason: "ticket 7",
                    expiresAt: context.clock.now + 3_600_000),
                of: "user", by: Author(name: "on-call"))
            let profile = try #require(try context.reader.profile(of: "user"))
            try await store.apply(.erase, to: "user")
            context.clock.advance(by: .seconds(60))
            try await store.administer(restore(profile), of: "user", by: Author(name: "importer"))
            #expect(try context.reader.profile(of: "user")?.bytes == profile.bytes)
            let entries = try await store.audit()
            #expect(entries.first?.action == "override.set" && entries.first?.author.name == "importer")
            // Restored again, nothing changes and nothing is recorded.
            try await store.administer(restore(profile), of: "user", by: Author(name: "importer"))
            #expect(try await store.audit().count == entries.count)
        },
        StoreContract("The conflict rule decides of restored overrides and of assignments beneath") { context in
            let store = context.store
            try await store.apply(
                .save(["e1": "theirs", "e2": "theirs", "e3": "theirs"], onConflict: .replace), to: "x")
            for experiment: Identifier in ["e1", "e2"] {
                try await store.apply(.override(experimentID: experiment, variationID: "forced"), to: "x")
            }
            let theirs = try #require(try context.reader.profile(of: "x"))
            for (rule, winner) in [(ProfileChange.ConflictRule.keep, "own"), (.replace, "theirs")] {
                let (user, winner) = (Identifier(winner), Identifier(winner))
                try await store.apply(.save(["e1": "own", "e2": "own", "e3": "own"], onConflict: .replace), to: user)
                try await store.apply(.override(experimentID: "e3", variationID: "own forced"), to: user)
                let restored = try await store.apply(restore(theirs, rule), to: user)
                #expect(restored.profile?.variations == ["e1": "forced", "e2": "forced", "e3": "own forced"])
                for experiment: Identifier in ["e1", "e2", "e3"] {
                    #expect(restored.profile?[experiment]?.layer?.beneath?.variationID == winner)
                }
            }
        },
        StoreContract("What has expired since is not restored") { context in
            let store = context.store
            let past = Assignment(
                variationID: "a", source: .saved, assignedAt: 1, updatedAt: 2, expiresAt: context.clock.now)
            let override = Assignment(
                variationID: "forced", source: .override, assignedAt: 3, updatedAt: 3, expiresAt: context.clock.now)
            let nothing = try await store.apply(
                .restore(["e1": past, "e2": override], saving: [:], onConflict: .replace), to: "user")
            #expect(!nothing.changed && nothing.profile == nil)
            let some = try await store.apply(
                .restore(["e1": past], saving: ["e3": "b"], onConflict: .replace), to: "user")
            #expect(some.profile?.variations == ["e3": "b"])
        },
        StoreContract("A restored override takes the user out of results") { context in
            _ = try await context.store.record([
                .exposure(
                    Exposure(
                        userID: "user", experimentID: "e", experimentKey: "k", variationID: "a",
                        happenedAt: context.clock.now, isChosen: false, sdkKey: "sdk"))
            ])
            let override = Assignment(
                variationID: "a", source: .override, assignedAt: 1, updatedAt: 1, expiresAt: nil)
            try await context.store.apply(.restore(["e": override], saving: [:], onConflict: .keep), to: "user")
            let tallies = try context.store.tallies(experimentID: "e", goal: "g")
            #expect(tallies.map(\.counted) == [0] && tallies.map(\.chosen) == [1])
        },
    ]

    private static func restore(
        _ profile: ProfileRecord, _ rule: ProfileChange.ConflictRule = .replace
    ) -> ProfileChange.Operation {
        let entries = profile.entries.map { (profile.experimentID(of: $0), profile.assignment(of: $0)) }
        return .restore(Dictionary(uniqueKeysWithValues: entries), saving: [:], onConflict: rule)
    }
}
