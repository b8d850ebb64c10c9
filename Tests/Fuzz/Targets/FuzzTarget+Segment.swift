import Definitions
import HoldfastCore
import JSON
import Storage
import TestSupport

@testable import Bucketing

extension FuzzTarget {
    /// Whatever stands in a segment, a scan of the stored attributes finds those users for whom a decision holds its
    /// conditions true, and no rule of segments fails.
    static let segment = FuzzTarget(name: "segment") { bytes in
        guard let value = try? JSONParser(maximumDepth: 64).parse(bytes) else { return }
        let schema = AttributeSchema.ofEachType
        _ = SegmentRules.faults(in: value, at: [], schema: schema)
        let segment = Segment(name: "s", conditions: value)
        let matcher = SegmentMatcher(segment, schema: schema)
        var random = Cuts.generator(for: bytes)
        for number in 0..<4 {
            let record = AttributeRecord.some(of: schema, using: &random)
            var user = User(id: Identifier("user\(number)"))
            user.storedAttributes = StoredAttributes(schema: schema, record: record)
            var reasons = Reasons(.full)
            let answer = segment.condition.evaluate(for: user, &reasons) ?? false
            try expectSame(record.bytes.withUnsafeBytes(matcher.matches), answer, "the scan and the decision")
        }
    }
}

extension AttributeRecord {
    /// Some of the attributes with random values.
    fileprivate static func some(of schema: AttributeSchema, using random: inout SeededGenerator) -> AttributeRecord {
        let texts: [JSONValue] = ["", "a", "ab cd", "e\u{301}", "\u{1E9E}ß", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"]
        var updates: [UInt32: AttributeUpdate] = [:]
        for attribute in schema.attributes {
            let values: [JSONValue] =
                switch attribute.type {
                case .boolean: [true, false]
                case .number: [0, -1, 1, 0.5, 1e308, 9_007_199_254_740_991]
                case .date: ["1970-01-01", "2024-02-29"]
                case .timestamp: ["1970-01-01T00:00:00Z", "2024-02-29T23:59:59.999Z"]
                case .selection: attribute.isMultiple ? [["One"], ["One", "Two"]] : ["One"]
                default: texts
                }
            guard Bool.random(using: &random), let value = values.randomElement(using: &random),
                let stored = try? attribute.value(value)
            else { continue }
            updates[attribute.number] = .set(stored)
        }
        return AttributeRecord.empty.applying(updates) { _ in }
    }
}
