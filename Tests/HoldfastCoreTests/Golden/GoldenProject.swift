import Bucketing
import Chronology
import Definitions
import JSON
import Storage
import TestSupport
import Testing

@testable import HoldfastCore

/// A project with an element of every kind and in every state.
enum GoldenProject {
    static let sdkKey = "default"
    private static let time: Instant = 1_772_000_000_000

    static let schema: AttributeSchema = {
        let attributes = [("orders", "number"), ("plan", "string")].compactMap { name, type in
            try? AttributeDefinition(["type": .string(type)], name: Identifier(name))
        }
        let plain = AttributeSchema(attributes: attributes, segments: [])
        let conditions: JSONValue = ["name": "plan", "match": "exact", "value": "pro"]
        let segment = try? Segment(["conditions": conditions], name: "pros", schema: plain)
        return AttributeSchema(attributes: attributes, segments: segment.map { [$0] } ?? [])
    }()

    /// What an uploaded datafile brought.
    private static let brought: KeyValuePairs<String, JSONValue> = [
        "experiments": [
            [
                "id": "101", "key": "legacy", "layerId": "campaign", "status": "Launched", "unknown": [1],
                "variations": [["id": "1011", "key": "a", "name": "A"], ["id": "1012", "key": "b"]],
                "trafficAllocation": [["entityId": "1011", "endOfRange": 5_000]], "audienceIds": ["11"],
                "audienceConditions": ["or", "11"], "forcedVariations": ["eve": "b"],
            ]
        ],
        "groups": [
            [
                "id": "201", "policy": "random", "name": "G",
                "experiments": [
                    [
                        "id": "102", "key": "grouped", "layerId": "campaign", "status": "Running", "audienceIds": [],
                        "variations": [["id": "1021", "key": "control"], ["id": "1022", "key": "new"]],
                        "trafficAllocation": [["entityId": "1021", "endOfRange": 4_000]], "forcedVariations": [:],
                    ]
                ],
                "trafficAllocation": [["entityId": "102", "endOfRange": 7_000]],
            ]
        ],
        "featureFlags": [
            [
                "id": "301", "key": "classic", "rolloutId": "401", "experimentIds": ["101"], "extra": true,
                "variables": [["id": "3011", "key": "size", "type": "integer", "defaultValue": "3"]],
            ]
        ],
        "rollouts": [["id": "401", "experiments": [], "name": "R"]],
        "typedAudiences": [
            ["id": "11", "name": "X", "conditions": ["or", ["name": "a", "type": "custom_attribute", "value": "1"]]]
        ],
        "unknown": ["kept": true],
    ]

    private static let metrics: KeyValuePairs<String, JSONValue> = [
        "signups": ["kind": "conversion", "goal": "sign up", "window": 7],
        "revenue": ["kind": "total", "goal": "buy", "cap": 500, "description": "Of two weeks"],
        "items": ["kind": "count", "goal": "buy", "adjustment": ["attribute": "orders"]],
        "average": ["kind": "mean", "goal": "buy", "direction": "decrease"],
        "path": ["kind": "funnel", "goals": ["visit", "buy"], "minimum_effect": 0.05],
        "perorder": [
            "kind": "ratio", "numerator": ["goal": "buy", "by": "value"],
            "denominator": ["goal": "buy", "by": "count"],
        ],
        "back": ["kind": "retention", "goal": "visit", "from": 1, "to": 7, "adjustment": ["days": 7]],
    ]

    private static let experiments: KeyValuePairs<String, JSONValue> = [
        "checkout": [
            "id": "1", "variations": ["control", "new"], "name": "Checkout", "owner": "ann", "tags": ["web", "app"],
            "audience": ["name": "plan", "match": "exact", "value": "pro"], "plan": ["alpha": 0.01],
            "metrics": [
                "primary": ["revenue"], "guardrails": [["metric": "signups", "margin": 0.02]], "breakdowns": ["plan"],
            ],
        ],
        "pricing": [
            "id": "2", "variations": [["key": "control", "weight": 3], ["key": "new", "weight": 1]], "traffic": 40,
            "group": "g1", "audience": ["name": "plan", "match": "in", "value": ["pro", "free"]],
        ],
        "landing": ["id": "3", "variations": ["a", "b", "c"], "traffic": 30, "group": "g1", "enrollment": "closed"],
        "later": [
            "id": "4", "variations": ["control", "new"], "assignment_ttl": "30d",
            "schedule": ["start_at": "2026-06-01T00:00:00Z", "end_at": "2026-07-01T00:00:00Z"],
        ],
        "rising": [
            "id": "5", "variations": ["control", "new"], "hypothesis": "It sells",
            "ramp": ["steps": [["traffic": 5, "for": "2d"], ["traffic": 50, "users": 1_000], ["traffic": 100]]],
        ],
        "learner": [
            "id": "6", "variations": ["control", "new", "bold"], "metrics": ["primary": ["signups", "items"]],
            "bandit": ["every": "12h", "minimum_share": 10],
        ],
        "predicting": [
            "id": "7", "variations": ["control", "new"], "metrics": ["primary": ["signups"]], "traffic": 60,
            "bandit": ["predict": true],
        ],
        "done": ["id": "8", "variations": ["control", "new"], "metrics": ["secondary": ["items"]]],
        "old": ["id": "9", "variations": ["control", "new"], "traffic": 1],
        "waiting": ["id": "10", "variations": ["control", "new"], "status": "paused"],
        "sketch": ["id": "11", "variations": ["control", "new"], "status": "draft", "description": "Not yet"],
    ]

    private static let flags: KeyValuePairs<String, JSONValue> = [
        "banner": [
            "type": "string", "variations": [["key": "short", "value": "Hi"], ["key": "new", "value": "Hello"]],
            "otherwise": "short", "tags": ["web"], "description": "At the top",
            "rules": [
                ["audience": ["segment": "pros"], "variation": "new", "traffic": 50],
                ["key": "greeting", "experiment": ["id": "12", "weights": ["short": 1, "new": 2], "traffic": 80]],
            ],
        ],
        "switch": [
            "type": "boolean", "enabled": false,
            "rules": [
                [
                    "key": "turning", "audience": ["name": "orders", "match": "gt", "value": 3],
                    "experiment": ["id": "13", "weights": ["off": 1, "on": 1]],
                ],
                ["variation": "on"],
            ],
        ],
        "limits": [
            "type": "json", "variations": [["key": "a", "value": ["max": 5]], ["key": "b", "value": ["max": 9]]],
        ],
    ]

    private static let holdouts: KeyValuePairs<String, JSONValue> = [
        "everything": ["share": 5, "description": "2026", "metrics": ["primary": ["revenue"]]],
        "some": ["share": 2.5, "flags": ["banner", "checkout"], "audience": ["segment": "pros"], "status": "paused"],
    ]

    /// The project in which each block of bodies begins.
    static let base: Result<Project, any Error> = Result { try make() }

    private static func make() throws -> Project {
        var root = try #require(Datafile.empty(projectID: "1").object)
        for (key, value) in brought { root[key] = value }
        let datafile = JSONValue.object(root)
        var project = Self.project(CompiledDefinitions(try Datafile.usable(datafile)), version: 1)
        func put<Element: DefinedElement>(_: Element.Type, _ bodies: KeyValuePairs<String, JSONValue>) throws {
            for (key, body) in bodies {
                project = try edited(project) { definitions, project throws(CoreError) in
                    let shown = project.flatMap { Element.description(of: key, in: $0.compiled, sdkKey: $0.sdkKey) }
                    _ = try Element.change(body, key: key, of: shown, schema)?.apply(to: &definitions)
                }
            }
        }
        try put(MetricDefinition.self, metrics)
        try put(Experiment.self, experiments)
        try put(Flag.self, flags)
        try put(Holdout.self, holdouts)
        return try edited(project) { definitions, _ throws(CoreError) in
            let conclusion = ConclusionInput(winner: "new", reason: "Better")
            try definitions.conclude("done", as: conclusion, at: time, by: Author.processUser.name)
            _ = try definitions.archive("old")
            let evidence = Ramp.Evidence(users: 12, sampleRatio: 0.5)
            try definitions.apply(.begin(step: 0), to: "rising", at: time, evidence)
            var look = Bandit.Look()
            look.users = 500
            look.chances = [Identifier(DerivedID.of("6/new")): 0.9, Identifier(DerivedID.of("6/control")): 0.1]
            try definitions.apply(.weigh(look), to: "learner", at: time, nil)
        }
    }

    static func edited(
        _ project: Project, _ change: @escaping ProjectEditor.Change<Void>
    ) throws(CoreError) -> Project {
        let draft = try ProjectEditor.draft(sdkKey, change, of: project)
        return Self.project(draft.compiled, version: project.version + 1)
    }

    static func project(_ compiled: CompiledDefinitions, version: Int64) -> Project {
        let stored = StoredDatafile(
            version: version, sdkKey: sdkKey, revision: compiled.datafile.revision,
            body: .whole(compiled.definitions.content), storedAt: time, author: "golden")
        return Project(stored, compiled)
    }

    static func apply(
        _ set: DefinitionSet, prunes: Bool, to project: Project
    ) throws(CoreError) -> ProjectEditor.Draft<DefinitionSetEdit.Outcome> {
        let edit = DefinitionSetEdit(set, prunes: prunes, by: .processUser, at: time, webhooks: nil)
        return try ProjectEditor.draft(
            sdkKey, { definitions, project throws(CoreError) in try edit.apply(to: &definitions, of: project, schema) },
            of: project)
    }
}
