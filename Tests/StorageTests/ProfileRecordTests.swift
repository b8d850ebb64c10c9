import Bucketing
import Chronology
import Storage
import TestSupport
import Testing

@Suite("Profile record")
struct ProfileRecordTests {
    private static let extremes: [Instant] = [.distantPast, -1, 0, 1, 127, 128, 1_700_000_000_000, .distantFuture]

    private func assignment(_ variationID: Identifier, expiresAt: Instant? = nil) -> Assignment {
        Assignment(variationID: variationID, source: .saved, assignedAt: 10, updatedAt: 20, expiresAt: expiresAt)
    }

    @Test(arguments: extremes, extremes)
    func `Decodes what was encoded`(first: Instant, second: Instant) throws {
        let assignments: [Identifier: Assignment] = [
            "": Assignment(variationID: "", source: .override, assignedAt: first, updatedAt: second, expiresAt: nil),
            "é": Assignment(
                variationID: "e\u{301}", source: .saved, assignedAt: second, updatedAt: first, expiresAt: second),
            "e\u{301}": Assignment(variationID: "x", source: .bucketed, assignedAt: 0, updatedAt: 0, expiresAt: first),
        ]
        let record = ProfileRecord(assignments)
        let read = try ProfileRecord(checking: record.bytes)
        #expect(read == record)
        #expect(read.count == 3)
        #expect(
            Dictionary(uniqueKeysWithValues: read.entries.map { (read.experimentID(of: $0), read.assignment(of: $0)) })
                == assignments)
        for (experimentID, assignment) in assignments {
            #expect(read[experimentID] == assignment)
        }
        #expect(read["absent"] == nil)
    }

    @Test
    func `Lists experiments in the order of their bytes, whatever order they came in`() {
        let experimentIDs = (0..<300).map { Identifier("e\($0)") }
        let record = ProfileRecord(Dictionary(uniqueKeysWithValues: experimentIDs.map { ($0, assignment("v")) }))
        #expect(record.entries.map(record.experimentID(of:)) == experimentIDs.sorted())
    }

    @Test
    func `An empty record is a profile that stays visible`() throws {
        #expect(ProfileRecord.empty.isEmpty)
        #expect(ProfileRecord.empty.visible(at: .distantFuture) == .empty)
        #expect(try ProfileRecord(checking: ProfileRecord.empty.bytes) == .empty)
    }

    @Test
    func `Shows what has not expired`() {
        let record = ProfileRecord(["a": assignment("1", expiresAt: 100), "b": assignment("2", expiresAt: 200)])
        #expect(record.earliestExpiry == 100)
        #expect(record.visible(at: 99) == record)
        #expect(record.visible(at: 100)?.variations == ["b": "2"])
        #expect(record.visible(at: 100)?.earliestExpiry == 200)
        #expect(record.visible(at: 200) == nil)
    }

    @Test
    func `A record of a newer release is no reason to erase its user`() {
        let error = #expect(throws: StorageError.self) { try ProfileRecord(stored: [9, 0, 0], of: "ada") }
        #expect(error?.concernsOneUser == true)
        #expect(error?.description.contains("upgrade this server") == true)
        #expect(error?.description.contains("DELETE") == false)
    }

    @Test(
        arguments: [
            ([], .truncated),
            ([3, 0, 0], .unknownVersion(3)),
            ([2, 0, 0], .wrongHeader),
            ([1, 1, 0, 0x43, 1, 65, 1, 66, 0, 0, 3, 2, 1, 67], .wrongHeader),
            ([2, 1, 0, 0x41, 1, 65, 1, 66, 0, 0, 3, 2, 1, 67], .invalidLayer),
            ([2, 1, 0, 0x43, 1, 65, 1, 66, 0, 0, 0], .invalidLayer),
            ([2, 1, 0, 0x43, 1, 65, 1, 66, 0, 0, 1, 0], .invalidLayer),
            ([2, 1, 0, 0x43, 1, 65, 1, 66, 0, 0, 1, 8], .invalidLayer),
            ([2, 1, 0, 0x43, 1, 65, 1, 66, 0, 0, 4, 2, 1, 67, 0], .invalidLayer),
            ([2, 1, 0, 0x43, 1, 65, 1, 66, 0, 0, 3, 2, 1, 0xFF], .invalidText),
            ([2, 1, 0, 0x43, 1, 65, 1, 66, 0, 0, 6, 4, 3, 1, 66, 0, 0], .invalidLayer),
            ([2, 1, 0, 0x43, 1, 65, 1, 66, 0, 0, 6, 4, 5, 1, 66, 0, 0], .unknownSource(5)),
            ([2, 1, 0, 0x43, 1, 65, 1, 66, 0, 0, 7, 4, 0x81, 1, 66, 0, 0, 2], .wrongHeader),
            ([1], .truncated),
            ([1, 1, 0], .wrongHeader),
            ([1, 0, 5], .wrongHeader),
            ([1, 0, 0, 1], .truncated),
            ([1, 1, 0, 0, 1, 65, 1, 66, 0, 0], .unknownSource(0)),
            ([1, 1, 0, 5, 1, 65, 1, 66, 0, 0], .unknownSource(5)),
            ([1, 1, 0, 1, 9, 65, 1, 66, 0, 0], .truncated),
            ([1, 1, 0, 1, 1, 0xFF, 1, 66, 0, 0], .invalidText),
            ([1, 1, 0, 1, 1, 65, 1, 66, 0, 0, 1, 1, 65, 1, 66, 0, 0], .unordered),
            ([1, 2, 0, 1, 1, 66, 1, 66, 0, 0, 1, 1, 65, 1, 66, 0, 0], .unordered),
            ([1, 1, 0, 0x81, 1, 65, 1, 66, 0, 0, 2], .wrongHeader),
            ([1, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01, 0], .numberOutOfRange),
            ([1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0], .numberOutOfRange),
        ] as [([UInt8], ProfileRecordDamage)])
    func `Refuses damaged bytes`(bytes: [UInt8], damage: ProfileRecordDamage) {
        #expect(throws: damage) { try ProfileRecord(checking: bytes) }
    }

    private static func override(
        _ variationID: Identifier, expiresAt: Instant? = nil, _ layer: OverrideLayer?
    ) -> Assignment {
        Assignment(
            variationID: variationID, source: .override, assignedAt: 10, updatedAt: 20, expiresAt: expiresAt,
            layer: layer)
    }

    @Test(arguments: [nil, "on-call"], [nil, "é"])
    func `Decodes layers, whatever they have`(author: String?, reason: String?) throws {
        let beneath = [nil, assignment("v"), assignment("v", expiresAt: 100), assignment("v", expiresAt: .distantPast)]
        for beneath in beneath {
            let layer = OverrideLayer(author: author, reason: reason, beneath: beneath)
            let record = ProfileRecord(["a": Self.override("o", layer), "b": assignment("w")])
            let read = try ProfileRecord(checking: record.bytes)
            #expect(read["a"] == Self.override("o", layer) && read["b"] == assignment("w"))
            #expect(read.bytes.first == (layer == nil ? 1 : 2))
            #expect(read.earliestExpiry == beneath?.expiresAt.map { max(1, $0) })
        }
    }

    @Test
    func `Beneath an expired override the assignment shows, and no expired assignment is left beneath one`() throws {
        let record = ProfileRecord([
            "a": Self.override("o", expiresAt: 100, OverrideLayer(author: "x", reason: nil, beneath: assignment("1"))),
            "b": Self.override(
                "o", OverrideLayer(author: "x", reason: nil, beneath: assignment("2", expiresAt: 200))),
            "c": Self.override(
                "o", expiresAt: 200, OverrideLayer(author: nil, reason: nil, beneath: assignment("3", expiresAt: 100))),
        ])
        #expect(record.earliestExpiry == 100 && record.visible(at: 99) == record)
        let rest = try #require(record.visible(at: 100))
        #expect(rest.variations == ["a": "1", "b": "o", "c": "o"])
        #expect(rest["a"] == assignment("1") && rest["c"]?.layer == nil && rest.earliestExpiry == 200)
        let last = try #require(record.visible(at: 200))
        #expect(last.variations == ["a": "1", "b": "o"])
        #expect(last["b"]?.layer == OverrideLayer(author: "x", reason: nil, beneath: nil) && last.earliestExpiry == nil)
    }

    @Test(arguments: 0..<20)
    func `Survives any bytes`(seed: UInt64) throws {
        var generator = SeededGenerator(seed: seed)
        let beneath = assignment("v3", expiresAt: 1_700_000_000_000)
        let whole = ProfileRecord([
            "e1": assignment("v1", expiresAt: 1_700_000_000_000), "e2": assignment("v2"),
            "e3": Self.override("v4", OverrideLayer(author: "on-call", reason: "ticket", beneath: beneath)),
        ])
        for _ in 0..<500 {
            var bytes = whole.bytes
            for _ in 0..<Int.random(in: 1...4, using: &generator) {
                bytes[Int.random(in: bytes.indices, using: &generator)] = UInt8.random(in: 0...255, using: &generator)
            }
            bytes.removeLast(Int.random(in: 0...3, using: &generator))
            guard let record = try? ProfileRecord(checking: bytes) else { continue }
            #expect(Array(record.entries).count == record.count)
            _ = record.visible(at: 1_700_000_000_001)
        }
    }
}
