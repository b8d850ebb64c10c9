import Bucketing
import Storage
import TestSupport
import Testing

/// The binary form of a user's attributes.
@Suite struct AttributeRecordTests {
    private static let values: [AttributeValue] = [
        .bool(true), .bool(false), .number(-1.5), .number(0), .text(""), .text("é"), .moment("2026-01-31"),
        .selection(["One", "Two; 😀"]), .text(Identifier(String(repeating: "x", count: 1_024))),
    ]

    @Test func `Decodes the values that were set`() {
        let numbers: [UInt32] = [1, 2, 15, 16, 127, 128, 100_000, .max - 1, .max]
        let updates = Dictionary(uniqueKeysWithValues: zip(numbers, Self.values.map { AttributeUpdate.set($0) }))
        var changed: [UInt32] = []
        let record = AttributeRecord.empty.applying(updates) { changed.append($0) }
        #expect(changed == numbers)
        #expect(record.numbers == numbers)
        #expect(numbers.map { record[$0] } == Self.values)
        #expect(record[3] == nil)
        #expect(AttributeRecord(checking: record.bytes) == record)
    }

    @Test func `A record behaves like a dictionary, and reports what changed`() {
        var generator = SeededGenerator(seed: 7)
        var record = AttributeRecord.empty
        var model: [UInt32: AttributeValue] = [:]
        for _ in 0..<2_000 {
            var updates: [UInt32: AttributeUpdate] = [:]
            for _ in 0..<Int.random(in: 0...3, using: &generator) {
                let value = Self.values.randomElement(using: &generator)
                let number = UInt32.random(in: 1...12, using: &generator)
                updates[number] = Bool.random(using: &generator) ? .remove : value.map { .set($0) }
            }
            let former = model
            for (number, update) in updates {
                if case .set(let value) = update { model[number] = value } else { model[number] = nil }
            }
            var changed: Set<UInt32> = []
            record = record.applying(updates) { changed.insert($0) }
            #expect(changed == Set((1...12).filter { former[$0] != model[$0] }))
            #expect(record.numbers == model.keys.sorted())
            #expect(record.numbers.allSatisfy { record[$0] == model[$0] })
        }
        #expect(record.applying([99: .remove]) { _ in } == record)
    }

    @Test func `Damaged bytes are refused, and never read beyond their end`() throws {
        let updates = Dictionary(
            uniqueKeysWithValues: zip(UInt32(1)..., Self.values.dropLast().map { AttributeUpdate.set($0) }))
        let sound = AttributeRecord.empty.applying(updates) { _ in }.bytes
        for count in 0..<sound.count {
            let record = AttributeRecord(checking: Array(sound.prefix(count)))
            #expect(record.map { $0.bytes.count == count } ?? true)
        }
        #expect(AttributeRecord(checking: []) == nil)
        #expect(AttributeRecord(checking: [2]) == nil)
        #expect(AttributeRecord(checking: sound + [0xFF]) == nil)
        #expect(AttributeRecord(checking: [1, 0x0B, 1, 0xFF]) == nil, "no UTF-8")
        #expect(AttributeRecord(checking: [1, 0x11, 0x09]) == nil, "not ascending")
        #expect(AttributeRecord(checking: [1, 0x0A, 0, 0, 0, 0, 0, 0, 0xF0, 0x7F]) == nil, "not finite")
        #expect(AttributeRecord(checking: [1, 0x0E]) == nil, "unknown kind")
        var generator = SeededGenerator(seed: 8)
        for _ in 0..<4_000 {
            var bytes = sound
            for _ in 0..<3 {
                bytes[Int.random(in: 1..<bytes.count, using: &generator)] = UInt8.random(in: 0...255, using: &generator)
            }
            if let record = AttributeRecord(checking: bytes) {
                #expect(record.numbers.allSatisfy { record[$0] != nil })
            }
        }
    }
}
