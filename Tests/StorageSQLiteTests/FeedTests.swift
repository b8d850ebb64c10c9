import Bucketing
import Chronology
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    @Suite("Feed")
    struct FeedTests {
        private let directory: TemporaryDirectory

        init() throws {
            directory = try TemporaryDirectory()
        }

        private func eventually(_ condition: () throws -> Bool) throws {
            let deadline = ContinuousClock.now + .seconds(60)
            while try !condition() {
                guard ContinuousClock.now < deadline else { throw NotInTime() }
            }
        }

        private struct NotInTime: Error {}

        @Test
        func `Old rows are deleted by age and by size, and a cursor before them is noticed`() async throws {
            let clock = ManualClock()
            let store = try SQLiteStore.make(in: directory, clock: clock) {
                $0.settings.feed = .kept(for: .minutes(1), bytes: 400)
                $0.settings.retentionInterval = 0.01
            }
            defer { store.close() }
            func save(_ user: Int) async throws {
                try await store.apply(.save(["e": "v"], onConflict: .replace), to: Identifier("user\(user)"))
            }
            let before = try store.read(.feed(from: 1, limit: 0)).next
            for user in 0..<40 { try await save(user) }
            try eventually { try store.read(.feed(from: 1, limit: 100)).start > 1 }
            // The metrics are those of the last sweep, which may have come before the last saves.
            try eventually {
                try store.read(.feed(from: 1, limit: 100)).rows.reduce(0) { $0 + $1.entries.count } <= 400
            }
            try eventually { store.metrics().feed.bytes <= 400 && store.metrics().feed.rows > 0 }
            let page = try store.read(.feed(from: 1, limit: 100))
            #expect(!page.has(before) && page.has(page.next))
            #expect(page.rows.first?.number == page.start && page.rows.last?.number == page.end)
            #expect(page.rows.reduce(0) { $0 + $1.entries.count } <= 400)

            clock.advance(by: .seconds(61))
            try eventually { try store.read(.feed(from: 1, limit: 100)).rows.isEmpty }
            try await save(41)
            let later = try store.read(.feed(from: page.next.number, limit: 100))
            #expect(later.has(page.next) && later.rows.count == 1)
        }

        @Test
        func `What was erased is overwritten in the file, also of merged users`() async throws {
            let store = try SQLiteStore.make(in: directory) { $0.settings.retentionInterval = 0.01 }
            defer { store.close() }
            for user: Identifier in ["first", "anonymous", "other"] {
                for number in 0..<100 {
                    try await store.apply(
                        .save([Identifier("e\(number)"): Identifier("secret\(user)")], onConflict: .replace), to: user)
                }
            }
            try await store.merge("anonymous", into: "account")
            try await store.apply(.erase, to: "first")
            try await store.apply(.erase, to: "account")
            let raw = try RawDatabase(directory.file("holdfast.db"))
            func count(_ text: String) throws -> String {
                try raw.value("SELECT count(*) FROM feed WHERE instr(entries, CAST('\(text)' AS BLOB)) > 0")
            }
            try eventually { try raw.value("SELECT count(*) FROM feed_removals WHERE account_hash IS NULL") == "0" }
            #expect(try count("secretfirst") == "0")
            #expect(try count("secretanonymous") == "0")
            #expect(try count("secretother") == "100")
            #expect(try store.feed().filter { $0 != "-" }.count == 100 + 3)
        }

        @Test
        func `Without a feed nothing is written, and a new one is another`() async throws {
            func epoch(_ mode: FeedMode, _ body: (SQLiteStore) async throws -> Void = { _ in }) async throws -> Int64 {
                let store = try SQLiteStore.make(in: directory) { $0.settings.feed = mode }
                defer { store.close() }
                try await body(store)
                return try store.read(.feed(from: 1, limit: 10)).epoch
            }
            let first = try await epoch(.standard)
            #expect(try await epoch(.asStored) == first && first > 0)
            let none = try await epoch(.off) { store in
                try await store.apply(.save(["e": "v"], onConflict: .replace), to: "u")
                #expect(try store.feed().isEmpty)
            }
            #expect(try await epoch(.asStored) == 0 && none == 0)
            let second = try await epoch(.standard)
            #expect(second > 0 && second != first)
        }

        @Test
        func `Two processes write one feed`() async throws {
            let (one, other) = (try SQLiteStore.make(in: directory), try SQLiteStore.make(in: directory))
            defer { one.close() }
            defer { other.close() }
            for number in 0..<30 {
                let store = number.isMultiple(of: 2) ? one : other
                try await store.apply(
                    .save(["e": Identifier("v\(number)")], onConflict: .replace), to: Identifier("u\(number % 7)"))
            }
            for store in [one, other] {
                var model = FeedModel()
                try model.follow(store)
                try model.expect(equals: store)
            }
        }
    }
}
