import Bucketing
import Definitions
import DefinitionsTestSupport
import JSON
import Testing

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
}
