import Bucketing
import Dispatch
import Storage
import Synchronization
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    /// Two stores on one file stand for two processes, one of which erases what the other has waiting.
    @Suite("Erasing users, with two stores")
    struct ErasureTests {
        private let directory: TemporaryDirectory
        private let store: SQLiteStore

        init() throws {
            directory = try TemporaryDirectory()
            store = try SQLiteStore.make(in: directory)
        }

        private static func exposure(of user: Identifier) -> UserEvent {
            .exposure(
                Exposure(
                    userID: user, experimentID: "e", experimentKey: "k", variationID: "a", happenedAt: 1_000,
                    isChosen: false,
                    sdkKey: ""))
        }

        private static func goal(of user: Identifier) -> UserEvent {
            .goal(GoalEvent(userID: user, goal: "g", value: 1, happenedAt: 2_000, receivedAt: 2_000))
        }

        private static func now() -> UInt64 { DispatchTime.now().uptimeNanoseconds }

        @Test
        func `Events received before the erasure are not stored after it, and those received later are`() async throws {
            let other = try SQLiteStore.make(in: directory)
            defer { store.close() }
            defer { other.close() }
            let events = [Self.exposure(of: "user"), Self.goal(of: "user")]
            let received = Self.now()
            _ = try await store.record(events)
            try await other.apply(.erase, to: "user")
            // Another commit in between makes no difference.
            try await store.apply(.replace([:]), to: "another")
            #expect(try await store.record(events + [Self.exposure(of: "another")], receivedAt: received).count == 3)
            #expect(try store.exposures(after: 0, limit: 10).map(\.exposure.userID) == ["another"])
            #expect(try store.goalEvents(after: 0, limit: 10).isEmpty)
            #expect(try store.tallies(experimentID: "e", goal: "g").map(\.counted) == [1])

            _ = try await store.record(events)
            #expect(try store.exposures(after: 0, limit: 10).map(\.exposure.userID) == ["another", "user"])
            #expect(try store.goalEvents(after: 0, limit: 10).map(\.event.userID) == ["user"])
        }

        @Test
        func `Events are dropped even if nothing was stored of the user before the erasure`() async throws {
            let other = try SQLiteStore.make(in: directory)
            defer { store.close() }
            defer { other.close() }
            let received = Self.now()
            try await other.apply(.erase, to: "user")
            _ = try await store.record([Self.exposure(of: "user")], receivedAt: received)
            #expect(try store.exposures(after: 0, limit: 10).isEmpty)
        }

        @Test
        func `Changes that waited in another process are refused, and may be retried`() async throws {
            defer { store.close() }
            // Its queue is blocked while it reports a change, after the commit and without a lock.
            let held = try SQLiteStore.make(in: directory)
            defer { held.close() }
            let executor = HeldExecutor()
            let session = try held.makeSQLiteSession(on: executor)
            session.submit(ProfileChange(userID: "first", operation: .replace([:]))) { _ in }
            while !executor.isHeld.load(ordering: .sequentiallyConsistent) { await Task.yield() }
            let changes = held.submitTogether([
                ProfileChange(userID: "user", operation: .replace(["e": "v"])),
                ProfileChange(userID: "user", operation: .assign([.init(experimentID: "e", variationID: "v")])),
                ProfileChange(userID: "user", operation: .erase),
                ProfileChange(userID: "another", operation: .replace(["e": "v"])),
            ])
            try await store.apply(.erase, to: "user")
            executor.release.signal()
            let results = await changes.results()
            for result in results.prefix(2) { #expect(throws: StorageError.erased) { try result.get() } }
            for result in results.suffix(2) { #expect(throws: Never.self) { try result.get() } }
            let reader = try store.makeReader()
            defer { reader.close() }
            #expect(try reader.profile(of: "user") == nil)
            #expect(try reader.variations(of: "another") == ["e": "v"])
            try await held.apply(.replace(["e": "w"]), to: "user")
            #expect(try reader.variations(of: "user") == ["e": "w"])
        }

        @Test
        func `An erasure is remembered for an hour, and not at all from before the machine was restarted`() async throws
        {
            let other = try SQLiteStore.make(in: directory) { $0.settings.retentionInterval = 0.01 }
            defer { store.close() }
            defer { other.close() }
            let raw = try RawDatabase(directory.file("holdfast.db"))
            let received = Self.now()
            try await other.apply(.erase, to: "user")
            #expect(try raw.value("SELECT count(*) FROM erasures") == "1")
            try raw.execute("UPDATE erasures SET erased_at = 9223372036854775807")
            _ = try await store.record([Self.exposure(of: "user")], receivedAt: received)
            #expect(try store.exposures(after: 0, limit: 10).count == 1)
            let deadline = ContinuousClock.now + .seconds(60)
            while try raw.value("SELECT count(*) FROM erasures") != "0", .now < deadline { await Task.yield() }
            #expect(try raw.value("SELECT count(*) FROM erasures") == "0")
        }
    }
}

/// An executor to which nothing can be submitted until it is released.
private final class HeldExecutor: StoreExecutor {
    let isHeld = Atomic(false)
    let release = DispatchSemaphore(value: 0)

    func submit(_ work: @escaping @Sendable () -> Void) -> Bool {
        isHeld.store(true, ordering: .sequentiallyConsistent)
        release.wait()
        work()
        return true
    }
}
