import JSON
import Testing
import TestSupport

@testable import Bucketing

@Suite struct DatafilePartsTests {
    private typealias Elements = [(key: String, value: Int)]

    private static func elements(_ elements: Elements, named: String = "key") -> JSONValue {
        .array(elements.map { [named: .string($0.key), "value": .integer(Int64($0.value))] })
    }

    /// A datafile with elements in a list of each kind.
    private static func document(
        _ experiments: Elements, group: Elements = [], audiences: Elements = [], details: Elements = [],
        revision: Int = 1
    ) -> JSONObject {
        let document: JSONValue = [
            "version": "4", "revision": .string("\(revision)"), "experiments": elements(experiments),
            "groups": [["id": "g", "experiments": elements(group)], ["id": "h", "experiments": []]],
            "events": [["id": "1"]], "typedAudiences": elements(audiences, named: "id"),
            "holdfast": [
                "assignmentTTL": "P1D",
                "experiments": .object(
                    JSONObject(details.map { .init(key: $0.key, value: .integer(Int64($0.value))) })),
            ],
        ]
        return document.object ?? JSONObject()
    }

    private static func edited(
        _ document: JSONObject, since former: DatafileParts.Known? = nil
    ) throws -> (parts: DatafileParts, change: DatafileParts.Change) {
        try #require(DatafileParts.edited(to: document, since: former))
    }

    @Test func `A datafile is put together as it was, and its base has empty lists`() throws {
        let document = Self.document(
            [("a", 1), ("b", 2)], group: [("c", 3)], audiences: [("d", 4)], details: [("7", 5), ("8", 6)])
        let parts = try Self.edited(document).parts
        #expect(parts.base == JSONValue.object(Self.document([])).encoded())
        #expect(parts.count == 6 && parts.elements.map(\.name.key) == ["a", "b", "c", "7", "8", "d"])
        #expect(parts.joined == JSONValue.object(document).encoded())
        #expect(try parts.document() == .object(document))
    }

    @Test func `Groups whose ids look the same are two`() throws {
        let text =
            "{\"groups\":[{\"id\":\"\u{e9}\",\"experiments\":[{\"key\":\"a\"}]},{\"id\":\"e\u{301}\",\"experiments\":[{\"key\":\"b\"}]}],\"groups/x\":1}"
        let document = try #require(try JSONParser().parse(text).object)
        let parts = try Self.edited(document).parts
        #expect(String(decoding: parts.joined, as: UTF8.self) == text)
        #expect(try parts.document() == .object(document))
    }

    @Test func `A change has what differs, and elements that keep their order keep their positions`() throws {
        let document = Self.document([("a", 1), ("b", 2), ("c", 3)], group: [("d", 4)])
        let former = try Self.edited(document)
        #expect(former.change.put == former.parts.elements && former.change.removed.isEmpty)
        func change(
            _ experiments: Elements, group: Elements = [("d", 4)]
        ) throws -> (removed: [Identifier], put: [Identifier]) {
            let change = try Self.edited(
                Self.document(experiments, group: group), since: (document, former.parts)
            ).change
            return (change.removed.map(\.key), change.put.map(\.name.key))
        }
        #expect(try change([("a", 1), ("b", 2), ("c", 3)]) == ([], []))
        #expect(try change([("a", 1), ("b", 5), ("c", 3)]) == (["b"], ["b"]))
        #expect(try change([("a", 1), ("c", 3)]) == (["b"], []))
        #expect(try change([("a", 1), ("b", 2), ("c", 3), ("e", 5)]) == ([], ["e"]))
        #expect(try change([("e", 5), ("a", 1), ("b", 2), ("c", 3)]) == ([], ["e"]))
        #expect(try change([("b", 2), ("c", 3), ("a", 1)]) == (["a"], ["a"]))
        #expect(try change([("a", 1), ("b", 2), ("c", 3)], group: []) == (["d"], []))
    }

    @Test func `Two elements of a list with one name, and names that no database takes, cannot be stored in parts`() {
        let lists: [Elements] = [[("a", 1), ("a", 1)], [("a\0", 1)], [(String(repeating: "a", count: 1_025), 1)]]
        for elements in lists { #expect(DatafileParts.edited(to: Self.document(elements), since: nil) == nil) }
        for document: JSONObject in [
            JSONObject([.init(key: "experiments", value: [1])]),
            JSONObject([
                .init(
                    key: "groups",
                    value: [["id": "g", "experiments": [["key": "a"]]], ["id": "g", "experiments": [["key": "b"]]]])
            ]),
        ] { #expect(DatafileParts.edited(to: document, since: nil) == nil) }
    }

    @Test(arguments: 0..<50) func `Changes lead from each of many random datafiles to the next`(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        var former: DatafileParts.Known?
        for revision in 0..<20 {
            func elements() -> Elements {
                guard Int.random(in: 0..<4, using: &random) != 0 else { return [] }
                let keys = (0..<12).filter { _ in Int.random(in: 0..<5, using: &random) != 0 }
                let ordered = Int.random(in: 0..<3, using: &random) == 0 ? keys.shuffled(using: &random) : keys
                return ordered.map { ("\($0)", Int.random(in: 0..<2, using: &random)) }
            }
            let document = Self.document(
                elements(), group: elements(), audiences: elements(), details: elements(), revision: revision)
            let (parts, change) = try Self.edited(document, since: former)
            #expect(parts.joined == JSONValue.object(document).encoded())
            let fresh = try Self.edited(document).parts
            #expect(parts.joined == fresh.joined && parts.hash == fresh.hash)
            let applied = (former?.parts ?? DatafileParts(base: [], elements: [])).applying(change)
            #expect(applied == parts)
            #expect(try applied.document(similarTo: former) == .object(document))
            #expect(Set(change.put.map(\.name)).count == change.put.count)
            former = (document, parts)
        }
    }
}
