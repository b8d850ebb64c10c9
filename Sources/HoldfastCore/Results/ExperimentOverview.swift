public import Bucketing
public import Chronology
import Definitions
public import Storage

/// The summary of an experiment for a list: its users, its verdict, and its alarms.
public struct ExperimentOverview: Sendable {
    /// The number of users whom results count.
    public let users: Int
    /// The counted users of each UTC day of enrollment, in order; only days that have some.
    public let days: [(day: ExperimentTally.Day, users: Int)]
    /// The decision by all metrics of the experiment; `nil` if there are none, or if it is neither running nor paused.
    public private(set) var decision: Verdict.Decision?
    /// The variation to ship.
    public private(set) var winner: Identifier?
    /// The lift of the winner in the first primary metric that it improves.
    public private(set) var lift: Double?
    let watch: UserWatch
    /// The alarms as sentences, by kind.
    public var alarms: [ExperimentWarning: String] { watch.alarms }

    /// Reads the current totals of an experiment and summarizes them.
    public static func read(
        _ experiment: Experiment, of project: Project, at now: Instant, _ session: any StoreSession
    ) async throws -> ExperimentOverview {
        let tally = try await session.read(.users(experimentID: experiment.id))
        let watch = try await UserWatch.read(experiment, of: project, tally, at: now, session)
        var overview = ExperimentOverview(experiment, tally, watch)
        guard mayHaveVerdict(experiment, of: project), let plan = project.plan(of: experiment) else {
            return overview
        }
        let reader = ResultsReader(ResultsScope(experiment, in: project, .live, at: now), session)
        if let results = try await reader.totals(of: plan).results() { overview.judge(results) }
        return overview
    }

    /// - Parameter experiment: an experiment without users.
    init(withoutUsers experiment: Experiment, of project: Project) {
        self.init(experiment, ExperimentTally(), UserWatch(experiment, ExperimentTally()))
        if Self.mayHaveVerdict(experiment, of: project), project.plan(of: experiment) != nil { decision = .continue }
    }

    private static func mayHaveVerdict(_ experiment: Experiment, of project: Project) -> Bool {
        (experiment.isRunning || experiment.status == ExperimentStatus.paused.rawValue)
            && !experiment.annotations.isDraft && !project.metrics(of: experiment).isEmpty
    }

    private init(_ experiment: Experiment, _ tally: ExperimentTally, _ watch: UserWatch) {
        let known = Set(experiment.variations.map(\.id))
        days = tally.days.compactMap { day in
            let users = day.variations.reduce(0) { known.contains($1.variationID) ? $0 + $1.counted : $0 }
            return users > 0 ? (day, users) : nil
        }
        users = days.reduce(0) { $0 + $1.users }
        self.watch = watch
    }

    private mutating func judge(_ results: PlanResults) {
        decision = results.verdict.decision
        guard let index = results.verdict.winner else { return }
        winner = results.common.variations[index].key
        let gain = results.verdict.findings.first { finding in
            finding.variation == index && finding.role == .primary && finding.outcome == .better
        }
        lift = gain?.effect?.lift
    }
}

/// The selection and order of a project's experiments in a list.
public struct ExperimentSelection: Sendable {
    public enum Order: String, Sendable, CaseIterable {
        case created, key, name, status, verdict, traffic, owner, tags, users, day, alarms
    }

    /// The experiments of a page, with the numbers that filters show.
    public struct Page: Sendable {
        public var experiments: [Experiment]
        /// The number of experiments that meet all conditions.
        public var total = 0
        /// The number of experiments that meet all other conditions, by status.
        public var statuses: [String: Int] = [:]
    }

    /// A part of the key or of another text, in lower case; `nil` for all experiments.
    public var text: String?
    /// The names of statuses in the API; empty for all.
    public var statuses: Set<String> = []
    public var owner: String?
    public var tag: Identifier?
    public var order = Order.created
    public var isDescending = true
    public var offset = 0
    public var limit = 25

    public init() {}

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
            let details = definitions.experiments[experiment.key]?.details
            if let owner, owner.isEmpty || details?.owner != owner { continue }
            if let tag, details?.tags.contains(tag) != true { continue }
            if let text,
                !([experiment.key.string, experiment.id.string] + (details?.searchedTexts ?? []))
                    .contains(where: { $0.lowercased().contains(text) })
            {
                continue
            }
            page.statuses[experiment.statusName, default: 0] += 1
            if statuses.isEmpty || statuses.contains(experiment.statusName) { found.append(experiment) }
        }
        page.total = found.count
        page.experiments = Array(sorted(found, definitions, enrolled, findings).dropFirst(offset).prefix(limit))
        return page
    }

    /// Sorts experiments; those that are alike keep the order of the datafile.
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
                if left.value == right.value { return isDescending != (left.index < right.index) }
                return isDescending != (left.value < right.value)
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
        // Experiments that have had users for longer come later in ascending order.
        case .day: return sorted { enrolled[$0.id].map { -$0.firstDay } ?? .min }
        case .alarms: return sorted { findings[$0.key]?.warnings.count ?? 0 }
        case .verdict: return sorted { Attention($0, findings[$0.key]) }
        }
    }

    /// Up to `limit` owners and tags of a project's experiments, in their order.
    public static func labels(of project: Project, limit: Int) -> (owners: [String], tags: [String]) {
        var owners: Set<String> = [], tags: Set<String> = []
        for experiment in project.definitions.experiments {
            if !experiment.details.owner.isEmpty { owners.insert(experiment.details.owner) }
            for tag in experiment.details.tags { tags.insert(tag.string) }
        }
        return (Array(owners.sorted().prefix(limit)), Array(tags.sorted().prefix(limit)))
    }
}

/// The urgency of an experiment in a list; the least urgent first.
private enum Attention: Int, Comparable {
    case nothing, concluded, running, `continue`, stop, ship, alarm

    init(_ experiment: Experiment, _ finding: ExperimentMonitor.Finding?) {
        if let finding, !finding.warnings.isEmpty || finding.decision == .invalid {
            self = .alarm
            return
        }
        self =
            switch finding?.decision {
            case .ship: .ship
            case .stop: .stop
            case .continue: .continue
            case .invalid, nil:
                experiment.isConcluded
                    ? .concluded : experiment.isRunning && !experiment.annotations.isDraft ? .running : .nothing
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
