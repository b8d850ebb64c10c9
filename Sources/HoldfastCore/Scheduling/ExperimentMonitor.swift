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

/// Computes a ``Finding`` for each experiment every minute: its warnings and its verdict. The findings have three uses:
/// the server's metrics show them, lists of experiments are sorted by them, and their changes are recorded in the
/// audit log, from which webhooks are sent.
///
/// ``checkAll()`` is one round. Warnings about exposures depend on the numbers of users in the earlier rounds of this
/// process, so an hour without exposures begins at the earliest when the process starts. All other warnings depend on
/// the stored data alone, so all processes find the same ones. Only these other warnings are recorded.
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

    /// An experiment of a round.
    private struct Subject {
        let project: Project
        let experiment: Experiment
        let isPaused: Bool

        var countKey: ExposureCount.Key {
            ExposureCount.Key(
                sdkKey: project.sdkKey, experimentID: experiment.id, isConcluded: experiment.isConcluded)
        }
    }

    /// The number of exposures of an experiment, and when it last grew.
    private struct ExposureCount {
        /// The number of exposed users; for a concluded experiment the number of exposures while it was not running.
        var number: Int
        /// When the number last grew, or was first read.
        var since: Instant
        /// Whether the number has grown since it was first read.
        var hasGrown = false

        /// The conclusion of an experiment begins another count, because it changes the meaning of ``number``.
        struct Key: Hashable {
            let sdkKey: String
            let experimentID: Identifier
            let isConcluded: Bool
        }

        /// Returns the count after the number was read again.
        func updated(to current: Int, at now: Instant) -> ExposureCount {
            if current > number { return ExposureCount(number: current, since: now, hasGrown: true) }
            // The number falls when users are erased.
            return ExposureCount(number: current, since: since, hasGrown: hasGrown)
        }
    }

    /// The results of a round.
    private struct Round {
        var findings: [Finding] = []
        /// The ids of the experiments, in the order of ``findings``.
        var experimentIDs: [Identifier] = []
        var counts: [ExposureCount.Key: ExposureCount] = [:]
    }

    /// The maximum number of experiments in a round, so that the work of a round stays bounded. Running experiments
    /// come first.
    static let limit = 10_000
    /// The maximum number of experiments in the metrics, so that the response with the metrics stays bounded.
    public static let measuredLimit = 1_000
    /// A running experiment has a warning after this time without a new user. A concluded experiment has a warning
    /// during this time after an exposure.
    private static let quietPeriod = TimeSpan.hours(1)
    /// A change of a schedule or ramp causes a warning if it is still not made this long after it was due.
    fileprivate static let overdueDelay = TimeSpan.minutes(5)

    private let catalog: ProjectCatalog
    private let store: any Store
    private let timer = RepeatedTask(every: .seconds(60))
    private let lastRound = Mutex(Round())

    public init(_ catalog: ProjectCatalog, store: any Store) {
        self.catalog = catalog
        self.store = store
    }

    /// Begins a round every minute, until ``close()``.
    public func start() {
        timer.start(after: .seconds(1)) { [weak self] in await self?.checkAll() }
    }

    /// Begins no further round.
    public func close() {
        timer.close()
    }

    /// The findings of the last round.
    public var findings: [Finding] { lastRound.withLock(\.findings) }

    /// Checks all experiments now, and records the changes of their findings. If the store cannot be read, the former
    /// findings stay.
    func checkAll() async {
        let now = store.clock.now()
        guard let round = try? await check(subjects(), at: now) else { return }
        lastRound.withLock { $0 = round }
        await record(round, at: now)
    }

    /// Computes the findings of experiments. An experiment whose results cannot be computed has no finding, and keeps
    /// its count of exposures.
    ///
    /// - Returns: `nil` if the monitor was closed meanwhile.
    private func check(_ subjects: [Subject], at now: Instant) async throws -> Round? {
        let enrolled = try await catalog.inBackground { try await $0.read(.enrolledUsers) }
        let formerCounts = lastRound.withLock(\.counts)
        var round = Round()
        for subject in subjects {
            guard !timer.isClosed else { return nil }
            let experiment = subject.experiment
            let key = subject.countKey
            let hasUsers = enrolled[experiment.id] != nil
            guard let overview = try await overview(of: subject, hasUsers: hasUsers, at: now) else {
                round.counts[key] = formerCounts[key]
                continue
            }
            let watch = overview.watch
            // For a concluded experiment new users do not count: exposures from before the conclusion may arrive late.
            let number = experiment.isConcluded ? watch.notRunning : watch.evidence.users
            let count = formerCounts[key]?.updated(to: number, at: now) ?? ExposureCount(number: number, since: now)
            round.counts[key] = count
            round.experimentIDs.append(experiment.id)
            round.findings.append(
                Finding(
                    sdkKey: subject.project.sdkKey, key: experiment.key,
                    warnings: warnings(experiment, subject.project, watch, count, at: now),
                    decision: overview.decision, isPaused: subject.isPaused))
        }
        return round
    }

    /// Reads the overview of an experiment.
    ///
    /// - Parameter hasUsers: whether the experiment has enrolled users. Most experiments of a long list have none, and
    ///   need no query of the store.
    /// - Returns: `nil` if the results cannot be computed.
    /// - Throws: the error of the store if it cannot be read.
    private func overview(of subject: Subject, hasUsers: Bool, at now: Instant) async throws -> ExperimentOverview? {
        let experiment = subject.experiment
        let project = subject.project
        // A concluded experiment may have exposures without users.
        guard hasUsers || experiment.isConcluded else {
            return ExperimentOverview(withoutUsers: experiment, of: project)
        }
        do {
            return try await catalog.inBackground { session in
                try await ExperimentOverview.read(experiment, of: project, at: now, session)
            }
        } catch let error as StorageError {
            throw error
        } catch {
            catalog.logger.warning(
                "an experiment cannot be looked at",
                metadata: [
                    "sdk_key": "\(project.sdkKey)", "experiment": "\(experiment.key)",
                    "error": "\((error as? CoreError)?.detail ?? "\(error)")",
                ])
            return nil
        }
    }

    /// Returns the warnings that apply to an experiment.
    private func warnings(
        _ experiment: Experiment, _ project: Project, _ watch: UserWatch, _ count: ExposureCount, at now: Instant
    ) -> Set<ExperimentWarning> {
        guard !experiment.isConcluded else {
            return count.hasGrown && now - count.since < Self.quietPeriod ? [.exposuresAfterEnd] : []
        }
        var warnings = Set(watch.alarms.keys)
        let isEnrolling = experiment.isRunning && !experiment.annotations.isClosed && experiment.traffic > 0
        if isEnrolling, now - count.since >= Self.quietPeriod { warnings.insert(.noExposures) }
        if project.isStalled(experiment.key, at: now) { warnings.insert(.stalled) }
        return warnings
    }

    /// Returns the experiments to check, at most ``limit``: those that run or have a ramp or schedule come first, then
    /// those that are concluded, then the paused ones.
    private func subjects() -> [Subject] {
        var live: [Subject] = []
        var concluded: [Subject] = []
        var paused: [Subject] = []
        for project in catalog.snapshot().projects.values.sorted(by: { $0.sdkKey < $1.sdkKey }) {
            for experiment in project.datafile.experimentsBesideRules {
                let isDraft = experiment.annotations.isDraft
                let isLive = (experiment.isRunning && !isDraft) || project.isTimed(experiment.key)
                let isPaused = experiment.status == ExperimentStatus.paused.rawValue && !isDraft
                if isLive {
                    live.append(Subject(project: project, experiment: experiment, isPaused: false))
                }
                if experiment.isConcluded {
                    concluded.append(Subject(project: project, experiment: experiment, isPaused: false))
                } else if isPaused, !isLive {
                    paused.append(Subject(project: project, experiment: experiment, isPaused: true))
                }
            }
        }
        return Array((live + concluded + paused).prefix(Self.limit))
    }

    // MARK: The audit log

    private static let author = Author(name: "experiment monitor")
    /// The warnings that depend on the stored data alone, so that all processes find the same ones.
    private static let recordedWarnings: [ExperimentWarning] = [.sampleRatio, .guardrail, .primary, .stalled]

    /// Stores each finding that differs from the stored one, with the change in the audit log. The stored finding is
    /// shared by all processes, so a change is recorded once. If a write fails, the next round finds the same
    /// difference.
    private func record(_ round: Round, at now: Instant) async {
        guard let stored = try? await catalog.inBackground({ try await $0.read(.findings) }) else { return }
        var storedContents: [String: [Identifier: JSONValue]] = [:]
        for finding in stored { storedContents[finding.sdkKey, default: [:]][finding.experimentID] = finding.content }
        for (finding, id) in zip(round.findings, round.experimentIDs) where !finding.isPaused {
            let former = storedContents[finding.sdkKey]?[id]
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
    ///
    /// - Parameter former: the stored finding; `nil` if there is none, which counts as no warnings and `continue`.
    private static func notes(_ finding: Finding, from former: JSONValue?, to content: JSONObject) -> [AuditNote] {
        let blank: JSONValue = ["warnings": [], "verdict": .string(Verdict.Decision.continue.rawValue)]
        let before = (former ?? blank).object ?? JSONObject()
        let actions = [("warnings", AuditAction.experimentWarning), ("verdict", .experimentVerdict)]
        var notes: [AuditNote] = []
        for (name, action) in actions where before[name] != content[name] {
            notes.append(
                AuditNote(
                    action, of: finding.key.string, before: [name: before[name] ?? .null],
                    after: [name: content[name] ?? .null], in: finding.sdkKey))
        }
        return notes
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
        // A change that was due at this earlier time is overdue, because it has not been made since. A ramp that waits
        // begins when enrollment opens. When that was is unknown here, so this change does not count as overdue.
        switch definitions.timedChange(of: key, at: now - ExperimentMonitor.overdueDelay, nil) {
        case .start, .end, .complete: return true
        case .begin: return details.ramp?.state.status == .active
        case .wait, .alarm, .hold, .weigh, nil: return false
        }
    }
}

extension ExperimentDetails {
    /// Whether the experiment has a pending schedule, or a ramp that is neither complete nor ended.
    fileprivate var isTimed: Bool {
        if schedule?.isPending == true { return true }
        guard let status = ramp?.state.status else { return false }
        return status != .completed && status != .ended
    }
}
