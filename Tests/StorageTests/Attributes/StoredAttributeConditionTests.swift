import Bucketing
import JSON
import Storage
import TestSupport
import Testing

/// Conditions on stored attributes: in decisions, where the request says nothing, and in segments.
@Suite struct StoredAttributeConditionTests {
    private static let schema = AttributeSchema.ofEachType
    private static let record = AttributeRecord.empty.applying([
        1: .set(.text("ab cd")), 2: .set(.number(1.5)), 3: .set(.bool(true)), 4: .set(.moment("2026-01-31")),
        5: .set(.moment("2026-01-31T12:00:00.000Z")), 6: .set(.selection(["One", "Two"])),
    ]) { _ in }

    /// Conditions as JSON with `'` for `"`, and the answer (nil: unknown).
    static let answers: [(condition: String, answer: Bool?)] = [
        ("'name':'text','value':'ab cd'", true), ("'name':'text','value':'AB CD'", false),
        ("'name':'text','value':1", nil),
        ("'name':'text','match':'substring','value':'b c'", true),
        ("'name':'text','match':'substring','value':'x'", false),
        ("'name':'text','match':'substring','value':''", true), ("'name':'text','match':'gt','value':1", nil),
        ("'name':'text','match':'gt','value':'aa'", nil), ("'name':'text','match':'exists'", true),
        ("'name':'text','match':'semver_gt','value':'1.0'", nil), ("'name':'none','match':'exists'", false),
        ("'name':'none','value':'x'", nil), ("'name':'undefined','match':'exists'", false),
        ("'name':'undefined','value':'x'", nil),
        ("'name':'number','value':1.5", true), ("'name':'number','match':'gt','value':1", true),
        ("'name':'number','match':'le','value':1", false), ("'name':'number','value':'1.5'", nil),
        ("'name':'number','match':'substring','value':'1'", nil), ("'name':'bool','value':true", true),
        ("'name':'bool','value':false", false), ("'name':'bool','value':1", nil),
        ("'name':'day','value':'2026-01-31'", true),
        ("'name':'day','match':'gt','value':'2025-12-31'", true),
        ("'name':'day','match':'lt','value':'2026-01-31'", false),
        ("'name':'day','match':'le','value':'2026-01-31'", true),
        ("'name':'day','match':'substring','value':'2026-'", true),
        ("'name':'seen','match':'ge','value':'2026-01-31T13:00:00+01:00'", true),
        ("'name':'seen','match':'gt','value':'2026-01-31T12:00:00Z'", false),
        ("'name':'seen','match':'lt','value':'2026-02-01'", true), ("'name':'likes','value':'Two'", true),
        ("'name':'likes','value':'Three'", false), ("'name':'likes','match':'substring','value':'Tw'", true),
        ("'name':'likes','match':'substring','value':'One; Two'", false),
        ("'name':'likes','match':'qualified','value':'Two'", false),
        ("'name':'text','match':'regex','value':'x'", nil),
    ]

    @Test(arguments: answers)
    func `A segment and a decision answer alike`(condition: String, answer: Bool?) throws {
        let leaf = #"{"type":"custom_attribute",\#(condition.replacing("'", with: "\""))}"#
        #expect(try admits(leaf) == (answer == true))
        #expect(try admits(#"["not",\#(leaf)]"#) == (answer == false))
        #expect(try isInSegment(leaf) == (answer == true))
        #expect(try isInSegment(#"["not",\#(leaf)]"#) == (answer == false))
        #expect(
            try isInSegment(#"["or",\#(leaf),["not",{"type":"custom_attribute","name":"number","value":1.5}]]"#)
                == (answer == true))
        #expect(
            try isInSegment(#"["and",\#(leaf),{"type":"custom_attribute","name":"number","value":1.5}]"#)
                == (answer == true))
    }

    @Test(arguments: [
        (#"{"text":"other"}"#, false), (#"{"text":null}"#, false), (#"{"text":1}"#, false), (#"{"other":1}"#, true),
        ("{}", true),
    ])
    func `The request's attributes take precedence over stored ones`(attributes: String, answer: Bool) throws {
        let leaf = #"{"type":"custom_attribute","name":"text","value":"ab cd"}"#
        #expect(try admits(leaf, attributes) == answer)
    }

    @Test func `A segment is an audience over the request and what is stored, and a missing one admits nobody`() throws
    {
        let adults = Segment(
            name: "adults",
            conditions: try JSONParser().parse(#"{"type":"custom_attribute","name":"number","match":"ge","value":1}"#))
        let schema = AttributeSchema(attributes: Self.schema.attributes, segments: [adults])
        let audience = #"{"segment":"adults"}"#
        #expect(try admits(audience, schema: schema))
        #expect(try !admits(audience, #"{"number":0}"#, schema: schema))
        #expect(try !admits(#"["not",\#(audience)]"#, schema: schema))
        #expect(try !admits(audience))
        #expect(try !admits(#"["not",\#(audience)]"#))
        #expect(try admits(#"["or",\#(audience),{"type":"custom_attribute","name":"bool","value":true}]"#))
        let mentions = Mentions(
            audience: try JSONParser().parse(
                #"["and",\#(audience),{"type":"custom_attribute","name":"text","value":"x"}]"#))
        #expect(schema.attributes(for: mentions) == ["number", "text"])
    }

    private func isInSegment(_ conditions: String) throws -> Bool {
        let segment = Segment(name: "s", conditions: try JSONParser().parse(conditions))
        let matcher = SegmentMatcher(segment, schema: Self.schema)
        return Self.record.bytes.withUnsafeBytes { matcher.matches($0) }
    }

    private struct Known: StoredAssignments {
        let attributes: (any AttributeSource)?

        func assignment(experimentID: Identifier) -> StoredAssignment? { nil }
    }

    /// Whether an experiment for an audience admits the user of the record.
    private func admits(
        _ conditions: String, _ attributes: String = "{}", schema: AttributeSchema = schema
    ) throws -> Bool {
        var root = try #require(Datafile.empty(projectID: "p").object)
        root["typedAudiences"] = [["id": "a", "name": "a", "conditions": try JSONParser().parse(conditions)]]
        let definition: JSONValue = [
            "id": "e", "key": "e", "layerId": "e", "status": "Running", "forcedVariations": [:], "audienceIds": ["a"],
            "variations": [["id": "v", "key": "v"]], "trafficAllocation": [["entityId": "v", "endOfRange": 10_000]],
        ]
        root["experiments"] = [definition]
        let datafile = try Datafile(.object(root))
        let experiment = try #require(datafile.experiment(key: "e"))
        let user = User(id: "user", attributes: try JSONParser().parse(attributes).object ?? JSONObject())
        let known = Known(attributes: StoredAttributes(schema: schema, record: Self.record))
        return DecisionService(datafile: datafile).assign(experiment, for: user, stored: known).variation != nil
    }
}
