import Bucketing
import Definitions
import HoldfastCore
import JSON
import Storage
import TestSupport
import Testing

@Suite struct SegmentRulesTests {
    private static let schema = AttributeSchema.ofEachType

    static let faults: [(conditions: String, pointers: [String])] = [
        ("{'type':'custom_attribute','name':'number','match':'gt','value':1}", []),
        (
            "['and',{'type':'custom_attribute','name':'likes','value':'One'},['not',{'type':'custom_attribute','name':'day','match':'exists'}]]",
            []
        ),
        ("{'type':'custom_attribute','name':'seen','match':'gt','value':'2026-01-01T00:00:00Z'}", []),
        ("{'type':'custom_attribute','name':'seen','value':'2026-01-01T00:00:00Z'}", ["/value"]),
        (
            "['or',{'type':'custom_attribute','name':'x','value':1},{'name':'text','value':'x'}]",
            ["/1/name"]
        ),
        ("{'type':'custom_attribute','name':'number','match':'gt','value':'1'}", ["/value"]),
        ("{'type':'custom_attribute','name':'number','match':'substring','value':'1'}", ["/value"]),
        ("{'type':'custom_attribute','name':'bool','match':'gt','value':1}", ["/value"]),
        ("{'type':'custom_attribute','name':'text','match':'gt','value':'x'}", ["/value"]),
        ("{'type':'custom_attribute','name':'text','match':'qualified','value':'x'}", ["/match"]),
        ("{'type':'custom_attribute','name':'likes','value':'Three'}", ["/value"]),
        ("{'type':'custom_attribute','name':'likes','value':'One; Two'}", ["/value"]),
        ("{'type':'custom_attribute','name':'text','match':'semver_eq','value':'1. 2'}", ["/value"]),
        ("{'type':'custom_attribute','name':'day','value':'2026-02-30'}", ["/value"]),
        ("{'name':'text','match':'in','value':['a','b']}", []),
        ("{'name':'text','match':'not_in','value':[]}", ["/value"]),
        ("{'name':'likes','match':'in','value':['One','Three',1]}", ["/value/1", "/value/2"]),
        ("{'name':'text','match':'starts_with','value':'a','ignore_case':true}", []),
        ("{'name':'text','match':'matches','value':'^a(b|c)*$'}", []),
        ("{'name':'text','match':'matches','value':'(a'}", ["/value"]),
        ("{'name':'number','match':'ends_with','value':'1'}", ["/value"]),
        ("{'name':'number','match':'gt','value':1,'ignore_case':true}", ["/ignore_case"]),
        ("{'name':'text','value':'x','ignore_case':'yes'}", ["/ignore_case"]),
        ("{'type':'other','name':'text','value':'x'}", ["/type"]), ("{'segment':'other'}", ["/segment"]),
        ("[]", [""]), ("['and']", [""]), ("['not',{},{}]", [""]), ("'x'", [""]),
        ("['and',1]", ["/1"]),
    ]

    @Test(arguments: faults)
    func `Unsatisfiable conditions are refused, each with its pointer`(conditions: String, pointers: [String])
        throws
    {
        let value = try JSONParser().parse(conditions.replacing("'", with: "\""))
        #expect(SegmentRules.faults(in: value, at: [], schema: Self.schema).map(\.pointer.string) == pointers)
    }

    @Test func `A segment of an audience must be defined`() {
        func refusal<Element: DefinedElement>(_: Element.Type, _ body: JSONValue) -> CoreError? {
            do throws(CoreError) {
                _ = try Element.change(body, key: "e", of: nil, Self.schema)
                return nil
            } catch {
                return error
            }
        }
        let audience: JSONValue = ["not", ["segment": "none"]]
        let refusals = [
            ("/audience", refusal(Experiment.self, ["audience": audience])),
            ("/audience", refusal(Holdout.self, ["audience": audience])),
            ("/rules/0/audience", refusal(Flag.self, ["rules": [["audience": audience, "variation": "on"]]])),
        ]
        for (place, refusal) in refusals {
            #expect(
                refusal?.faults.map(\.pointer.string) == [place]
                    && refusal?.faults.first?.reason.contains("'none'") == true)
        }
    }
}
