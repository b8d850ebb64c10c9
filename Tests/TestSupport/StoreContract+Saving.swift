import Bucketing
import Storage
import Testing

extension StoreContract {
    static let saving = [
        StoreContract("A profile that was never saved is nil") { context in
            let profile = try context.reader.profile(of: "nobody")
            #expect(profile == nil)
        },
        StoreContract("A merge keeps the experiments it does not name") { context in
            let first = try await context.store.apply(.save(["e1": "a", "e2": "b"], onConflict: .replace), to: "user")
            let second = try await context.store.apply(
                .save(["e2": "c", "e3": "d"], onConflict: .replace), to: "user")
            #expect(!first.existed && second.existed && second.changed)
            #expect(second.profile?.variations == ["e1": "a", "e2": "c", "e3": "d"])
            #expect(try context.reader.variations(of: "user") == ["e1": "a", "e2": "c", "e3": "d"])
        },
        StoreContract("Merges of different experiments submitted at once are all kept") { context in
            let expected = Dictionary(
                uniqueKeysWithValues: (0..<200).map { (Identifier("e\($0)"), Identifier("v\($0)")) })
            let changes = expected.map { experimentID, variationID in
                ProfileChange(userID: "user", operation: .save([experimentID: variationID], onConflict: .replace))
            }
            for result in await context.store.applyTogether(changes) {
                _ = try result.get()
            }
            #expect(try context.reader.variations(of: "user") == expected)
        },
        StoreContract("A merge that keeps stores only what is missing") { context in
            try await context.store.apply(.save(["e1": "a"], onConflict: .replace), to: "user")
            let kept = try await context.store.apply(.save(["e1": "b", "e2": "c"], onConflict: .keep), to: "user")
            #expect(kept.profile?.variations == ["e1": "a", "e2": "c"])
        },
        StoreContract("A replacement removes the experiments it does not name") { context in
            try await context.store.apply(.save(["e1": "a", "e2": "b"], onConflict: .replace), to: "user")
            let replaced = try await context.store.apply(.replace(["e2": "b", "e3": "c"]), to: "user")
            #expect(replaced.profile?.variations == ["e2": "b", "e3": "c"])
            #expect(try context.reader.variations(of: "user") == ["e2": "b", "e3": "c"])
        },
        StoreContract("A profile replaced by an empty map exists and is empty") { context in
            try await context.store.apply(.replace(["e1": "a"]), to: "user")
            try await context.store.apply(.replace([:]), to: "user")
            #expect(try context.reader.profile(of: "user") == .empty)
            let again = try await context.store.apply(.replace([:]), to: "user")
            #expect(again.existed && !again.changed)
        },
        StoreContract("Saving what is stored already changes nothing") { context in
            try await context.store.apply(.save(["e1": "a"], onConflict: .replace), to: "user")
            let before = try context.reader.profile(of: "user")
            context.clock.advance(by: .seconds(5))
            let again = try await context.store.apply(.save(["e1": "a"], onConflict: .replace), to: "user")
            #expect(again.existed && !again.changed)
            #expect(again.profile == before)
            #expect(try context.reader.profile(of: "user") == before)
        },
        StoreContract("Each assignment has the times at which it was made and saved") { context in
            let start = context.clock.now
            try await context.store.apply(.save(["e1": "a"], onConflict: .replace), to: "user")
            context.clock.advance(by: .seconds(5))
            let result = try await context.store.apply(
                .save(["e1": "b", "e2": "c"], onConflict: .replace), to: "user")
            let assignment = result.profile?["e1"]
            #expect(assignment?.source == .saved)
            #expect(assignment?.assignedAt == start + 5_000)
            #expect(assignment?.updatedAt == start + 5_000)
            #expect(assignment?.expiresAt == nil)
        },
    ]
}
