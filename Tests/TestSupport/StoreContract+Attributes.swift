import Bucketing
import JSON
public import Storage
import Testing

extension StoreContract {
    private static func number(_ value: Double) -> AttributeUpdate { .set(.number(value)) }

    /// A case whose schema has the attributes a and b with the numbers 1 and 2.
    private static func withAttributes(
        _ fact: String, body: @escaping @Sendable (Context) async throws -> Void
    ) -> StoreContract {
        StoreContract(fact) { context async throws in
            for name: Identifier in ["a", "b"] {
                try await context.store.define(AttributeDefinition(name: name, number: 0, type: .number))
            }
            try await body(context)
        }
    }

    public static let attributes = [
        withAttributes("Attributes that are stored already are not written again") { context async throws in
            let store = context.store
            #expect(try await store.update([1: number(1), 2: number(2)], of: "user") == [1, 2])
            let commits = store.metrics().commits
            #expect(try await store.update([1: number(1)], of: "user") == [])
            #expect(try await store.update([1: number(1), 9: .remove], of: "user") == [])
            #expect(try await store.update([:], of: "nobody") == [])
            #expect(try await store.update([1: .remove], of: "nobody") == [])
            #expect(try await store.apply(AttributeChange(userID: "nobody", operation: .removeAll)) == [])
            #expect(store.metrics().commits == commits)
            #expect(try await store.update([1: number(1), 2: number(3)], of: "user") == [2])
            #expect(store.metrics().commits == commits + 1)
        },
        withAttributes("A definition that is the same is not written again, and a type does not change") {
            context async throws in
            let store = context.store
            let changes = try store.projectChanges()
            let former = AttributeDefinition(name: "a", number: 1, type: .number)
            #expect(try await store.define(former) == .unchanged(former))
            #expect(
                try await store.define(AttributeDefinition(name: "a", number: 0, type: .string)) == .otherType(former))
            #expect(try store.projectChanges() == changes)
            let selection = { (values: [Identifier]) in
                AttributeDefinition(name: "s", number: 0, type: .selection, allowedValues: values)
            }
            try await store.define(selection(["One"]))
            try await store.define(selection(["Two", "One"]))
            #expect(try store.attributeSchema().attribute("s")?.allowedValues == ["Two", "One"])
            #expect(try store.projectChanges() == changes + 2)
        },
        withAttributes("Attributes and segments are stored with a datafile, or nothing is") { context async throws in
            let store = context.store
            var schema = SchemaChange()
            for name: Identifier in ["c", "d"] {
                schema.attributes.append(AttributeDefinition(name: name, number: 0, type: .string))
            }
            schema.segments = [Segment(name: "s", conditions: ["name": "c", "value": "x"])]
            let first = try #require(try await store.activate("1", schema: schema))
            let stored = try store.attributeSchema()
            #expect(stored.segments["s"]?.conditions == schema.segments[0].conditions)
            #expect(["c", "d"].map { stored.attribute($0)?.number } == [3, 4])
            schema.attributes = [AttributeDefinition(name: "e", number: 0, type: .string)]
            schema.segments = [Segment(name: "t", conditions: ["name": "e", "value": "x"])]
            let conflicting = AttributeDefinition(name: "a", number: 0, type: .string)
            schema.attributes.append(conflicting)
            #expect(try await store.activate("2", schema: schema) == nil)
            #expect(try await !store.write(.putSchema(schema, by: .processUser)))
            #expect(try store.attributeSchema().attribute("e") == nil && store.attributeSchema().segments["t"] == nil)
            schema.attributes.removeLast()
            #expect(try await store.write(.putSchema(schema, by: .processUser)))
            #expect(try store.attributeSchema().attribute("e")?.number == 5)
            let second = try #require(try await store.activate("2", replacing: first.version))
            #expect(second.version > first.version)
        },
        withAttributes("A reader sees each change of attributes once it is acknowledged") { context async throws in
            #expect(try context.reader.attributes(of: "user") == nil)
            for round in 0..<20 {
                try await context.store.update([1: number(Double(round))], of: "user")
                #expect(try context.reader.attributes(of: "user")?[1] == .number(Double(round)))
            }
            try await context.store.apply(AttributeChange(userID: "user", operation: .removeAll))
            #expect(try context.reader.attributes(of: "user") == nil)
        },
        withAttributes("Erasing a user erases the attributes, whether there is a profile or not") {
            context async throws in
            let store = context.store
            for hasProfile in [true, false] {
                if hasProfile { try await store.apply(.save(["e": "v"], onConflict: .replace), to: "user") }
                try await store.update([1: number(1)], of: "user")
                try await store.update([1: number(1)], of: "other")
                try await store.apply(.erase, to: "user")
                #expect(try context.reader.attributes(of: "user") == nil)
                #expect(try context.reader.attributes(of: "other")?[1] == .number(1))
            }
        },
        withAttributes(
            "An attribute that was deleted and defined again has no former values, and none are set by its old number"
        ) {
            context async throws in
            let store = context.store
            try await store.update([1: number(1)], of: "user")
            #expect(try await store.removeDefinition("a"))
            #expect(try await !store.removeDefinition("a"))
            try await store.define(AttributeDefinition(name: "a", number: 0, type: .number))
            let new = try #require(try store.attributeSchema().attribute("a")).number
            #expect(new > 2)
            #expect(try await store.update([1: number(7)], of: "user") == nil)
            #expect(try await store.update([new: number(7)], of: "user") == [new])
        },
        withAttributes("Users of a segment come in the order of their ids, after any user") { context async throws in
            let store = context.store
            let users = (0..<40).map { "user\(100 + $0)" } + ["ä", "Z", "😀"]
            for (index, user) in users.enumerated() {
                try await store.update([1: number(Double(index % 2))], of: Identifier(user))
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
        },
        withAttributes("Changes of attributes submitted as one are made in order, each with a result of its own") {
            context async throws in
            let store = context.store
            let changes = [
                AttributeChange(userID: "user", operation: .update([1: number(1)])),
                AttributeChange(userID: "user", operation: .update([7: number(1)])),
                AttributeChange(userID: "user", operation: .update([1: number(1), 2: number(2)])),
            ]
            let results = try await store.applyAsOne(changes)
            #expect(
                try results.map { try $0.get() } == [.applied(changed: [1]), .schemaHasChanged, .applied(changed: [2])])
        },
        withAttributes("Changes of the schema and of segments are recorded in the audit log, and only those") {
            context async throws in
            let store = context.store
            let segment = Segment(name: "s", conditions: ["type": "custom_attribute", "name": "a", "match": "exists"])
            #expect(try await store.put(segment))
            #expect(try await !store.put(segment))
            #expect(try store.attributeSchema().segments.keys.sorted() == ["s"])
            #expect(try await store.removeSegment("s"))
            #expect(try await !store.removeSegment("s"))
            try await store.removeDefinition("a")
            let entries = try await store.audit()
            #expect(
                entries.map(\.action) == [
                    "attribute.delete", "segment.delete", "segment.put", "attribute.put", "attribute.put",
                ])
            #expect(entries.map(\.target) == ["a", "s", "s", "b", "a"])
        },
    ]
}

extension AttributeSchema {
    /// An attribute of each type, and one that users of tests do not have.
    public static let ofEachType = AttributeSchema(
        attributes: [
            AttributeDefinition(name: "text", number: 1, type: .string),
            AttributeDefinition(name: "number", number: 2, type: .number),
            AttributeDefinition(name: "bool", number: 3, type: .boolean),
            AttributeDefinition(name: "day", number: 4, type: .date),
            AttributeDefinition(name: "seen", number: 5, type: .timestamp),
            AttributeDefinition(
                name: "likes", number: 6, type: .selection, allowedValues: ["One", "Two"], isMultiple: true),
            AttributeDefinition(name: "none", number: 7, type: .string),
        ],
        segments: [])
}
