import Bucketing
import Definitions
import JSON
import Storage

extension Project {
    /// Returns a hash of all definitions on which a change and its preview are based. If it differs from that of a
    /// proposal, the proposal is outdated.
    ///
    /// - Parameters:
    ///   - experiments: the keys of the running experiments that the change affects.
    ///   - changes: see ``Proposal/changes``.
    func basis(of experiments: [String], _ changes: JSONValue) -> String {
        var basis = ProposalBasis(of: experiments, in: self)
        for change in (changes.array ?? []).compactMap(\.object) { basis.add(change) }
        basis.addExperiments()
        basis.addSharedDefinitions()
        return String(Self.hash(JSONValue.array(basis.parts).encoded()), radix: 16)
    }
}

/// Collects the current state of the definitions on which a change is based: the definitions that it changes; for
/// running experiments among them also their flags, groups and metrics; and the segments and holdouts that determine
/// their users.
private struct ProposalBasis {
    private let project: Project
    /// The keys of the experiments that belong to the basis.
    private var experiments: Set<Identifier>
    private var segments: Set<Identifier> = []
    private(set) var parts: [JSONValue]

    private var datafile: Datafile { project.datafile }
    private var definitions: ProjectDefinitions { project.definitions }

    init(of experiments: [String], in project: Project) {
        self.project = project
        self.experiments = Set(experiments.map { Identifier($0) })
        parts = experiments.sorted().map { .string($0) }
    }

    /// Adds the definition that a change is about.
    mutating func add(_ change: JSONObject) {
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
        case "metric": parts.append(definitions.metrics[target].map { .object($0.json) } ?? .null)
        case "segment": segments.insert(target)
        // The version identifies the whole datafile.
        case "datafile": parts.append(.integer(project.version))
        // All holdouts are part of each basis.
        default: break
        }
    }

    /// Adds each experiment with its bucket values in its group, its flags and its metrics.
    mutating func addExperiments() {
        for key in experiments.sorted() {
            guard let experiment = datafile.experiment(key: key) else { continue }
            parts.append(description(of: experiment))
            for range in datafile.groupRanges(of: experiment.id) {
                parts += [.integer(Int64(range.lowerBound)), .integer(Int64(range.upperBound))]
            }
            parts += definitions.flags(ofExperiment: experiment.id).map { description(of: datafile.flag(key: $0.key)) }
            parts += definitions.owners(of: experiment.id).map { versionOfFlag($0.key) }
            for metric in definitions.experiments[key]?.details.metrics.all ?? [] {
                parts.append(definitions.metrics[metric].map { .object($0.json) } ?? .null)
            }
        }
    }

    /// Adds what applies to several experiments: the lifetime of assignments, all holdouts, and the segments that the
    /// experiments and holdouts use.
    mutating func addSharedDefinitions() {
        let keys = experiments.union(datafile.holdouts.map(\.key))
        segments.formUnion(
            datafile.mentions.segments.filter { !keys.isDisjoint(with: datafile.keys(usingSegment: $0)) })
        if let lifetime = datafile.assignmentLifetime { parts.append(.string(lifetime.text)) }
        parts += definitions.holdoutLists.map { $0 ?? .null }
        parts += segments.sorted().map { project.schema.segments[$0]?.conditions ?? .null }
    }

    /// Returns a number that increases with each edit of a flag or of its experiments. So a flag that was changed and
    /// changed back differs, too.
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

extension Datafile {
    /// Returns the ranges of bucket values of a group that belong to an experiment.
    func groupRanges(of id: Identifier) -> [Range<Int>] {
        guard let allocation = experiment(id: id)?.exclusionGroup?.trafficAllocation else { return [] }
        var start = 0
        return allocation.ranges.compactMap { range in
            // An allocation has the end of each range only; the start is the greatest end before.
            defer { start = max(start, range.end) }
            return range.entityID == id && range.end > start ? start..<range.end : nil
        }
    }
}
