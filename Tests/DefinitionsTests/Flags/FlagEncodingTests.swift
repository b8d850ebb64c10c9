import Bucketing
import Definitions
import DefinitionsTestSupport
import JSON
import TestSupport
import Testing

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

    // MARK: What users get

    private static let users300 = (0..<300).map { Identifier("user\($0)") }

    private func evaluation(
        _ bench: DefinitionBench, _ user: Identifier, _ attributes: JSONValue, _ stored: [NewAssignment] = []
    ) throws -> (FlagEvaluation, new: [NewAssignment]) {
        let datafile = bench.compiled.datafile
        let held = Dictionary(
            stored.map { ($0.experimentID, StoredAssignment(variationID: $0.variationID, isOverride: false)) },
            uniquingKeysWith: { $1 })
        let decision = try #require(
            DecisionService(datafile: datafile).decide(
                "banner", for: User(id: user, attributes: attributes.object ?? JSONObject()),
                stored: held))
        return (FlagEvaluation(decision.value, datafile), decision.newAssignments)
    }

    @Test func `Rules apply in order, an experiment behind a delivery too`() throws {
        var bench = try DefinitionBench()
        try bench.put(
            Flag.self, "banner",
            [
                "type": "string", "otherwise": "a",
                "variations": [
                    ["key": "a", "value": "A"], ["key": "b", "value": "B"], ["key": "c", "value": "C"],
                ],
                "rules": [
                    ["audience": ["name": "staff", "value": true], "variation": "c"],
                    ["experiment": ["weights": ["a": 1, "b": 1], "traffic": 50]],
                    ["audience": ["name": "country", "value": "de"], "variation": "b"],
                ],
            ])
        var reasons: [EvaluationReason: Int] = [:]
        var enrolled: (user: Identifier, assignments: [NewAssignment])?
        for (number, user) in Self.users300.enumerated() {
            #expect(try evaluation(bench, user, ["staff": true]).0.value == "C")
            // The missing attribute does not keep anybody out of the experiment.
            let (other, new) = try evaluation(
                bench, user, number.isMultiple(of: 2) ? [:] : ["staff": false, "country": "de"])
            reasons[other.reason, default: 0] += 1
            if !new.isEmpty { enrolled = (user, new) }
        }
        #expect(Set(reasons.keys) == [.experiment, .targeted, .default], "\(reasons)")
        #expect((120...180).contains(reasons[.experiment] ?? 0), "\(reasons)")
        // Somebody who takes part goes on, whatever rule precedes.
        let taking = try #require(enrolled)
        #expect(try evaluation(bench, taking.user, ["staff": true], taking.assignments).0.reason == .sticky)
        #expect(bench.shown(Experiment.self, "banner_experiment")["traffic"] == 50)
    }

    @Test func `A delivery to a part of its audience leaves the others to the last variation`() throws {
        var bench = try DefinitionBench()
        func given(_ traffic: JSONValue) throws -> Set<Identifier> {
            let rule: JSONValue = [
                "audience": ["name": "country", "value": "de"], "variation": "on", "traffic": traffic,
            ]
            try bench.put(Flag.self, "banner", ["type": "boolean", "rules": [rule]])
            return Set(try Self.users300.filter { try evaluation(bench, $0, ["country": "de"]).0.value == true })
        }
        let first = try given(30)
        #expect((60...120).contains(first.count), "\(first.count)")
        #expect(try given(60).isStrictSuperset(of: first))
    }

    /// The numbers of users whom an experiment enrolls.
    private func enrolled(_ bench: DefinitionBench, _ key: Identifier) throws -> Set<Identifier> {
        let service = DecisionService(datafile: bench.compiled.datafile)
        let experiment = try #require(service.datafile.experiment(key: key))
        return Set(Self.users300.filter { service.variation(of: experiment, for: User(id: $0)).variation != nil })
    }

    @Test func `A group enrolls a user in at most one experiment, and traffic that grows takes nobody from another`()
        throws
    {
        var bench = try DefinitionBench()
        for (key, traffic) in [("checkout", 20), ("search", 30)] as [(String, JSONValue)] {
            try bench.put(Experiment.self, key, ["variations": ["a", "b"], "group": "page", "traffic": traffic])
        }
        let (checkout, search) = (try enrolled(bench, "checkout"), try enrolled(bench, "search"))
        #expect((35...85).contains(checkout.count) && (60...120).contains(search.count))
        #expect(checkout.isDisjoint(with: search))
        try bench.put(Experiment.self, "checkout", ["traffic": 70])
        #expect(try enrolled(bench, "search") == search)
        #expect(try enrolled(bench, "checkout").isSuperset(of: checkout))
        #expect(try enrolled(bench, "checkout").isDisjoint(with: search))
    }
}
