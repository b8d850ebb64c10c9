import Bucketing
import Definitions
import DefinitionsTestSupport
import JSON
import Testing

/// What a body of an experiment may be, and what it makes of an experiment.
@Suite struct ExperimentRulesTests {
    private var bench: DefinitionBench

    init() throws {
        bench = try DefinitionBench()
    }

    private mutating func put(_ body: JSONValue, _ key: String = "checkout") throws(CoreError) -> JSONValue {
        try bench.put(Experiment.self, key, body)
    }

    private func refused(_ body: JSONValue, _ key: String = "checkout") -> CoreError? {
        bench.refused(Experiment.self, key, body)
    }

    /// The ids of the variations, by their keys.
    private static func ids(_ shown: JSONValue) -> [String?: String?] {
        let pairs = (shown["variations"].array ?? []).map { ($0["key"].string, $0["id"].string) }
        return Dictionary(pairs, uniquingKeysWith: { $1 })
    }

    // MARK: What is refused

    @Test(
        arguments: [
            (["variations": ["a"], "traffic": 101], "/traffic", "`traffic` must be a number from 0 to 100; got 101.0"),
            (
                ["variations": ["a"], "traffic": "all"], "/traffic",
                "`traffic` must be a number from 0 to 100; got a string"
            ),
            (
                ["variations": [["key": "a", "weight": 0], ["key": "b", "weight": 0]]], "/variations",
                "at least one weight must be greater than 0"
            ),
            (
                ["variations": [["key": "a", "weight": 1], "b"]], "/variations",
                "either every variation must have a weight"
            ),
            (["variations": nil], "/variations", "`variations` must be an array of at least one variation; got null"),
            (
                ["variations": []], "/variations",
                "`variations` must be an array of at least one variation; got an empty one"
            ),
            (["variations": ["a", "a"]], "/variations/1", "the keys of variations must differ; got 'a' twice"),
            (
                ["variations": ["a"], "enrollment": "opne"], "/enrollment",
                "`enrollment` must be one of open, closed; got 'opne'; did you mean 'open'?"
            ),
            (
                ["variations": ["a"], "enrollment": 1], "/enrollment",
                "`enrollment` must be one of open, closed; got a number"
            ),
            (
                ["variations": ["a"], "status": "off"], "/status",
                "`status` must be one of draft, running, paused, concluded"
            ),
            (["variations": ["a"], "group": 7], "/group", "`group` must be a string; got a number"),
            (
                ["variations": ["a"], "group": ""], "/group",
                "a key must be 1 to 255 bytes long, without NUL; got 0 bytes"
            ),
            (
                ["variations": ["a"], "assignment_ttl": "ever"], "/assignment_ttl",
                "`assignment_ttl` must be a time from 1s"
            ),
            (["variations": ["a"], "id": "a b"], "/id", "an experiment id must consist of ASCII letters and digits"),
            ([:], "/variations", "a new experiment must have `variations`"),
            (["variations": ["a"], "status": "concluded"], "/status", "an experiment is concluded with POST"),
        ] as [(JSONValue, String, String)])
    func `What a new experiment cannot be is refused with its place`(
        body: JSONValue, place: String, detail: String
    ) throws {
        let refusal = try #require(refused(body))
        #expect(refusal.places == [place])
        #expect(refusal.detail.hasPrefix(detail), "\(refusal.detail)")
    }

    @Test func `Every wrong member is named, in the order of what is shown`() throws {
        let refusal = try #require(
            refused([
                "traffic": -1, "variants": ["a"], "status": "on", "enrollment": 1, "group": 7, "id": "a b",
                "key": "other", "audience": ["type": "custom_attribute", "name": "a", "match": "like", "value": 1],
                "variations": ["a", ["weight": 1], ["key": "b", "weight": "x"], "a"], "tags": 7,
                "assignment_ttl": "ever", "plan": ["power": 2],
            ]))
        #expect(
            refusal.places == [
                "/variants", "/key", "/id", "/status", "/variations/1/key", "/variations/2/weight", "/variations/3",
                "/traffic", "/enrollment", "/group", "/audience/match", "/assignment_ttl", "/tags", "/plan/power",
            ])
        #expect(refusal.faults.first?.reason.hasSuffix("did you mean `variations`?") == true)
    }

    @Test mutating func `What is known cannot become anything`() throws {
        _ = try put(["id": "7", "variations": [["key": "a", "id": "70"], "b"], "status": "draft"])
        #expect(refused(["id": "8"])?.places == ["/id"])
        #expect(refused(["variations": [["key": "a", "id": "71"], "b"]])?.places == ["/variations/0/id"])
        #expect(refused(["variations": ["a", ["key": "b", "id": "70"]]])?.kind == .conflict)
        #expect(refused(["id": "7", "variations": ["a"]], "other")?.places == ["/id"])
        _ = try put(["status": "running"])
        let refusal = try #require(refused(["status": "draft"]))
        #expect(
            refusal.kind == .conflict && refusal.detail.hasPrefix("an experiment that has started cannot be a draft"))
        try bench.remove(Experiment.self, "checkout")
        #expect(
            self.refused(["traffic": 5])?.detail == "the experiment 'checkout' is archived; set `status` to restore it")
        #expect(try put(["status": "running", "traffic": 5])["traffic"] == 5)
    }

    @Test mutating func `A key belongs to one experiment, flag or holdout`() throws {
        try bench.put(Flag.self, "banner", ["type": "boolean"])
        try bench.put(Holdout.self, "everything", ["share": 5])
        #expect(refused(["variations": ["a"]], "banner")?.kind == .conflict)
        #expect(refused(["variations": ["a"]], "everything")?.kind == .conflict)
        _ = try put(["variations": ["a"]])
        #expect(bench.refused(Flag.self, "checkout", ["type": "boolean"])?.places == ["/type"])
        #expect(bench.refused(Holdout.self, "checkout", ["share": 5])?.kind == .conflict)
    }

    // MARK: Weights and traffic

    @Test(arguments: [(1, 1), (50, 50), (5_000, 5_000), (0.5, 0.5)] as [(Double, Double)])
    mutating func `Weights are relative`(control: Double, new: Double) throws {
        let shown = try put([
            "variations": [
                ["key": "control", "weight": .shortest(control)], ["key": "new", "weight": .shortest(new)],
            ]
        ])
        #expect(shown["variations"].all("share") == [50, 50])
        #expect(shown["variations"].all("weight") == [.shortest(control), .shortest(new)])
        #expect(shown["traffic"] == 100)
    }

    @Test mutating func `What is left out keeps its value`() throws {
        let first = try put([
            "variations": [["key": "control", "weight": 3], ["key": "new", "weight": 1]], "traffic": 10,
            "name": "Checkout", "assignment_ttl": "30d",
        ])
        #expect(first["variations"].all("share") == [7.5, 2.5])
        #expect(try put(["traffic": 100])["variations"].all("share") == [75, 25])
        #expect(try put(["traffic": 0])["variations"].all("share") == [0, 0])
        let resumed = try put(["traffic": 33.33])
        #expect(resumed["variations"].all("share") == [25, 8.33] && resumed["traffic"] == 33.33)
        #expect(try put(["variations": ["control", "new"]])["traffic"] == 33.33)
        let paused = try put(["status": "paused", "traffic": nil, "enrollment": nil, "id": nil])
        #expect(paused["traffic"] == 33.33 && paused["name"] == "Checkout" && paused["assignment_ttl"] == "30d")
        let cleared = try put(["name": nil, "assignment_ttl": nil])
        #expect(cleared["name"] == .null && cleared["assignment_ttl"] == .null)
    }

    @Test(arguments: [0.01, 0.02, 0.05, 1])
    mutating func `Equal parts stay equal, however little traffic there was`(traffic: Double) throws {
        _ = try put(["variations": ["a", "b", "c"], "traffic": .shortest(traffic)])
        #expect(try put(["traffic": 90])["variations"].all("share") == [30, 30, 30])
        _ = try put(["traffic": .shortest(traffic)])
        let whole = try put(["traffic": 100])["variations"].all("share").compactMap(\.double)
        #expect(whole.count == 3 && whole.allSatisfy { $0 == 33.33 || $0 == 33.34 })
    }

    @Test(arguments: [0, 0.05, 33.33])
    func `The ratio of an uploaded datafile outlasts little traffic`(traffic: Double) throws {
        var bench = try DefinitionBench([
            "experiments": [
                [
                    "id": "7", "key": "checkout", "layerId": "7", "status": "Running", "audienceIds": [],
                    "forcedVariations": [:],
                    "variations": [["id": "a", "key": "control"], ["id": "b", "key": "new"]],
                    "trafficAllocation": [
                        ["entityId": "a", "endOfRange": 9_000], ["entityId": "b", "endOfRange": 10_000],
                    ],
                ]
            ]
        ])
        try bench.put(Experiment.self, "checkout", ["traffic": .shortest(traffic)])
        let whole = try bench.put(Experiment.self, "checkout", ["traffic": 100])
        #expect(whole["variations"].all("share") == [90, 10])
    }

    @Test mutating func `Weights are shown as they were given; equal parts without weights count as one each`() throws {
        let little = try put(["variations": ["a", "b"], "traffic": 0.03])
        #expect(little["variations"].all("share") == [0.02, 0.01])
        #expect(little["variations"].all("weight") == [1, 1])
        let given = try put([
            "variations": [["key": "a", "weight": 2.5], ["key": "b", "weight": 1]], "traffic": 0.07,
        ])
        #expect(given["variations"].all("weight") == [2.5, 1])
        #expect(try put(["traffic": 80, "enrollment": "closed"])["variations"].all("weight") == [2.5, 1])
        #expect(try put(["status": "archived"])["variations"].all("weight") == [2.5, 1])
    }

    @Test mutating func `While enrollment is closed SDKs enroll nobody, and what is planned is shown`() throws {
        _ = try put(["variations": ["a", "b"], "traffic": 80])
        let closed = try put(["enrollment": "closed", "traffic": 60])
        #expect(closed["enrollment"] == "closed" && closed["traffic_allocation"] == [] && closed["traffic"] == 60)
        #expect(try put(["enrollment": "open"])["traffic_allocation"].array?.isEmpty == false)
    }

    // MARK: Variations and status

    @Test mutating func `A variation that is left out and put back has its id again`() throws {
        let both = try put(["id": "7", "variations": [["key": "control", "id": "70"], ["key": "new", "id": "71"]]])
        _ = try put(["variations": ["control"]])
        _ = try put(["variations": ["control", "other"]])
        #expect(Self.ids(try put(["variations": ["new", "control"]])) == Self.ids(both))
    }

    @Test mutating func `The id of a variation depends on the experiment's id and its key alone`() throws {
        var other = try DefinitionBench()
        let body: JSONValue = ["id": "7", "variations": ["control", "new"]]
        let ids = Self.ids(try put(body))
        #expect(try Self.ids(other.put(Experiment.self, "other", body)) == ids)
        #expect(Set(ids.values).count == 2)
    }

    @Test(arguments: [
        ("Running", "running", "Running"), ("PAUSED", "paused", "Paused"),
        ("Not started", "not_started", "Not started"),
        ("not_started", "not_started", "Not started"), ("archived", "archived", "Archived"),
    ])
    mutating func `A status is accepted in any case, shown in lower case, and served to SDKs as Optimizely writes it`(
        given: String, name: String, served: String
    ) throws {
        #expect(try put(["variations": ["a"], "status": .string(given)])["status"] == .string(name))
        #expect(bench.compiled.datafile.experiment(key: "checkout")?.status == served)
    }

    // MARK: Groups

    @Test mutating func `A group has room for everybody once, and the archive frees its part`() throws {
        _ = try put(["variations": ["a", "b"], "group": "page", "traffic": 60])
        for body in [
            ["variations": ["a"], "group": "page"], ["variations": ["a"], "group": "page", "traffic": 40.01],
        ] as [JSONValue] {
            let refusal = try #require(refused(body, "search"))
            #expect(refusal.places == ["/traffic"] && refusal.detail.contains("'checkout' 60%, 'search'"))
        }
        _ = try put(["variations": ["a"], "group": "page", "traffic": 40], "search")
        #expect(refused(["traffic": 61])?.places == ["/traffic"])
        try bench.remove(Experiment.self, "search")
        _ = try put(["traffic": 100])
        #expect(refused(["status": "running"], "search")?.kind == .unprocessable)
        _ = try put(["traffic": 60])
        #expect(try put(["status": "running"], "search")["traffic"] == 40)
    }

    @Test mutating func `An experiment that enters or leaves a group keeps its traffic and its shares`() throws {
        let alone = try put(["variations": [["key": "a", "weight": 3], ["key": "b", "weight": 1]], "traffic": 40])
        for group in ["page", "other", nil] as [JSONValue] {
            let shown = try put(["group": group])
            #expect(shown["group"] == group && shown["traffic"] == 40 && shown["variations"] == alone["variations"])
            #expect(bench.compiled.datafile.source["groups"].array?.count == (group.isNull ? 0 : 1))
        }
    }
}
