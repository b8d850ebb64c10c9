import Bucketing
import Chronology
import Storage
import Testing

extension StoreContract {
    static let assigning = [
        StoreContract("Of many proposals at once for one experiment exactly one is kept") { context in
            let changes = (0..<100).map { number in
                let proposal = ProfileChange.Candidate(experimentID: "e", variationID: Identifier("v\(number)"))
                return ProfileChange(userID: "user", operation: .assign([proposal]))
            }
            let results = try await context.store.applyTogether(changes).map { try $0.get() }
            let answers = Set(results.map { $0.profile?.variationID(for: "e") })
            #expect(answers == [try context.reader.profile(of: "user")?.variationID(for: "e")])
            #expect(results.filter(\.changed).count == 1)
        },
        StoreContract("A proposal does not move what was saved") { context in
            try await context.store.apply(.save(["e": "a"], onConflict: .replace), to: "user")
            let result = try await context.store.apply(
                .assign([.init(experimentID: "e", variationID: "b")]), to: "user")
            #expect(!result.changed && result.profile?.variations == ["e": "a"])
        },
        StoreContract("A proposal replaces the variation that it names, and no other") { context in
            try await context.store.apply(.save(["e": "gone"], onConflict: .replace), to: "user")
            let operation = ProfileChange.Operation.assign([
                .init(experimentID: "e", variationID: "a", replacing: "gone")
            ])
            let first = try await context.store.apply(operation, to: "user")
            #expect(first.profile?.variations == ["e": "a"])
            #expect(first.profile?["e"]?.source == .bucketed)
            let late = ProfileChange.Candidate(experimentID: "e", variationID: "b", replacing: "gone")
            let second = try await context.store.apply(.assign([late]), to: "user")
            #expect(second.profile?.variations == ["e": "a"])
        },
        StoreContract("Each of several proposals of one change is decided separately") { context in
            try await context.store.apply(.save(["e1": "a"], onConflict: .replace), to: "user")
            let proposals = ["e1", "e2"].map { ProfileChange.Candidate(experimentID: Identifier($0), variationID: "b") }
            let result = try await context.store.apply(.assign(proposals), to: "user")
            #expect(result.profile?.variations == ["e1": "a", "e2": "b"])
        },
        StoreContract("No proposals make no profile") { context in
            let result = try await context.store.apply(.assign([]), to: "user")
            #expect(!result.existed && !result.changed && result.profile == nil)
            #expect(try context.reader.profile(of: "user") == nil)
        },
    ]

    static let erasing = [
        StoreContract("Erasing leaves nothing of the user, overrides included") { context in
            try await context.store.apply(.save(["e1": "a"], onConflict: .replace), to: "user")
            try await context.store.apply(.override(experimentID: "e2", variationID: "b"), to: "user")
            let erased = try await context.store.apply(.erase, to: "user")
            #expect(erased.existed && erased.changed && erased.profile == nil)
            #expect(erased.erased?.profiles == 1 && erased.erased?.assignments == 2)
            #expect(try context.reader.profile(of: "user") == nil)
            #expect(context.store.metrics().profiles == 0)
            #expect(context.store.metrics().assignments == 0)
        },
        StoreContract("Erasing an unknown user changes nothing") { context in
            let erased = try await context.store.apply(.erase, to: "nobody")
            #expect(!erased.existed && !erased.changed && erased.erased?.isEmpty == true)
        },
        StoreContract("Removing an assignment leaves the others") { context in
            try await context.store.apply(.save(["e1": "a", "e2": "b"], onConflict: .replace), to: "user")
            let removed = try await context.store.apply(.remove(experimentID: "e1"), to: "user")
            #expect(removed.profile?.variations == ["e2": "b"])
            let again = try await context.store.apply(.remove(experimentID: "e1"), to: "user")
            #expect(again.existed && !again.changed)
        },
        StoreContract("Removing an assignment of an unknown user makes no profile") { context in
            let removed = try await context.store.apply(.remove(experimentID: "e1"), to: "nobody")
            #expect(!removed.existed && !removed.changed && removed.profile == nil)
        },
    ]

    static let expiring = [
        StoreContract("An assignment is gone at the moment it expires", rules: .expiringAfterAnHour) { context in
            try await context.store.apply(.save(["e1": "a"], onConflict: .replace), to: "user")
            context.clock.advance(by: .seconds(1_800))
            try await context.store.apply(.save(["e2": "b"], onConflict: .replace), to: "user")
            context.clock.advance(by: .milliseconds(1_800_000 - 1))
            #expect(try context.reader.variations(of: "user") == ["e1": "a", "e2": "b"])
            context.clock.advance(by: .milliseconds(1))
            #expect(try context.reader.variations(of: "user") == ["e2": "b"])
            context.clock.advance(by: .seconds(1_800))
            #expect(try context.reader.profile(of: "user") == nil)
            #expect(try context.reader.page(after: nil, limit: 10).isEmpty)
        },
        StoreContract(
            "A clock that is set back brings back nothing that has expired, unless by more than a day",
            rules: .expiringAfterAnHour
        ) { context in
            let (store, start) = (context.store, context.clock.now)
            try await store.apply(.save(["e": "a"], onConflict: .replace), to: "user")
            context.clock.advance(by: .seconds(3_600))
            #expect(try context.reader.profile(of: "user") == nil)
            context.clock.advance(by: .seconds(-3_000))
            #expect(try context.reader.profile(of: "user") == nil)
            #expect(try context.reader.page(after: nil, limit: 10).isEmpty)
            let saved = try await store.apply(.save(["f": "a"], onConflict: .replace), to: "user")
            #expect(!saved.existed && saved.profile?["f"]?.assignedAt == start + 3_600_000)
            context.clock.advance(by: .seconds(-100_000))
            let corrected = try await store.apply(.save(["g": "a"], onConflict: .replace), to: "user")
            #expect(corrected.profile?["g"]?.assignedAt == context.clock.now)
        },
        StoreContract("Saving again renews an assignment and keeps when it was made", rules: .expiringAfterAnHour) {
            context in
            let start = context.clock.now
            try await context.store.apply(.save(["e": "a"], onConflict: .replace), to: "user")
            context.clock.advance(by: .seconds(3_000))
            let renewed = try await context.store.apply(.save(["e": "a"], onConflict: .replace), to: "user")
            #expect(renewed.changed)
            #expect(renewed.profile?["e"]?.assignedAt == start)
            #expect(renewed.profile?["e"]?.expiresAt == start + 6_600_000)
        },
        StoreContract("An expired assignment does not block another one", rules: .expiringAfterAnHour) { context in
            try await context.store.apply(.save(["e": "a"], onConflict: .replace), to: "user")
            context.clock.advance(by: .seconds(3_600))
            let saved = try await context.store.apply(.save(["e": "b"], onConflict: .keep), to: "user")
            #expect(!saved.existed && saved.profile?.variations == ["e": "b"])
            #expect(try context.reader.variations(of: "user") == ["e": "b"])
        },
        StoreContract(
            "An assignment lasts as long as its experiment says, or else as long as the rules say",
            rules: ProfileRules(assignmentTTL: .seconds(3_600))
        ) { context in
            let (store, start) = (context.store, context.clock.now)
            store.rules.lifetimes.set(["long": 7_200_000, "endless": nil])
            try await store.apply(.save(["long": "a", "short": "a"], onConflict: .replace), to: "user")
            try await store.apply(.assign([.init(experimentID: "endless", variationID: "a")]), to: "user")
            context.clock.advance(by: .seconds(3_600))
            #expect(try context.reader.variations(of: "user") == ["endless": "a", "long": "a"])
            // Another lifetime holds from the next save on.
            store.rules.lifetimes.set(["long": nil, "endless": 1_000])
            #expect(try context.reader.profile(of: "user")?["long"]?.expiresAt == start + 7_200_000)
            let saved = try await store.apply(.save(["endless": "a"], onConflict: .replace), to: "user")
            #expect(saved.profile?["endless"]?.expiresAt == start + 3_601_000)
            // Who takes it over has it as long as whoever saves it.
            try await store.merge("user", into: "account")
            context.clock.advance(by: .seconds(1_000_000))
            #expect(try context.reader.variations(of: "account") == ["long": "a"])
        },
        StoreContract("An override never expires", rules: .expiringAfterAnHour) { context in
            try await context.store.apply(.save(["e1": "a", "e2": "b"], onConflict: .replace), to: "user")
            try await context.store.apply(.override(experimentID: "e1", variationID: "forced"), to: "user")
            context.clock.advance(by: .seconds(1_000_000))
            #expect(try context.reader.variations(of: "user") == ["e1": "forced"])
        },
    ]
}

extension ProfileRules {
    fileprivate static var expiringAfterAnHour: ProfileRules { ProfileRules(assignmentTTL: .seconds(3_600)) }
}
