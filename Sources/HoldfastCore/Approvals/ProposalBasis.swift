import Bucketing
import Definitions
import JSON
import Storage

extension Project {
    /// Returns a hash of all definitions on which a change and its preview are based. A proposal keeps it as its
    /// ``Proposal/basis``. Once the hash differs from the kept one, the proposal is outdated.
    ///
    /// - Parameters:
    ///   - experiments: the keys of the running experiments that the change affects.
    ///   - changes: see ``Proposal/changes``.
    func basis(of experiments: [String], _ changes: JSONValue) -> String {
        let basis = ProposalBasis(of: experiments, (changes.array ?? []).compactMap(\.object), in: self)
        return String(Self.hash(JSONValue.array(basis.parts).encoded()), radix: 16)
    }
}

/// The current state of the definitions on which a change is based, as a list of JSON values.
///
/// The list has, in this order:
/// 1. the keys of the running experiments that the change affects;
/// 2. the definitions that the change creates, changes or removes;
/// 3. the experiments of 1 and 2, each with its bucket values in its group, its flags and its metrics;
/// 4. the assignment lifetime, all holdouts, and the segments that these experiments and holdouts use.
///
/// The order must not change, because stored proposals have hashes of such lists.
private struct ProposalBasis {
    private let project: Project
    /// The keys of the experiments that belong to the basis.
    private var experiments: Set<Identifier>
    /// The names of the segments that belong to the basis.
    private var segments: Set<Identifier> = []
    private(set) var parts: [JSONValue]

    private var datafile: Datafile { project.datafile }
    private var definitions: ProjectDefinitions { project.definitions }

    init(of experiments: [String], _ changes: [JSONObject], in project: Project) {
        self.project = project
        self.experiments = Set(experiments.map { Identifier($0) })
        parts = experiments.sorted().map { .string($0) }
        // The changes come first, because they name further experiments and segments.
        for change in changes { addDefinition(of: change) }
        addExperiments()
        addSharedDefinitions()
    }

    /// Adds the definition that a change is about.
    private mutating func addDefinition(of change: JSONObject) {
        let action = change["action"]?.string ?? ""
        let target = change.identifier("target") ?? ""
        parts += [.string(action), JSONValue(target)]
        switch action.prefix(while: { $0 != "." }) {
        case "experiment": experiments.insert(target)
        case "flag":
            parts += [description(of: datafile.flag(key: target)), versionOfFlag(target)]
            if let flag = definitions.flags[target] {
                experiments.formUnion(definitions.experiments(of: flag).map(\.key))
            }
        case "metric": addMetric(target)
        case "segment": segments.insert(target)
        // The version identifies the whole datafile.
        case "datafile": parts.append(.integer(project.version))
        // Holdouts are part of each basis, whether the change is about them or not.
        default: break
        }
    }

    /// Adds each experiment with its bucket values in its group, its flags and its metrics.
    private mutating func addExperiments() {
        for key in experiments.sorted() {
            guard let experiment = datafile.experiment(key: key) else { continue }
            parts.append(description(of: experiment))
            for range in datafile.groupRanges(ofExperiment: experiment.id) {
                parts += [.integer(Int64(range.lowerBound)), .integer(Int64(range.upperBound))]
            }
            parts += definitions.flags(ofExperiment: experiment.id).map { description(of: datafile.flag(key: $0.key)) }
            parts += definitions.owners(of: experiment.id).map { versionOfFlag($0.key) }
            for metric in definitions.experiments[key]?.details.metrics.all ?? [] {
                addMetric(metric)
            }
        }
    }

    /// Adds a metric with the version of the datafile that brought it. With it, a metric that was changed and changed
    /// back counts as changed. An uploaded datafile has no versions of metrics until it is edited, so none is added.
    private mutating func addMetric(_ key: Identifier) {
        parts.append(definitions.metrics[key].map { .object($0.json) } ?? .null)
        let name = DatafileParts.Name(list: DatafileParts.list(ofOwn: "metrics"), key: key)
        if let version = project.parts?.element(name)?.version { parts.append(.integer(version)) }
    }

    /// Adds the definitions that apply to several experiments: the assignment lifetime, all holdouts, and the segments
    /// that the experiments and holdouts use.
    private mutating func addSharedDefinitions() {
        let keys = experiments.union(datafile.holdouts.map(\.key))
        let usedSegments = datafile.mentions.segments.filter { segment in
            !keys.isDisjoint(with: datafile.keys(usingSegment: segment))
        }
        segments.formUnion(usedSegments)
        if let lifetime = datafile.assignmentLifetime { parts.append(.string(lifetime.text)) }
        parts += definitions.holdoutLists.map { $0 ?? .null }
        parts += segments.sorted().map { project.schema.segments[$0]?.conditions ?? .null }
    }

    /// Returns the version of a flag, which increases with each edit of the flag or of its experiments. With it, a flag
    /// that was changed and changed back counts as changed.
    private func versionOfFlag(_ key: Identifier) -> JSONValue {
        definitions.flags[key]?.version.map { .integer($0) } ?? .null
    }

    /// Returns an element as `GET` shows it, without the members that change with every edit of the project; null if
    /// there is none.
    private func description(of element: (some DefinedElement)?) -> JSONValue {
        guard var object = element?.description(in: project).object else { return .null }
        object["revision"] = nil
        object["version"] = nil
        return .object(object)
    }
}
