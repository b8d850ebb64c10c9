import Bucketing
import Chronology
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    /// The time of the file, whatever clocks its processes have.
    @Suite("One file, several clocks")
    struct SharedClockTests {
        private let directory: TemporaryDirectory
        private let rules = ProfileRules(assignmentTTL: .seconds(60))

        init() throws {
            directory = try TemporaryDirectory()
        }

        private func open(_ clock: ManualClock) throws -> SQLiteStore {
            try SQLiteStore.make(in: directory, rules: rules, clock: clock) { $0.settings.deletesOld = false }
        }

        @discardableResult
        private func save(_ variation: Identifier, _ store: SQLiteStore, of user: Identifier) async throws -> Instant? {
            try await store.apply(.save(["e": variation], onConflict: .replace), to: user).profile?["e"]?.updatedAt
        }

        @Test
        func `What has expired for one process has expired for the others`() async throws {
            let (ahead, behind) = (ManualClock(), ManualClock())
            let (first, second) = (try open(ahead), try open(behind))
            defer { first.close() }
            defer { second.close() }
            let reader = try second.makeReader()
            defer { reader.close() }
            try await save("a", first, of: "user")
            #expect(try reader.variations(of: "user") == ["e": "a"])
            ahead.advance(by: .seconds(60))
            #expect(try reader.variations(of: "user") == ["e": "a"])
            try await save("a", first, of: "other")
            #expect(try reader.profile(of: "user") == nil)
        }

        @Test
        func `A write is not before that of another process, nor of an earlier one`() async throws {
            let (ahead, behind) = (ManualClock(), ManualClock())
            ahead.advance(by: .seconds(3_600))
            let (first, second) = (try open(ahead), try open(behind))
            try await save("a", second, of: "user")
            #expect(try await save("b", first, of: "user") == ahead.now)
            #expect(try await save("c", second, of: "user") == ahead.now)
            behind.advance(by: .seconds(3_700))
            #expect(try await save("d", second, of: "user") == behind.now)
            #expect(try await save("e", first, of: "user") == behind.now)
            first.close()
            second.close()
            let last = behind.now
            behind.advance(by: .seconds(-1_000))
            let third = try open(behind)
            #expect(try await save("f", third, of: "user") == last)
            third.close()
        }

        @Test
        func `A clock that was more than a day ahead may be corrected, also while nobody has the file open`()
            async throws
        {
            let clock = ManualClock()
            let first = try open(clock)
            clock.advance(by: .seconds(400 * 86_400))
            try await save("a", first, of: "user")
            first.close()
            clock.advance(by: .seconds(-400 * 86_400))
            let (second, third) = (try open(clock), try open(clock))
            #expect(try await save("b", second, of: "user") == clock.now)
            #expect(try await save("c", third, of: "user") == clock.now)
            second.close()
            third.close()
        }
    }
}
