import Bucketing
import Dispatch
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    /// Two stores on one file stand for two processes.
    @Suite("Merging users, with two stores")
    struct MergeTests {
        private let directory: TemporaryDirectory
        private let store: SQLiteStore
        private let other: SQLiteStore

        init() throws {
            directory = try TemporaryDirectory()
            store = try SQLiteStore.make(in: directory)
            other = try SQLiteStore.make(in: directory)
        }

        @Test
        func `Caches and filters of all processes follow a merge`() async throws {
            defer { store.close() }
            defer { other.close() }
            let readers = [try store.makeReader(), try other.makeReader()]
            defer { for reader in readers { reader.close() } }
            for number in 0..<20 {
                let (anonymous, account) = (Identifier("anonymous \(number)"), Identifier("account \(number)"))
                try await store.apply(.save(["e": "theirs"], onConflict: .replace), to: anonymous)
                for reader in readers {
                    #expect(try reader.variations(of: anonymous) == ["e": "theirs"])
                    #expect(try reader.profile(of: account) == nil)
                }
                try await (number % 2 == 0 ? store : other).merge(anonymous, into: account)
                for reader in readers {
                    #expect(try reader.profile(of: anonymous) == nil)
                    #expect(try reader.variations(of: account) == ["e": "theirs"])
                }
            }
        }

        @Test
        func
            `What another process had received for the anonymous user is stored after the merge, and joins the next one`()
            async throws
        {
            defer { store.close() }
            defer { other.close() }
            let received = DispatchTime.now().uptimeNanoseconds
            let events = [StoreContract.exposure("anonymous"), StoreContract.goal("anonymous", 5)]
            try await store.apply(.save(["e": "a"], onConflict: .replace), to: "anonymous")
            try await other.merge("anonymous", into: "account")
            _ = try await store.record(events, receivedAt: received)
            try await store.apply(.save(["f": "late"], onConflict: .replace), to: "anonymous")
            let merged = try await other.merge("anonymous", into: "account")
            #expect(merged.profile?.variations == ["e": "a", "f": "late"])
            let tally = try #require(try store.tallies(experimentID: "e", goal: "g").first)
            #expect((tally.counted, tally.goal.y.value) == (1, 5))
        }

        @Test
        func `Totals of goal events that retention has deleted stay`() async throws {
            defer { store.close() }
            defer { other.close() }
            _ = try await store.record([
                StoreContract.exposure("account", at: 10), StoreContract.goal("account", 1, at: 5),
                StoreContract.goal("account", 2, at: 20), StoreContract.exposure("anonymous", at: 30),
                StoreContract.goal("anonymous", 4, at: 25), StoreContract.goal("anonymous", 8, at: 40),
            ])
            try RawDatabase(directory.file("holdfast.db")).execute("DELETE FROM goal_events")
            _ = try await store.record([
                StoreContract.goal("anonymous", 16, at: 27), StoreContract.goal("anonymous", 32, at: 50),
                StoreContract.goal("account", 64, at: 60),
            ])
            try await store.merge("anonymous", into: "account")
            let goal = try #require(try store.tallies(experimentID: "e", goal: "g").first).goal
            // All but the deleted one before the later exposure: nobody knows whether it was before the first one.
            #expect((goal.x.value, goal.y.value, goal.events) == (1, 2 + 8 + 16 + 32 + 64, 5))
            try await store.apply(.erase, to: "account")
            #expect(try store.tallies(experimentID: "e", goal: "g").allSatisfy { $0.goal == GoalTally() })
        }

        @Test
        func `The value of an attribute that is being deleted does not move to a user whose values are gone already`()
            async throws
        {
            defer { store.close() }
            defer { other.close() }
            let defined = try await store.define(AttributeDefinition(name: "a", number: 0, type: .number))
            guard case .created(let definition) = defined else { return #expect(Bool(false)) }
            try await store.update([definition.number: .set(.number(1))], of: "anonymous")
            try RawDatabase(directory.file("holdfast.db")).execute("DELETE FROM attributes")
            try await store.merge("anonymous", into: "account")
            #expect(try RawDatabase(directory.file("holdfast.db")).value("SELECT count(*) FROM user_attributes") == "0")
        }

        @Test
        func `A damaged profile on either side is reported, and nothing changes`() async throws {
            defer { store.close() }
            defer { other.close() }
            for (broken, whole) in [("account", "anonymous"), ("anonymous", "account")] as [(Identifier, Identifier)] {
                try await store.apply(.save(["e": "v"], onConflict: .replace), to: broken)
                try await store.apply(.save(["e": "v"], onConflict: .replace), to: whole)
                try RawDatabase(directory.file("holdfast.db")).execute(
                    "UPDATE profiles SET record = x'01' WHERE user_id = '\(broken)'")
                await #expect(throws: StorageError.self) { try await store.merge("anonymous", into: "account") }
                let reader = try store.makeReader()
                #expect(try reader.variations(of: whole) == ["e": "v"])
                reader.close()
                for user in [broken, whole] { try await store.apply(.erase, to: user) }
            }
        }
    }
}
