import Bucketing
import DefinitionsTestSupport
import JSON
import Storage
import TestSupport
import Testing

@testable import Definitions
@testable import HoldfastCore

/// Counts of previews over the whole bucket space.
@Suite("Preview of an experiment")
struct ExperimentPreviewTests {
    /// A datafile with an experiment of "a" and "b".
    ///
    /// - Parameters:
    ///   - end: where the range of "a" ends; "b" has the rest.
    ///   - groupEnd: the experiment's bucket values in its group; `nil` for an experiment outside of groups.
    private func datafile(_ end: Int, groupEnd: Int? = nil, status: String = "Running") throws -> Datafile {
        let experiment: JSONValue = [
            "id": "7", "key": "e", "layerId": "7", "status": .string(status), "audienceIds": [],
            "forcedVariations": [:],
            "variations": [["id": "1", "key": "a"], ["id": "2", "key": "b"]],
            "trafficAllocation": [
                ["entityId": "1", "endOfRange": .integer(Int64(end))], ["entityId": "2", "endOfRange": 10_000],
            ],
        ]
        let groups: [JSONValue] =
            groupEnd.map { end in
                [
                    [
                        "id": "g", "policy": "random", "experiments": [experiment],
                        "trafficAllocation": [["entityId": "7", "endOfRange": .integer(Int64(end))]],
                    ]
                ]
            } ?? []
        return try Datafile([
            "version": "4", "accountId": "1", "projectId": "1", "revision": "1", "attributes": [], "audiences": [],
            "groups": .array(groups), "featureFlags": [], "rollouts": [], "events": [],
            "experiments": groupEnd == nil ? [experiment] : [],
        ])
    }

    private func preview(_ former: Datafile?, _ edited: Datafile) throws -> ExperimentPreview {
        try #require(ExperimentPreview("e", from: former, to: edited))
    }

    @Test
    func `Moves are counted over all bucket values`() throws {
        let preview = try preview(datafile(5_000), datafile(9_000))
        #expect(preview.moves == [.init(from: "b", to: "a", share: 40)])
        #expect(preview.changedShare == 40)
        #expect(try self.preview(datafile(5_000), datafile(5_000)).moves.isEmpty)
        let new = try self.preview(nil, datafile(2_500))
        #expect(new.moves == [.init(from: nil, to: "a", share: 25), .init(from: nil, to: "b", share: 75)])
        #expect(try self.preview(datafile(5_000), datafile(5_000, status: "Paused")).changedShare == 100)
    }

    @Test
    func `Of a group only the users whom it gives to the experiment move`() throws {
        let weights = try preview(datafile(5_000, groupEnd: 5_000), datafile(9_000, groupEnd: 5_000))
        #expect(weights.moves == [.init(from: "b", to: "a", share: 20)])
        let traffic = try preview(datafile(5_000, groupEnd: 5_000), datafile(5_000, groupEnd: 8_000))
        #expect(traffic.moves == [.init(from: nil, to: "a", share: 15), .init(from: nil, to: "b", share: 15)])
        let left = try preview(datafile(5_000, groupEnd: 4_000), datafile(5_000))
        #expect(left.changedShare == 60)
        #expect(left.warnings(hasUsers: true) == [.groupChanged])
    }

    @Test
    func `A change of weights is a warning only once there are users`() throws {
        let preview = try preview(datafile(5_000), datafile(9_000))
        #expect(preview.warnings(hasUsers: false).isEmpty)
        #expect(preview.warnings(hasUsers: true) == [.weightsChangedMidflight])
        #expect(
            Set(ExperimentPreview.Warning.allCases.map(\.message)).count == ExperimentPreview.Warning.allCases.count)
    }

    // MARK: What bodies of PUT would do

    private static let variations: JSONValue = ["variations": ["control", "new"]]

    /// Returns what a body would do to the experiment `checkout`.
    private func preview(_ bench: DefinitionBench, _ body: JSONValue) throws -> ExperimentPreview {
        var edited = bench
        try edited.put(Experiment.self, "checkout", body)
        return try #require(
            ExperimentPreview("checkout", from: bench.project.datafile, to: edited.project.datafile))
    }

    private func warnings(_ bench: DefinitionBench, _ body: JSONValue) throws -> [ExperimentPreview.Warning] {
        try preview(bench, body).warnings(hasUsers: true)
    }

    @Test func `More traffic for equal variations is no change of their weights, whatever rounding does`() throws {
        var bench = try DefinitionBench()
        func body(_ traffic: JSONValue, _ weight: JSONValue = 1) -> JSONValue {
            [
                "variations": [
                    ["key": "a", "weight": 1], ["key": "b", "weight": 1], ["key": "c", "weight": weight],
                ],
                "traffic": traffic,
            ]
        }
        try bench.put(Experiment.self, "checkout", body(0.01))
        for traffic in [0.02, 0.1, 1, 1.01, 10, 33.33, 50, 100] as [JSONValue] {
            #expect(try warnings(bench, body(traffic)) == [.trafficRaised], "\(traffic)")
            try bench.put(Experiment.self, "checkout", body(traffic))
        }
        #expect(try warnings(bench, body(100, 2)) == [.weightsChangedMidflight])
    }

    @Test(
        arguments: [
            (["traffic": 50, "audience": ["name": "plan", "value": "pro"]], [.audienceNarrowed, .trafficLowered]),
            (["variations": ["control"]], [.variationRemoved]),
            (["variations": ["control", "new", "other"]], [.variationAdded]),
            (["status": "paused"], [.paused]), (["status": "archived"], [.archived]),
            (["enrollment": "closed"], [.enrollmentClosed]), (["group": "g"], [.groupChanged]),
            (["name": "Checkout", "tags": ["web"]], []),
        ] as [(JSONValue, [ExperimentPreview.Warning])])
    func `A change has the warnings of what it disturbs`(body: JSONValue, expected: [ExperimentPreview.Warning]) throws
    {
        var bench = try DefinitionBench()
        try bench.put(Experiment.self, "checkout", Self.variations)
        #expect(try warnings(bench, body) == expected)
        try bench.put(Experiment.self, "checkout", body)
        #expect(try warnings(bench, body) == [])
    }

    @Test(
        arguments: [
            (["status": "running"], [.resumed]),
            (["audience": nil, "traffic": 100], [.audienceWidened, .trafficRaised]),
            (["audience": ["not", ["name": "plan", "value": "pro"]]], [.audienceChanged]),
        ] as [(JSONValue, [ExperimentPreview.Warning])])
    func `So has one of a restricted experiment`(body: JSONValue, expected: [ExperimentPreview.Warning]) throws {
        var bench = try DefinitionBench()
        try bench.put(
            Experiment.self, "checkout",
            [
                "variations": ["control", "new"], "traffic": 50, "audience": ["name": "plan", "value": "pro"],
                "status": .string(expected == [.resumed] ? "paused" : "running"),
            ])
        #expect(try warnings(bench, body) == expected)
    }

    @Test func `Users of a variation that is left out change, a pause takes variations away, and both are undone`()
        throws
    {
        var bench = try DefinitionBench()
        try bench.put(Experiment.self, "checkout", Self.variations)
        let experiment = try #require(bench.project.datafile.experiment(key: "checkout"))
        let service = DecisionService(datafile: bench.project.datafile)
        let users = (0..<40).map { Identifier("u\($0)") }
        let variations = try users.map { user in
            try #require(service.variation(of: experiment, for: User(id: user)).variation)
        }
        func counts(_ body: JSONValue) throws -> ExperimentPreview.Enrolled {
            let preview = try preview(bench, body)
            var counts = ExperimentPreview.Enrolled()
            for (user, variation) in zip(users, variations) {
                let profile = ProfileRecord([(experiment.id, variation.id)])
                preview.count(user, StickyAssignments(profile, forced: nil, attributes: nil), in: &counts)
            }
            #expect(counts.users == 40)
            return counts
        }
        let control = variations.count { $0.key == "control" }
        let removal = try counts(["variations": ["control"]])
        #expect(removal.keep == control && removal.change == 40 - control)
        try bench.put(Experiment.self, "checkout", ["variations": ["control"]])
        #expect(try counts(Self.variations).change == 40 - control)
        try bench.put(Experiment.self, "checkout", Self.variations)
        #expect(try counts(["traffic": 10]).keep == 40)
        #expect(try counts(["status": "paused"]).lose == 40)
        try bench.put(Experiment.self, "checkout", ["status": "paused"])
        #expect(try counts(["status": "running"]).gain == 40)
    }

    // MARK: What a body most likely does unmeant

    @Test(
        arguments: [
            (["variations": ["control", "new"]], .weightsReset),
            (["variations": ["control", "new", "other"]], .weightsReset),
            (["variations": [["key": "control", "weight": 1], ["key": "new", "weight": 1]]], nil),
            (["schedule": ["start_at": "2016-06-01T08:00:00Z"]], .startInPast),
            (["schedule": ["start_at": "2126-06-01T08:00:00Z"]], nil), (["traffic": 0.5], .trafficBelowOne),
            (["traffic": 1], nil), (["audience": ["name": "pln", "value": "pro"]], .conditionNeverMet),
            (["audience": ["name": "plan", "value": "pro"]], nil),
        ] as [(JSONValue, DefinitionWarning.Code?)])
    func `A body is warned of where it is`(body: JSONValue, code: DefinitionWarning.Code?) throws {
        var bench = try DefinitionBench()
        let shown = try bench.put(
            Experiment.self, "checkout",
            ["variations": [["key": "control", "weight": 9], ["key": "new", "weight": 1]]])
        let change = try #require(
            try Experiment.change(body, key: "checkout", of: shown, GoldenProject.schema))
        let warnings = change.warnings(
            GoldenProject.schema, bench.project.datafile, changing: shown, at: 1_772_000_000_000)
        #expect(warnings.map(\.code) == (code.map { [$0] } ?? []), "\(warnings)")
        let member = try #require(body.object?.map(\.key).first)
        #expect(warnings.allSatisfy { $0.fault.pointer.string.hasPrefix("/\(member)") })
    }
}
