import Bucketing
import Definitions
import JSON
import TestSupport
import Testing

/// Definitions are read from a datafile and written back without loss.
@Suite struct ProjectDefinitionsTests {
    private static func datafile(_ members: KeyValuePairs<String, JSONValue>) throws -> Datafile {
        var root = try #require(Datafile.empty(projectID: "1").object)
        for (key, value) in members { root[key] = value }
        return try Datafile(.object(root))
    }

    private static func experiment(_ key: String, id: String) -> JSONValue {
        [
            "id": .string(id), "key": .string(key), "unknown": [1], "layerId": "campaign", "status": "Launched",
            "variations": [["id": "a", "key": "a", "name": "A"], ["id": "b", "key": "b"]],
            "trafficAllocation": [["entityId": "a", "endOfRange": 5_000]], "audienceIds": ["x"],
            "audienceConditions": ["or", "x"], "forcedVariations": ["eve": "b"],
        ]
    }

    private static let brought: KeyValuePairs<String, JSONValue> = [
        "experiments": [experiment("e", id: "1"), experiment("f", id: "2")],
        "groups": [
            [
                "id": "g", "policy": "random", "name": "G", "experiments": [experiment("h", id: "3")],
                "trafficAllocation": [["entityId": "3", "endOfRange": 7_000]],
            ]
        ],
        "featureFlags": [
            ["id": "f1", "key": "flag", "rolloutId": "r", "experimentIds": ["1"], "variables": [], "extra": true]
        ],
        "rollouts": [["id": "r", "experiments": [], "name": "R"]],
        "typedAudiences": [
            ["id": "x", "name": "X", "conditions": ["or", ["name": "a", "type": "custom_attribute"]]]
        ],
        "unknown": ["kept": true],
    ]

    @Test func `A flag is found by the experiments that it has now`() throws {
        var definitions = ProjectDefinitions(try Self.datafile(Self.brought).source)
        func flags(_ id: Identifier) -> [Identifier] { definitions.flags(ofExperiment: id).map(\.key) }
        func put(_ flag: String, _ rules: [String]) throws -> [Identifier] {
            let rules = rules.map { ["key": .string($0), "experiment": ["id": .string("\($0)id")]] as JSONValue }
            _ = try FlagChange(["type": "boolean", "rules": .array(rules)], key: flag).apply(to: &definitions)
            return definitions.experiments(of: try #require(definitions.flags[Identifier(flag)])).map(\.id)
        }
        #expect(flags("1") == ["flag"] && flags("2") == [] && flags("nothing") == [])
        #expect(try put("a", ["one", "two"]) == ["oneid", "twoid"] && put("b", ["three"]) == ["threeid"])
        #expect(flags("oneid") == ["a"] && flags("twoid") == ["a"] && flags("threeid") == ["b"])
        #expect(try put("a", ["two"]) == ["twoid"])
        #expect(flags("oneid") == [] && flags("twoid") == ["a"])
        try definitions.removeFlag("a")
        #expect(flags("twoid") == [] && flags("threeid") == ["b"] && flags("1") == ["flag"])
        #expect(definitions.experiment(id: "twoid")?.key == "two" && definitions.experiment(id: "3")?.key == "h")
        try ExperimentChange(["group": "exclusive"], key: "three").apply(to: &definitions)
        #expect(definitions.experiment(id: "threeid")?.key == "three" && flags("threeid") == ["b"])
    }

    @Test func `What a change does not name stays as a datafile brought it, with members that nobody knows`() throws {
        let datafile = try Self.datafile(Self.brought)
        let former = ProjectDefinitions(datafile.source)
        for key in ["e", "f", "h"] {
            var definitions = former
            try ExperimentChange(["status": "paused"], key: key).apply(to: &definitions)
            definitions.generate(since: former)
            let changed = try Datafile(definitions.datafile)
            #expect(changed.experiment(key: Identifier(key))?.status == "Paused")
            let paused = definitions
            var experiment = try #require(definitions.experiments[Identifier(key)])
            experiment.status = "Launched"
            definitions.experiments.set(experiment)
            definitions.generate(since: paused)
            #expect(definitions.datafile == datafile.source)
        }
    }

    @Test func `What is read from a generated datafile generates the same`() throws {
        var definitions = ProjectDefinitions(projectID: "1")
        let bodies: [JSONValue] = [
            [
                "variations": ["a", "b"], "traffic": 30,
                "audience": ["name": "country", "match": "in", "value": ["de"]],
            ],
            ["variations": [["key": "a", "weight": 1], ["key": "b", "weight": 2]], "group": "g", "traffic": 20],
            ["variations": ["a"], "enrollment": "closed", "status": "paused"],
            ["variations": ["a"], "status": "draft", "name": "n", "tags": ["t"]],
            ["variations": ["a", "b"]],
        ]
        for (number, body) in bodies.enumerated() {
            try ExperimentChange(body, key: "e\(number)").apply(to: &definitions)
        }
        try definitions.conclude("e4", as: ConclusionInput(winner: "b", reason: "r"), at: 0, by: "ada")
        let flag: JSONValue = [
            "type": "string", "enabled": false, "tags": ["t"], "description": "d",
            "variations": [["key": "a", "value": "A"], ["key": "b", "value": "B"]],
            "rules": [
                ["audience": ["name": "country", "match": "in", "value": ["de"]], "variation": "b"],
                ["key": "r", "experiment": ["traffic": 10]],
            ],
        ]
        try FlagChange(flag, key: "flag").apply(to: &definitions)
        definitions.serveExperiments()
        definitions.generate(since: nil)
        let datafile = try Datafile(definitions.datafile)
        var read = ProjectDefinitions(datafile.source)
        #expect(read.experiments["r"]?.status == "Running" && datafile.experiment(key: "r")?.status == "Paused")
        #expect(read.experiments["e3"]?.details == definitions.experiments["e3"]?.details)
        #expect(read.experiments["e4"]?.conclusion == definitions.experiments["e4"]?.conclusion)
        #expect(try CompiledDefinitions(datafile).servingAll() == nil)
        read.generate(since: nil)
        #expect(read.datafile == datafile.source)
    }

    @Test func `An experiment in a group is changed there`() throws {
        let former = ProjectDefinitions(try Self.datafile(Self.brought).source)
        var definitions = former
        try ExperimentChange(["traffic": 10], key: "h").apply(to: &definitions)
        definitions.generate(since: former)
        let changed = try Datafile(definitions.datafile)
        #expect(changed.groups.first?.experimentIDs == ["3"])
        #expect(changed.experiment(key: "h")?.trafficAllocation.ranges.map(\.end) == [1_000])
        #expect(throws: CoreError.self) {
            try ExperimentChange(["group": nil], key: "h").apply(to: &definitions)
        }
    }

    @Test(arguments: [("0", "1"), ("41", "42"), ("x", "1"), ("9223372036854775807", "1")])
    func `Revisions are incremented`(former: String, raised: String) throws {
        var definitions = ProjectDefinitions(try Self.datafile(["revision": .string(former)]).source)
        definitions.incrementRevision()
        #expect(try Datafile(definitions.datafile).revision == raised)
    }
}
