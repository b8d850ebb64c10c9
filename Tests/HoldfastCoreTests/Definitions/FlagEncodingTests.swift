import Bucketing
import Definitions
import JSON
import TestSupport
import Testing

@testable import HoldfastCore

/// How the datafile expresses flags and groups.
@Suite struct FlagEncodingTests {
    /// Conditions on attributes that are numbers, texts or missing.
    private static func conditions(_ generator: inout SeededGenerator, depth: Int = 3) -> JSONValue {
        let choice = Int.random(in: 0..<(depth > 0 ? 7 : 4), using: &generator)
        func nested(_ name: JSONValue, _ count: Int) -> JSONValue {
            .array([name] + (0..<count).map { _ in conditions(&generator, depth: depth - 1) })
        }
        switch choice {
        case 0: return ["type": "custom_attribute", "name": "age", "match": "ge", "value": 30]
        case 1: return ["type": "custom_attribute", "name": "country", "value": "de"]
        case 2: return ["type": "custom_attribute", "name": "country", "match": "substring", "value": "e"]
        case 3: return ["type": "custom_attribute", "name": "age", "match": "exists"]
        case 4: return nested("and", Int.random(in: 1...3, using: &generator))
        case 5: return nested("or", Int.random(in: 1...3, using: &generator))
        default: return nested("not", 1)
        }
    }

    private static let users: [JSONObject] = {
        let ages: [JSONValue?] = [nil, .null, 20, 30.5]
        let countries: [JSONValue?] = [nil, "de", "fr", "be"]
        return ages.flatMap { age in
            countries.map { country in
                var attributes = JSONObject()
                attributes["age"] = age
                attributes["country"] = country
                return attributes
            }
        }
    }()

    @Test func `Everybody is either in an audience or outside it`() throws {
        var generator = SeededGenerator(seed: 5)
        for _ in 0..<60 {
            let audience = Self.conditions(&generator)
            var definitions = ProjectDefinitions(projectID: "1")
            for (key, conditions) in [("in", audience), ("out", AudienceExclusion.outside(audience))] {
                let body: JSONValue = ["id": .string(key), "variations": ["a"], "audience": conditions]
                try ExperimentChange(body, key: key).apply(to: &definitions)
            }
            definitions.generate(since: nil)
            let service = DecisionService(datafile: try Datafile(definitions.datafile))
            for attributes in Self.users {
                let user = User(id: "ada", attributes: attributes)
                let parts = try ["in", "out"].map { key in
                    let experiment = try #require(service.datafile.experiment(key: Identifier(key)))
                    return service.variation(of: experiment, for: user).variation != nil
                }
                #expect(parts[0] != parts[1], "\(JSONValue.object(attributes)) of \(audience)")
            }
        }
    }

    @Test func `A flag that is turned off and on again is the same datafile`() throws {
        let definition: JSONValue = [
            "type": "integer", "variations": [["key": "a", "value": 1], ["key": "b", "value": 2]],
            "rules": [["experiment": ["traffic": 30]]], "tags": ["web"],
        ]
        var on = ProjectDefinitions(projectID: "1")
        #expect(try FlagChange(definition, key: "flag").apply(to: &on))
        on.generate(since: nil)
        var off = on
        try FlagChange(["enabled": false], key: "flag").apply(to: &off)
        off.generate(since: on)
        let datafile = try Datafile(off.datafile)
        let flag = try #require(datafile.flag(key: "flag"))
        #expect(flag.isOff && flag.rollout == nil && flag.experiments.map(\.status) == ["Paused"])
        let decision = try #require(DecisionService(datafile: datafile).decide("flag", for: User(id: "ada"))?.value)
        let evaluation = FlagEvaluation(decision, datafile)
        #expect(evaluation.reason == .disabled && evaluation.value == 1 && !evaluation.isEnabled)
        var again = off
        try FlagChange(["enabled": true], key: "flag").apply(to: &again)
        again.generate(since: off)
        #expect(again.datafile == on.datafile)
    }
}
