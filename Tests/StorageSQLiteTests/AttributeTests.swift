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
            store = try SQLiteStore.make(in: directory) { $0.retentionBatch = 3 }
            for name in ["a", "b"] { try await Self.define(name, in: store) }
        }

        private static func define(_ name: String, _ type: AttributeType = .number, in store: SQLiteStore) async throws {
            try await store.define(AttributeDefinition(name: Identifier(name), number: 0, type: type))
        }

        private static func number(_ value: Double) -> AttributeUpdate { .set(.number(value)) }

        private func number(of name: Identifier) throws -> UInt32 {
            try #require(try store.attributeSchema().attribute(name)).number
        }

        @Test("What is stored already is not written again")
        func unchanged() async throws {
            defer { store.close() }
            #expect(try await store.update([1: Self.number(1), 2: Self.number(2)], of: "user") == [1, 2])
            let commits = store.statistics().commits
            #expect(try await store.update([1: Self.number(1)], of: "user") == [])
            #expect(try await store.update([1: Self.number(1), 9: .remove], of: "user") == [])
            #expect(try await store.update([:], of: "nobody") == [])
            #expect(try await store.update([1: .remove], of: "nobody") == [])
            #expect(try await store.apply(AttributeChange(userID: "nobody", operation: .removeAll)) == [])
            #expect(store.statistics().commits == commits)
            #expect(try await store.update([1: Self.number(1), 2: Self.number(3)], of: "user") == [2])
            #expect(store.statistics().commits == commits + 1)
        }

        @Test("A definition that is the same is not written again, and a type does not change")
        func definitions() async throws {
            defer { store.close() }
            let changes = try store.projectChanges()
            let former = AttributeDefinition(name: "a", number: 1, type: .number)
            #expect(try await store.define(former) == .unchanged(former))
            #expect(try await store.define(AttributeDefinition(name: "a", number: 0, type: .string)) == .otherType(former))
            #expect(try store.projectChanges() == changes)
            let selection = { (values: [Identifier]) in
                AttributeDefinition(name: "s", number: 0, type: .selection, allowedValues: values)
            }
            try await store.define(selection(["One"]))
            try await store.define(selection(["Two", "One"]))
            #expect(try store.attributeSchema().attribute("s")?.allowedValues == ["Two", "One"])
            #expect(try store.projectChanges() == changes + 2)
        }

        @Test("Readers of all stores on the file see a change at once, from their caches too")
        func coherence() async throws {
            defer { store.close() }
            let other = try SQLiteStore.make(in: directory)
            defer { other.close() }
            let readers = [try store.makeSQLiteReader(), try other.makeSQLiteReader()]
            defer { readers.forEach { $0.close() } }
            #expect(try readers.map { try $0.attributes(of: "user") } == [nil, nil])
            for round in 0..<20 {
                let writer = round % 2 == 0 ? store : other
                try await writer.update([1: Self.number(Double(round))], of: "user")
                #expect(try readers.allSatisfy { try $0.attributes(of: "user")?[1] == .number(Double(round)) })
                #expect(try readers.allSatisfy { try $0.attributes(of: "user")?[1] == .number(Double(round)) })
            }
            #expect(readers.allSatisfy { $0.cacheStatistics.hits >= 20 })
            try await other.apply(AttributeChange(userID: "user", operation: .removeAll))
            #expect(try readers.map { try $0.attributes(of: "user") } == [nil, nil])
        }

        @Test("Erasing a user erases the attributes, whether there is a profile or not", arguments: [true, false])
        func erasing(hasProfile: Bool) async throws {
            defer { store.close() }
            if hasProfile { try await store.apply(.merge(["e": "v"], onConflict: .replace), to: "user") }
            try await store.update([1: Self.number(1)], of: "user")
            try await store.update([1: Self.number(1)], of: "other")
            try await store.apply(.erase, to: "user")
            let left = try RawDatabase(store.configuration.path).value("SELECT group_concat(user_id) FROM user_attributes")
            #expect(left == "other")
        }

        @Test("An attribute that was deleted and defined anew has none of the former values, and takes none by its number")
        func numbers() async throws {
            defer { store.close() }
            try await store.update([1: Self.number(1)], of: "user")
            #expect(try await store.removeDefinition("a"))
            #expect(try await !store.removeDefinition("a"))
            try await Self.define("a", in: store)
            let number = try number(of: "a")
            #expect(number > 2)
            #expect(try await store.update([1: Self.number(7)], of: "user") == nil)
            #expect(try await store.update([number: Self.number(7)], of: "user") == [number])
        }

        @Test("The values of a deleted attribute go in small batches, also after a restart in the middle")
        func removal() async throws {
            for user in 0..<50 {
                let updates: [UInt32: AttributeUpdate] =
                    user % 3 == 0 ? [2: Self.number(2)] : user % 3 == 1 ? [1: Self.number(1)] : [1: Self.number(1), 2: Self.number(2)]
                try await store.update(updates, of: Identifier("user\(user)"))
            }
            #expect(try await store.removeDefinition("a"))
            // Between two batches, of which there are many.
            store.close()
            let again = try SQLiteStore.make(in: directory) { $0.retentionBatch = 3 }
            defer { again.close() }
            while try RawDatabase(store.configuration.path).value("SELECT count(*) FROM attribute_removals") != "0" {
                try await again.probe()
            }
            let reader = try again.makeSQLiteReader()
            defer { reader.close() }
            for user in 0..<50 {
                let record = try reader.attributes(of: Identifier("user\(user)"))
                #expect(record?.numbers == (user % 3 == 1 ? nil : [2]))
            }
        }

        @Test("Users of a segment come in the order of their ids, from behind any user")
        func scanning() async throws {
            defer { store.close() }
            let users = (0..<40).map { "user\(100 + $0)" } + ["ä", "Z", "😀"]
            for (index, user) in users.enumerated() {
                try await store.update([1: Self.number(Double(index % 2))], of: Identifier(user))
            }
            let condition: JSONValue = ["type": "custom_attribute", "name": "a", "match": "exact", "value": 1]
            let matcher = SegmentMatcher(Segment(name: "s", conditions: condition), schema: try store.attributeSchema())
            let expected = users.enumerated().filter { $0.offset % 2 == 1 }.map { Identifier($0.element) }.sorted()
            let all = try await store.page(matcher, .users(after: nil))
            #expect(all.userIDs == expected)
            #expect(all.last == nil)
            #expect(all.examined == users.count)
            let size = try await store.page(matcher, .size)
            #expect(size.matches == expected.count)
            #expect(size.userIDs.isEmpty)
            let rest = try await store.page(matcher, .users(after: expected[20]))
            #expect(rest.userIDs == Array(expected[21...]))
        }
    }
}
