import Bucketing
import Definitions
import DefinitionsTestSupport
import JSON
import Testing

/// What a body of a flag may be, and what it makes of a flag.
@Suite struct FlagRulesTests {
    private var bench: DefinitionBench

    init() throws {
        bench = try DefinitionBench()
        try bench.put(Experiment.self, "checkout", ["variations": ["a"]])
    }

    private mutating func put(_ body: JSONValue, _ key: String = "banner") throws(CoreError) -> JSONValue {
        try bench.put(Flag.self, key, body)
    }

    private func refused(_ body: JSONValue, _ key: String = "banner") -> CoreError? {
        bench.refused(Flag.self, key, body)
    }

    // MARK: What is refused

    @Test(
        arguments: [
            ([:], ["/type"]),
            (
                [
                    "tags": ["a", 2, "a", ""], "type": "text", "enabled": 1, "description": [], "rulez": [],
                    "key": "other",
                ], ["/rulez", "/key", "/type", "/enabled", "/description", "/tags/1", "/tags/2", "/tags/3"]
            ),
            (["type": "string"], ["/variations"]),
            (
                ["type": "string", "variations": [["key": "a", "value": 1], ["key": "a", "value": "x"]]],
                ["/variations/0/value", "/variations/1/key"]
            ),
            (
                ["type": "string", "variations": [["key": "a", "value": 1], ["key": "b"]]],
                ["/variations/0/value", "/variations/1/value"]
            ),
            (
                [
                    "type": "integer", "variations": [["key": "a", "value": 1.5], ["key": "b", "value": "1"]],
                    "otherwise": "c", "rules": [["variation": "d", "audience": ["segment": "pros"]]],
                ], ["/variations/0/value", "/variations/1/value", "/rules/0/variation", "/otherwise"]
            ),
            (
                [
                    "type": "integer", "variations": [["key": "a", "value": 1e19], ["key": "b", "value": 1]],
                    "otherwise": "c", "what": 1,
                    "rules": [["experiment": ["weights": ["a": 1, "d": 1], "traffic": 101]]],
                ],
                [
                    "/what", "/variations/0/value", "/rules/0/experiment/traffic", "/rules/0/experiment/weights/d",
                    "/otherwise",
                ]
            ),
            (
                [
                    "type": "boolean",
                    "rules": [
                        [:], ["variation": "on", "experiment": [:]], ["variation": "on", "traffic": 101],
                        ["experiment": ["weights": ["on": -1]]], ["experiment": ["weights": ["on": 0]]],
                        ["experiment": ["weights": [:]]], ["experiment": ["status": "on", "enrollment": 1]], 7,
                    ],
                ],
                [
                    "/rules/0", "/rules/1", "/rules/2/traffic", "/rules/3/experiment/weights/on",
                    "/rules/4/experiment/weights", "/rules/5/experiment/weights", "/rules/6/experiment/status",
                    "/rules/6/experiment/enrollment", "/rules/7",
                ]
            ),
            (["type": "boolean", "rules": [["variation": "on"], ["experiment": [:]]]], ["/rules/1"]),
            (
                ["type": "boolean", "rules": [["experiment": [:]], ["experiment": [:]]]],
                ["/rules/1/key", "/rules/1/key"]
            ),
            (["type": "boolean", "rules": [["key": "checkout", "experiment": [:]]]], ["/rules/0/key", "/rules/0"]),
            (
                [
                    "type": "boolean",
                    "rules": [["audience": ["name": "a", "match": "like", "value": 1], "variation": "on"]],
                ], ["/rules/0/audience/match"]
            ),
            (["type": "boolean", "rules": [["variation": nil]]], ["/rules/0/variation"]),
            (["type": "boolean", "rules": [["experiment": [:], "traffic": 5]]], ["/rules/0/traffic"]),
        ] as [(JSONValue, [String])])
    func `Every wrong member of a new flag is named`(body: JSONValue, places: [String]) throws {
        let refusal = try #require(refused(body))
        #expect(refusal.places == places, "\(refusal.faults)")
        #expect(refusal.kind == .unprocessable)
    }

    @Test(
        arguments: [
            (
                ["type": "bool"],
                "`type` must be one of boolean, integer, double, json, string; got 'bool'; did you mean 'boolean'?"
            ),
            (["type": 5], "`type` must be one of boolean, integer, double, json, string; got a number"),
            (["type": "boolean", "enabled": "yes"], "`enabled` must be true or false; got a string"),
            (["type": "boolean", "otherwise": "of"], "`otherwise` must be a variation; got 'of'; did you mean 'off'?"),
            (
                ["type": "boolean", "rules": [["variation": "onn"]]],
                "a rule must have variations of the flag; got 'onn'; did you mean 'on'?"
            ),
        ] as [(JSONValue, String)])
    func `An error says what is required and what was found`(body: JSONValue, detail: String) throws {
        #expect(refused(body)?.detail.hasPrefix(detail) == true, "\(refused(body)?.detail ?? "")")
    }

    @Test mutating func `The type stays, and a variation that is used cannot go`() throws {
        _ = try put(["type": "boolean", "rules": [["key": "test", "experiment": [:]]]])
        #expect(refused(["type": "string"])?.kind == .conflict)
        #expect(refused(["variations": [["key": "on", "value": true]]])?.places == ["/otherwise", "/rules/0"])
        #expect(bench.refused(Experiment.self, "test", ["variations": ["on", "maybe"]])?.places == ["/variations/1"])
        #expect(bench.refused(Experiment.self, "test", ["audience": ["segment": "pros"]])?.places == ["/audience"])
    }

    @Test func `What an experiment or a datafile says of its flag is changed there`() throws {
        for (member, value) in [
            ("type", "boolean"), ("enabled", false), ("variations", [["key": "a", "value": "a"]]), ("rules", []),
            ("otherwise", "a"),
        ] as [(String, JSONValue)] {
            var body = JSONObject()
            body[member] = value
            // What is shown already asks for nothing.
            if bench.shown(Flag.self, "checkout")[member] == value { continue }
            let refusal = try #require(refused(.object(body), "checkout"), "\(member)")
            #expect(refusal.kind == .conflict && refusal.places == ["/\(member)"])
            #expect(refusal.detail.hasPrefix("`\(member)` must be changed with PUT /v1/experiments/checkout"))
        }
        #expect(refused(["description": "Of the shop", "tags": ["web"]], "checkout") == nil)
    }

    // MARK: What comes of a body

    @Test mutating func `A boolean flag needs no variations`() throws {
        let created = try put(["type": "boolean"])
        #expect(created["variations"] == [["key": "on", "value": true], ["key": "off", "value": false]])
        #expect(created["otherwise"] == "off" && created["enabled"] == true && created["defined_by"] == "flag")
        #expect(try put(["otherwise": "on"])["version"] == 3)
    }

    @Test mutating func `What is left out keeps its value`() throws {
        let first = try put([
            "type": "boolean", "tags": ["web", "shop"], "description": "A banner",
            "rules": [["key": "test", "experiment": ["weights": ["off": 3, "on": 1], "traffic": 20]]],
        ])
        for body in [[:], ["tags": ["web", "shop"]], ["rules": [["key": "test", "experiment": [:]]]]] as [JSONValue] {
            #expect(try put(body) == first)
        }
        let off = try put(["enabled": false])
        #expect(off["rules"] == first["rules"] && off["enabled"] == false)
        #expect(bench.shown(Experiment.self, "test")["status"] == "paused")
        #expect(bench.refused(Experiment.self, "test", ["status": "running"])?.places == ["/status"])
        let on = try put(["enabled": true, "description": nil, "tags": nil])
        #expect(on["description"] == "" && on["tags"] == ["web", "shop"] && on["rules"] == first["rules"])
        #expect(bench.shown(Experiment.self, "test")["status"] == "running")
    }

    @Test mutating func `An experiment whose rule goes is archived, and restored with a status`() throws {
        let rules: JSONValue = [["key": "test", "experiment": ["weights": ["off": 1, "on": 0]]]]
        _ = try put(["type": "boolean", "rules": rules])
        let id = bench.shown(Experiment.self, "test")["id"]
        _ = try put(["rules": []])
        #expect(bench.shown(Experiment.self, "test")["status"] == "archived")
        #expect(refused(["rules": rules])?.places == ["/rules/0/experiment/status"])
        let restored = try put(["rules": [["key": "test", "experiment": ["status": "running"]]]])
        #expect(restored["rules"].array?.first?["experiment"]["id"] == id)
        try bench.remove(Flag.self, "banner")
        #expect(bench.shown(Experiment.self, "test")["status"] == "archived")
        #expect(bench.shown(Flag.self, "banner") == .null)
    }
}
