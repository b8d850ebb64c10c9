public import Bucketing
import Definitions
public import Storage

/// Selects and sorts a project's experiments for a page of a list.
public struct ExperimentSelection: Sendable {
    /// The property by which experiments are sorted.
    public enum Order: String, Sendable, CaseIterable {
        /// The order of the datafile.
        case created
        case key, name, status, verdict, traffic, owner, tags, users
        /// The day of the first user.
        case day
        /// The number of warnings.
        case alarms
    }

    /// The experiments of a page, with the numbers that filters show.
    public struct Page: Sendable {
        public var experiments: [Experiment]
        /// The number of experiments that meet all conditions, on all pages.
        public var total = 0
        /// For each status, the number of experiments that have this status and meet all conditions, except
        /// ``ExperimentSelection/statuses``.
        public var statuses: [String: Int] = [:]
    }

    /// A part of the key, the id or another text of an experiment, in lower case; `nil` for all experiments.
    public var text: String?
    /// The names of statuses in the API; empty for all.
    public var statuses: Set<String> = []
    /// The owner of the experiments; `nil` for all experiments.
    public var owner: String?
    /// A tag that the experiments have; `nil` for all experiments.
    public var tag: Identifier?
    public var order = Order.created
    /// Whether ``order`` is reversed.
    public var isDescending = true
    /// The number of experiments before the page, among those that meet all conditions.
    public var offset = 0
    /// The maximum number of experiments of the page.
    public var limit = 25

    public init() {}

    /// Returns the page of the experiments that meet all conditions.
    ///
    /// - Parameters:
    ///   - enrolled: the users, by experiment; needed to order by their number and first day.
    ///   - findings: the last findings, by the key of the experiment; needed to order by alarms and verdicts.
    public func select(
        from project: Project, _ enrolled: [Identifier: EnrolledUsers] = [:],
        _ findings: [Identifier: ExperimentMonitor.Finding] = [:]
    ) -> Page {
        let definitions = project.definitions
        var page = Page(experiments: [])
        var found: [Experiment] = []
        for experiment in project.datafile.experimentsBesideRules {
            guard matches(experiment, definitions.experiments[experiment.key]?.details) else { continue }
            page.statuses[experiment.statusName, default: 0] += 1
            if statuses.isEmpty || statuses.contains(experiment.statusName) { found.append(experiment) }
        }
        page.total = found.count
        page.experiments = Array(sorted(found, definitions, enrolled, findings).dropFirst(offset).prefix(limit))
        return page
    }

    /// Whether an experiment meets all conditions except ``statuses``.
    private func matches(_ experiment: Experiment, _ details: ExperimentDetails?) -> Bool {
        if let owner, owner.isEmpty || details?.owner != owner { return false }
        if let tag, details?.tags.contains(tag) != true { return false }
        guard let text else { return true }
        let searched = [experiment.key.string, experiment.id.string] + (details?.searchedTexts ?? [])
        return searched.contains { $0.lowercased().contains(text) }
    }

    /// Sorts experiments. Experiments with equal values are in the order of the datafile, which is reversed in
    /// descending order.
    private func sorted(
        _ experiments: [Experiment], _ definitions: ProjectDefinitions, _ enrolled: [Identifier: EnrolledUsers],
        _ findings: [Identifier: ExperimentMonitor.Finding]
    ) -> [Experiment] {
        func text(_ path: KeyPath<ExperimentDetails, String>, of experiment: Experiment) -> String {
            definitions.experiments[experiment.key]?.details[keyPath: path].lowercased() ?? ""
        }
        func sorted<Value: Comparable>(_ value: (Experiment) -> Value) -> [Experiment] {
            let valued = experiments.enumerated().map { (value: value($1), index: $0, experiment: $1) }
            return valued.sorted { left, right in
                let isEarlier = left.value == right.value ? left.index < right.index : left.value < right.value
                return isDescending ? !isEarlier : isEarlier
            }.map(\.experiment)
        }
        switch order {
        case .created: return isDescending ? experiments.reversed() : experiments
        case .key: return sorted { $0.key.string.lowercased() }
        case .status: return sorted(\.statusName)
        case .traffic: return sorted(\.traffic)
        case .owner: return sorted { text(\.owner, of: $0) }
        case .name:
            return sorted { experiment in
                let name = text(\.name, of: experiment)
                return name.isEmpty ? experiment.key.string.lowercased() : name
            }
        case .tags:
            return sorted { experiment in
                let tags = definitions.experiments[experiment.key]?.details.tags ?? []
                return tags.map { $0.string.lowercased() }.joined(separator: ",")
            }
        case .users: return sorted { enrolled[$0.id]?.count ?? 0 }
        // In ascending order, experiments without users come first, then the one with the latest first user.
        case .day: return sorted { enrolled[$0.id].map { -$0.firstDay } ?? .min }
        case .alarms: return sorted { findings[$0.key]?.warnings.count ?? 0 }
        case .verdict: return sorted { Attention($0, findings[$0.key]) }
        }
    }

    /// Returns the owners and the tags of a project's experiments, sorted.
    ///
    /// - Parameter limit: the maximum number of owners, and of tags.
    public static func labels(of project: Project, limit: Int) -> (owners: [String], tags: [String]) {
        var owners: Set<String> = []
        var tags: Set<String> = []
        for experiment in project.definitions.experiments {
            if !experiment.details.owner.isEmpty { owners.insert(experiment.details.owner) }
            for tag in experiment.details.tags { tags.insert(tag.string) }
        }
        return (Array(owners.sorted().prefix(limit)), Array(tags.sorted().prefix(limit)))
    }
}

/// How urgently an experiment in a list needs attention; the least urgent case first.
private enum Attention: Int, Comparable {
    case nothing, concluded, running, `continue`, stop, ship, alarm

    init(_ experiment: Experiment, _ finding: ExperimentMonitor.Finding?) {
        if let finding, !finding.warnings.isEmpty || finding.decision == .invalid {
            self = .alarm
            return
        }
        switch finding?.decision {
        case .ship: self = .ship
        case .stop: self = .stop
        case .continue: self = .continue
        case .invalid, nil:
            if experiment.isConcluded {
                self = .concluded
            } else if experiment.isRunning, !experiment.annotations.isDraft {
                self = .running
            } else {
                self = .nothing
            }
        }
    }

    static func < (left: Attention, right: Attention) -> Bool { left.rawValue < right.rawValue }
}

extension Experiment {
    /// The status by its name in the API.
    fileprivate var statusName: String {
        ExperimentStatus.name(of: annotations.isDraft ? ExperimentStatus.draft.rawValue : status)
    }
}
