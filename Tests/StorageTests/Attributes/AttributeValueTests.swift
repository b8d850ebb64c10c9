import Bucketing
import JSON
import Storage
import Testing

/// The values that each type of attribute accepts, and their stored form.
@Suite struct AttributeValueTests {
    private static func definition(_ type: AttributeType, isMultiple: Bool = false) -> AttributeDefinition {
        let values: [Identifier] = type == .selection ? ["One", "Two", "Three"] : []
        return AttributeDefinition(name: "a", number: 1, type: type, allowedValues: values, isMultiple: isMultiple)
    }

    static let accepted: [(type: AttributeType, json: String, stored: String)] = [
        (.string, #""""#, #""""#), (.string, #""e\u0301 😀""#, "\"e\u{301} 😀\""), (.number, "30", "30"),
        (.number, "30.0", "30"),
        (.number, "-0", "0"), (.number, "-0.0", "0"), (.number, "1e300", "1e+300"),
        (.number, "9007199254740992", "9007199254740992"),
        (.number, "0.1", "0.1"), (.boolean, "true", "true"), (.boolean, "false", "false"),
        (.country, #""de""#, #""de""#),
        (.country, #""zw""#, #""zw""#), (.country, #""ss""#, #""ss""#), (.date, #""2024-02-29""#, #""2024-02-29""#),
        (.date, #""2000-02-29""#, #""2000-02-29""#), (.date, #""0000-01-01""#, #""0000-01-01""#),
        (.date, #""9999-12-31""#, #""9999-12-31""#), (.time, #""00:00""#, #""00:00""#),
        (.time, #""23:59""#, #""23:59""#),
        (.timestamp, #""2026-01-31T12:00:00Z""#, #""2026-01-31T12:00:00.000Z""#),
        (.timestamp, #""2026-01-01T00:30:00.1239+01:00""#, #""2025-12-31T23:30:00.123Z""#),
        (.timestamp, #""2024-02-28t23:59:59.5-00:01""#, #""2024-02-29T00:00:59.500Z""#),
        (.timestamp, #""2026-01-31 12:00:00Z""#, #""2026-01-31T12:00:00.000Z""#),
        (.timestamp, #""0000-01-01T00:00:00z""#, #""0000-01-01T00:00:00.000Z""#),
        (.timestamp, #""1969-12-31T23:59:59.999Z""#, #""1969-12-31T23:59:59.999Z""#),
        (.selection, #""Two""#, #""Two""#),
    ]

    @Test(arguments: accepted)
    func `A value is normalized`(type: AttributeType, json: String, stored: String) throws {
        let value = try Self.definition(type).value(try JSONParser().parse(json))
        #expect(Self.written(value, Self.definition(type)) == stored)
    }

    /// The value as it is read back from a record.
    private static func written(_ value: AttributeValue, _ definition: AttributeDefinition) -> String {
        let record = AttributeRecord.empty.applying([definition.number: .set(value)]) { _ in }
        var writer = JSONWriter()
        record.append(to: &writer, AttributeSchema(attributes: [definition], segments: []))
        return String(String(decoding: writer.finish(), as: UTF8.self).dropFirst(#"{"a":"#.count).dropLast())
    }

    static let refused: [(type: AttributeType, json: String)] = [
        (.string, "1"), (.string, "null"), (.string, "\"\(String(repeating: "a", count: 1_025))\""), (.number, #""1""#),
        (.number, "true"), (.number, "9007199254740993"), (.number, "[1]"), (.boolean, "1"), (.boolean, #""true""#),
        (.country, #""DE""#), (.country, #""deu""#), (.country, #""uk""#), (.country, #""xx""#), (.country, #""""#),
        (.country, "49"),
        (.date, #""2023-02-29""#), (.date, #""1900-02-29""#), (.date, #""2026-04-31""#), (.date, #""2026-13-01""#),
        (.date, #""2026-00-01""#), (.date, #""2026-01-00""#), (.date, #""2026-1-1""#), (.date, #""26-01-01""#),
        (.date, #""2026-01-01T00:00:00Z""#), (.date, #""２０２６-01-01""#), (.date, "20260101"), (.time, #""24:00""#),
        (.time, #""12:60""#), (.time, #""7:00""#), (.time, #""07:00:00""#), (.time, #""07:00Z""#),
        (.timestamp, #""2026-01-31T12:00:00""#), (.timestamp, #""2026-02-29T12:00:00Z""#),
        (.timestamp, #""2016-12-31T23:59:60Z""#), (.timestamp, #""2026-01-31T24:00:00Z""#),
        (.timestamp, #""2026-01-31T12:00:00.Z""#),
        (.timestamp, #""2026-01-31T12:00:00+0100""#), (.timestamp, #""2026-01-31T12:00:00+24:00""#),
        (.timestamp, #""0000-01-01T00:00:00+00:01""#), (.timestamp, #""9999-12-31T23:59:59-00:01""#),
        (.timestamp, "1769860800"),
        (.selection, #""Four""#), (.selection, #""one""#), (.selection, #"["One"]"#), (.selection, #""One; Two""#),
    ]

    @Test(arguments: refused)
    func `Invalid values are refused`(type: AttributeType, json: String) throws {
        let value = try JSONParser().parse(json)
        #expect(throws: AttributeRefusal.self) { try Self.definition(type).value(value) }
    }

    @Test(arguments: [
        (#"["Two","One"]"#, #"["One","Two"]"#), (#""Two; One""#, #"["One","Two"]"#),
        (#"" Three ;One;;One""#, #"["One","Three"]"#),
        (#""Two""#, #"["Two"]"#), (#"["One","One"]"#, #"["One"]"#),
    ])
    func `Several values of a selection are kept in the order of its definition`(json: String, stored: String) throws {
        let definition = Self.definition(.selection, isMultiple: true)
        let value = try definition.value(try JSONParser().parse(json))
        #expect(Self.written(value, definition) == stored)
    }

    @Test(arguments: ["[]", #""""#, #"";""#, #"["One","Four"]"#, #"["One",1]"#, #""One, Two""#, "1"])
    func `A selection of nothing or of something else is refused`(json: String) throws {
        let value = try JSONParser().parse(json)
        #expect(throws: AttributeRefusal.self) { try Self.definition(.selection, isMultiple: true).value(value) }
    }
}
