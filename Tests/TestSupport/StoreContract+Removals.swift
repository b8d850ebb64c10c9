import Bucketing
import Chronology
import JSON
import Storage
import Testing

/// Events that an edge has accepted before their user was erased, or became part of another, and that arrive later.
extension StoreContract {
    private static let admin = Author(name: "on-call")

    /// - Parameter time: when an edge has accepted it.
    private static func goal(_ user: Identifier, _ id: Identifier, at time: Instant) -> UserEvent {
        var event = GoalEvent(userID: user, goal: "g", value: 1, happenedAt: time, receivedAt: time, senderID: id)
        event.acceptedAt = time
        return .goal(event)
    }

    private static func exposure(_ user: Identifier, at time: Instant) -> UserEvent {
        var exposure = Exposure(
            userID: user, experimentID: "e", experimentKey: "key", variationID: "v", happenedAt: time, isChosen: false,
            sdkKey: "key")
        exposure.acceptedAt = time
        return .exposure(exposure)
    }

    /// What has become of what was accepted of a user at a time: of whom it is, or that it is erased.
    private static func fate(_ user: Identifier, at time: Instant, _ context: Context) throws -> String {
        let removals = try context.store.read(.removedUsers([user, "nobody"]))
        #expect(removals.allSatisfy { $0.userHash == ErasureRules.hash(user) })
        guard let removal = RemovedUser.first(since: time, of: removals) else { return "present" }
        return removal.account?.string ?? "erased"
    }

    public static let removals = [
        StoreContract("What was accepted before an erasure is not stored after it, and what came later is") { context in
            let (store, clock) = (context.store, context.clock)
            let before = clock.now
            clock.advance(by: .seconds(1))
            // Also of a user of whom nothing was known.
            for user: Identifier in ["known", "unknown"] {
                if user == "known" { _ = try await store.record([exposure(user, at: before)]) }
                try await store.administer(.erase, of: user, by: admin)
                let erased = clock.now
                #expect(try fate(user, at: before, context) == "erased")
                #expect(try fate(user, at: erased + 1, context) == "present")
                clock.advance(by: .seconds(60))
                #expect(
                    try await store.record([
                        exposure(user, at: before), goal(user, "1", at: erased), goal(user, "2", at: erased + 1),
                    ]) == [.removed, .removed, .stored])
                #expect(try store.goalEvents(of: user, limit: 9).map(\.event.senderID) == ["2"])
                #expect(try store.exposures(of: user, limit: 9).isEmpty)
                // Those of no edge are not concerned.
                var late = GoalEvent(userID: user, goal: "g", value: 1, happenedAt: before, receivedAt: before)
                late.senderID = "3"
                #expect(try await store.record([.goal(late)]) == [.stored])
                try await store.administer(.erase, of: user, by: admin)
                #expect(try fate(user, at: erased + 1, context) == "erased")
                clock.advance(by: .seconds(60))
            }
        },
        StoreContract("What was accepted before a merge is the account's, also if nothing was known of the user") {
            context in
            let (store, clock) = (context.store, context.clock)
            let before = clock.now
            clock.advance(by: .seconds(1))
            #expect(try await !store.merge("anonymous", into: "account").changed)
            #expect(try await store.audit().isEmpty)
            #expect(try context.reader.profile(of: "account") == nil)
            let merged = clock.now
            clock.advance(by: .seconds(60))
            #expect(try fate("anonymous", at: before, context) == "account")
            #expect(
                try await store.record([goal("anonymous", "1", at: merged), exposure("anonymous", at: merged + 1)])
                    == [.removed, .stored])
            #expect(
                try await store.record([goal("anonymous", "1", at: merged).moved(to: "account")]) == [.stored])
            try await store.merge("anonymous", into: "account")
            #expect(try fate("anonymous", at: merged + 1, context) == "account")
            #expect(try store.read(.removedUsers(["anonymous"])).count == 1)
            // Another account on the same device: each has what was accepted before its login.
            let second = clock.now
            clock.advance(by: .seconds(60))
            try await store.merge("anonymous", into: "other")
            #expect(try fate("anonymous", at: second, context) == "account")
            #expect(try fate("anonymous", at: second + 1, context) == "other")
        },
        StoreContract("What was accepted of a user follows the account into another, and is erased with it") {
            context in
            let (store, clock) = (context.store, context.clock)
            let before = clock.now
            clock.advance(by: .seconds(1))
            _ = try await store.record([exposure("anonymous", at: before)])
            try await store.merge("anonymous", into: "account")
            clock.advance(by: .seconds(1))
            try await store.merge("account", into: "main")
            #expect(try fate("anonymous", at: before, context) == "main")
            #expect(try fate("account", at: before, context) == "main")
            clock.advance(by: .seconds(1))
            try await store.administer(.erase, of: "main", by: admin)
            for user: Identifier in ["anonymous", "account", "main"] {
                #expect(try fate(user, at: before, context) == "erased")
                #expect(try fate(user, at: clock.now + 1, context) == "present")
            }
        },
        StoreContract("The id of an erased anonymous user is in no entry of the audit log") { context in
            let store = context.store
            for anonymous: Identifier in ["first", "second"] {
                try await store.apply(.save(["e": "v"], onConflict: .replace), to: anonymous)
                try await store.merge(anonymous, into: "account")
            }
            func merges() async throws -> [JSONObject] {
                try await store.audit().filter { $0.action == AuditAction.profileMerge.rawValue }.map {
                    try #require(try JSONParser().parse($0.after ?? []).object)
                }
            }
            #expect(try await merges().map { $0["from"] } == ["second", "first"])
            let erased = try await store.administer(.erase, of: "first", by: admin).erased
            #expect(erased?.auditEntries == 1)
            let found = try await merges()
            #expect(found.map { $0["from"] } == ["second", .null] && found[1]["on_conflict"] == "keep")
            #expect(try await store.audit().first?.action == AuditAction.profileErase.rawValue)
            #expect(try await store.administer(.erase, of: "first", by: admin).erased?.isEmpty == true)
            // With the account goes the rest.
            try await store.administer(.erase, of: "account", by: admin)
            #expect(try await store.audit().allSatisfy { $0.action == "profile.erase" || $0.after == nil })
        },
    ]
}
