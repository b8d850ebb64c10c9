import Bucketing
import Definitions
import DefinitionsTestSupport
import JSON
import Storage
import TestSupport
import Testing

@testable import HoldfastCore

/// What the stored parts of datafiles say of one definition, and what is put back of it.
@Suite struct ElementHistoryTests {
    @Test(arguments: 0..<3)
    func `The parts of a definition say of it what the whole datafile says`(seed: UInt64) async throws {
        var history = RandomHistory(project: try GoldenProject.base.get(), bodies: BodyGenerator(seed: seed))
        var stored: [(parts: DatafileParts, definitions: ProjectDefinitions)] = []
        var rows: [DefinitionVersions.Row] = []
        for _ in 0..<60 where try history.edit() {
            let version = Int64(stored.count + 1)
            let definitions = history.project.definitions
            let (parts, change) = try #require(
                definitions.parts(replacing: stored.last.map { ($0.definitions, $0.parts) }))
            let gone = Set(change.removed)
            for index in rows.indices where rows[index].until == nil && gone.contains(rows[index].element.name) {
                rows[index].until = version
            }
            rows += change.put.map { .init($0, version: version, until: nil) }
            stored.append((parts, definitions))
        }
        #expect(stored.count > 10)
        let last = try #require(stored.last).definitions
        var names: Set<String> = []
        for (_, definitions) in stored {
            names.formUnion(definitions.experiments.map { "experiments \($0.key)" })
            names.formUnion(definitions.flags.map { "flags \($0.key)" })
            names.formUnion(definitions.metrics.map { "metrics \($0.key)" })
            names.formUnion(definitions.holdouts.map { "holdouts \($0.key)" })
        }
        let all = rows
        for name in names {
            let words = name.split(separator: " ")
            let kind = try #require(DefinitionSet.Kind(rawValue: String(words[0])))
            let key = Identifier(String(words[1]))
            var parts = DefinitionParts(kind, key)
            parts.addKeys(of: last)
            let versions = try await parts.versions { keys throws(StorageError) in
                DefinitionVersions(datafiles: [], rows: all.filter { keys.contains($0.element.name.key) })
            }
            #expect(versions.rows.count < rows.count / 4)
            for (index, (datafile, definitions)) in stored.enumerated() {
                let state = definitions.state(of: kind, key)
                let elements = versions.elements(in: Int64(index + 1))
                #expect(try parts.state(in: elements, datafile.base) == state, "\(name) in \(index + 1)")
                #expect(parts.state(in: definitions.datafile) == state, "\(name) in \(index + 1)")
            }
        }
    }

    // MARK: What is put back

    private var bench: DefinitionBench

    init() throws {
        bench = try DefinitionBench()
        try bench.put(MetricDefinition.self, "orders", ["kind": "conversion", "goal": "order"])
        try bench.put(
            Experiment.self, "checkout",
            [
                "id": "7001", "variations": [["key": "a", "weight": 3], ["key": "b", "weight": 1]], "traffic": 80,
                "audience": ["segment": "pros"], "name": "First", "metrics": ["primary": ["orders"]],
            ])
        try bench.put(
            Flag.self, "banner",
            [
                "type": "boolean",
                "rules": [["key": "rule", "experiment": ["weights": ["off": 1, "on": 3], "traffic": 50]]],
            ]
        )
        try bench.put(Holdout.self, "all", ["share": 5, "description": "First"])
    }

    private func state(_ kind: DefinitionSet.Kind, _ key: Identifier) throws -> DefinitionState {
        try #require(bench.compiled.definitions.state(of: kind, key))
    }

    /// - Returns: the names of the members that differ.
    @discardableResult
    private mutating func restore(
        _ state: DefinitionState, _ kind: DefinitionSet.Kind, _ key: Identifier
    ) throws(CoreError) -> [String] {
        let draft = try ProjectEditor.draft(
            GoldenProject.sdkKey,
            { definitions, project throws(CoreError) in
                let edit = DefinitionSetEdit(
                    restoring: state, of: kind, key, in: definitions, by: .processUser, at: 1_800_000_000_000)
                return try edit.apply(to: &definitions, of: project, GoldenProject.schema)
            }, of: bench.project)
        bench.compiled = draft.compiled
        return draft.outcome.differences.flatMap { $0.changedMembers.all("member").compactMap(\.string) }
    }

    @Test mutating func `Traffic, weights, audience and texts of an experiment are put back`() throws {
        let former = try state(.experiments, "checkout")
        let shown = bench.shown(Experiment.self, "checkout")
        try bench.put(
            Experiment.self, "checkout",
            [
                "variations": [["key": "c"], ["key": "a"]], "traffic": 20, "audience": .null, "name": "Second",
                "tags": ["x"],
            ])
        let names = try restore(former, .experiments, "checkout")
        #expect(Set(names) == ["variations", "traffic", "audience", "name", "tags"])
        let restored = bench.shown(Experiment.self, "checkout")
        for member in ["id", "traffic", "audience", "name", "tags", "variations", "metrics", "status"] {
            #expect(restored[member] == shown[member], "\(member)")
        }
        #expect(try restore(former, .experiments, "checkout") == [])
    }

    @Test(arguments: ["paused", "archived", "closed", "concluded"])
    mutating func `Nothing that was ended or stopped goes on`(_ end: String) throws {
        let former = try state(.experiments, "checkout")
        switch end {
        case "concluded": try bench.conclude("checkout", winner: "b")
        case "closed": try bench.put(Experiment.self, "checkout", ["enrollment": "closed", "name": "Second"])
        default: try bench.put(Experiment.self, "checkout", ["status": .string(end)])
        }
        if end != "archived" { try bench.put(Experiment.self, "checkout", ["name": "Second"]) }
        let before = bench.shown(Experiment.self, "checkout")
        try restore(former, .experiments, "checkout")
        let after = bench.shown(Experiment.self, "checkout")
        for member in ["status", "enrollment", "conclusion", "id"] { #expect(after[member] == before[member]) }
        #expect(after["name"] == "First")
    }

    @Test mutating func `A ramp that runs now goes on, and one that ended does not begin again`() throws {
        let plain = try state(.experiments, "checkout")
        try bench.put(
            Experiment.self, "rising",
            ["variations": ["a", "b"], "ramp": ["steps": [["traffic": 5, "for": "1d"], ["traffic": 100]]]])
        let rising = try state(.experiments, "rising")
        try bench.put(Experiment.self, "rising", ["traffic": 60])
        try restore(rising, .experiments, "rising")
        #expect(try state(.experiments, "rising").object["ramp"] == nil)
        #expect(bench.shown(Experiment.self, "rising")["traffic"] == 60)
        #expect(try restore(plain, .experiments, "checkout") == [])
    }

    @Test mutating func `A flag stays off, and its experiment paused, when its rules are put back`() throws {
        let former = try state(.flags, "banner")
        try bench.put(
            Flag.self, "banner",
            [
                "rules": [
                    ["key": "rule", "experiment": ["weights": ["off": 1, "on": 1], "status": "paused", "traffic": 9]]
                ]
            ])
        try bench.put(Flag.self, "banner", ["enabled": false, "description": "Second"])
        try restore(former, .flags, "banner")
        let flag = bench.shown(Flag.self, "banner")
        let experiment = flag["rules"].array?.first?["experiment"] ?? .null
        #expect(flag["enabled"] == false && flag["description"] == "")
        #expect(experiment["weights"] == ["off": 1, "on": 3] && experiment["traffic"] == 50)
        #expect(bench.shown(Experiment.self, "rule")["status"] == "paused")
    }

    @Test mutating func `What is gone is made again; experiments of rules stay archived`() throws {
        let (flag, holdout) = (try state(.flags, "banner"), try state(.holdouts, "all"))
        let metric = try state(.metrics, "orders")
        try bench.remove(Flag.self, "banner")
        try bench.remove(Holdout.self, "all")
        try restore(flag, .flags, "banner")
        try restore(holdout, .holdouts, "all")
        #expect(bench.shown(Flag.self, "banner")["enabled"] == true)
        #expect(bench.shown(Experiment.self, "rule")["status"] == "archived")
        #expect(bench.shown(Holdout.self, "all")["share"] == 5)
        try bench.put(Experiment.self, "checkout", ["metrics": .null])
        try bench.remove(MetricDefinition.self, "orders")
        try restore(metric, .metrics, "orders")
        #expect(try state(.metrics, "orders") == metric)
    }

    @Test mutating func `A paused holdout stays paused, and gets its share`() throws {
        let former = try state(.holdouts, "all")
        try bench.put(Holdout.self, "all", ["share": 50, "status": "paused", "description": "Second"])
        #expect(Set(try restore(former, .holdouts, "all")) == ["share", "description"])
        #expect(bench.shown(Holdout.self, "all")["status"] == "paused")
    }

    @Test mutating func `What needs something that is gone is refused`() throws {
        let former = try state(.experiments, "checkout")
        try bench.put(Experiment.self, "checkout", ["metrics": .null])
        try bench.remove(MetricDefinition.self, "orders")
        let error = #expect(throws: CoreError.self) { try restore(former, .experiments, "checkout") }
        #expect(error?.places == ["/experiments/0/metrics/primary/0"])
    }
}
