import Bucketing
import Definitions
import DefinitionsTestSupport
import JSON
import Testing

/// What a body of a holdout may be, and what it makes of a holdout.
@Suite struct HoldoutRulesTests {
    private var bench: DefinitionBench
    private static let users = (0..<60).map { Identifier("user\($0)") }

    init() throws {
        bench = try DefinitionBench()
        for key in ["first", "second"] { try bench.put(Experiment.self, key, ["variations": ["a", "b"]]) }
    }

    private mutating func put(_ body: JSONValue, _ key: String = "all") throws(CoreError) -> JSONValue {
        try bench.put(Holdout.self, key, body)
    }

    private func variation(_ flag: String, _ user: Identifier) -> Identifier? {
        DecisionService(datafile: bench.compiled.datafile).decide(Identifier(flag), for: User(id: user))?.value
            .variation?
            .key
    }

    /// Those who are held out of a flag.
    private func heldOut(of flag: String) -> Set<Identifier> {
        Set(Self.users.filter { variation(flag, $0) == "off" })
    }

    // MARK: What is refused

    static let wrong: [(body: JSONValue, place: String, text: String)] = [
        ([:], "/share", "a new holdout must have a `share`"),
        (["share": 101], "/share", "`share` must be a number from 0 to 100; got 101.0"),
        (["share": "5"], "/share", "got a string"),
        (["share": 5, "status": "archived"], "/status", "`status` must be one of running, paused; got 'archived'"),
        (["share": 5, "flags": []], "/flags", "`flags` must have 1 to 100 elements; got 0"),
        (["share": 5, "flags": [1]], "/flags/0", "a flag must be named by its key; got a number"),
        (["share": 5, "flags": ["first", "first"]], "/flags/1", "the flags must differ; got 'first' twice"),
        (["share": 5, "flags": ["frist"]], "/flags/0", "no flag has the key 'frist'; did you mean 'first'?"),
        (["share": 5, "shares": 5], "/shares", "did you mean `share`?"),
        (["share": 5, "metrics": ["primary": ["none"]]], "/metrics/primary/0", "a metric must be defined first"),
        (
            ["share": 5, "metrics": ["breakdowns": ["country"]]], "/metrics/breakdowns",
            "`breakdowns` must be left out, because holdouts have none"
        ),
        (["share": 5, "key": "other"], "/key", "`key` must be the key in the path, 'all'; got 'other'"),
    ]

    @Test(arguments: wrong)
    func `A wrong holdout is refused with the place of what is wrong`(body: JSONValue, place: String, text: String)
        throws
    {
        let refusal = try #require(bench.refused(Holdout.self, "all", body))
        #expect(refusal.kind == .unprocessable && refusal.says(text, at: place), "\(refusal)")
    }

    @Test mutating func `A metric that a holdout measures cannot be removed`() throws {
        try bench.put(MetricDefinition.self, "orders", ["kind": "count", "goal": "order"])
        _ = try put(["share": 5, "metrics": ["primary": ["orders"]]])
        let refusal = try #require(
            bench.refused { bench throws(CoreError) in try bench.remove(MetricDefinition.self, "orders") })
        #expect(refusal.kind == .conflict && refusal.detail.contains("of 'all'"))
        #expect(try put(["metrics": nil]).object?["metrics"] == nil)
        try bench.remove(MetricDefinition.self, "orders")
    }

    // MARK: What comes of a body

    @Test mutating func `What is left out keeps its value, null clears, and what is shown changes nothing`() throws {
        let created = try put([
            "share": 5, "description": "2026", "flags": ["first"], "audience": ["name": "plan", "value": "pro"],
        ])
        #expect(created["status"] == "running" && created["flags"] == ["first"])
        #expect(try put(created) == created)
        let changed = try put(["status": "paused", "share": nil, "flags": nil])
        #expect(changed["share"] == 5 && changed["flags"].isNull && changed["status"] == "paused")
        #expect(changed["description"] == "2026" && changed["audience"] == created["audience"])
        let cleared = try put(["description": nil, "audience": nil])
        #expect(cleared["description"] == "" && cleared["audience"].isNull && cleared["id"] == created["id"])
        try bench.remove(Holdout.self, "all")
        #expect(try put(["share": 5])["id"] == created["id"], "it holds out the same users again")
    }

    // MARK: Who is held out

    @Test mutating func `Who is held out of all flags gets none of them, also what is delivered to everybody`() throws {
        _ = try put(["share": 30])
        try bench.put(Experiment.self, "third", ["variations": ["a", "b"]])
        let held = heldOut(of: "first")
        #expect((5...35).contains(held.count))
        #expect(heldOut(of: "third") == held)
        try bench.conclude("first", winner: "b")
        #expect(heldOut(of: "first") == held)
        for user in Self.users where !held.contains(user) { #expect(variation("first", user) == "b") }
        _ = try put(["share": 60])
        #expect(heldOut(of: "first").isStrictSuperset(of: held))
        _ = try put(["status": "paused"])
        #expect(heldOut(of: "first").isEmpty)
    }

    @Test mutating func `A holdout of some flags keeps users out of these alone, whatever their rules become`() throws {
        _ = try put(["share": 40, "flags": ["first"]])
        let held = heldOut(of: "first")
        #expect(!held.isEmpty)
        #expect(heldOut(of: "second").isEmpty)
        try bench.conclude("first", winner: "b")
        #expect(heldOut(of: "first") == held)
        let rules = bench.compiled.datafile.source["localHoldouts"].array?.first?["includedRules"]
        #expect(rules?.array?.count == 2)
    }
}
