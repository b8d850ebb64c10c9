import Bucketing
import Definitions
import DefinitionsTestSupport
import JSON
import TestSupport
import Testing

@testable import HoldfastCore

/// What is shown of definitions makes the same definitions: sent back to the project itself it changes nothing, and in the
/// form of files it makes another project that decides the same.
@Suite struct RoundTripTests {
    private static let audiences: [JSONValue] = [
        nil, ["name": "plan", "value": "pro"], ["not", ["or", ["name": "plan", "value": "pro"]]],
        [["segment": "pros"]], ["name": "orders", "match": "ge", "value": 30],
        [
            "and", ["name": "plan", "match": "in", "value": ["free", "pro"]],
            ["name": "age", "match": "ge", "value": 18.5],
        ],
    ]

    private static func any<Element>(_ elements: [Element], _ random: inout SeededGenerator) -> Element {
        elements[Int.random(in: elements.indices, using: &random)]
    }

    /// Sends back what is shown: as it is, and with the members in another order.
    private static func expectRoundTrip<Element: DefinedElement>(
        _: Element.Type, _ key: String, in bench: inout DefinitionBench
    ) throws {
        let shown = bench.shown(Element.self, key)
        for body in [shown, shown.turned] {
            // The revision is part of what is shown.
            #expect(try bench.put(Element.self, key, body) == shown, "\(body)")
        }
    }

    @Test func `Experiments of every kind`() throws {
        var bench = try DefinitionBench()
        var random = SeededGenerator(seed: 7)
        var count = 0
        for number in 0..<60 {
            let isWeighted = Bool.random(using: &random)
            let variations = (0..<Int.random(in: 1...4, using: &random)).map { index -> JSONValue in
                let weight = Self.any([1, 2, 0.1, 33.3, 1_000_000] as [JSONValue], &random)
                return isWeighted ? ["key": .string("v\(index)"), "weight": weight] : .string("v\(index)")
            }
            var body = JSONObject()
            body["variations"] = .array(variations)
            if Bool.random(using: &random) { body["traffic"] = Self.any([0, 0.02, 3, 7.35] as [JSONValue], &random) }
            if Bool.random(using: &random) { body["audience"] = Self.any(Self.audiences, &random) }
            body["status"] = Self.any(["Running", "Paused", "Not started", "Archived"] as [JSONValue], &random)
            if Bool.random(using: &random) { body["enrollment"] = "closed" }
            if Bool.random(using: &random) { body["group"] = Self.any([nil, "g"] as [JSONValue], &random) }
            let key = "e\(number % 12)"
            // The traffic of a group has its limit.
            guard (try? bench.put(Experiment.self, key, .object(body))) != nil else { continue }
            try Self.expectRoundTrip(Experiment.self, key, in: &bench)
            count += 1
        }
        #expect(count > 30)
    }

    @Test(
        arguments: [
            ("boolean", true, false), ("string", "A", ""), ("integer", 3, -4), ("double", 0.25, 3),
            ("json", ["b": [1, nil], "a": 2], []),
        ] as [(String, JSONValue, JSONValue)])
    func `Flags of every kind, and the experiments of their rules`(type: String, x: JSONValue, y: JSONValue) throws {
        var bench = try DefinitionBench()
        var random = SeededGenerator(seed: 8)
        for number in 0..<8 {
            let rules = (0..<Int.random(in: 0...3, using: &random)).map { index -> JSONValue in
                var rule = JSONObject()
                rule["key"] = .string("r\(number)\(index)")
                rule["audience"] = Self.any(Array(Self.audiences.dropFirst()), &random)
                switch Int.random(in: 0..<3, using: &random) {
                case 0: (rule["variation"], rule["traffic"]) = ("x", 12.5)
                case 1: rule["experiment"] = ["weights": ["y": .integer(Int64(index + 1)), "x": 0.3], "traffic": 20]
                default: rule["experiment"] = ["status": "Paused", "enrollment": "closed"]
                }
                return .object(rule)
            }
            let shown = try bench.put(
                Flag.self, "f\(number)",
                [
                    "type": .string(type), "variations": [["key": "x", "value": x], ["key": "y", "value": y]],
                    "enabled": .bool(Bool.random(using: &random)), "tags": ["t"], "description": "d",
                    "rules": .array(rules),
                ])
            try Self.expectRoundTrip(Flag.self, "f\(number)", in: &bench)
            for rule in shown["rules"].array ?? [] where rule.object?["experiment"] != nil {
                try Self.expectRoundTrip(Experiment.self, rule["key"].string ?? "", in: &bench)
            }
        }
    }

    @Test func `What a datafile brought, and what serves an experiment`() throws {
        var bench = try DefinitionBench(Self.brought)
        for key in ["test", "grouped", "301"] { try Self.expectRoundTrip(Experiment.self, key, in: &bench) }
        try Self.expectRoundTrip(Flag.self, "checkout", in: &bench)
        #expect(
            bench.shown(Experiment.self, "test")["audience"]
                == ["or", ["type": "custom_attribute", "match": "exact", "name": "country", "value": "de"]])
        try bench.put(Experiment.self, "own", ["variations": ["a"]])
        try Self.expectRoundTrip(Flag.self, "own", in: &bench)
    }

    @Test func `What another project shows is refused, and what the server computes is ignored`() throws {
        var bench = try DefinitionBench()
        let shown = try bench.put(Experiment.self, "e", ["variations": ["a"]])
        let other = try #require(bench.refused(Experiment.self, "e", ["sdk_key": "other", "traffic": 5]))
        #expect(other.kind == .invalid && other.places == ["/sdk_key"])
        #expect(bench.refused(Experiment.self, "e", ["revision": "1", "shares": []])?.places == ["/shares"])
        #expect(try bench.put(Experiment.self, "e", ["revision": "77", "traffic_allocation": []]) == shown)
    }

    // MARK: Files

    /// Makes definitions by a history of changes, so that the allocations are not those of new experiments.
    private static func fill(_ bench: inout DefinitionBench, _ random: inout SeededGenerator) throws {
        func any<Element>(_ elements: [Element]) -> Element { Self.any(elements, &random) }
        func isGiven() -> Bool { Bool.random(using: &random) }
        // Some changes are not possible, such as of the traffic of a full group.
        func put<Element: DefinedElement>(_: Element.Type, _ key: String, _ body: JSONObject) {
            _ = try? bench.put(Element.self, key, .object(body))
        }
        try bench.put(
            MetricDefinition.self, "orders", ["kind": "conversion", "goal": "order", "description": "Orders"])
        try bench.put(
            MetricDefinition.self, "revenue",
            ["kind": "total", "goal": "order", "cap": 500, "window": 7, "direction": "decrease"])
        for _ in 0..<40 {
            let key = "e\(Int.random(in: 0..<8, using: &random))"
            var body = JSONObject()
            let isNew = bench.shown(Experiment.self, key) == .null
            if isNew || isGiven() {
                let weights = any([[1, 1], [1, 3], [2, 1, 5], [33.3, 66.7]] as [[JSONValue]])
                body["variations"] = .array(
                    weights.enumerated().map { ["key": .string("v\($0.offset)"), "weight": $0.element] })
            }
            if isGiven() { body["traffic"] = any([0, 7.35, 30, 50, 100]) }
            if isGiven() { body["group"] = any([nil, "g", "h"]) }
            if isGiven() { body["audience"] = any(audiences) }
            if isGiven() { body["enrollment"] = any(["open", "closed"]) }
            if isNew || isGiven() { body["status"] = any(["running", "running", "paused", "draft", "archived"]) }
            if isGiven() {
                (body["name"], body["tags"]) = ("N", ["a", "b"])
                body["metrics"] = ["primary": ["orders"], "secondary": ["revenue"]]
            }
            if isGiven() { body["plan"] = ["alpha": 0.01] }
            put(Experiment.self, key, body)
            let winner = any([nil, "v1"] as [Identifier?])
            switch any(["conclude", "reopen", "", "", "", ""]) {
            case "conclude": _ = try? bench.conclude(key, winner: winner)
            case "reopen": _ = try? bench.reopen(key)
            default: break
            }
        }
        for _ in 0..<12 {
            let key = "f\(Int.random(in: 0..<4, using: &random))"
            let targeted = Array(audiences.dropFirst())
            let rules: [JSONValue] = [
                ["key": .string("\(key)_d"), "audience": any(targeted), "variation": "on", "traffic": 40],
                [
                    "key": .string("\(key)_x"), "audience": any(targeted),
                    "experiment": [
                        "weights": ["off": 1, "on": any([1, 3])], "traffic": any([20, 60]), "group": any([nil, "h"]),
                    ],
                ],
                [
                    "key": .string("\(key)_y"),
                    "experiment": ["traffic": any([50, 90]), "status": any(["running", "paused"])],
                ],
            ].filter { _ in isGiven() }
            var body = JSONObject()
            (body["type"], body["description"], body["rules"]) = ("boolean", "d", .array(rules))
            body["enabled"] = any([true, true, false])
            put(Flag.self, key, body)
            if bench.shown(Experiment.self, "\(key)_y") != .null {
                try bench.put(Experiment.self, "\(key)_y", ["hypothesis": "h"])
            }
        }
        try bench.put(Holdout.self, "all", ["share": 10, "audience": any(audiences)])
        let flag = bench.shown(Flag.self, "f0") == .null ? "f1" : "f0"
        try bench.put(
            Holdout.self, "some", ["share": 15, "flags": [.string(flag)], "status": any(["running", "paused"])])
    }

    /// What a user gets of every flag.
    private static func decisions(_ bench: DefinitionBench, _ user: Int) -> [String] {
        let attributes: JSONValue = [
            "orders": .integer(Int64(user % 60)), "plan": user.isMultiple(of: 3) ? "pro" : "basic", "age": 20,
        ]
        let user = User(id: Identifier("user\(user)"), attributes: attributes.object ?? JSONObject())
        return DecisionService(datafile: bench.project.datafile).decideAll(for: user).value.map {
            "\($0.flagKey) \($0.ruleKey?.string ?? "") \($0.variation?.key.string ?? "")"
        }.sorted()
    }

    @Test(arguments: 1...4) func `Definitions of any history are the same in an empty project, and decide the same`(
        seed: UInt64
    ) throws {
        var random = SeededGenerator(seed: seed)
        var (staging, production) = (try DefinitionBench(), try DefinitionBench())
        try Self.fill(&staging, &random)
        let files = staging.files
        try production.apply(files)
        #expect(production.files == files)
        #expect(try staging.apply(files).differences.isEmpty && production.apply(files).differences.isEmpty)
        for user in 0..<100 { #expect(Self.decisions(staging, user) == Self.decisions(production, user)) }
    }

    private static let brought: KeyValuePairs<String, JSONValue> = [
        "typedAudiences": [
            [
                "id": "601", "name": "Germans",
                "conditions": ["type": "custom_attribute", "match": "exact", "name": "country", "value": "de"],
            ]
        ],
        "groups": [
            [
                "id": "g", "policy": "random", "trafficAllocation": [["entityId": "7003", "endOfRange": 5_000]],
                "experiments": [
                    [
                        "id": "7003", "key": "grouped", "layerId": "1", "status": "Launched", "audienceIds": [],
                        "forcedVariations": [:], "variations": [["id": "70031", "key": "a"]],
                        "trafficAllocation": [["entityId": "70031", "endOfRange": 10_000]],
                    ]
                ],
            ]
        ],
        "experiments": [
            [
                "id": "7001", "key": "test", "layerId": "1", "status": "Running", "audienceIds": ["601"],
                "audienceConditions": ["or", "601"], "forcedVariations": ["eve": "new"],
                "variations": [
                    ["id": "70011", "key": "control", "featureEnabled": true, "variables": []],
                    [
                        "id": "70012", "key": "new", "featureEnabled": true,
                        "variables": [["id": "801", "value": "3"]],
                    ],
                ],
                "trafficAllocation": [
                    ["entityId": "70011", "endOfRange": 5_000], ["entityId": "", "endOfRange": 6_000],
                    ["entityId": "70012", "endOfRange": 10_000],
                ],
            ]
        ],
        "featureFlags": [
            [
                "id": "9001", "key": "checkout", "rolloutId": "30", "experimentIds": ["7001"],
                "variables": [
                    ["id": "801", "key": "columns", "type": "integer", "defaultValue": "1"],
                    ["id": "802", "key": "x", "type": "string", "defaultValue": "y"],
                ],
            ]
        ],
        "rollouts": [
            [
                "id": "30",
                "experiments": [
                    [
                        "id": "301", "key": "301", "layerId": "30", "status": "Running", "audienceIds": ["601"],
                        "forcedVariations": [:],
                        "variations": [
                            [
                                "id": "3011", "key": "on", "featureEnabled": true,
                                "variables": [["id": "801", "value": "2"]],
                            ]
                        ],
                        "trafficAllocation": [["entityId": "3011", "endOfRange": 10_000]],
                    ]
                ],
            ]
        ],
    ]
}

extension JSONValue {
    /// The same value with the members of objects in reverse order, except where the order says something.
    fileprivate var turned: JSONValue {
        if let list = array { return .array(list.map(\.turned)) }
        guard let object else { return self }
        var turned = JSONObject()
        for member in object.reversed() {
            turned[member.key] = member.key == "weights" ? member.value : member.value.turned
        }
        return .object(turned)
    }
}
