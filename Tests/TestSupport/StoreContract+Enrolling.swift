import Bucketing
import Chronology
import Storage
import Testing

extension StoreContract {
    /// An exposure that names a variation of a running experiment.
    private static func report(
        _ user: Identifier, _ variation: Identifier = "a", in experiment: Identifier = "e", at time: Instant,
        with version: Int64, isChosen: Bool = false
    ) -> UserEvent {
        .exposure(
            Exposure(
                userID: user, experimentID: experiment, experimentKey: "key of e", variationID: variation,
                happenedAt: time, isChosen: isChosen, sdkKey: "sdk", enrollsWith: version))
    }

    /// Exposures that enroll, the limit of assignments, and the memory of users who are gone.
    static let enrolling = [
        StoreContract("A reported exposure enrolls a user who has no assignment, since it happened") { context in
            let (store, now) = (context.store, context.clock.now)
            let version = try #require(try await store.activate("1")).version
            let reports = [
                report("u", at: now - 5_000, with: version), report("u", "b", at: now, with: version),
                report("v", "b", at: now, with: version), report("w", at: now, with: version, isChosen: true),
            ]
            #expect(try await store.record(reports) == [.stored, .stored, .stored, .stored])
            let enrolled = try #require(try context.reader.profile(of: "u")?["e"])
            #expect((enrolled.variationID, enrolled.source) == ("a", .saved))
            #expect((enrolled.assignedAt, enrolled.updatedAt, enrolled.expiresAt) == (now - 5_000, now, nil))
            #expect(try context.reader.variations(of: "v") == ["e": "b"])
            #expect(try context.reader.profile(of: "w") == nil)
            #expect(store.metrics().profiles == 2 && store.metrics().assignments == 2)
        },
        StoreContract("A reported exposure moves nobody, however the user got the assignment") { context in
            let (store, now) = (context.store, context.clock.now)
            let version = try #require(try await store.activate("1")).version
            try await store.apply(.save(["e": "b"], onConflict: .replace), to: "saved")
            try await store.apply(.override(experimentID: "e", variationID: "b"), to: "overridden")
            try await store.force("b", experimentKey: "key of e", userID: "forced", sdkKey: "sdk")
            for user in ["saved", "overridden", "forced"] as [Identifier] {
                let before = try context.reader.profile(of: user)
                _ = try await store.record([report(user, at: now, with: version)])
                #expect(try context.reader.profile(of: user) == before, "\(user)")
            }
        },
        StoreContract("An exposure that is known already still enrolls") { context in
            let (store, now) = (context.store, context.clock.now)
            let version = try #require(try await store.activate("1")).version
            _ = try await store.record([report("u", at: now, with: version)])
            try await store.apply(.remove(experimentID: "e"), to: "u")
            #expect(try await store.record([report("u", at: now, with: version)]) == [.repeated])
            #expect(try context.reader.variations(of: "u") == ["e": "a"])
        },
        StoreContract("A variation that was found with an older datafile enrolls nobody, and is not recorded") {
            context in
            let (store, now) = (context.store, context.clock.now)
            let old = try #require(try await store.activate("1")).version
            try await store.apply(.save(["e": "a"], onConflict: .replace), to: "takes part")
            let new = try #require(try await store.activate("2")).version
            let reports = [
                report("u", at: now, with: old), report("v", at: now, with: new),
                report("takes part", at: now, with: old),
            ]
            #expect(try await store.record(reports) == [.outdated, .stored, .stored])
            #expect(try context.reader.profile(of: "u") == nil)
            #expect(try store.exposures(after: 0, limit: 9).map(\.exposure.userID) == ["v", "takes part"])
        },
        StoreContract("An exposure enrolls nobody whose profile is full", rules: .atMostTwo) { context in
            let (store, now) = (context.store, context.clock.now)
            let version = try #require(try await store.activate("1")).version
            try await store.apply(.save(["e1": "a", "e2": "a"], onConflict: .replace), to: "u")
            #expect(try await store.record([report("u", at: now, with: version)]) == [.stored])
            #expect(try context.reader.variations(of: "u") == ["e1": "a", "e2": "a"])
        },
        StoreContract("Of several proposals those are stored that there is room for", rules: .atMostTwo) { context in
            try await context.store.apply(.save(["e1": "gone"], onConflict: .replace), to: "u")
            let result = try await context.store.apply(
                .assign([
                    .init(experimentID: "e0", variationID: "a"), .init(experimentID: "e2", variationID: "a"),
                    .init(experimentID: "e1", variationID: "a", replacing: "gone"),
                ]), to: "u")
            #expect(result.profile?.variations == ["e0": "a", "e1": "a"])
            #expect(result.refused == ["e2"])
            #expect(try context.reader.variations(of: "u") == ["e0": "a", "e1": "a"])
        },
        StoreContract("Assignments of archived experiments do not count against the limit", rules: .atMostTwo) {
            context in
            let store = context.store
            try await store.apply(.save(["e1": "a", "e2": "a"], onConflict: .replace), to: "u")
            store.rules.archived.set(["e1"])
            try await store.apply(.save(["e3": "a"], onConflict: .replace), to: "u")
            await #expect(throws: StorageError.tooManyAssignments(limit: 2)) {
                try await store.apply(.save(["e4": "a"], onConflict: .replace), to: "u")
            }
            // What is there stays when the experiment is unarchived.
            store.rules.archived.set([])
            try await store.apply(.save(["e3": "b"], onConflict: .replace), to: "u")
            #expect(try context.reader.variations(of: "u") == ["e1": "a", "e2": "a", "e3": "b"])
            await #expect(throws: StorageError.tooManyAssignments(limit: 2)) {
                try await store.apply(.override(experimentID: "e4", variationID: "a"), to: "u")
            }
        },
        StoreContract("All processes can read who was erased or merged, each by the hash of the user") { context in
            let store = context.store
            for user in ["ada", "anonymous", "ben"] as [Identifier] {
                try await store.apply(.save(["e": "a"], onConflict: .replace), to: user)
            }
            #expect(try store.removals(after: 0).isEmpty)
            try await store.apply(.erase, to: "ben")
            let first = try store.removals(after: 0)
            #expect(first.map(\.userHashes.first) == [ErasureRules.hash("ben")])
            try await store.merge("anonymous", into: "ada")
            try await store.merge("nobody", into: "ada")
            let later = Set(try store.removals(after: first[0].time)).subtracting(first)
            #expect(later.count == 2)
            for user in ["anonymous", "nobody"] as [Identifier] {
                #expect(later.contains { $0.userHashes.contains(ErasureRules.hash(user)) })
            }
            // A merged user may be used again: what waits of the user is stored.
            #expect(try await store.record([exposure("anonymous")], receivedAt: 1) == [.stored])
        },
    ]
}

extension ProfileRules {
    fileprivate static var atMostTwo: ProfileRules { ProfileRules(assignmentLimit: 2) }
}
