import APITestSupport
import TestSupport
import Testing

/// The checker explains what is right, and finds out what is wrong.
@Suite struct HistoryCheckerTests {
    /// One history and whether it can be explained.
    struct Case: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let events: [HistoryEvent]
        var timeToLive: UInt64?

        init(_ fact: String, timeToLive: UInt64? = nil, _ events: HistoryEvent...) {
            testDescription = fact
            self.events = events
            self.timeToLive = timeToLive
        }
    }

    private static let ms: UInt64 = 1_000_000

    private static func event(
        _ time: ClosedRange<UInt64>, _ operation: Operation, _ observation: Observation, client: Int = 0,
        of user: String = "ada"
    ) -> HistoryEvent {
        HistoryEvent(
            client: client, user: user, operation: operation, invokedAt: time.lowerBound * ms,
            returnedAt: time.upperBound * ms, observation: observation)
    }

    private static func detail(_ variation: String, _ source: ModelProfile.Source = .saved) -> Observation {
        .detail(["e": .init(variation: variation, source: source)])
    }

    private static let assign = Operation.assign(experiment: "e", among: ["a", "b"])

    static let right = [
        Case(
            "concurrent saves happen in either order",
            event(0...10, .save(["e": "1"]), .profile(["e": "1"])),
            event(0...10, .save(["e": "2"]), .profile(["e": "2"])),
            event(11...12, .read, detail("1"))),
        Case(
            "a save is seen before it is answered",
            event(0...10, .save(["e": "1"]), .profile(["e": "1"])), event(2...3, .read, detail("1"))),
        Case(
            "a save without an answer has happened or not",
            event(0...10, .save(["e": "1"]), .nothing), event(2...3, .read, .detail(nil)),
            event(5...6, .read, detail("1"))),
        Case(
            "what has expired is gone, and the profile with it", timeToLive: 100 * ms,
            event(0...1, .save(["e": "1"]), .profile(["e": "1"])), event(50...51, .read, detail("1")),
            event(150...151, .read, .detail(nil))),
        Case(
            "what has expired for one who looks late is there for a save at the same time", timeToLive: 100 * ms,
            event(0...1, .save(["e": "1"]), .profile(["e": "1"])), event(90...120, .read, .detail(nil)),
            event(91...119, .save(["f": "2"]), .profile(["e": "1", "f": "2"]))),
        Case(
            "a later save for the same variation keeps its origin",
            event(0...1, assign, .variation("a")),
            event(2...3, .put(["e": "a"]), .replacement(existed: true, ["e": "a"])),
            event(4...5, .read, detail("a", .bucketed))),
    ]

    private static func assign(lasting: [String]) -> Operation {
        .assign(experiment: "e", among: ["a", "b"], lasting: lasting)
    }

    static let variationsThatGo = [
        Case(
            "a variation that may be gone is replaced",
            event(0...1, assign, .variation("a")), event(2...3, assign(lasting: ["b"]), .variation("b")),
            event(4...5, .read, detail("b", .bucketed))),
        Case(
            "a variation that may be gone is kept",
            event(0...1, assign, .variation("a")), event(2...3, assign(lasting: ["b"]), .variation("a"))),
        Case(
            "an override that is no variation stays, and another variation is given",
            event(0...1, .override(experiment: "e", variation: "c"), .variation("c")),
            event(2...3, assign, .variation("a")), event(4...5, .read, detail("c", .override))),
        Case(
            "beneath an override that is no variation, the assignment counts",
            event(0...1, .save(["e": "a"]), .profile(["e": "a"])),
            event(2...3, .override(experiment: "e", variation: "c"), .variation("c")),
            event(4...5, assign, .variation("a")), event(6...7, .read, detail("c", .override))),
        Case(
            "what is refused does nothing",
            event(0...1, .override(experiment: "e", variation: "c"), .refusal), event(2...3, .read, .detail(nil))),
    ]

    private static func override(_ variation: String, milliseconds: UInt64? = nil) -> HistoryEvent {
        event(
            2...3, .override(experiment: "e", variation: variation, reason: "r", milliseconds: milliseconds),
            .variation(variation))
    }

    private static func force(_ time: ClosedRange<UInt64>, _ variation: String?) -> HistoryEvent {
        event(time, .force(experiment: "e", variation: variation), .acknowledgement)
    }

    private static let overridden = Observation.detail(["e": .init(variation: "b", source: .override, reason: "r")])

    static let layers = [
        Case(
            "an override that ends gives back what is beneath it",
            event(0...1, assign, .variation("a")), override("b", milliseconds: 50), event(4...5, .read, overridden),
            event(5...5, assign, .variation("b")), event(80...81, .read, detail("a", .bucketed)),
            event(82...83, assign, .variation("a"))),
        Case(
            "an override that ends over what has expired leaves nothing", timeToLive: 100 * ms,
            event(0...1, assign, .variation("a")), override("b", milliseconds: 200),
            event(150...151, .read, overridden),
            event(250...251, .read, .detail(nil))),
        Case(
            "what is forced is known here sooner and there later, and ends everywhere at once",
            event(0...1, assign, .variation("a")), force(2...3, "b"), event(4...5, assign, .variation("b")),
            event(4...5, assign, .variation("a"), client: 1), force(6...7, nil), event(8...9, assign, .variation("a")),
            event(8...9, .read, detail("a", .bucketed), client: 1)),
        Case(
            "while a variation is forced, an exposure enrolls nobody",
            force(0...1, "b"),
            event(2...3, .expose(experiment: "e", variation: "a", among: ["a", "b"]), .acknowledgement),
            event(4...5, .read, .detail(nil))),
    ]

    static let wrongLayers = [
        Case(
            "an override ends before its time",
            event(0...1, assign, .variation("a")), override("b", milliseconds: 50),
            event(6...7, .read, detail("a", .bucketed))),
        Case(
            "an override outlives its time", override("b", milliseconds: 50), event(80...81, .read, overridden)),
        Case(
            "an override that ends leaves nothing of what was beneath it",
            event(0...1, assign, .variation("a")), override("b", milliseconds: 50), event(80...81, .read, .detail(nil))),
        Case(
            "an override is there again after its end",
            override("b", milliseconds: 50), event(40...50, .read, .detail(nil)), event(51...52, .read, overridden)),
        Case(
            "the reason of an override is lost", override("b"), event(4...5, .read, detail("b", .override))),
        Case(
            "beneath an override that is no variation, another one is given",
            event(0...1, assign, .variation("a")), override("c"), event(4...5, assign, .variation("b"))),
        Case(
            "what was forced is given after its end",
            event(0...1, assign, .variation("a")), force(2...3, "b"), force(4...5, nil),
            event(6...7, assign, .variation("b"))),
        Case(
            "what was forced is given after an erasure",
            event(0...1, .save(["e": "a"]), .profile(["e": "a"])), force(2...3, "b"),
            event(4...5, .erase, .acknowledgement), event(6...7, assign, .variation("a")),
            event(8...9, assign, .variation("b"))),
        Case(
            "what is forced is stored",
            force(0...1, "b"),
            event(2...3, .expose(experiment: "e", variation: "b", among: ["a", "b"]), .acknowledgement),
            event(4...5, .read, detail("b"))),
    ]

    private static let merge = Operation.merge(from: "anon")
    private static let assignBeside = Operation.assignBeside("anon", experiment: "e", among: ["a", "b"])

    static let merges = [
        Case(
            "what the anonymous user had fills the gaps of the account",
            event(0...1, .save(["e": "1", "f": "1"]), .profile(["e": "1", "f": "1"]), of: "anon"),
            event(2...3, .save(["e": "2"]), .profile(["e": "2"])),
            event(4...5, merge, .profile(["e": "2", "f": "1"])), event(6...7, .read, .detail(nil), of: "anon")),
        Case(
            "a save of the anonymous user during the merge comes before or after it",
            event(0...9, merge, .profile([:])), event(0...9, .save(["e": "1"]), .profile(["e": "1"]), of: "anon"),
            event(10...11, .read, detail("1"), of: "anon"), event(12...13, merge, .profile(["e": "1"])),
            event(14...15, .read, detail("1", .merged))),
        Case(
            "a variation of the anonymous user that may be gone is not taken",
            event(0...1, .save(["e": "a"]), .profile(["e": "a"]), of: "anon"),
            event(
                2...3, .assignBeside("anon", experiment: "e", among: ["a", "b"], lasting: ["b"]), .variation("b")),
            event(4...5, .read, detail("b", .bucketed))),
        Case(
            "beside the anonymous user, the account gets that variation",
            event(0...1, .save(["e": "a"]), .profile(["e": "a"]), of: "anon"),
            event(2...3, assignBeside, .variation("a")), event(4...5, .read, detail("a", .merged))),
    ]

    static let wrongMerges = [
        Case(
            "an assignment that was saved for the anonymous user during the merge is lost",
            event(0...9, merge, .profile([:])), event(0...9, .save(["e": "1"]), .profile(["e": "1"]), of: "anon"),
            event(10...11, .read, .detail(nil), of: "anon"), event(12...13, .read, .detail(nil))),
        Case(
            "the account's assignment is lost",
            event(0...1, .save(["e": "1"]), .profile(["e": "1"]), of: "anon"),
            event(2...3, .save(["e": "2"]), .profile(["e": "2"])), event(4...5, merge, .profile(["e": "1"]))),
        Case(
            "the anonymous profile is still there",
            event(0...1, .save(["e": "1"]), .profile(["e": "1"]), of: "anon"),
            event(2...3, merge, .profile(["e": "1"])), event(4...5, .read, detail("1"), of: "anon")),
        Case(
            "half of a merge is seen",
            event(0...1, .save(["e": "1"]), .profile(["e": "1"]), of: "anon"),
            event(2...9, merge, .profile(["e": "1"])), event(3...4, .read, .detail(nil), of: "anon"),
            event(5...6, .read, .detail(nil))),
        Case(
            "beside the anonymous user, the account gets another variation",
            event(0...1, .save(["e": "a"]), .profile(["e": "a"]), of: "anon"),
            event(2...3, assignBeside, .variation("b"))),
    ]

    static let wrong = [
        Case(
            "a variation moves that the experiment has all the while",
            event(0...1, assign, .variation("a")), event(2...3, assign(lasting: ["a"]), .variation("b"))),
        Case(
            "a user gets what the experiment does not have", event(0...1, assign, .variation("c"))),
        Case(
            "an acknowledged save is not there",
            event(0...1, .save(["e": "1"]), .profile(["e": "1"])), event(2...3, .read, .detail(nil))),
        Case(
            "one of two concurrent saves of different experiments is lost",
            event(0...9, .save(["e": "1"]), .profile(["e": "1"])),
            event(0...9, .save(["f": "2"]), .profile(["f": "2"])),
            event(10...11, .lookup, .profile(["e": "1", "f": "2"]))),
        Case(
            "half of a save is there",
            event(0...9, .save(["e": "1", "f": "1"]), .nothing), event(10...11, .lookup, .profile(["e": "1"]))),
        Case(
            "two who ask at once get different variations",
            event(0...9, assign, .variation("a")), event(0...9, assign, .variation("b"), client: 1)),
        Case(
            "a variation moves",
            event(0...1, assign, .variation("a")), event(2...3, assign, .variation("b"))),
        Case(
            "a save goes over an override",
            event(0...1, .override(experiment: "e", variation: "a"), .variation("a")),
            event(2...3, .save(["e": "1"]), .profile(["e": "1"]))),
        Case(
            "a replacement drops an override",
            event(0...1, .override(experiment: "e", variation: "a"), .variation("a")),
            event(2...3, .put(["f": "1"]), .replacement(existed: true, ["f": "1"]))),
        Case(
            "a save that keeps has replaced",
            event(0...1, .save(["e": "1"]), .profile(["e": "1"])), event(2...3, .keep(["e": "2"]), .profile(["e": "2"]))
        ),
        Case(
            "a read goes back behind an earlier one on the same connection",
            event(0...9, .save(["e": "1"]), .profile(["e": "1"])), event(2...3, .read, detail("1"), client: 1),
            event(4...5, .read, .detail(nil), client: 1)),
        Case(
            "what was erased comes back",
            event(0...1, .save(["e": "1"]), .profile(["e": "1"])), event(2...3, .erase, .acknowledgement),
            event(4...5, .read, detail("1"))),
        Case(
            "a save without an answer happens after the server's end",
            event(0...5, .save(["e": "1"]), .nothing), event(6...7, .read, .detail(nil)),
            event(8...9, .read, detail("1"))),
        Case(
            "an assignment outlives its time", timeToLive: 100 * ms,
            event(0...1, .save(["e": "1"]), .profile(["e": "1"])), event(150...151, .read, detail("1"))),
        Case(
            "an assignment that was seen to have expired is there again", timeToLive: 100 * ms,
            event(0...1, .save(["e": "1"]), .profile(["e": "1"])), event(92...100, .read, .detail(nil)),
            event(101...102, .read, detail("1"))),
        Case(
            "an assignment is gone before its time", timeToLive: 100 * ms,
            event(0...1, .save(["e": "1"]), .profile(["e": "1"])), event(50...51, .read, .detail(nil))),
    ]

    @Test(arguments: right + variationsThatGo + layers + merges)
    func `What is right is explained`(history: Case) throws {
        var checker = HistoryChecker(ProfileModel(timeToLive: history.timeToLive))
        try checker.check(history.events)
    }

    @Test(arguments: wrong + wrongLayers + wrongMerges)
    func `What is wrong is found out`(history: Case) {
        var checker = HistoryChecker(ProfileModel(timeToLive: history.timeToLive))
        #expect(throws: HistoryChecker.Violation.self) { try checker.check(history.events) }
    }

    /// A true history, recorded from the real server, with one response in it made wrong. With several clients at once an
    /// answer may lack what another one adds meanwhile; a variation that nobody gave is wrong in any case.
    @Test(arguments: [1, 4])
    func `One wrong answer in a long history is found out`(clients: Int) throws {
        let directory = try TemporaryDirectory()
        let history = try Self.record(clients: clients, in: directory)
        var checker = HistoryChecker(ProfileModel())
        try checker.check(history)
        var random = SeededGenerator(seed: 5)
        for place in history.indices.shuffled(using: &random).prefix(80) {
            var wrong = history
            let drops = clients == 1 && Bool.random(using: &random)
            guard let response = Self.spoiled(history[place].observation, drops: drops) else { continue }
            wrong[place].observation = response
            var checker = HistoryChecker(ProfileModel())
            #expect(throws: HistoryChecker.Violation.self, "\(wrong[place])") { try checker.check(wrong) }
        }
    }

    private static func record(clients: Int, in directory: TemporaryDirectory) throws -> [HistoryEvent] {
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        try DatafileExperiment.make(on: [server])
        let clients = (0..<clients).map {
            LoadClient(number: $0, seed: 3, users: ["ada"], insists: false, limit: 200 / clients)
        }
        let load = Load(of: clients, on: [server.port])
        load.waitForEnd()
        #expect(load.counts.wrong.isEmpty)
        return clients.flatMap(\.history)
    }

    /// The response with an assignment dropped, or with another variation; `nil` when it has none.
    private static func spoiled(_ observation: Observation, drops: Bool) -> Observation? {
        func spoil<Value>(_ map: [String: Value], _ other: Value) -> [String: Value]? {
            guard let experiment = map.keys.min() else { return nil }
            var map = map
            map[experiment] = drops ? nil : other
            return map
        }
        return switch observation {
        case .profile(let map): spoil(map, "other").map { .profile($0) }
        case .replacement(let existed, let map): spoil(map, "other").map { .replacement(existed: existed, $0) }
        case .detail(let map?): spoil(map, .init(variation: "other", source: .saved)).map { .detail($0) }
        case .variation: .variation("other")
        default: nil
        }
    }
}
