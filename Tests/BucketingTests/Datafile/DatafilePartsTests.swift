import JSON
import Testing
import TestSupport

@testable import Bucketing

@Suite struct DatafilePartsTests {
    private static let base = Array(
        #"{"version":"4","experiments":[],"groups":[{"id":"g","experiments":[]},{"id":"h","experiments":[]}],"events":[{"id":"1"}],"holdfast":{"assignmentTTL":"P1D","experiments":{}}}"#
            .utf8)

    private static func list(_ name: Identifier, _ elements: KeyValuePairs<String, Int>) -> DatafileParts.List {
        DatafileParts.List(name, elements.map { (key: Identifier($0.key), body: Array("\($0.value)".utf8)) })
    }

    private static func edited(
        _ lists: [DatafileParts.List], replacing former: DatafileParts? = nil
    ) throws -> (parts: DatafileParts, change: DatafileParts.Change) {
        try #require(DatafileParts.edited(base: base, lists, replacing: former))
    }

    @Test func `Elements are put into the lists that are empty in the base, and everything else stays as it is`() throws
    {
        let parts = try Self.edited([
            Self.list("experiments", ["a": 1, "b": 2]), Self.list("groups/h", ["c": 3]),
            Self.list("holdfast/experiments", ["7": 4]),
        ]).parts
        #expect(
            String(decoding: parts.joined, as: UTF8.self)
                == #"{"version":"4","experiments":[1,2],"groups":[{"id":"g","experiments":[]},{"id":"h","experiments":[3]}],"events":[{"id":"1"}],"holdfast":{"assignmentTTL":"P1D","experiments":{"7":4}}}"#
        )
    }

    @Test func `Groups whose ids look the same are two`() throws {
        let base = #"{"groups":[{"id":"\u00e9","experiments":[]},{"id":"e\u0301","experiments":[]}],"groups/x":1}"#
        let lists = [
            Self.list("groups/\u{e9}", ["a": 1]), Self.list("groups/e\u{301}", ["b": 2]),
            Self.list("groups/x", ["c": 3]),
        ]
        let parts = try #require(DatafileParts.edited(base: Array(base.utf8), lists, replacing: nil)).parts
        #expect(
            parts.joined
                == Array(
                    "{\"groups\":[{\"id\":\"\u{e9}\",\"experiments\":[1]},{\"id\":\"e\u{301}\",\"experiments\":[2]}],\"groups/x\":1}"
                        .utf8))
    }

    @Test func `A change has what differs, and elements that keep their order keep their positions`() throws {
        let former = try Self.edited([
            Self.list("experiments", ["a": 1, "b": 2, "c": 3]), Self.list("groups/g", ["d": 4]),
        ])
        #expect(former.change.put == former.parts.elements && former.change.removed.isEmpty)
        func change(_ lists: DatafileParts.List...) throws -> (removed: [Identifier], put: [Identifier]) {
            let change = try Self.edited(lists, replacing: former.parts).change
            return (change.removed.map(\.key), change.put.map(\.name.key))
        }
        let group = Self.list("groups/g", ["d": 4])
        #expect(try change(Self.list("experiments", ["a": 1, "b": 2, "c": 3]), group) == ([], []))
        #expect(try change(Self.list("experiments", ["a": 1, "b": 5, "c": 3]), group) == (["b"], ["b"]))
        #expect(try change(Self.list("experiments", ["a": 1, "c": 3]), group) == (["b"], []))
        #expect(try change(Self.list("experiments", ["a": 1, "b": 2, "c": 3, "e": 5]), group) == ([], ["e"]))
        #expect(try change(Self.list("experiments", ["e": 5, "a": 1, "b": 2, "c": 3]), group) == ([], ["e"]))
        #expect(try change(Self.list("experiments", ["b": 2, "c": 3, "a": 1]), group) == (["a"], ["a"]))
        #expect(try change(Self.list("experiments", ["a": 1, "b": 2, "c": 3])) == (["d"], []))
    }

    @Test func `Two elements of a list with one key, and keys that no database takes, cannot be stored in parts`() {
        for elements: KeyValuePairs in [["a": 1, "a": 1], ["a\0": 1], [String(repeating: "a", count: 1_025): 1]] {
            #expect(DatafileParts.edited(base: [], [Self.list("experiments", elements)], replacing: nil) == nil)
        }
    }

    @Test(arguments: 0..<50) func `Changes lead from each of many random datafiles to the next`(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        var former: DatafileParts?
        for _ in 0..<20 {
            var lists: [DatafileParts.List] = []
            for name: Identifier in ["experiments", "groups/g", "holdfast/experiments"]
            where Bool.random(using: &random) {
                let keys = (0..<12).filter { _ in Bool.random(using: &random) }
                let ordered = Int.random(in: 0..<3, using: &random) == 0 ? keys.shuffled(using: &random) : keys
                lists.append(
                    DatafileParts.List(
                        name,
                        ordered.map { (Identifier("\($0)"), Array("\(Int.random(in: 0..<3, using: &random))".utf8)) }))
            }
            lists.removeAll { $0.elements.isEmpty }
            let (parts, change) = try Self.edited(lists, replacing: former)
            let fresh = try Self.edited(lists).parts
            #expect(parts.joined == fresh.joined)
            let applied = (former ?? DatafileParts(base: [], elements: [])).applying(change)
            #expect(applied == parts)
            #expect(Set(change.put.map(\.name)).count == change.put.count)
            former = parts
        }
    }
}
