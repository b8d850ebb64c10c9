import Bucketing
import Definitions
import DefinitionsTestSupport
import JSON
import Storage
import TestSupport
import Testing

@testable import HoldfastCore

/// An edit writes, compiles and encodes only what it changes. What comes of it is what would come of everything.
@Suite struct IncrementalDatafileTests {
    @Test(arguments: 0..<5)
    func `After each edit of a random history the datafile is the one that is made of everything`(seed: UInt64) throws {
        var history = RandomHistory(project: try GoldenProject.base.get(), bodies: BodyGenerator(seed: seed))
        var edits = 0
        for _ in 0..<80 where try history.edit() { edits += 1 }
        #expect(edits > 10)
    }
}

/// A project that random edits change.
struct RandomHistory {
    typealias Change = ProjectEditor.Change<Void>

    var project: Project
    var bodies: BodyGenerator
    /// Those of the project's datafile, once an edit has made it.
    private var parts: DatafileParts?

    init(project: Project, bodies: BodyGenerator) {
        (self.project, self.bodies) = (project, bodies)
    }

    /// Makes an edit of the project as this process has it, and of the same project as another process would read it.
    ///
    /// - Returns: whether the edit is possible.
    mutating func edit() throws -> Bool {
        let edit = change()
        let change: Change = { definitions, project throws(CoreError) in
            try edit(&definitions, project)
            definitions.serveExperiments()
            let former = project.map { ($0.definitions, DefinitionSet($0.definitions, .empty)) }
            #expect(DefinitionSet(definitions, .empty, since: former) == DefinitionSet(definitions, .empty))
        }
        let read = GoldenProject.project(
            CompiledDefinitions(try Datafile.usable(project.definitions.content)), version: project.version)
        let draft: ProjectEditor.Draft<Void>
        do throws(CoreError) {
            draft = try ProjectEditor.draft(GoldenProject.sdkKey, change, of: project)
        } catch {
            #expect(throws: CoreError.self) { try ProjectEditor.draft(GoldenProject.sdkKey, change, of: read) }
            return false
        }
        let whole = try ProjectEditor.draft(GoldenProject.sdkKey, change, of: read)
        guard draft.hasChanged else {
            #expect(!whole.hasChanged)
            return false
        }
        let (definitions, content) = (draft.compiled.definitions, draft.compiled.definitions.content)
        let known = parts.map { (definitions: project.definitions, parts: $0) }
        let (edited, difference) = try #require(definitions.parts(replacing: known))
        #expect(edited.joined == content)
        #expect((parts ?? DatafileParts(base: [], elements: [])).applying(difference) == edited)
        #expect(
            String(decoding: content, as: UTF8.self)
                == String(decoding: whole.compiled.definitions.content, as: UTF8.self))
        let fresh = try Datafile.usable(content)
        let imported = ProjectDefinitions(fresh)
        #expect(imported.experiments.map(\.key) == definitions.experiments.map(\.key))
        for experiment in imported.experiments { #expect(definitions.experiments[experiment.key] == experiment) }
        for flag in imported.flags { #expect(definitions.flags[flag.key] == flag) }
        #expect(imported.groups == definitions.groups)
        #expect(imported.metrics == definitions.metrics)
        let other = try CompiledDefinitions(edited, similarTo: parts.map { (project.compiled, $0) })
        #expect(other.definitions.experiments == imported.experiments)
        #expect(other.definitions.flags == imported.flags)
        #expect(other.definitions.holdouts.map { $0.json(rules: []) } == imported.holdouts.map { $0.json(rules: []) })
        #expect(other.definitions.metrics == imported.metrics && other.definitions.groups == imported.groups)
        #expect(other.definitions.datafile == fresh.source)
        try compare([other.datafile, draft.datafile], fresh)
        try compareChanges(draft.datafile, fresh)
        project = GoldenProject.project(draft.compiled, version: project.version + 1)
        parts = edited
        return true
    }

    private func compare(_ all: [Datafile], _ fresh: Datafile) throws {
        for edited in all {
            #expect(edited.revision == fresh.revision && edited.source == fresh.source)
            #expect(edited.experiments.map(\.id) == fresh.experiments.map(\.id))
            for experiment in fresh.experiments {
                #expect(edited.audience(of: experiment) == fresh.audience(of: experiment))
                #expect(edited.experiment(key: experiment.key)?.status == experiment.status)
            }
        }
        // Others after each edit.
        let first = Int(project.version) * 10
        for number in first..<first + 10 {
            let attributes: JSONValue = ["plan": number % 2 == 0 ? "pro" : "free", "orders": 4]
            let user = User(id: Identifier("user\(number)"), attributes: attributes.object ?? JSONObject())
            func decisions(_ datafile: Datafile) -> [String] {
                let service = DecisionService(datafile: datafile)
                let flags = service.decideAll(for: user).value.map { decision in
                    let evaluation = FlagEvaluation(decision, datafile)
                    let value = String(decoding: (evaluation.value ?? .null).encoded(), as: UTF8.self)
                    return "\(decision.flagKey) \(evaluation.variationKey?.string ?? "") \(value) \(evaluation.source)"
                }
                return flags
                    + datafile.experiments.map { experiment in
                        "\(experiment.key) \(service.variation(of: experiment, for: user).variation?.id.string ?? "")"
                    }
            }
            let expected = decisions(fresh)
            for edited in all { #expect(decisions(edited) == expected) }
        }
    }

    /// What an edit stores besides the datafile is what differs.
    private func compareChanges(_ edited: Datafile, _ fresh: Datafile) throws {
        let former = try Datafile.usable(project.definitions.content)
        #expect(
            AllocationRules.allocations(in: edited, since: project.datafile)
                == AllocationRules.allocations(in: fresh, since: former))
        #expect(
            StatusRules.statuses(in: edited, since: project.datafile) == StatusRules.statuses(in: fresh, since: former))
        #expect(AllocationRules.allocations(in: edited) == AllocationRules.allocations(in: fresh))
    }

    // MARK: Edits

    private mutating func change() -> Change {
        let definitions = project.definitions
        let experiments = definitions.experiments.map(\.key.string)
        switch Int.random(in: 0..<12, using: &bodies.random) {
        case 0: return put(FlagChange.self, definitions.flags.map(\.key.string), "FlagDefinition")
        case 1: return put(HoldoutChange.self, ["everything", "some", "fresh"], "HoldoutDefinition")
        case 2: return put(MetricChange.self, definitions.metrics.map(\.key.string), "MetricDefinition")
        case 3: return put(ExperimentChange.self, experiments + ["fresh", "other"], "ExperimentDefinition")
        case 4:
            let (key, winner) = (Identifier(bodies.one(of: experiments)), bodies.one(of: ["control", "new", "on"]))
            return { definitions, _ throws(CoreError) in
                let conclusion = ConclusionInput(winner: Identifier(winner), reason: "Random")
                try definitions.conclude(key, as: conclusion, at: 1_800_000_000_000, by: Author.processUser.name)
            }
        case 5:
            let key = Identifier(bodies.one(of: experiments))
            return { definitions, _ throws(CoreError) in try definitions.reopen(key) }
        case 6:
            let key = Identifier(bodies.one(of: definitions.flags.map(\.key.string)))
            let enabled = bodies.chance(0.8)
            return { definitions, _ throws(CoreError) in
                if !enabled { return try definitions.removeFlag(key) }
                let isOn = definitions.flags[key]?.isEnabled ?? true
                _ = try FlagChange(["enabled": .bool(!isOn)], key: key.string).apply(to: &definitions)
            }
        case 7:
            let key = Identifier(bodies.one(of: experiments))
            return { definitions, _ throws(CoreError) in
                try definitions.apply(.begin(step: 1), to: key, at: 1_800_000_000_000, nil)
            }
        default:
            let key = bodies.one(of: experiments)
            let traffic = JSONValue.integer(Int64.random(in: 0...100, using: &bodies.random))
            let all: [JSONValue] = [
                ["traffic": traffic], ["status": "paused"], ["status": "running"], ["enrollment": "closed"],
                ["enrollment": "open", "traffic": traffic], ["group": "g1"], ["group": nil, "traffic": traffic],
                ["name": "Random", "tags": ["a"]], ["name": nil, "tags": nil], ["status": "archived"],
                ["variations": ["control", "new"]], ["audience": ["name": "plan", "match": "exact", "value": "free"]],
                ["audience": nil], ["metrics": ["primary": ["signups"]]], ["assignment_ttl": "7d"],
            ]
            let body = bodies.one(of: all)
            return { definitions, _ throws(CoreError) in
                _ = try ExperimentChange(body, key: key).apply(to: &definitions)
            }
        }
    }

    private mutating func put<Body: ElementChange>(_: Body.Type, _ keys: [String], _ schema: String) -> Change {
        let key = bodies.one(of: keys)
        var object = bodies.body(schema).object ?? JSONObject()
        // Otherwise a new experiment would get a random one.
        if Body.self == ExperimentChange.self, project.definitions.experiments[Identifier(key)] == nil {
            object["id"] = .string(DerivedID.of(key))
        }
        if Body.self == FlagChange.self { object["rules"] = nil }
        object["key"] = nil
        let body = JSONValue.object(object)
        return { definitions, _ throws(CoreError) in _ = try Body(body, key: key).apply(to: &definitions) }
    }
}
