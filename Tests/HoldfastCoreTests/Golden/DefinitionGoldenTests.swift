import Bucketing
import Definitions
import Foundation
import JSON
import Storage
import Testing

@testable import HoldfastCore

/// Tens of thousands of bodies and elements of files, right and wrong, on new and known elements: what comes of them is what
/// came of them when `definitions.txt` was written. It has a hash for each block of bodies.
///
/// Who changes it on purpose writes it anew with `HOLDFAST_WRITE_GOLDEN=1`. With `HOLDFAST_GOLDEN_OUTPUT=DIRECTORY` the whole
/// output of each block is written there, so that those of two builds can be compared. With either, or with
/// `HOLDFAST_GOLDEN_ALL`, all blocks are run; otherwise each fourth one.
@Suite struct DefinitionGoldenTests {
    private static let environment = ProcessInfo.processInfo.environment
    private static let file = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "definitions.txt")
    private static let known: [String: String] = {
        let lines = ((try? String(contentsOf: file, encoding: .utf8)) ?? "").split(separator: "\n")
        let pairs = lines.map { $0.split(separator: " ").map(String.init) }.filter { $0.count == 2 }
        return Dictionary(pairs.map { ($0[0], $0[1]) }, uniquingKeysWith: { $1 })
    }()

    @Test func `What comes of definitions stays as it is`() async throws {
        _ = try GoldenProject.base.get()
        let runsAll = ["HOLDFAST_GOLDEN_ALL", "HOLDFAST_GOLDEN_OUTPUT", "HOLDFAST_WRITE_GOLDEN"].contains {
            Self.environment[$0] != nil
        }
        let blocks = GoldenBlock.all.filter { runsAll || $0.number % 4 == 0 }
        let found = try await withThrowingTaskGroup(of: (String, String).self) { group in
            for block in blocks {
                group.addTask {
                    let output = try block.output()
                    if let directory = Self.environment["HOLDFAST_GOLDEN_OUTPUT"] {
                        let path = URL(filePath: directory).appending(path: "\(block.name).txt")
                        try output.write(to: path, atomically: false, encoding: .utf8)
                    }
                    return (block.name, String(Project.hash(Array(output.utf8)), radix: 16))
                }
            }
            var found: [String: String] = [:]
            for try await (name, hash) in group { found[name] = hash }
            return found
        }
        if Self.environment["HOLDFAST_WRITE_GOLDEN"] != nil {
            let lines = GoldenBlock.all.map { "\($0.name) \(found[$0.name] ?? "")\n" }
            try lines.joined().write(to: Self.file, atomically: true, encoding: .utf8)
        }
        let changed = blocks.map(\.name).filter { found[$0] != Self.known[$0] }
        #expect(changed == [], "compare the outputs of both builds: HOLDFAST_GOLDEN_OUTPUT=DIRECTORY")
    }
}

/// Some hundred bodies of one kind.
struct GoldenBlock: Sendable {
    enum Kind: String, CaseIterable {
        case experiments, flags, metrics, holdouts, files, stored

        var count: Int {
            switch self {
            case .experiments: 16
            case .flags, .metrics, .holdouts: 10
            case .files, .stored: 4
            }
        }

        var size: Int {
            switch self {
            case .experiments, .flags, .metrics, .holdouts: 500
            case .files, .stored: 100
            }
        }
    }

    var kind: Kind
    var number: Int

    var name: String { "\(kind.rawValue)-\(number)" }

    static let all = Kind.allCases.flatMap { kind in (0..<kind.count).map { GoldenBlock(kind: kind, number: $0) } }

    func output() throws -> String {
        let seed = Project.hash(Array(name.utf8))
        var run = GoldenRun(project: try GoldenProject.base.get(), bodies: BodyGenerator(seed: seed))
        for index in 0..<kind.size {
            // What is accepted changes the project for a while.
            if index % 50 == 0 { run.project = try GoldenProject.base.get() }
            run.output += "\n#\(index) "
            switch kind {
            case .experiments: run.put(Experiment.self, "ExperimentDefinition")
            case .flags: run.put(Flag.self, "FlagDefinition")
            case .metrics: run.put(MetricDefinition.self, "MetricDefinition")
            case .holdouts: run.put(Holdout.self, "HoldoutDefinition")
            case .files: run.applyFile()
            case .stored: run.readStored()
            }
        }
        return run.output
    }
}

private struct GoldenRun {
    var project: Project
    var bodies: BodyGenerator
    var output = ""

    private mutating func line(_ name: String, _ value: JSONValue) {
        output += "\(name): \(String(decoding: value.encoded(), as: UTF8.self))\n"
    }

    private mutating func fail(_ error: CoreError) {
        output += "\(error.kind) \(error)\n"
        for fault in error.faults { output += "  \(fault.pointer): \(fault.reason)\n" }
        for member in error.members { line("  \(member.key)", member.value) }
    }

    // MARK: Bodies

    mutating func put<Element: DefinedElement>(_: Element.Type, _ schema: String) {
        let known = Element.all(in: project.compiled).map(\.key.string)
        let key = bodies.one(of: known + known + ["fresh", "other", "banner", "checkout", "everything"])
        var body = bodies.body(schema)
        let source = Element.copiedMembers.isEmpty || !bodies.chance(0.1) ? nil : bodies.one(of: known + ["nothing"])
        let former = project
        let keepsIDs = ids(in: &body, key, Element.self)
        line("PUT \(key)\(source.map { "?from=\($0)" } ?? "")\(keepsIDs ? "" : " (of a copy)")", body)
        do throws(CoreError) {
            let draft = try ProjectEditor.draft(
                GoldenProject.sdkKey,
                { [body] definitions, project throws(CoreError) -> (isNew: Bool?, warnings: [DefinitionWarning]) in
                    let body =
                        try source.map { source throws(CoreError) in
                            try Element.copy(of: source, as: key, body, in: project?.compiled)
                        } ?? body
                    let shown = project.flatMap { Element.description(of: key, in: $0.compiled, sdkKey: $0.sdkKey) }
                    guard let change = try Element.change(body, key: key, of: shown, GoldenProject.schema) else {
                        return (nil, [])
                    }
                    let isNew = try change.apply(to: &definitions)
                    return (isNew, change.warnings(GoldenProject.schema, former.datafile))
                }, of: project)
            output += draft.outcome.isNew.map { $0 ? "created\n" : "changed\n" } ?? "asks for nothing\n"
            for warning in draft.outcome.warnings { output += "  \(warning)\n" }
            guard draft.hasChanged else { return }
            describe(draft.compiled)
            guard let element = Element.find(Identifier(key), in: draft.compiled) else { return }
            line("GET", element.description(in: draft.compiled, sdkKey: GoldenProject.sdkKey))
            line("texts", .array(element.searchedTexts(draft.compiled.definitions).sorted().map { .string($0) }))
            let stored = GoldenProject.project(CompiledDefinitions(draft.datafile), version: project.version + 1)
            line("stored GET", element.description(in: stored))
            if bodies.chance(0.4) { project = stored }
        } catch {
            fail(error)
        }
    }

    /// Gives an id to experiments that would get a random one.
    ///
    /// - Returns: whether the body is the same.
    private func ids(in body: inout JSONValue, _ key: String, _ element: any DefinedElement.Type) -> Bool {
        guard var object = body.object else { return true }
        let former = body
        func add(_ object: inout JSONObject, _ key: String) {
            guard object["id"]?.isNull ?? true, project.definitions.experiments[Identifier(key)] == nil else { return }
            object["id"] = .string(DerivedID.of(key))
        }
        if element == Experiment.self { add(&object, key) }
        if element == Flag.self, let rules = object["rules"]?.array {
            object["rules"] = .array(
                rules.map { rule in
                    guard var rule = rule.object, var experiment = rule["experiment"]?.object else { return rule }
                    add(&experiment, rule["key"]?.string ?? "\(key)_experiment")
                    rule["experiment"] = .object(experiment)
                    return .object(rule)
                })
        }
        body = .object(object)
        return body == former
    }

    private mutating func describe(_ compiled: CompiledDefinitions) {
        let (datafile, definitions) = (compiled.datafile, compiled.definitions)
        line("datafile", datafile.source)
        let set = DefinitionSet(definitions, GoldenProject.schema)
        line("files", set.json)
        if DefinitionSet(ProjectDefinitions(datafile), GoldenProject.schema) != set {
            line("stored files", DefinitionSet(ProjectDefinitions(datafile), GoldenProject.schema).json)
        }
    }

    // MARK: Files

    mutating func applyFile() {
        var file = DefinitionSet(project.definitions, GoldenProject.schema).json.object ?? JSONObject()
        let schemas = [
            "metrics": "MetricDefinition", "experiments": "ExperimentDefinition", "flags": "FlagDefinition",
            "holdouts": "HoldoutDefinition",
        ]
        for _ in 0...Int.random(in: 0...2, using: &bodies.random) {
            let kind = bodies.one(of: ["metrics", "experiments", "experiments", "flags", "holdouts"])
            var elements = file[kind]?.array ?? []
            guard !elements.isEmpty else { continue }
            let index = Int.random(in: 0..<elements.count, using: &bodies.random)
            guard let element = elements[index].object else { continue }
            switch Int.random(in: 0..<6, using: &bodies.random) {
            case 0: elements.remove(at: index)
            case 1: elements[index] = bodies.spoiled(elements[index])
            case 2:
                var less = JSONObject()
                for member in element where member.key == "key" || bodies.chance(0.6) {
                    less[member.key] = member.value
                }
                elements[index] = .object(less)
            default:
                var more = element
                var given = bodies.body(schemas[kind] ?? "")
                _ = ids(in: &given, element["key"]?.string ?? "", kind == "flags" ? Flag.self : MetricDefinition.self)
                for member in given.object ?? JSONObject() where member.key != "key" { more[member.key] = member.value }
                if kind == "experiments", bodies.chance(0.2) {
                    more["conclusion"] = ["winner": bodies.one(of: ["control", "new", nil]), "reason": "File"]
                    more["status"] = "concluded"
                }
                elements[index] = .object(more)
            }
            file[kind] = .array(elements)
        }
        let prunes = bodies.chance(0.3)
        line("file\(prunes ? ", pruning" : "")", .object(file))
        do throws(CoreError) {
            let draft = try GoldenProject.apply(try DefinitionSet(.object(file)), prunes: prunes, to: project)
            for difference in draft.outcome.differences {
                line(
                    "\(difference.kind?.rawValue ?? "project") \(difference.key)",
                    difference.before.map { .object($0) } ?? .null)
                line("  becomes", difference.after.map { .object($0) } ?? .null)
            }
            for fault in draft.outcome.warnings.map(\.fault) + draft.outcome.notRunning { output += "  \(fault)\n" }
            describe(draft.compiled)
            if bodies.chance(0.3) {
                project = GoldenProject.project(CompiledDefinitions(draft.datafile), version: project.version + 1)
            }
        } catch {
            fail(error)
        }
    }

    // MARK: What is stored

    /// Reads definitions of which something is not as this release would write it.
    mutating func readStored() {
        guard var root = project.datafile.source.object else { return }
        let list = bodies.one(of: ["", "", "experiments", "holdouts", "localHoldouts", "featureFlags"])
        if list.isEmpty, var own = root[Annotations.member]?.object, let experiments = own["experiments"] {
            let isOfExperiments = bodies.chance(0.7)
            if isOfExperiments { own["experiments"] = bodies.spoiled(experiments) }
            if !isOfExperiments, let metrics = own["metrics"] { own["metrics"] = bodies.spoiled(metrics) }
            root[Annotations.member] = .object(own)
        } else if var elements = root[list]?.array, !elements.isEmpty {
            let index = Int.random(in: 0..<elements.count, using: &bodies.random)
            guard var element = elements[index].object, let own = element[Annotations.member] else { return }
            element[Annotations.member] = bodies.spoiled(own)
            elements[index] = .object(element)
            root[list] = .array(elements)
        }
        line("stored", root[Annotations.member] ?? .null)
        var definitions = ProjectDefinitions(.object(root))
        line("files", DefinitionSet(definitions, GoldenProject.schema).json)
        definitions.generate(since: nil)
        line("datafile", definitions.datafile)
    }
}
