import Bucketing
import Definitions
import DefinitionsTestSupport
import JSON
import Testing

@testable import HoldfastCore

/// What a set of definitions makes of a project.
@Suite struct DefinitionSetRulesTests {
    private var bench: DefinitionBench

    init() throws {
        bench = try DefinitionBench()
    }

    /// Each names what comes after it.
    private static let definitions: JSONValue = [
        "holdouts": [["key": "all", "share": 0, "flags": ["banner", "checkout"]]],
        "flags": [
            [
                "key": "banner", "type": "boolean",
                "rules": [
                    ["audience": [["segment": "pros"]], "variation": "off"],
                    ["experiment": ["weights": ["off": 1, "on": 1], "traffic": 50]],
                ],
            ], ["key": "checkout", "description": "of an experiment"],
        ],
        "experiments": [
            ["key": "banner_experiment", "hypothesis": "More clicks", "metrics": ["primary": ["orders"]]],
            [
                "key": "checkout", "variations": ["control", ["key": "new"]], "traffic": 60, "group": "page",
                "audience": [["segment": "pros"]],
            ],
            [
                "key": "old", "variations": ["a", "b"], "status": "concluded",
                "conclusion": ["winner": "b", "reason": "better"],
            ],
        ],
        "metrics": [["key": "orders", "kind": "conversion", "goal": "order"]],
    ]

    private static func changes(_ outcome: DefinitionSetEdit.Outcome) -> [String] {
        outcome.differences.map(\.json).map {
            "\($0["action"].string ?? "") \($0["kind"].string ?? "") \($0["key"].string ?? "")"
        }
    }

    private mutating func changes(_ set: JSONValue, prunes: Bool = false) throws(CoreError) -> [String] {
        Self.changes(try bench.apply(set, prunes: prunes))
    }

    private func experiment(_ key: String) -> JSONValue { bench.shown(Experiment.self, key) }

    @Test mutating func `Definitions are applied in any order, and a second time change nothing`() throws {
        #expect(
            try changes(Self.definitions) == [
                "create metric orders", "create experiment banner_experiment", "create experiment checkout",
                "create experiment old", "create flag banner", "create flag checkout", "create holdout all",
            ])
        let revision = bench.project.datafile.revision
        for set in [Self.definitions, bench.files] { #expect(try changes(set) == []) }
        #expect(bench.project.datafile.revision == revision)
        #expect(experiment("old")["conclusion"]["winner"] == "b")
        #expect(experiment("banner_experiment")["hypothesis"] == "More clicks")
        #expect(bench.shown(Flag.self, "checkout")["description"] == "of an experiment")
    }

    @Test mutating func `Variations without weights are those with equal weights`() throws {
        func set(_ variations: JSONValue) -> JSONValue { ["experiments": [["key": "e", "variations": variations]]] }
        try bench.put(
            Experiment.self, "e", ["variations": [["key": "a", "weight": 5], ["key": "b", "weight": 5]]])
        for same in [
            ["a", "b"], ["a", ["key": "b"]], [["key": "a", "weight": 5], ["key": "b", "weight": 5.0]],
        ] as [JSONValue] {
            #expect(try changes(set(same)) == [], "\(same)")
        }
        for wrong in [["a", ["key": "b", "weight": 5]], ["a", ["key": "b", "share": "x", "name": 1]]] as [JSONValue] {
            let refusal = bench.refused { bench throws(CoreError) in try bench.apply(set(wrong)) }
            #expect(refusal?.kind == .unprocessable, "\(wrong)")
        }
        for other in [
            ["b", "a"], [["key": "a", "weight": 1], ["key": "b", "weight": 3]], ["a", "b"], ["a", "b", "c"],
        ] as [JSONValue] {
            #expect(try changes(set(other)) == ["change experiment e"], "\(other)")
        }
    }

    @Test func `Everything that is wrong is named with its place, and nothing is applied`() throws {
        let set: JSONValue = [
            "attributes": [["name": "level", "type": "string"]],
            "segments": [["name": "s", "conditions": ["name": "levle", "value": "x"]]],
            "experiments": [
                ["key": "a", "variations": ["x"], "trafic": 5],
                ["key": "b", "variations": ["x"], "metrics": ["primary": ["m"]]],
                ["key": "c", "variations": ["x", "y"], "status": "concluded"],
            ],
            "flags": [["key": "f"]],
        ]
        let refusal = try #require(bench.refused { bench throws(CoreError) in try bench.apply(set) })
        #expect(refusal.kind == .unprocessable)
        #expect(
            refusal.places == [
                "/segments/0/conditions/name", "/experiments/0/trafic", "/experiments/1/metrics/primary/0",
                "/experiments/2/conclusion", "/flags/0/type",
            ], "\(refusal.faults)")
    }

    @Test(
        arguments: [
            (["experiment": []], "/experiment"), ([], ""), (["experiments": [:]], "/experiments"),
            (["experiments": [["variations": ["a"]]]], "/experiments/0/key"),
            (["metrics": [["key": "m"], ["key": "m"]]], "/metrics/1/key"),
        ] as [(JSONValue, String)])
    func `What is not a set of definitions is refused`(set: JSONValue, place: String) throws {
        let refusal = try #require(throws: CoreError.self) { try DefinitionSet(set) }
        #expect(refusal.places == [place], "\(refusal)")
    }

    @Test mutating func `A member that is left out has its default, except for what changes by itself`() throws {
        try bench.apply(Self.definitions)
        let former = experiment("checkout")
        let outcome = try bench.apply(["experiments": [["key": "checkout"]]])
        let members = outcome.differences.first?.json["members"].all("member").compactMap(\.string)
        #expect(members?.sorted() == ["audience", "group"])
        let now = experiment("checkout")
        #expect(now["audience"].isNull && now["group"].isNull)
        for member in ["id", "traffic", "status", "enrollment"] { #expect(now[member] == former[member], "\(member)") }
        try bench.apply(["flags": [["key": "banner", "rules": []]], "holdouts": [["key": "all"]]])
        #expect(bench.shown(Flag.self, "banner")["rules"] == [])
        #expect(bench.shown(Holdout.self, "all")["flags"].isNull)
    }

    @Test mutating func `An experiment that gets another key keeps what the definitions do not say of it`() throws {
        try bench.put(
            Experiment.self, "checkout",
            ["id": "7001", "variations": ["control", "new"], "owner": "ann", "assignment_ttl": "30d"])
        try bench.apply(["experiments": [["key": "till", "id": "7001", "variations": ["control", "new"]]]])
        #expect(experiment("till")["owner"] == "ann" && experiment("till")["assignment_ttl"] == "30d")
        // Whoever gives it another key does not conclude it again.
        let former = try bench.conclude("till", winner: "new")["conclusion"]
        var element = try #require(bench.files["experiments"].array?.first?.object)
        element["key"] = "desk"
        try bench.apply(["experiments": [.object(element)]])
        #expect(experiment("desk")["conclusion"] == former)
    }

    @Test mutating func `What the definitions lack stays, or is removed`() throws {
        try bench.apply(Self.definitions)
        #expect(try changes([:]) == [])
        let rest: JSONValue = ["experiments": [["key": "old"]]]
        #expect(
            try changes(rest, prunes: true) == [
                "change experiment checkout", "remove experiment banner_experiment", "remove flag banner",
                "remove holdout all",
            ])
        #expect(experiment("checkout")["status"] == "archived")
        #expect(bench.shown(Flag.self, "banner") == .null)
        // An experiment that is archived measures it, and all projects share the others.
        #expect(bench.files["metrics"].all("key") == ["orders"] && bench.files["segments"].all("name") == ["pros"])
        #expect(try changes(rest, prunes: true) == [])
    }

    @Test mutating func `A group is divided once all its experiments have changed`() throws {
        func set(_ traffic: KeyValuePairs<String, JSONValue>) -> JSONValue {
            let experiments = traffic.map { key, traffic in
                ["key": .string(key), "variations": ["x"], "traffic": traffic, "group": "g"] as JSONValue
            }
            return ["experiments": .array(experiments)]
        }
        try bench.apply(set(["a": 80, "b": 20]))
        #expect(try changes(set(["b": 70, "a": 30])).count == 2)
        let over = try #require(bench.refused { bench throws(CoreError) in try bench.apply(set(["b": 71])) })
        #expect(over.kind == .unprocessable && over.detail.contains("at most 100%"))
    }

    /// It took minutes when each experiment looked through all others.
    @Test(.timeLimit(.minutes(5))) func `A set may have thousands of experiments`() throws {
        let experiments = (0..<3_000).map {
            ["key": .string("e\($0)"), "variations": ["a", "b"], "traffic": 20] as JSONValue
        }
        let outcome = try DefinitionSetEdit.check(try DefinitionSet(["experiments": .array(experiments)]))
        #expect(outcome.differences.count == 3_000)
    }
}
