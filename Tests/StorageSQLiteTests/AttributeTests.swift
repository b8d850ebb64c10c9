import Bucketing
import JSON
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    @Suite("Attributes and segments")
    struct AttributeTests {
        private let directory: TemporaryDirectory
        private let store: SQLiteStore

        init() async throws {
            directory = try TemporaryDirectory()
            store = try SQLiteStore.make(in: directory) { $0.settings.retentionBatch = 3 }
            for name in ["a", "b"] { try await Self.define(name, in: store) }
        }

        private static func define(_ name: String, _ type: AttributeType = .number, in store: SQLiteStore) async throws
        {
            try await store.define(AttributeDefinition(name: Identifier(name), number: 0, type: type))
        }

        private static func number(_ value: Double) -> AttributeUpdate { .set(.number(value)) }

        @Test
        func `Readers of all stores on the file see a change at once, also from their caches`() async throws {
            defer { store.close() }
            let other = try SQLiteStore.make(in: directory)
            defer { other.close() }
            let readers = [try store.makeReader(), try other.makeReader()]
            defer { readers.forEach { $0.close() } }
            #expect(try readers.map { try $0.attributes(of: "user") } == [nil, nil])
            for round in 0..<20 {
                let writer = round % 2 == 0 ? store : other
                try await writer.update([1: Self.number(Double(round))], of: "user")
                #expect(try readers.allSatisfy { try $0.attributes(of: "user")?[1] == .number(Double(round)) })
                #expect(try readers.allSatisfy { try $0.attributes(of: "user")?[1] == .number(Double(round)) })
            }
            #expect(readers.allSatisfy { $0.cacheMetrics.hits >= 20 })
            try await other.apply(AttributeChange(userID: "user", operation: .removeAll))
            #expect(try readers.map { try $0.attributes(of: "user") } == [nil, nil])
        }

        @Test(arguments: [true, false])
        func `Erasing a user deletes the row, whether there is a profile or not`(hasProfile: Bool) async throws {
            defer { store.close() }
            if hasProfile { try await store.apply(.save(["e": "v"], onConflict: .replace), to: "user") }
            try await store.update([1: Self.number(1)], of: "user")
            try await store.update([1: Self.number(1)], of: "other")
            try await store.apply(.erase, to: "user")
            let left = try RawDatabase(store.configuration.path).value(
                "SELECT group_concat(user_id) FROM user_attributes")
            #expect(left == "other")
        }

        @Test
        func `The values of a deleted attribute are deleted in small batches, also after a restart`() async throws {
            for user in 0..<50 {
                let updates: [UInt32: AttributeUpdate] =
                    user % 3 == 0
                    ? [2: Self.number(2)]
                    : user % 3 == 1 ? [1: Self.number(1)] : [1: Self.number(1), 2: Self.number(2)]
                try await store.update(updates, of: Identifier("user\(user)"))
            }
            #expect(try await store.removeDefinition("a"))
            // Most likely between two batches.
            store.close()
            let again = try SQLiteStore.make(in: directory) { $0.settings.retentionBatch = 3 }
            defer { again.close() }
            while try RawDatabase(store.configuration.path).value("SELECT count(*) FROM attribute_removals") != "0" {
                try await again.probe()
            }
            let reader = try again.makeReader()
            defer { reader.close() }
            for user in 0..<50 {
                let record = try reader.attributes(of: Identifier("user\(user)"))
                #expect(record?.numbers == (user % 3 == 1 ? nil : [2]))
            }
        }

    }
}
