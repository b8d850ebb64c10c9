import Bucketing
import Testing

/// Tests whether a user belongs to an audience, by an experiment that everyone in the audience is bucketed into.
@Suite struct ConditionTests {
    /// The members of a condition, the attribute `a` as JSON (nil: absent), the result (nil: unknown).
    static let operators: [(condition: String, attribute: String?, result: Bool?)] = [
        (#""match":"exact","value":"x""#, #""x""#, true), (#""match":"exact","value":"x""#, #""X""#, false),
        (#""match":"exact","value":"é""#, #""e\u0301""#, false), (#""value":"x""#, #""x""#, true),
        (#""match":null,"value":"x""#, #""x""#, true), (#""match":"exact","value":"x""#, "1", nil),
        (#""match":"exact","value":"x""#, nil, nil), (#""match":"exact","value":"x""#, "null", nil),
        (#""match":"exact","value":1"#, "1.0", true), (#""match":"exact","value":1"#, "2", false),
        (#""match":"exact","value":1"#, "true", nil), (#""match":"exact","value":1"#, #""1""#, nil),
        (#""match":"exact","value":true"#, "true", true), (#""match":"exact","value":true"#, "1", nil),
        (#""match":"exact","value":null"#, "1", nil), (#""match":"exact","value":[1]"#, "[1]", nil),
        (#""match":"exact","value":9007199254740992"#, "9007199254740992", true),
        (#""match":"exact","value":9007199254740992"#, "9007199254740993", nil),
        (#""match":"exact","value":-9007199254740993"#, "1", nil),
        (#""match":"exists""#, "0", true), (#""match":"exists""#, #""""#, true), (#""match":"exists""#, "false", true),
        (#""match":"exists""#, "null", false), (#""match":"exists""#, nil, false),
        (#""match":"substring","value":"b c""#, #""ab cd""#, true), (#""match":"substring","value":"""#, #""a""#, true),
        (#""match":"substring","value":"B""#, #""ab""#, false),
        (#""match":"substring","value":"abc""#, #""ab""#, false),
        (#""match":"substring","value":1"#, #""1""#, nil), (#""match":"substring","value":"1""#, "1", nil),
        (#""match":"gt","value":1"#, "1.5", true), (#""match":"gt","value":1"#, "1", false),
        (#""match":"ge","value":1"#, "1", true), (#""match":"ge","value":1"#, "0.9", false),
        (#""match":"lt","value":1"#, "0", true), (#""match":"lt","value":1"#, "1", false),
        (#""match":"le","value":1"#, "1", true), (#""match":"le","value":1"#, "1.1", false),
        (#""match":"gt","value":1"#, #""2""#, nil), (#""match":"gt","value":1"#, "true", nil),
        (#""match":"gt","value":"1""#, "2", nil), (#""match":"gt","value":true"#, "2", nil),
        (#""match":"gt","value":1"#, "1e300", nil), (#""match":"lt","value":1"#, nil, nil),
        (#""match":"semver_eq","value":"2.1""#, #""2.1.9""#, true),
        (#""match":"semver_eq","value":"2.1.0""#, #""2.1""#, false),
        (#""match":"semver_eq","value":"02.1""#, #""2.1""#, true),
        (#""match":"semver_gt","value":"2.9""#, #""2.10""#, true),
        (#""match":"semver_lt","value":"1.0.0""#, #""1.0.0-beta""#, true),
        (#""match":"semver_gt","value":"1.0.0-alpha""#, #""1.0.0-beta""#, true),
        (#""match":"semver_ge","value":"1.0.0-beta""#, #""1.0.0""#, true),
        (#""match":"semver_le","value":"1.0.0+a""#, #""1.0.0+b""#, false),
        (#""match":"semver_gt","value":"99999999999999999999""#, #""100000000000000000000""#, true),
        (#""match":"semver_eq","value":"1.2.3.4""#, #""1.2.3.4""#, nil),
        (#""match":"semver_eq","value":"1. 2""#, #""1. 2""#, nil),
        (#""match":"semver_eq","value":"1""#, #""a""#, nil), (#""match":"semver_eq","value":"1""#, #""""#, nil),
        (#""match":"semver_eq","value":1"#, #""1""#, nil), (#""match":"semver_eq","value":"1""#, "1", nil),
        (#""match":"semver_gt","value":"1.0.0-beta""#, #""1.0.0-1""#, nil),
        (#""match":"qualified","value":"segment""#, nil, true), (#""match":"qualified","value":"other""#, nil, false),
        (#""match":"qualified","value":1"#, nil, nil), (#""match":"regex","value":"x""#, #""x""#, nil),
        (#""type":"third_party_dimension","value":"x""#, #""x""#, true), (#""type":"other","value":"x""#, #""x""#, nil),
        (#""type":null,"value":"x""#, #""x""#, nil), (#""name":null,"match":"exists""#, "1", false),
        (#""name":5,"value":1"#, "1", nil),
    ]

    @Test(arguments: operators)
    func `A condition is true, false or unknown`(condition: String, attribute: String?, result: Bool?) throws {
        let leaf = #"{"type":"custom_attribute","name":"a",\#(condition)}"#
        #expect(try admits(leaf, attribute: attribute) == (result == true))
        #expect(try admits(#"["not",\#(leaf)]"#, attribute: attribute) == (result == false))
    }

    static let yes = #"{"type":"custom_attribute","name":"a","value":1}"#
    static let no = #"{"type":"custom_attribute","name":"a","value":2}"#
    static let unknown = #"{"type":"custom_attribute","name":"b","value":1}"#

    static let trees: [(tree: String, result: Bool?)] = [
        (#"["and"]"#, true), (#"["or"]"#, false), (#"["not"]"#, nil), ("[]", nil), (#"["and",[]]"#, nil),
        (#"["and",\#(yes),\#(yes)]"#, true), (#"["and",\#(yes),\#(no)]"#, false),
        (#"["and",\#(unknown),\#(no)]"#, false),
        (#"["and",\#(yes),\#(unknown)]"#, nil), (#"["or",\#(no),\#(yes)]"#, true),
        (#"["or",\#(unknown),\#(yes)]"#, true),
        (#"["or",\#(no),\#(unknown)]"#, nil), ("[\(no),\(yes)]", true), ("[[\(no)],\(no)]", false),
        (#"["not",\#(no),\#(yes)]"#, true), (#"["not",["not",\#(unknown)]]"#, nil), (#""text""#, nil), ("5", nil),
    ]

    @Test(arguments: trees)
    func `Trees of conditions use three-valued logic`(tree: String, result: Bool?) throws {
        #expect(try admits(tree, attribute: "1") == (result == true))
        #expect(try admits(#"["not",\#(tree)]"#, attribute: "1") == (result == false))
    }

    static let ofExperiments: [(conditions: String, admits: Bool)] = [
        ("[]", true), ("null", false), (#"["yes"]"#, true), (#"["no"]"#, false), (#"["no","yes"]"#, true),
        (#"["and","yes","no"]"#, false), (#"["and","yes",["not","no"]]"#, true), (#"["missing"]"#, false),
        (#"["not","missing"]"#, false), (#"["or","missing","yes"]"#, true), (#""yes""#, true), (#"[5]"#, false),
    ]

    @Test(arguments: ofExperiments)
    func `An experiment combines audiences`(conditions: String, admits: Bool) throws {
        let service = try Fixture.service(
            audiences: [("yes", Self.yes), ("no", Self.no)], audienceConditions: conditions, audienceIDs: ["no"]
        )
        #expect(Fixture.isAdmitted(User(id: "u", attributes: try Fixture.attributes(#"{"a":1}"#)), service) == admits)
    }

    private func admits(_ tree: String, attribute: String?) throws -> Bool {
        let service = try Fixture.service(audiences: [("1", tree)], audienceConditions: #"["1"]"#)
        let attributes = try Fixture.attributes(attribute.map { "{\"a\":\($0)}" } ?? "{}")
        return Fixture.isAdmitted(User(id: "u", attributes: attributes, qualifiedSegments: ["segment"]), service)
    }
}
