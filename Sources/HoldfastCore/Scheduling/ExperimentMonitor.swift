public import Bucketing
import Chronology
import Definitions
import Dispatch
import JSON
import Logging
public import Storage
internal import Synchronization

/// A problem of an experiment that somebody should look at.
public enum ExperimentWarning: String, Sendable, CaseIterable {
    /// The users are not split as the traffic allocation says.
    case sampleRatio = "sample_ratio"
    /// A guardrail is certainly worse than its margin allows.
    case guardrail
    /// A primary metric is certainly worse.
    case primary
    /// The ramp is held, or stopped by an alarm, or a due change has not been made.
    case stalled
    /// A running experiment has had no new user for an hour.
    case noExposures = "no_exposures"
    /// Somebody was exposed to a concluded experiment within the last hour: something still shows its variations.
    case exposuresAfterEnd = "exposures_after_end"
}

/// Looks at experiments every minute: for the server's metrics, for the order of lists, and to record changes of
/// warnings and verdicts in the audit log, from which webhooks are sent.
///
/// Warnings about exposures depend on what this process has seen: an hour without exposures begins at the earliest when
/// the process starts. All other warnings depend on the stored data alone.
public final class ExperimentMonitor: Sendable {
    /// An experiment with the warnings that apply to it.
    public struct Finding: Sendable, Equatable {
        public var sdkKey: String
        public var key: Identifier
        public var warnings: Set<ExperimentWarning>
        /// The decision by all metrics; `nil` without metrics, and for an experiment that neither runs nor is paused.
        public var decision: Verdict.Decision?
        /// Whether the experiment is paused. Its finding is used for lists only, and is not recorded.
        public var isPaused = false
    }

    /// An experiment that is looked at.
    private struct Watched {
        let project: Project
        let experiment: Experiment
        let isPaused: Bool
    }

    /// Identifies an experiment before or after its conclusion: the conclusion begins a new ``Count``.
    private struct Place: Hashable {
        let sdkKey: String
        let experimentID: Identifier
        let isConcluded: Bool
    }

    /// The number of users of an experiment, and when it last grew.
    private struct Count {
        /// The number of users; for a concluded experiment the number of exposures while it was not running.
        var seen: Int
        /// When the number last grew, or was first read.
        var since: Instant
        /// Whether the number has grown since it was first read.
        var hasGrown = false

        /// Returns the count after another look.
        func updated(seen current: Int, at now: Instant) -> Count {
            if current > seen { return Count(seen: current, since: now, hasGrown: true) }
            // The number falls when users are erased.
            return Count(seen: current, since: since, hasGrown: hasGrown)
        }
    }

    private struct State {
        var findings: [Finding] = []
        var counts: [Place: Count] = [:]
    }

    /// The maximum number of experiments that are looked at: running ones first.
    static let limit = 10_000
    /// The maximum number of experiments in the metrics, so that the response with the metrics stays bounded.
    public static let measuredLimit = 1_000
    /// A running experiment without a new user for this time has a warning, as does a concluded experiment for this
    /// time after an exposure.
    static let hour = TimeSpan.hours(1)
    /// A change that has been due for this time, but was not made, is a warning.
    static let patience = TimeSpan.minutes(5)

    private let catalog: ProjectCatalog
    private let store: any Store
    private let timer = RepeatedTask(every: .seconds(60))
    private let state = Mutex(State())

    public init(_ catalog: ProjectCatalog, store: any Store) {
        self.catalog = catalog
        self.store = store
    }

    /// Begins to look every minute, until ``close()``.
    public func start() {
        timer.start(after: .seconds(1)) { [weak self] in await self?.look() }
    }

    /// Begins no further look.
    public func close() {
        timer.close()
    }

    /// The findings of the last look.
    public var findings: [Finding] { state.withLock(\.findings) }

    /// Looks at all experiments now. If the store cannot be read, the former findings stay. An experiment whose results cannot
    /// be computed has no finding.
    public func look() async {
        let now = store.clock.now()
        let watched = watchedExperiments()
        guard let enrolled = try? await catalog.inBackground({ try await $0.read(.enrolledUsers) }) else { return }
        var findings: [Finding] = []
        var ids: [Identifier] = []
        var counts: [Place: Count] = [:]
        let former = state.withLock { $0 }
        for subject in watched {
            guard !timer.isClosed else { return }
            let project = subject.project
            let experiment = subject.experiment
            let overview: ExperimentOverview
            do {
                // Most experiments of a long list have no users. A concluded one may have exposures without users.
                let hasUsers = enrolled[experiment.id] != nil || experiment.isConcluded
                overview =
                    hasUsers
                    ? try await catalog.inBackground { session in
                        try await ExperimentOverview.read(experiment, of: project, at: now, session)
                    } : ExperimentOverview(withoutUsers: experiment, of: project)
            } catch is StorageError {
                return
            } catch {
                catalog.logger.warning(
                    "an experiment cannot be looked at",
                    metadata: [
                        "sdk_key": "\(project.sdkKey)", "experiment": "\(experiment.key)",
                        "error": "\((error as? CoreError)?.detail ?? "\(error)")",
                    ])
                continue
            }
            let watch = overview.watch
            let place = Place(
                sdkKey: project.sdkKey, experimentID: experiment.id, isConcluded: experiment.isConcluded)
            // For a concluded experiment new users do not count: exposures from before the conclusion may arrive late.
            let seen = experiment.isConcluded ? watch.notRunning : watch.evidence.users
            let count = former.counts[place]?.updated(seen: seen, at: now) ?? Count(seen: seen, since: now)
            counts[place] = count
            findings.append(
                Finding(
                    sdkKey: project.sdkKey, key: experiment.key,
                    warnings: warnings(experiment, project, watch, count, at: now), decision: overview.decision,
                    isPaused: subject.isPaused))
            ids.append(experiment.id)
        }
        state.withLock { [findings, counts] in $0 = State(findings: findings, counts: counts) }
        await record(findings, of: ids, at: now)
    }

    /// Returns the warnings that apply to an experiment.
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
    private func watchedExperiments() -> [Watched] {
        var live: [Watched] = []
        var concluded: [Watched] = []
        var paused: [Watched] = []
        for project in catalog.snapshot().projects.values.sorted(by: { $0.sdkKey < $1.sdkKey }) {
            for experiment in project.datafile.experimentsBesideRules {
                let isDraft = experiment.annotations.isDraft
                let isLive = experiment.isRunning && !isDraft || project.isTimed(experiment.key)
                let isPaused = experiment.status == ExperimentStatus.paused.rawValue && !isDraft
                if isLive {
                    live.append(Watched(project: project, experiment: experiment, isPaused: false))
                }
                if experiment.isConcluded {
                    concluded.append(Watched(project: project, experiment: experiment, isPaused: false))
                } else if isPaused, !isLive {
                    paused.append(Watched(project: project, experiment: experiment, isPaused: true))
                }
            }
        }
        return Array((live + concluded + paused).prefix(Self.limit))
    }

    // MARK: The audit log

    private static let author = Author(name: "experiment monitor")
    /// The warnings that depend on the stored data alone, so that all processes find the same.
    private static let recordedWarnings: [ExperimentWarning] = [.sampleRatio, .guardrail, .primary, .stalled]

    /// Stores each finding that differs from the stored one, with the change in the audit log. The stored finding is
    /// shared by all processes, so a change is recorded once. If a write fails, the next look finds the same
    /// difference.
    private func record(_ findings: [Finding], of ids: [Identifier], at now: Instant) async {
        guard let stored = try? await catalog.inBackground({ try await $0.read(.findings) }) else { return }
        let known = Dictionary(stored.map { ([$0.sdkKey, $0.experimentID.string], $0) }) { $1 }
        for (finding, id) in zip(findings, ids) where !finding.isPaused {
            let former = known[[finding.sdkKey, id.string]]?.content
            let content = Self.content(of: finding, after: former)
            let notes = Self.notes(finding, from: former, to: content)
            guard !notes.isEmpty, !timer.isClosed else { continue }
            let change = StoredLook(
                sdkKey: finding.sdkKey, experimentID: id, lookedAt: now, content: .object(content))
            _ = try? await catalog.inBackground {
                try await $0.write(.putFinding(change, after: former, notes, by: Self.author))
            }
        }
    }

    /// Returns a finding as it is stored: `{"warnings":[…],"verdict":"…"}`. Without a decision, the former verdict
    /// stays.
    private static func content(of finding: Finding, after former: JSONValue?) -> JSONObject {
        var content = JSONObject()
        let warnings = recordedWarnings.filter { finding.warnings.contains($0) }
        content["warnings"] = .array(warnings.map { .string($0.rawValue) })
        let verdict = finding.decision.map { JSONValue.string($0.rawValue) } ?? former?.object?["verdict"]
        content["verdict"] = verdict ?? .string(Verdict.Decision.continue.rawValue)
        return content
    }

    /// Returns an audit entry for each member that has changed.
    private static func notes(_ finding: Finding, from former: JSONValue?, to content: JSONObject) -> [AuditNote] {
        let blank: JSONValue = ["warnings": [], "verdict": .string(Verdict.Decision.continue.rawValue)]
        let before = (former ?? blank).object ?? JSONObject()
        let actions = [("warnings", AuditAction.experimentWarning), ("verdict", .experimentVerdict)]
        return actions.filter { name, _ in before[name] != content[name] }.map { name, action in
            AuditNote(
                action, of: finding.key.string, before: [name: before[name] ?? .null],
                after: [name: content[name] ?? .null], in: finding.sdkKey)
        }
    }
}

extension Project {
    /// Whether an experiment has a pending schedule, or a ramp that is not over.
    fileprivate func isTimed(_ key: Identifier) -> Bool {
        guard let experiment = definitions.experiments[key] else { return false }
        let isOver = experiment.isArchived || experiment.isConcluded
        return !isOver && experiment.details.isTimed
    }

    /// Whether the ramp of an experiment is held or stopped, or a change by its ramp or schedule is overdue.
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
    /// Whether the experiment has a pending schedule, or a ramp that is neither complete nor ended.
    fileprivate var isTimed: Bool {
        schedule?.isPending ?? false || ramp.map { $0.state.status != .completed && $0.state.status != .ended } ?? false
    }
}
