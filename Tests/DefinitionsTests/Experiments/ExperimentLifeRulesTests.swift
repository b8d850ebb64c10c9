import Bucketing
import Definitions
import DefinitionsTestSupport
import JSON
import TestSupport
import Testing

/// What is said of an experiment, its plan, copies of it, and its end.
@Suite struct ExperimentLifeRulesTests {
    private var bench: DefinitionBench

    init() throws {
        bench = try DefinitionBench()
    }

    @discardableResult
    private mutating func put(_ body: JSONValue, _ key: String = "checkout") throws(CoreError) -> JSONValue {
        try bench.put(Experiment.self, key, body)
    }

    private func refused(_ body: JSONValue, _ key: String = "checkout") -> CoreError? {
        bench.refused(Experiment.self, key, body)
    }

    // MARK: What people say

    @Test(arguments: [("name", 255), ("description", 4_096), ("hypothesis", 4_096), ("owner", 255)])
    mutating func `A text has a greatest length`(name: String, limit: Int) throws {
        func body(_ count: Int) -> JSONValue {
            var body = JSONObject()
            body["variations"] = ["a"]
            body[name] = .string(String(repeating: "x", count: count))
            return .object(body)
        }
        let refusal = try #require(refused(body(limit + 1)))
        #expect(refusal.says("`\(name)` must have at most \(limit) bytes; got \(limit + 1)", at: "/\(name)"))
        #expect(try put(body(limit))[name] == body(limit)[name])
    }

    @Test mutating func `Texts and tags are shown, searched, and removed by null or by nothing`() throws {
        let shown = try put([
            "variations": ["a", "b"], "name": "Checkout", "description": "One page", "hypothesis": "More orders",
            "owner": "Ada", "tags": ["web", "q4"],
        ])
        #expect(shown["name"] == "Checkout" && shown["hypothesis"] == "More orders" && shown["owner"] == "Ada")
        #expect(shown["tags"] == ["web", "q4"])
        let texts = bench.compiled.definitions.texts(ofExperiment: "checkout")
        #expect(Set(texts) == ["Checkout", "One page", "More orders", "Ada", "web", "q4"])
        let changed = try put(["owner": nil, "description": "", "name": "Pay", "tags": []])
        #expect(changed["name"] == "Pay" && changed["hypothesis"] == "More orders")
        for name in ["owner", "description", "tags"] { #expect(changed.object?[name] == nil) }
        #expect(refused(["tags": ["a", "a"]])?.places == ["/tags/1"])
    }

    // MARK: The plan

    @Test(
        arguments: [
            (["alpha": 2], "/alpha", "`alpha` must be a number from 0.0001 to 0.5, such as 0.05; got 2.0"),
            (["apha": 0.1], "/apha", "got `apha`; did you mean `alpha`?"),
            (1, "", "`plan` must be an object; got a number"),
            (["minimum_effect": -0.1], "/minimum_effect", "`minimum_effect` must be a number from 0.0001 to 10.0"),
        ] as [(JSONValue, String, String)])
    func `What is not a plan is refused`(plan: JSONValue, place: String, text: String) throws {
        let refusal = try #require(refused(["variations": ["a"], "plan": plan]))
        #expect(refusal.says(text, at: "/plan\(place)"), "\(refusal)")
    }

    @Test mutating func `The plan is fixed when the experiment starts, and what is planned otherwise later shows`()
        throws
    {
        let draft = try put([
            "variations": ["a", "b"], "status": "draft", "plan": ["alpha": 0.1, "minimum_effect": 0.02],
        ])
        #expect(
            draft["plan"] == [
                "alpha": 0.1, "power": 0.8, "minimum_effect": 0.02, "fixed_at_revision": nil, "changed_since_start": [],
            ])
        let started = try put(["status": "running"])
        let fixed = started["plan"]["fixed_at_revision"]
        #expect(fixed == started["revision"] && started["plan"]["changed_since_start"] == [])
        #expect(try put(started) == started)
        for (body, changed) in [
            (["traffic": 50, "name": "x"], []), (["plan": ["power": 0.9]], ["power"]), (["plan": [:]], ["power"]),
            (["plan": ["minimum_effect": nil]], ["minimum_effect", "power"]),
            (["status": "paused"], ["minimum_effect", "power"]), (["status": "running"], ["minimum_effect", "power"]),
            (["plan": nil], ["alpha", "minimum_effect"]), (["plan": ["alpha": 0.1, "minimum_effect": 0.02]], []),
        ] as [(JSONValue, JSONValue)] {
            let plan = try put(body)["plan"]
            #expect(plan["changed_since_start"] == changed && plan["fixed_at_revision"] == fixed, "\(body): \(plan)")
        }
        let copy = try bench.copy(Experiment.self, "checkout", as: "copy")["plan"]
        #expect(copy["alpha"] == 0.1 && copy["fixed_at_revision"].isNull)
        // What was not planned at the start is a change.
        #expect(try put(["variations": ["a", "b"]], "late").object?["plan"] == nil)
        #expect(try put(["plan": ["alpha": 0.01]], "late")["plan"]["changed_since_start"] == ["alpha"])
    }

    // MARK: Copies

    @Test mutating func `A copy is a draft with ids of its own`() throws {
        let original = try put([
            "id": "7", "variations": [["key": "a", "id": "71", "weight": 3], ["key": "b", "weight": 1]], "traffic": 20,
            "name": "Checkout", "tags": ["web"], "audience": ["name": "plan", "value": "pro"], "assignment_ttl": "30d",
        ])
        let copy = try bench.copy(Experiment.self, "checkout", as: "again")
        #expect(copy["status"] == "draft")
        for member in ["traffic", "audience", "name", "tags", "assignment_ttl"] {
            #expect(copy[member] == original[member], "\(member)")
        }
        #expect(copy["id"] != original["id"])
        for member in ["key", "share", "weight"] {
            #expect(copy["variations"].all(member) == original["variations"].all(member))
        }
        for (left, right) in zip(copy["variations"].all("id"), original["variations"].all("id")) {
            #expect(left != right)
        }
        let other = try bench.copy(Experiment.self, "checkout", as: "other", ["name": "Other", "status": "running"])
        #expect(other["name"] == "Other" && other["status"] == "running" && other["traffic"] == 20)
        let taken = bench.refused { bench throws(CoreError) in
            try bench.copy(Experiment.self, "checkout", as: "again")
        }
        #expect(taken?.kind == .conflict)
        let unknown = bench.refused { bench throws(CoreError) in try bench.copy(Experiment.self, "chekout", as: "new") }
        #expect(unknown?.detail == "no experiment has the key 'chekout'; did you mean 'checkout'?")
    }

    // MARK: The end

    @Test(
        arguments: [
            ([:], .unprocessable, "/winner", "`winner` is required: the key of a variation, or null for none"),
            (["winner": 1], .invalid, "/winner", "`winner` must be a string; got a number"),
            (["winner": "a", "why": 1], .invalid, "/why", "got `why`"),
            ([], .invalid, "", "a conclusion must be an object; got an array"),
            (
                ["winner": "a", "reason": .string(String(repeating: "x", count: 4_097))], .unprocessable, "/reason",
                "`reason` must have at most 4096 bytes; got 4097"
            ),
        ] as [(JSONValue, CoreError.Kind, String, String)])
    func `What is not a conclusion is refused`(body: JSONValue, kind: CoreError.Kind, place: String, text: String)
        throws
    {
        let refusal = try #require(throws: CoreError.self) { try ConclusionInput(body) }
        #expect(refusal.kind == kind && refusal.says(text, at: place), "\(refusal)")
    }

    private func refusedConclusion(_ winner: Identifier?) -> CoreError? {
        bench.refused { bench throws(CoreError) in try bench.conclude("checkout", winner: winner) }
    }

    @Test mutating func `Only what has run is concluded, with one of its variations, and only that is reopened`() throws
    {
        try put(["variations": ["a", "b"], "status": "draft"])
        #expect(refusedConclusion("a")?.kind == .conflict)
        #expect(refused(["status": "concluded"])?.kind == .conflict)
        try put(["status": "running"])
        let unknown = try #require(refusedConclusion("c"))
        #expect(unknown.says("`winner` must be a variation of the experiment; got 'c'", at: "/winner"))
        #expect(bench.refused { bench throws(CoreError) in try bench.reopen("checkout") }?.kind == .conflict)
        let concluded = try bench.conclude("checkout", winner: "b")
        #expect(concluded["status"] == "concluded" && concluded["conclusion"]["winner"] == "b")
        #expect(try put(concluded) == concluded)
        #expect(refused(["variations": ["a"]])?.places == ["/variations"])
        let reopened = try bench.reopen("checkout")
        #expect(reopened["status"] == "running" && reopened.object?["conclusion"] == nil)
    }

    @Test mutating func `Another winner is no other end, and another status than the archive's ends the conclusion`()
        throws
    {
        try put(["variations": ["a", "b"]])
        let first = try bench.conclude("checkout", winner: "a", at: 1_772_000_000_000)["conclusion"]
        let second = try bench.conclude("checkout", winner: nil, at: 1_773_000_000_000)["conclusion"]
        #expect(second["winner"].isNull && second["frozen_at"] == first["frozen_at"])
        #expect(second["concluded_at"] != first["concluded_at"])
        try bench.remove(Experiment.self, "checkout")
        #expect(try put(["status": "concluded"])["conclusion"] == second)
        #expect(try put(["status": "running"]).object?["conclusion"] == nil)
    }

    @Test mutating func `A concluded experiment leaves its group's traffic to the others`() throws {
        for key in ["checkout", "search"] { try put(["variations": ["a"], "group": "g", "traffic": 50], key) }
        #expect(refused(["traffic": 60], "search")?.kind == .unprocessable)
        try bench.conclude("checkout", winner: "a")
        try put(["traffic": 100], "search")
        let full = bench.refused { bench throws(CoreError) in try bench.reopen("checkout") }
        #expect(full?.kind == .unprocessable)
        try put(["traffic": 50], "search")
        #expect(try bench.reopen("checkout")["traffic"] == 50)
    }
}
