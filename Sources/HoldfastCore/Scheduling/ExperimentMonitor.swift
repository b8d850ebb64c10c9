public import Bucketing
import Chronology
import Definitions
import Dispatch
import JSON
public import Storage
internal import Synchronization

/// What somebody should look at in an experiment.
public enum ExperimentWarning: String, Sendable, CaseIterable {
    /// The users are not split as the traffic allocation says.
    case sampleRatio = "sample_ratio"
    /// A guardrail is certainly worse than its margin allows.
    case guardrail
    /// A primary metric is certainly worse.
    case primary
    /// The ramp is held or stopped by an alarm, or what is due has not been done.
    case stalled
    /// A running experiment has had no new user for an hour.
    case noExposures = "no_exposures"
    /// Somebody was exposed to a concluded experiment within the last hour: something still shows its variations.
    case exposuresAfterEnd = "exposures_after_end"
}

/// Looks at experiments every minute, for the metrics and for the order of lists.
///
/// It remembers only what it has seen itself: the hour without exposures begins when the process starts.
public final class ExperimentMonitor: Sendable {
    /// An experiment with the warnings that apply to it.
    public struct Finding: Sendable, Equatable {
        public var sdkKey: String
        public var key: Identifier
        public var warnings: Set<ExperimentWarning>
        /// By all metrics; `nil` without metrics, and unless it runs or is paused.
        public var decision: Verdict.Decision?
        /// Whether it is only for lists, because it is paused.
        public var isPaused = false
    }

    private struct Place: Hashable {
        let sdkKey: String
        let experimentID: Identifier
        let isConcluded: Bool
    }

    /// The number of users of an experiment.
    private struct Count {
        /// The users of the experiment; of a concluded one the exposures since.
        var seen: Int
        /// When they were first counted, or became more.
        var since: Instant
        var hasGrown = false
    }

    private struct State {
        var findings: [Finding] = []
        var counts: [Place: Count] = [:]
    }

    /// The number of experiments that are looked at: running ones first.
    static let limit = 10_000
    /// The number of experiments in the metrics, so that these stay bounded.
    public static let measuredLimit = 1_000
    /// How long exposures are awaited, and those of a concluded experiment a warning.
    static let hour = TimeSpan.hours(1)
    /// After which what is due and not done is a warning.
    static let patience = TimeSpan.minutes(5)

    private let catalog: ProjectCatalog
    private let store: any Store
    private let timer = RepeatedTask(every: .seconds(60))
    private let state = Mutex(State())

    public init(_ catalog: ProjectCatalog, store: any Store) {
        self.catalog = catalog
        self.store = store
    }

    /// Begins to look, until ``close()``.
    public func start() {
        timer.start(after: .seconds(1)) { [weak self] in await self?.look() }
    }

    public func close() {
        timer.close()
    }

    /// What was found last.
    public var findings: [Finding] { state.withLock(\.findings) }

    /// Looks at all experiments now. What cannot be read keeps its former findings.
    public func look() async {
        let now = store.clock.now()
        let watched = watchedExperiments()
        guard let enrolled = try? await catalog.inBackground({ try await $0.read(.enrolledUsers) }) else { return }
        var findings: [Finding] = []
        var ids: [Identifier] = []
        var counts: [Place: Count] = [:]
        let former = state.withLock { $0 }
        for (project, experiment, isPaused) in watched {
            guard !timer.isClosed else { return }
            // Most experiments of a long list have no users. Of a concluded one exposures count, too.
            let overview =
                enrolled[experiment.id] == nil && !experiment.isConcluded
                ? ExperimentOverview(withoutUsers: experiment, of: project)
                : try? await catalog.inBackground { session in
                    try await ExperimentOverview.read(experiment, of: project, at: now, session)
                }
            guard let overview else { return }
            let watch = overview.watch
            let place = Place(
                sdkKey: project.sdkKey, experimentID: experiment.id, isConcluded: experiment.isConcluded)
            // Users whose exposures arrive late are no sign that a concluded experiment is still shown.
            let seen = experiment.isConcluded ? watch.notRunning : watch.evidence.users
            var count = former.counts[place] ?? Count(seen: seen, since: now)
            if seen > count.seen {
                count = Count(seen: seen, since: now, hasGrown: true)
            } else {
                count.seen = seen
            }
            counts[place] = count
            findings.append(
                Finding(
                    sdkKey: project.sdkKey, key: experiment.key,
                    warnings: warnings(experiment, project, watch, count, at: now), decision: overview.decision,
                    isPaused: isPaused))
            ids.append(experiment.id)
        }
        state.withLock { [findings, counts] in $0 = State(findings: findings, counts: counts) }
        await tell(findings, of: ids, at: now)
    }

    private static let author = Author(name: "experiment monitor")
    /// The warnings that depend on the stored data alone, so that all processes agree on them.
    private static let told: [ExperimentWarning] = [.sampleRatio, .guardrail, .primary, .stalled]

    /// Records what has changed since any process looked last in the audit log. What cannot be written is found again.
    private func tell(_ findings: [Finding], of ids: [Identifier], at now: Instant) async {
        guard let stored = try? await catalog.inBackground({ try await $0.read(.findings) }) else { return }
        let known = Dictionary(stored.map { ([$0.sdkKey, $0.experimentID.string], $0) }) { $1 }
        for (finding, id) in zip(findings, ids) where !finding.isPaused {
            let former = known[[finding.sdkKey, id.string]]?.content
            var content = JSONObject()
            let warnings = Self.told.filter { finding.warnings.contains($0) }
            content["warnings"] = .array(warnings.map { .string($0.rawValue) })
            let verdict = finding.decision.map { JSONValue.string($0.rawValue) } ?? former?.object?["verdict"]
            content["verdict"] = verdict ?? .string(Verdict.Decision.continue.rawValue)
            let blank: JSONValue = ["warnings": [], "verdict": .string(Verdict.Decision.continue.rawValue)]
            let before = (former ?? blank).object ?? JSONObject()
            let actions = [("warnings", AuditAction.experimentWarning), ("verdict", .experimentVerdict)]
            let notes = actions.filter { before[$0.0] != content[$0.0] }.map { name, action in
                AuditNote(
                    action, of: finding.key.string, before: [name: before[name] ?? .null],
                    after: [name: content[name] ?? .null], in: finding.sdkKey)
            }
            guard !notes.isEmpty, !timer.isClosed else { continue }
            let change = StoredLook(
                sdkKey: finding.sdkKey, experimentID: id, lookedAt: now, content: .object(content))
            _ = try? await catalog.inBackground {
                try await $0.write(.putFinding(change, after: former, notes, by: Self.author))
            }
        }
    }

    private func warnings(
        _ experiment: Experiment, _ project: Project, _ watch: UserWatch, _ count: Count, at now: Instant
    ) -> Set<ExperimentWarning> {
        guard !experiment.isConcluded else {
            return count.hasGrown && now - count.since < Self.hour ? [.exposuresAfterEnd] : []
        }
        var warnings = Set(watch.alarms.keys)
        let isEnrolling = experiment.isRunning && !experiment.annotations.isClosed && experiment.traffic > 0
        if isEnrolling, now - count.since >= Self.hour { warnings.insert(.noExposures) }
        if project.isStalled(experiment.key, at: now) { warnings.insert(.stalled) }
        return warnings
    }

    /// Returns the experiments that run or have a ramp or schedule, then those that are concluded, then paused ones.
    private func watchedExperiments() -> [(project: Project, experiment: Experiment, isPaused: Bool)] {
        let all = catalog.snapshot().projects.values.sorted { $0.sdkKey < $1.sdkKey }
            .flatMap { project in project.datafile.experimentsBesideRules.map { (project, $0) } }
        let live = all.filter { project, experiment in
            experiment.isRunning && !experiment.annotations.isDraft || project.isTimed(experiment.key)
        }
        let paused = all.filter { project, experiment in
            experiment.status == ExperimentStatus.paused.rawValue && !experiment.annotations.isDraft
                && !experiment.isConcluded && !project.isTimed(experiment.key)
        }
        let others = all.filter(\.1.isConcluded)
        return Array(((live + others).map { ($0, $1, false) } + paused.map { ($0, $1, true) }).prefix(Self.limit))
    }
}

extension Project {
    /// Whether an experiment has a schedule or a ramp that is not over.
    fileprivate func isTimed(_ key: Identifier) -> Bool {
        guard let experiment = definitions.experiments[key] else { return false }
        let isOver = experiment.isArchived || experiment.isConcluded
        return !isOver && experiment.details.isTimed
    }

    /// Whether the ramp or the schedule of an experiment does not go on.
    fileprivate func isStalled(_ key: Identifier, at now: Instant) -> Bool {
        guard let details = definitions.experiments[key]?.details else { return false }
        if let status = details.ramp?.state.status, status == .held || status == .stopped { return true }
        switch definitions.timedChange(of: key, at: now - ExperimentMonitor.patience, nil) {
        case .start, .end, .complete: return true
        case .begin: return details.ramp?.state.status == .active
        case .wait, .alarm, .hold, .weigh, nil: return false
        }
    }
}

extension ExperimentDetails {
    fileprivate var isTimed: Bool {
        schedule?.isPending ?? false || ramp.map { $0.state.status != .completed && $0.state.status != .ended } ?? false
    }
}
