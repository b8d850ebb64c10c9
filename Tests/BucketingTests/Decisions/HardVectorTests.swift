import Bucketing
import JSON
import Testing

/// Decisions equal those of the reference SDK in edge cases: values of wrong types, odd versions, several experiments
/// with one key, forced decisions, overrides, stale profiles, all options.
@Suite struct HardVectorTests {
    @Test(arguments: 0..<17)
    func `Decisions equal those of the reference SDK`(file: Int) throws {
        let service = DecisionService(datafile: try Vectors.datafile("datafile-hard-\(file).json"))
        for (index, line) in try Vectors.lines("hard-\(file).jsonl").enumerated() {
            let user = try Self.user(line)
            let stored = try Self.stored(line)
            let result = service.decideAll(for: user, stored: stored, options: try Self.options(line))
            #expect(Self.json(result.value).text == line["decisions"]?.text, "line \(index + 1)")
            let impressions = JSONValue.array(result.impressions.map(Self.json))
            #expect(impressions.text == line["impressions"]?.text, "line \(index + 1)")
            #expect(
                try Self.profile(line, result.newAssignments) == Self.texts(line, "profileAfter"), "line \(index + 1)")
            for member in try line.object("variations") {
                let experiment = try #require(service.datafile.experiment(key: Identifier(member.key)))
                let plain = User(id: user.id, attributes: user.attributes)
                let variation = service.variation(of: experiment, for: plain, stored: stored).variation
                #expect(variation?.key.string ?? "" == member.value.string, "line \(index + 1) \(member.key)")
            }
        }
    }

    private static func user(_ line: JSONObject) throws -> User {
        User(
            id: Identifier(try line.string("userId")), attributes: try line.object("userAttributes"),
            qualifiedSegments: try #require(line["segments"]?.array).map { Identifier(try #require($0.string)) },
            forcedDecisions: try #require(line["forced"]?.array).map { forced in
                let forced = try #require(forced.object)
                return ForcedDecision(
                    flagKey: Identifier(try forced.string("flagKey")),
                    ruleKey: forced["ruleKey"]?.string.map { Identifier($0) },
                    variationKey: Identifier(try forced.string("variationKey"))
                )
            }
        )
    }

    private static func stored(_ line: JSONObject) throws -> [Identifier: StoredAssignment] {
        let profile = try texts(line, "profile").mapValues { StoredAssignment(variationID: $0) }
        let overrides = try texts(line, "overrides").mapValues { StoredAssignment(variationID: $0, isOverride: true) }
        return profile.merging(overrides) { $1 }
    }

    private static func options(_ line: JSONObject) throws -> DecideOptions {
        try #require(line["options"]?.array).reduce(into: []) { options, value in
            let name = try #require(value.string)
            options.insert(try #require(DecideOptions(name: name)))
        }
    }

    private static func texts(_ line: JSONObject, _ key: String) throws -> [Identifier: Identifier] {
        try line.object(key).reduce(into: [:]) { texts, member in
            texts[Identifier(member.key)] = Identifier(try #require(member.value.string))
        }
    }

    /// Returns the profile after the new assignments are stored.
    private static func profile(_ line: JSONObject, _ new: [NewAssignment]) throws -> [Identifier: Identifier] {
        var profile = try texts(line, "profile")
        for assignment in new {
            let stale = profile.updateValue(assignment.variationID, forKey: assignment.experimentID)
            #expect(stale == assignment.staleVariationID)
        }
        return profile
    }

    /// Returns an object whose comparison does not depend on the order of the flags.
    private static func json(_ decisions: [Decision]) -> JSONValue {
        var object = JSONObject()
        for decision in decisions.sorted(by: { $0.flagKey < $1.flagKey }) {
            var variables = JSONObject()
            for variable in decision.variables {
                variables[variable.key.string] = variable.value
            }
            object[decision.flagKey.string] = [
                "variationKey": .string(decision.variation?.key.string ?? ""), "enabled": .bool(decision.isEnabled),
                "ruleKey": .string(decision.ruleKey?.string ?? ""), "variables": .object(variables),
            ]
        }
        return .object(object)
    }

    private static func json(_ impression: Impression) -> JSONValue {
        .array([
            .string(impression.flagKey.string), .string(impression.ruleKey.string), .string(impression.ruleType),
            .string(impression.experimentID.string), .string(impression.campaignID.string),
            .string(impression.variationID.string), .string(impression.variationKey.string),
            .bool(impression.isEnabled),
        ])
    }
}

extension JSONValue {
    fileprivate var text: String {
        String(decoding: encoded(), as: UTF8.self)
    }
}
