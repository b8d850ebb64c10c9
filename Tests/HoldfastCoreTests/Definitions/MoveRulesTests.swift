import Bucketing
import Definitions
import DefinitionsTestSupport
import JSON
import Storage
import TestSupport
import Testing

@testable import HoldfastCore

/// Which changes of definitions move users who take part, how many, and why.
@Suite struct MoveRulesTests {
    private var bench: DefinitionBench
    /// The assignments of those who take part.
    private var profiles: [Identifier: [NewAssignment]] = [:]
    private static let users = (0..<300).map { Identifier("user\($0)") }
    private static let flag: JSONValue = [
        "type": "string", "variations": [["key": "a", "value": "A"], ["key": "b", "value": "B"]],
    ]

    init() throws {
        bench = try DefinitionBench()
    }

    private func profile(_ user: Identifier) -> ProfileRecord {
        ProfileRecord((profiles[user] ?? []).map { ($0.experimentID, $0.variationID) })
    }

    /// Returns the variation that the flag `banner` gives each user, and enrolls them.
    @discardableResult
    private mutating func decide() -> [Identifier?] {
        let service = DecisionService(datafile: bench.project.datafile)
        return Self.users.map { user in
            let stored = StickyAssignments(profile(user), forced: nil, attributes: nil)
            let decision = service.decide("banner", for: User(id: user), stored: stored)
            profiles[user, default: []] += decision?.newAssignments ?? []
            return decision?.value.variation?.key
        }
    }

    /// Makes a change, and counts whom it moves.
    private mutating func moves<Result>(_ change: (inout DefinitionBench) throws -> Result) throws -> MoveCounts {
        let former = bench.project
        _ = try change(&bench)
        let moves = DefinitionMoves(from: former, to: bench.project.compiled)
        var counts = MoveCounts()
        for user in profiles.keys where moves.concerns(profile(user)) {
            counts.count(moves.moves(of: user, profile(user), nil))
        }
        return counts
    }

    /// Expects that a change moves as many users as get another variation, and that the refusal says so.
    @discardableResult
    private mutating func expectMoves<Result>(
        _ change: (inout DefinitionBench) throws -> Result, _ place: SourceLocation = #_sourceLocation
    ) throws -> (json: JSONValue, refusal: String) {
        let before = decide()
        let counts = try moves(change)
        let moved = zip(before, decide()).count { $0 != $1 }
        #expect(moved > 0 && counts.users == moved, "\(counts.json)", sourceLocation: place)
        #expect(counts.refusal.kind == .conflict && counts.refusal.detail.hasSuffix("?moves=allow"))
        return (counts.json, counts.refusal.detail)
    }

    private mutating func expectNoMoves<Result>(
        _ change: (inout DefinitionBench) throws -> Result, _ place: SourceLocation = #_sourceLocation
    ) throws {
        let counts = try moves(change)
        #expect(counts.isEmpty, "\(counts.json)", sourceLocation: place)
    }

    /// Returns a rule with an experiment, perhaps with more members.
    private static func rule(_ key: String, _ more: JSONValue = [:]) -> JSONValue {
        var experiment = more.object ?? JSONObject()
        experiment["id"] = .string(key)
        return ["key": .string(key), "experiment": .object(experiment)]
    }

    private mutating func put(rules: [JSONValue]) throws {
        var flag = Self.flag.object ?? JSONObject()
        flag["rules"] = .array(rules)
        try bench.put(Flag.self, "banner", .object(flag))
    }

    // MARK: What moves users

    @Test mutating func `An experiment before another one takes its users`() throws {
        try put(rules: [Self.rule("second")])
        let (json, refusal) = try expectMoves {
            try $0.put(Flag.self, "banner", ["rules": [Self.rule("first"), Self.rule("second")]])
        }
        let (users, others) = (json["users"].integer ?? 0, json["other_experiment"].integer ?? 0)
        #expect(users + others == 300)
        #expect(json["causes"].all("cause") == ["earlier_experiment", "earlier_experiment"])
        #expect(json["causes"].all("by") == ["first", "first"])
        #expect(refusal.contains("place it behind 'second'"))
    }

    @Test mutating func `Another order moves users, and an experiment at the end does not`() throws {
        try put(rules: [Self.rule("first", ["traffic": 50])])
        decide()
        try expectNoMoves { try $0.put(Flag.self, "banner", ["rules": [Self.rule("first"), Self.rule("second")]]) }
        // Those whom the hash does not give to `first` have no reason to leave `second`.
        try expectMoves { try $0.put(Flag.self, "banner", ["rules": [Self.rule("second"), Self.rule("first")]]) }
    }

    @Test mutating func `More traffic of an earlier experiment moves users, less or that of the last does not`() throws
    {
        try put(rules: [Self.rule("first", ["traffic": 10]), Self.rule("second")])
        try expectMoves { try $0.put(Experiment.self, "first", ["traffic": 100]) }
        for (key, traffic) in [("first", 10), ("second", 10), ("second", 90)] as [(String, JSONValue)] {
            try expectNoMoves { try $0.put(Experiment.self, key, ["traffic": traffic]) }
        }
    }

    @Test mutating func `A variation that is left out moves its users, and one without users nobody`() throws {
        try bench.put(Experiment.self, "banner", ["variations": ["a", "b"]])
        decide()
        for variations in [["a", "b", "c"], ["a", "b"]] as [JSONValue] {
            try expectNoMoves { try $0.put(Experiment.self, "banner", ["variations": variations]) }
        }
        let (json, refusal) = try expectMoves { try $0.put(Experiment.self, "banner", ["variations": ["a"]]) }
        #expect(json["causes"].all("cause") == ["variation_removed"] && json["causes"].all("by") == ["b"])
        #expect(refusal.contains("would lose the variation 'b', so give it the weight 0 instead"))
    }

    @Test mutating func `A rule that is left out moves its users, unless it was stopped`() throws {
        try put(rules: [Self.rule("only")])
        let (json, _) = try expectMoves { try $0.put(Flag.self, "banner", ["rules": []]) }
        #expect(json["causes"].all("cause").allSatisfy { $0 == "rule_removed" })
        try bench.put(Flag.self, "banner", ["rules": [Self.rule("only", ["status": "running"])]])
        decide()
        try expectNoMoves { try $0.put(Experiment.self, "only", ["status": "paused"]) }
        try expectNoMoves { try $0.put(Flag.self, "banner", ["rules": []]) }
    }

    @Test mutating func `An experiment that runs again before others moves their users, and stopping moves nobody`()
        throws
    {
        try put(rules: [Self.rule("first", ["status": "paused"]), Self.rule("second")])
        try expectMoves { try $0.put(Experiment.self, "first", ["status": "running"]) }
        try expectNoMoves { try $0.put(Experiment.self, "first", ["status": "paused"]) }
        try expectNoMoves { try $0.put(Flag.self, "banner", ["enabled": false]) }
        try expectNoMoves { try $0.put(Flag.self, "banner", ["enabled": true]) }
        try expectNoMoves { try $0.remove(Experiment.self, "second") }
        try expectNoMoves { try $0.remove(Flag.self, "banner") }
    }

    @Test mutating func `A holdout moves those whom it keeps out`() throws {
        try bench.put(Experiment.self, "banner", ["variations": ["a", "b"]])
        let before = decide()
        let (json, _) = try expectMoves { try $0.put(Holdout.self, "all", ["share": 50]) }
        #expect(json["causes"].all("cause").allSatisfy { $0 == "holdout" })
        // The assignments are still there.
        try bench.remove(Holdout.self, "all")
        #expect(decide() == before)
    }

    // MARK: What does not

    @Test mutating func `Weights, closed enrollment, texts and deliveries move nobody`() throws {
        try put(rules: [Self.rule("first", ["traffic": 30]), Self.rule("second")])
        let before = decide()
        let staff: JSONValue = ["audience": ["name": "staff", "value": true], "variation": "a"]
        for body in [
            ["description": "d", "tags": ["t"]], ["variations": Self.flag["variations"]],
            ["rules": [staff, Self.rule("first"), Self.rule("second")]],
            ["rules": [Self.rule("first"), Self.rule("second", ["weights": ["a": 1, "b": 0]])]],
            ["rules": [Self.rule("first", ["enrollment": "closed"]), Self.rule("second")]],
            ["rules": [Self.rule("first"), Self.rule("second", ["traffic": 0])], "otherwise": "b"],
        ] as [JSONValue] {
            try expectNoMoves { try $0.put(Flag.self, "banner", body) }
            #expect(decide() == before, "\(body)")
        }
    }
}

extension ProfileRecord {
    /// A profile with assignments that were made at one time.
    init(_ assignments: [(experimentID: Identifier, variationID: Identifier)]) {
        let assigned = assignments.map { assignment in
            (
                assignment.experimentID,
                Assignment(
                    variationID: assignment.variationID, source: .bucketed, assignedAt: 1_772_000_000_000,
                    updatedAt: 1_772_000_000_000, expiresAt: nil)
            )
        }
        self.init(Dictionary(assigned, uniquingKeysWith: { $1 }))
    }
}
