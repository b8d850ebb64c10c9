import Bucketing
import Definitions
import DefinitionsTestSupport
import Foundation
import JSON
import Testing

@testable import HoldfastCore

@Suite struct AdoptionCheckTests {
    private static let vectors = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().appending(path: "BucketingTests/Vectors")
    private static let datafiles: [String] = {
        let names = try? FileManager.default.contentsOfDirectory(atPath: vectors.path)
        return (names ?? []).filter { $0.hasPrefix("datafile-") }.sorted()
    }()

    private static func project(_ content: [UInt8]) throws -> Project {
        GoldenProject.project(CompiledDefinitions(try Datafile(JSONParser().parse(content))), version: 1)
    }

    @Test func `There are datafiles of the reference SDK`() {
        #expect(Self.datafiles.count > 30)
    }

    @Test(arguments: datafiles) func `Datafiles of others decide and look as rows as they did before`(name: String)
        throws
    {
        let content = try Data(contentsOf: Self.vectors.appending(path: name))
        let check = AdoptionCheck(try Self.project(Array(content)), users: 40)
        #expect(check.differences == [])
        #expect(check.staysWhole || check.decisions == 40 * (check.experiments + check.flags))
    }

    @Test func `What differs is named`() throws {
        var bench = try DefinitionBench()
        _ = try bench.put(Experiment.self, "checkout", ["variations": ["a", "b"]])
        _ = try bench.put(
            Experiment.self, "pros", ["variations": ["a", "b"], "audience": ["name": "plan", "value": "pro"]])
        #expect(AdoptionCheck(bench.project, users: 100).differences == [])
        // What began without metrics has no fixed plan, and gets none by being written anew.
        _ = try bench.put(MetricDefinition.self, "orders", ["kind": "count", "goal": "purchase"])
        _ = try bench.put(Experiment.self, "checkout", ["metrics": ["primary": ["orders"]]])
        #expect(AdoptionCheck(bench.project, users: 100).differences == [])
        var other = bench
        _ = try other.put(Experiment.self, "pros", ["traffic": 10])
        let rows = other.compiled
        let check = AdoptionCheck(bench.project, users: 100) { _ throws(CoreError) in rows }
        #expect(check.differences.contains("the experiment 'pros' is described differently"))
        // Some of the users are in the audience, and some of these get another variation.
        #expect(check.differences.contains { $0.hasPrefix("the experiment 'pros' has another variation for the user") })
        #expect(check.differences.contains { $0.hasPrefix("the flag 'pros' is decided differently for the user") })
        #expect(check.differences.allSatisfy { $0.contains("'pros'") })
    }

    @Test func `A datafile with two elements of a name stays whole`() throws {
        let root: JSONValue = [
            "version": "4", "accountId": "a", "projectId": "p", "revision": "1", "groups": [], "events": [],
            "attributes": [], "audiences": [], "featureFlags": [], "rollouts": [],
            "experiments": .array(
                ["1", "2"].map { id in
                    [
                        "id": .string(id), "key": "twice", "layerId": "l", "status": "Running", "audienceIds": [],
                        "forcedVariations": [:], "variations": [["id": .string("v\(id)"), "key": "a"]],
                        "trafficAllocation": [],
                    ]
                }),
        ]
        let check = AdoptionCheck(try Self.project(root.encoded()), users: 1)
        #expect(check.staysWhole && check.differences == [])
    }
}
