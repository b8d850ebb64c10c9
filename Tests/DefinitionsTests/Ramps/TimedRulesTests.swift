import Bucketing
import Definitions
import DefinitionsTestSupport
import JSON
import Testing

/// What a body may say of what an experiment does by itself: its ramp, its schedule and its bandit. `RampTests` and
/// `BanditTests` let time pass.
@Suite struct TimedRulesTests {
    private var bench: DefinitionBench
    private static let steps: JSONValue = [
        ["traffic": 1, "for": "1d"], ["traffic": 5.5, "users": 1_000], ["traffic": 100],
    ]

    init() throws {
        bench = try DefinitionBench()
        try bench.put(MetricDefinition.self, "bought", ["kind": "conversion", "goal": "buy"])
        try bench.put(MetricDefinition.self, "per_order", ["kind": "mean", "goal": "buy"])
    }

    private static let new: JSONValue = ["id": "7", "variations": ["a", "b"], "metrics": ["primary": ["bought"]]]

    /// Returns the body of a new experiment with some members more, or others.
    private static func new(_ members: JSONValue) -> JSONValue {
        var body = new.object ?? JSONObject()
        for member in members.object ?? JSONObject() { body[member.key] = member.value }
        return .object(body)
    }

    private mutating func put(_ members: JSONValue) throws(CoreError) -> JSONValue {
        try bench.put(Experiment.self, "checkout", members)
    }

    /// The experiment as SDKs get it.
    private var served: JSONValue { bench.compiled.datafile.source["experiments"].array?.first ?? .null }

    // MARK: What is refused

    static let wrongRamps: [(ramp: JSONValue, place: String, text: String)] = [
        (7, "", "a ramp must be an object; got a number"),
        ([:], "/steps", "`steps` is required"),
        (["steps": []], "/steps", "`steps` must have 1 to 20 elements; got 0"),
        (
            ["steps": [["traffic": 5]], "on_alarm": "stop"], "/on_alarm",
            "`on_alarm` must be one of pause, hold, back; got 'stop'"
        ),
        (["steps": [["traffic": 5]], "keep": "yes"], "/keep", "`keep` must be a boolean; got a string"),
        (["steps": [["traffic": 5]], "alarm": "hold"], "/alarm", "got `alarm`; did you mean `on_alarm`?"),
        (["steps": [["for": "1d"]]], "/steps/0/traffic", "`traffic` is required"),
        (["steps": [["traffic": 101]]], "/steps/0/traffic", "`traffic` must be a number from 0 to 100; got 101.0"),
        (
            ["steps": [["traffic": 5], ["traffic": 6]]], "/steps/0",
            "a step must have `for` or `users`, except the last; got neither"
        ),
        (
            ["steps": [["traffic": 5, "for": "1d", "users": 5]]], "/steps/0",
            "a step must have either `for` or `users`; got both"
        ),
        (
            ["steps": [["traffic": 5, "for": "1d"], ["traffic": 5]]], "/steps/1/traffic",
            "`traffic` must grow from step to step; got 5.0 after 5.0"
        ),
        (["steps": [["traffic": 5, "for": "soon"]]], "/steps/0/for", "`for` must be a time from 1s to 366d"),
        (["steps": [["traffic": 5, "for": "0s"]]], "/steps/0/for", "got '0s'"),
        (["steps": [["traffic": 5, "for": "367d"]]], "/steps/0/for", "got '367d'"),
        (["steps": [["traffic": 5, "for": "99999999999999999999d"]]], "/steps/0/for", "got '9999"),
        (["steps": [["traffic": 5, "users": 0]]], "/steps/0/users", "`users` must be a whole number from 1 to"),
        (["steps": [["traffic": 5, "users": 1.5]]], "/steps/0/users", "got 1.5"),
        (
            ["steps": [["traffic": 5, "users": 9], ["traffic": 6, "users": 9]]], "/steps/1/users",
            "so it must grow from step to step; got 9 after 9"
        ),
    ]

    @Test(arguments: wrongRamps)
    func `What is not a ramp is refused`(ramp: JSONValue, place: String, text: String) throws {
        let refusal = try #require(bench.refused(Experiment.self, "checkout", Self.new(["ramp": ramp])))
        #expect(refusal.kind == .unprocessable && refusal.says(text, at: "/ramp\(place)"), "\(refusal)")
    }

    @Test func `A ramp has at most 20 steps, and sets the traffic`() throws {
        func ramp(_ count: Int64) -> JSONValue {
            ["ramp": ["steps": .array((1...count).map { ["traffic": .integer($0), "for": "1d"] })]]
        }
        #expect(bench.refused(Experiment.self, "checkout", Self.new(ramp(21)))?.places == ["/ramp/steps"])
        #expect(bench.refused(Experiment.self, "checkout", Self.new(ramp(20))) == nil)
        let body = Self.new(["traffic": 5, "ramp": ["steps": [["traffic": 5]]]])
        #expect(bench.refused(Experiment.self, "checkout", body)?.places == ["/traffic"])
    }

    static let wrongSchedules: [(schedule: JSONValue, place: String, text: String)] = [
        ([], "", "a schedule must be an object; got an array"),
        (["start": 1], "/start", "got `start`; did you mean `start_at`?"),
        (["start_at": "tomorrow"], "/start_at", "tomorrow"),
        (
            ["start_at": "2126-01-01T00:00:00Z", "end_at": "2126-01-01T00:00:00Z"], "/end_at",
            "`end_at` must be later than `start_at`, 2126-01-01T00:00:00.000Z; got 2126-01-01T00:00:00.000Z"
        ),
    ]

    @Test(arguments: wrongSchedules)
    func `What is not a schedule is refused`(schedule: JSONValue, place: String, text: String) throws {
        let refusal = try #require(bench.refused(Experiment.self, "checkout", Self.new(["schedule": schedule])))
        #expect(refusal.kind == .unprocessable && refusal.says(text, at: "/schedule\(place)"), "\(refusal)")
    }

    static let wrongBandits: [(members: JSONValue, place: String, text: String)] = [
        (["bandit": 7], "", "a bandit must be an object; got a number"),
        (["bandit": ["each": "1d"]], "/each", "a bandit must have no members but `every`, `minimum_share`"),
        (["bandit": ["every": "59s"]], "/every", "`every` must be a time from 1m to 366d"),
        (["bandit": ["every": "367d"]], "/every", "got '367d'"),
        (["bandit": ["every": 1]], "/every", "`every` must be a string; got a number"),
        (["bandit": ["minimum_share": 0]], "/minimum_share", "`minimum_share` must be a number from 1 to 50; got 0"),
        (["bandit": ["minimum_share": 51]], "/minimum_share", "got 51"),
        (
            ["bandit": ["minimum_share": 34], "variations": ["a", "b", "c"]], "/minimum_share",
            "`minimum_share` of 3 variations must be at most 33; got 34"
        ),
        (["bandit": ["minimum_users": 9]], "/minimum_users", "`minimum_users` must be a number from 10 to 1000000"),
        (["bandit": ["minimum_users": 10.5]], "/minimum_users", "`minimum_users` must be a whole number; got 10.5"),
        (["bandit": ["predict": "yes"]], "/predict", "`predict` must be a boolean; got a string"),
        (["bandit": [:], "metrics": nil], "", "a bandit needs a primary metric to learn from"),
        (["bandit": [:], "metrics": ["primary": ["per_order"]]], "", "'per_order' is a mean"),
        (["bandit": [:], "variations": ["a"]], "", "a bandit needs 2 to 20 variations; got 1"),
        (
            ["bandit": [:], "ramp": ["steps": [["traffic": 5, "for": "1d"], ["traffic": 50]]]], "",
            "an experiment must have either a ramp that goes on or a bandit; got both"
        ),
    ]

    @Test(arguments: wrongBandits)
    func `What is not a bandit is refused`(members: JSONValue, place: String, text: String) throws {
        let refusal = try #require(bench.refused(Experiment.self, "checkout", Self.new(members)))
        #expect(refusal.kind == .unprocessable && refusal.says(text, at: "/bandit\(place)"), "\(refusal)")
    }

    @Test mutating func `A metric that a bandit learns from stays with the experiment`() throws {
        _ = try put(Self.new(["bandit": [:]]))
        #expect(bench.refused(Experiment.self, "checkout", ["metrics": nil])?.places == ["/bandit"])
    }

    // MARK: What is shown

    @Test mutating func `A ramp is shown with its state, and what is shown changes nothing`() throws {
        let created = try put(Self.new(["status": "draft", "ramp": ["steps": Self.steps]]))
        #expect(created["traffic"] == 1)
        #expect(created["ramp"]["on_alarm"] == "pause" && created["ramp"]["keep"] == true)
        #expect(created["ramp"]["state"] == ["status": "waiting", "step": 1])
        #expect(created["ramp"]["steps"].all("traffic") == [1, 5.5, 100])
        #expect(try put(created) == created)
        let removed = try put(["ramp": nil, "traffic": 3])
        #expect(removed.object?["ramp"] == nil && removed["traffic"] == 3)
    }

    @Test mutating func `With a start in its schedule a new experiment is a draft, and a copy has no schedule`() throws
    {
        let created = try put(
            Self.new(["schedule": ["start_at": "2126-01-31T12:00:00Z", "end_at": "2126-02-28T12:00:00Z"]]))
        #expect(created["status"] == "draft")
        #expect(
            created["schedule"] == ["start_at": "2126-01-31T12:00:00.000Z", "end_at": "2126-02-28T12:00:00.000Z"])
        #expect(try put(created) == created)
        let copy = try bench.copy(Experiment.self, "checkout", as: "copy")
        #expect(copy["status"] == "draft" && copy.object?["schedule"] == nil)
        #expect(try put(["schedule": nil]).object?["schedule"] == nil)
    }

    @Test mutating func `A bandit is shown with its state, and what is shown changes nothing`() throws {
        let created = try put(
            Self.new(["status": "draft", "traffic": 40, "bandit": ["every": "12h", "predict": true]]))
        #expect(
            created["bandit"] == [
                "every": "12h", "minimum_share": 5, "minimum_users": 100, "predict": true,
                "state": ["looked_at": nil, "due_at": nil, "users": 0, "reason": nil, "variations": []],
            ])
        #expect(created["traffic"] == 40)
        #expect(try put(created) == created)
        #expect(try put(["bandit": nil]).object?["bandit"] == nil)
    }

    @Test mutating func `SDKs ask for an experiment that predicts, as much as its traffic says`() throws {
        _ = try put(Self.new(["traffic": 40, "bandit": ["predict": true]]))
        #expect(served["cmab"] == ["attributeIds": [], "trafficAllocation": 4_000])
        _ = try put(["enrollment": "closed"])
        #expect(served["cmab"]["trafficAllocation"] == 0 && served["trafficAllocation"] == [])
        for (body, expected) in [
            (["enrollment": "open"], 4_000), (["bandit": ["predict": false]], nil),
        ] as [(JSONValue, JSONValue?)] {
            let shown = try put(body)
            #expect(shown["traffic"] == 40 && shown["variations"].all("share") == [20, 20])
            #expect(served.object?["cmab"]?["trafficAllocation"] == expected)
        }
    }
}
