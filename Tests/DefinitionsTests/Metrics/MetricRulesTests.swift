import Bucketing
import Definitions
import DefinitionsTestSupport
import JSON
import Testing

/// What a body of a metric may be, what it makes of a metric, and what experiments may measure.
@Suite struct MetricRulesTests {
    private var bench: DefinitionBench

    init() throws {
        bench = try DefinitionBench()
        try bench.put(Experiment.self, "checkout", ["variations": ["control", "new"]])
    }

    private mutating func put(_ body: JSONValue, _ key: String = "m") throws(CoreError) -> JSONValue {
        try bench.put(MetricDefinition.self, key, body)
    }

    private func refused(_ body: JSONValue) -> CoreError? { bench.refused(MetricDefinition.self, "m", body) }

    private mutating func measure(_ metrics: JSONValue, _ key: String = "checkout") throws(CoreError) -> JSONValue {
        try bench.put(Experiment.self, key, ["metrics": metrics])
    }

    // MARK: What comes of a body

    static let valid: [JSONValue] = [
        ["kind": "conversion", "goal": "purchase", "window": 7],
        ["kind": "conversion", "goal": "purchase", "adjustment": ["days": 1]],
        ["kind": "count", "goal": "purchase"],
        ["kind": "count", "goal": "error", "direction": "decrease", "description": "Crashes"],
        ["kind": "count", "goal": "visit", "cap": 20, "adjustment": ["days": 60]],
        ["kind": "total", "goal": "purchase", "cap": 500.5, "minimum_effect": 0.02, "unit": "EUR"],
        ["kind": "total", "goal": "purchase", "adjustment": "none"],
        ["kind": "mean", "goal": "purchase", "cap": 300, "unit": "items per order"],
        [
            "kind": "ratio", "numerator": ["goal": "purchase", "by": "value"],
            "denominator": ["goal": "visit", "by": "count"],
        ],
        ["kind": "retention", "goal": "visit", "from": 1, "to": 7.5],
        ["kind": "retention", "goal": "visit", "from": 1, "to": 7, "adjustment": ["attribute": "orders"]],
        ["kind": "funnel", "goals": ["cart", "pay", "purchase"], "window": 1],
    ]

    @Test(arguments: valid)
    mutating func `A metric is what was given, and what is shown of it changes nothing`(body: JSONValue) throws {
        let shown = try put(body)
        for member in try #require(body.object) { #expect(shown[member.key] == member.value) }
        #expect(try put(shown) == shown)
    }

    @Test mutating func `A change keeps what is left out, and another kind drops what it does not have`() throws {
        _ = try put([
            "kind": "total", "goal": "purchase", "cap": 5, "window": 3, "direction": "decrease", "unit": "EUR",
        ])
        let changed = try put(["cap": nil])
        #expect(changed["cap"] == nil && changed["window"] == 3 && changed["direction"] == "decrease")
        let other = try put(["kind": "funnel", "goals": ["a", "b"]])
        #expect(other["window"] == 3 && other["direction"] == "decrease")
        for member in ["goal", "cap", "unit"] { #expect(other.object?[member] == nil) }
    }

    @Test mutating func `Counts and totals are adjusted by the two weeks before, rates only if somebody asks`() throws {
        for (kind, standard) in [("count", ["days": 14]), ("total", ["days": 14]), ("conversion", "none")]
            as [(String, JSONValue)]
        {
            #expect(try put(["kind": .string(kind), "goal": "a"], kind)["adjustment"] == standard)
        }
        #expect(try put(["adjustment": "none"], "total")["adjustment"] == "none")
        #expect(try put(["cap": 9], "total")["adjustment"] == "none")
        #expect(try put(["adjustment": nil], "total")["adjustment"] == ["days": 14])
        #expect(try put(["kind": "conversion"], "total")["adjustment"] == "none")
        #expect(try put(["kind": "mean", "goal": "a"]).object?["adjustment"] == nil)
    }

    // MARK: What is refused

    static let wrong: [(body: JSONValue, place: String, text: String)] = [
        ([:], "/kind", "`kind` is required: one of conversion, count, total, mean, ratio, retention, funnel"),
        (["kind": "median", "goal": "a"], "/kind", "`kind` must be one of conversion, count"),
        (["kind": 3], "/kind", "got a number"),
        (["kind": "count"], "/goal", "`goal` is required"),
        (["kind": "count", "goal": ""], "/goal", "`goal` must be 1 to 255 bytes long, without NUL"),
        (["kind": "conversion", "goal": "a", "cap": 3], "/cap", "a metric of the kind 'conversion' must have no"),
        (["kind": "mean", "goal": "a", "adjustment": "none"], "/adjustment", "got `adjustment`"),
        (["kind": "funnel", "goals": ["a", "b"], "adjustment": ["days": 3]], "/adjustment", "got `adjustment`"),
        (
            ["kind": "count", "goal": "a", "adjustment": "days"], "/adjustment",
            #"`adjustment` must be "none", an object such as {"days":14}"#
        ),
        (["kind": "count", "goal": "a", "adjustment": [:]], "/adjustment", "got 0 members"),
        (
            ["kind": "count", "goal": "a", "adjustment": ["days": 3, "attribute": "b"]], "/adjustment",
            "got 2 members"
        ),
        (
            ["kind": "count", "goal": "a", "adjustment": ["days": 0]], "/adjustment/days",
            "`days` must be a whole number from 1 to 60; got 0"
        ),
        (["kind": "count", "goal": "a", "adjustment": ["days": 61]], "/adjustment/days", "got 61"),
        (["kind": "count", "goal": "a", "adjustment": ["days": 1.5]], "/adjustment/days", "got 1.5"),
        (
            ["kind": "count", "goal": "a", "adjustment": ["attribute": ""]], "/adjustment/attribute",
            "`attribute` must be the name of an attribute, 1 to 255 bytes; got 0 bytes"
        ),
        (["kind": "count", "goal": "a", "adjustment": ["weeks": 1]], "/adjustment/weeks", "got `weeks`"),
        (["kind": "count", "goal": "a", "goals": ["a"]], "/goals", "got `goals`; did you mean `goal`?"),
        (["kind": "total", "goal": "a", "cap": 0], "/cap", "`cap` must be greater than 0"),
        (["kind": "total", "goal": "a", "cap": -1], "/cap", "got -1"),
        (["kind": "total", "goal": "a", "cap": "1"], "/cap", "`cap` must be a number; got a string"),
        (["kind": "count", "goal": "a", "window": 0], "/window", "`window` must be greater than 0"),
        (["kind": "count", "goal": "a", "window": 3_651], "/window", "at most 3650, or null; got 3651"),
        (["kind": "retention", "goal": "a", "from": 7, "to": 7], "/from", "`from` must be less than `to`, 7; got 7"),
        (["kind": "retention", "goal": "a", "from": 8, "to": 7], "/from", "got 8"),
        (["kind": "retention", "goal": "a", "to": 7], "/from", "`from` is required: days after the first exposure"),
        (["kind": "retention", "goal": "a", "from": -1, "to": 7], "/from", "`from` must be a number from 0 to 3650"),
        (["kind": "retention", "goal": "a", "from": 0, "to": 7, "window": 3], "/window", "got `window`"),
        (["kind": "funnel"], "/goals", "`goals` is required: the goals in their order"),
        (["kind": "funnel", "goals": ["a"]], "/goals", "`goals` must have 2 to 10 elements; got 1"),
        (
            ["kind": "funnel", "goals": ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"]], "/goals",
            "got 11"
        ),
        (["kind": "funnel", "goals": ["a", "a"]], "/goals/1", "the goals must differ; got 'a' twice"),
        (["kind": "funnel", "goals": ["a", 1]], "/goals/1", "must be a string; got a number"),
        (
            ["kind": "ratio", "numerator": ["goal": "a", "by": "value"]], "/denominator",
            "`denominator` is required: an object such as"
        ),
        (
            ["kind": "ratio", "numerator": ["goal": "a"], "denominator": ["goal": "a", "by": "count"]],
            "/numerator/by", "`by` is required: one of value, count"
        ),
        (
            ["kind": "count", "goal": "a", "direction": "up"], "/direction",
            "`direction` must be one of increase, decrease; got 'up'"
        ),
        (
            ["kind": "count", "goal": "a", "minimum_effect": 0], "/minimum_effect",
            "`minimum_effect` must be a number from 0.0001 to 10"
        ),
        (["kind": "conversion", "goal": "a", "unit": "EUR"], "/unit", "got `unit`"),
        (["kind": "funnel", "goals": ["a", "b"], "unit": ""], "/unit", "got `unit`"),
        (["kind": "total", "goal": "a", "unit": 3], "/unit", "`unit` must be a string; got a number"),
        (
            ["kind": "total", "goal": "a", "unit": "123456789012345678901234567890123"], "/unit",
            "`unit` must have at most 32 bytes; got 33"
        ),
        (["kind": "count", "goal": "a", "extra": 1], "/extra", "got `extra`"),
        (["kind": "count", "goal": "a", "key": "n"], "/key", "`key` must be the key in the path, 'm'; got 'n'"),
    ]

    @Test(arguments: wrong)
    func `A wrong metric is refused with the place of what is wrong`(body: JSONValue, place: String, text: String)
        throws
    {
        let refusal = try #require(refused(body))
        #expect(refusal.kind == .unprocessable && refusal.says(text, at: place), "\(refusal)")
    }

    @Test(
        arguments: [
            (["cap": 30], ["cap": 20], "/cap"), (["cap": 30], ["cap": nil], "/cap"),
            (["adjustment": "none"], ["adjustment": ["days": 14]], "/adjustment"),
        ] as [(JSONValue, JSONValue, String)])
    mutating func `Once an experiment has started, a cap and an adjustment stay`(
        first: JSONValue, next: JSONValue, place: String
    ) throws {
        _ = try put(["kind": "total", "goal": "a", "cap": 5, "adjustment": ["days": 3]])
        let body: JSONValue = ["variations": ["control", "new"], "status": "draft", "metrics": ["primary": ["m"]]]
        try bench.put(Experiment.self, "draft", body)
        _ = try put(first)
        try bench.put(Experiment.self, "draft", ["status": "running"])
        let refusal = try #require(refused(next))
        #expect(refusal.kind == .conflict && refusal.says("because 'draft' has started", at: place), "\(refusal)")
        _ = try put(first)
        #expect(try put(["description": "Money", "unit": "EUR"])["unit"] == "EUR")
        #expect(try put(["unit": nil])["unit"] == "")
    }

    @Test mutating func `What the kept results of a concluded experiment measure stays until it is reopened`() throws {
        _ = try put(["kind": "count", "goal": "purchase"], "orders")
        _ = try put(["kind": "count", "goal": "visit"], "other")
        _ = try measure(["primary": ["orders"]])
        try bench.conclude("checkout", winner: "new")
        let changed = try #require(bench.refused(MetricDefinition.self, "orders", ["window": 3]))
        #expect(changed.kind == .conflict && changed.detail.contains("'checkout'"))
        let added = try #require(
            bench.refused(Experiment.self, "checkout", ["metrics": ["primary": ["orders", "other"]]]))
        #expect(added.kind == .conflict && added.places == ["/metrics"])
        // What is not computed anew may change.
        #expect(try put(["description": "per user"], "orders")["description"] == "per user")
        try bench.reopen("checkout")
        #expect(try put(["window": 3], "orders")["window"] == 3)
    }

    // MARK: What experiments measure

    @Test mutating func `An experiment names what it measures, and a metric in use cannot be removed`() throws {
        for key in ["buyers", "orders", "back", "errors"] { _ = try put(["kind": "count", "goal": "a"], key) }
        let metrics: JSONValue = [
            "primary": ["buyers"], "secondary": ["orders", "back"],
            "guardrails": [["metric": "errors", "margin": 0.05]], "breakdowns": ["country"],
        ]
        #expect(try measure(metrics)["metrics"] == metrics)
        #expect(bench.shown(MetricDefinition.self, "errors")["experiments"] == ["checkout"])
        let refusal = try #require(
            bench.refused { bench throws(CoreError) in try bench.remove(MetricDefinition.self, "errors") })
        #expect(refusal.kind == .conflict && refusal.detail.contains("of 'checkout'"))
        #expect(try bench.copy(Experiment.self, "checkout", as: "second")["metrics"] == metrics)
        #expect(try bench.put(Experiment.self, "checkout", ["traffic": 50])["metrics"] == metrics)
        for key in ["checkout", "second"] { #expect(try measure(nil, key).object?["metrics"] == nil) }
        try bench.remove(MetricDefinition.self, "errors")
    }

    static let wrongMetrics: [(metrics: JSONValue, place: String, text: String)] = [
        (["primary": ["nope"]], "/primary/0", "a metric must be defined first, with PUT /v1/metrics/KEY; got 'nope'"),
        (["primary": ["buyers", 1]], "/primary/1", "a metric must be a key; got a number"),
        (
            ["primary": ["buyers"], "secondary": ["buyers"]], "/secondary/0",
            "the metrics must differ; got 'buyers' twice"
        ),
        (["guardrails": [["metric": "buyers"]]], "/guardrails/0/margin", "`margin` must be greater than 0 and at most"),
        (["guardrails": [["metric": "buyers", "margin": 0]]], "/guardrails/0/margin", "got 0"),
        (
            ["guardrails": [["metric": "nope", "margin": 0.1]]], "/guardrails/0/metric",
            "a metric must be defined first"
        ),
        (["guardrails": ["buyers"]], "/guardrails/0", "a guardrail must be an object; got a string"),
        (["first": ["buyers"]], "/first", "`metrics` must have no members but `primary`, `secondary`"),
        (["breakdowns": ["a", "b", "c", "d", "e", "f"]], "/breakdowns", "must have 0 to 5 elements; got 6"),
        (["breakdowns": ["a", "a"]], "/breakdowns/1", "the attributes must differ; got 'a' twice"),
        ([], "", "`metrics` must be an object; got an array"),
    ]

    @Test(arguments: wrongMetrics)
    mutating func `What an experiment cannot measure is refused`(metrics: JSONValue, place: String, text: String)
        throws
    {
        _ = try put(["kind": "conversion", "goal": "purchase"], "buyers")
        let refusal = try #require(bench.refused(Experiment.self, "checkout", ["metrics": metrics]))
        #expect(refusal.kind == .unprocessable && refusal.says(text, at: "/metrics\(place)"), "\(refusal)")
    }

    @Test func `A project has at most 500 metrics, and an experiment measures at most 50`() throws {
        var metrics = JSONObject()
        for index in 0..<499 { metrics["m\(index)"] = ["kind": "count", "goal": "a"] }
        var bench = try DefinitionBench(["holdfast": ["metrics": .object(metrics)]])
        try bench.put(Experiment.self, "checkout", ["variations": ["control", "new"]])
        let body: JSONValue = ["kind": "count", "goal": "a"]
        try bench.put(MetricDefinition.self, "last", body)
        let refusal = try #require(bench.refused(MetricDefinition.self, "more", body))
        #expect(refusal.kind == .conflict && refusal.detail.contains("at most 500 metrics"))
        try bench.put(MetricDefinition.self, "last", ["goal": "b"])
        func measured(_ count: Int) -> JSONValue {
            let keys = (0..<count).map { JSONValue.string("m\($0)") }
            return [
                "metrics": ["primary": .array(Array(keys.prefix(30))), "secondary": .array(Array(keys.dropFirst(30)))]
            ]
        }
        try bench.put(Experiment.self, "checkout", measured(50))
        #expect(bench.refused(Experiment.self, "checkout", measured(51))?.places == ["/metrics"])
    }
}
