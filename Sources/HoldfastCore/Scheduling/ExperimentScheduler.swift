import Bucketing
import Chronology
import Definitions
import Dispatch
import JSON
import Logging
public import Storage
internal import Synchronization

/// Makes the changes of experiments that their schedules, ramps and bandits require, when they are due.
///
/// Every process has a scheduler. Which change is due follows from the stored definitions alone, and a change is stored
/// only if the definitions are still those by which it was decided. So each change is made exactly once, no matter
/// which processes run. If all processes were killed, the next one that starts makes the changes that are due.
///
/// In every interval of ``timer``:
/// 1. ``timedExperiments()`` lists the experiments with a schedule, a ramp or a bandit.
/// 2. ``shouldReadUsers()`` decides whether the users of all experiments with an active ramp are read in this interval.
/// 3. ``makeDueChange(of:in:at:readsUsers:)`` makes the due change of each experiment.
///
/// A bandit evaluates its users at each of its looks. Most looks change no weights; ``BanditLookRecorder`` stores them.
public final class ExperimentScheduler: Sendable {
    private let catalog: ProjectCatalog
    private let store: any Store
    private let banditLooks: BanditLookRecorder
    private let state = Mutex(State())

    private let timer = RepeatedTask(every: .milliseconds(250))

    private struct State {
        /// The experiments with a schedule, a ramp or a bandit, by SDK key.
        var timed: [String: TimedKeys] = [:]
        /// The number of commits of this process when users were last read; `nil` before the first time.
        var commitsAtLastRead: UInt64?
        /// The number of intervals since users were last read.
        var intervalsSinceRead = 0
        /// The times at which refused changes are tried again.
        var retries: [ExperimentReference: Instant] = [:]
    }

    /// The keys of a project's experiments with a schedule, a ramp or a bandit.
    private struct TimedKeys {
        /// The version of the project in which the keys were found.
        let version: Int64
        let keys: [Identifier]
    }

    /// An experiment with a schedule, a ramp or a bandit.
    private struct TimedExperiment {
        let project: Project
        let reference: ExperimentReference
    }

    /// The maximum number of intervals without reading users: 2 seconds. Another process may have stored events without
    /// a commit of this process.
    private static let longestWithoutRead = 8
    /// The time after which a refused change is tried again.
    private static let retryDelay = TimeSpan.minutes(1)
    static let author = Author(name: "experiment schedule")

    public init(_ catalog: ProjectCatalog, store: any Store) {
        self.catalog = catalog
        self.store = store
        banditLooks = BanditLookRecorder(catalog)
    }

    /// Begins to make due changes, until ``close()``.
    public func start() {
        timer.start { [weak self] in await self?.makeDueChanges() }
    }

    /// Makes no further changes.
    public func close() {
        timer.close()
    }

    /// Makes the changes that are due now.
    func makeDueChanges() async {
        let now = store.clock.now()
        let timed = timedExperiments()
        guard !timed.isEmpty else { return }
        let readsUsers = shouldReadUsers()
        for experiment in timed where !isWaiting(experiment.reference, at: now) {
            let reference = experiment.reference
            do {
                try await makeDueChange(of: reference, in: experiment.project, at: now, readsUsers: readsUsers)
                state.withLock { _ = $0.retries.removeValue(forKey: reference) }
            } catch is StorageError {
                // The next interval tries again. Readiness reports that the store fails.
            } catch {
                state.withLock { $0.retries[reference] = now + Self.retryDelay }
                catalog.logger.warning(
                    "what an experiment's schedule asks for is not possible",
                    metadata: [
                        "sdk_key": "\(reference.sdkKey)", "experiment": "\(reference.key)",
                        "error": "\((error as? CoreError)?.detail ?? "\(error)")",
                    ])
            }
        }
    }

    /// Whether the change of an experiment must not be tried now: it was refused less than ``retryDelay`` ago, or the
    /// scheduler is closed.
    private func isWaiting(_ reference: ExperimentReference, at now: Instant) -> Bool {
        guard !timer.isClosed else { return true }
        guard let retry = state.withLock({ $0.retries[reference] }) else { return false }
        return now < retry
    }

    /// Returns the experiments with a schedule, a ramp or a bandit. Each version of a project is searched once.
    ///
    /// A superseded project is left out: its definitions are not the newest, so no change of it could be stored.
    private func timedExperiments() -> [TimedExperiment] {
        let projects = catalog.snapshot().projects.values.filter { !$0.isSuperseded }
        return state.withLock { state in
            var timed: [String: TimedKeys] = [:]
            var experiments: [TimedExperiment] = []
            for project in projects {
                let former = state.timed[project.sdkKey]
                let current =
                    if let former, former.version == project.version {
                        former
                    } else {
                        TimedKeys(version: project.version, keys: project.definitions.timedExperiments)
                    }
                timed[project.sdkKey] = current
                experiments += current.keys.map { key in
                    TimedExperiment(
                        project: project, reference: ExperimentReference(sdkKey: project.sdkKey, key: key))
                }
            }
            state.timed = timed
            return experiments
        }
    }

    /// Returns whether the users of experiments with an active ramp are read in this interval: after a commit of this
    /// process, and otherwise after ``longestWithoutRead`` intervals.
    private func shouldReadUsers() -> Bool {
        let commits = store.metrics().commits
        return state.withLock { state in
            state.intervalsSinceRead += 1
            let hasCommitted = state.commitsAtLastRead != commits
            guard hasCommitted || state.intervalsSinceRead >= Self.longestWithoutRead else { return false }
            state.commitsAtLastRead = commits
            state.intervalsSinceRead = 0
            return true
        }
    }

    // MARK: The change of one experiment

    /// Makes the change of one experiment that is due, if there is one.
    ///
    /// - Parameter readsUsers: whether the users are read even if no change is due by the time alone. A step of an
    ///   active ramp may end by the number of its users, or by an alarm.
    private func makeDueChange(
        of reference: ExperimentReference, in project: Project, at now: Instant, readsUsers: Bool
    ) async throws {
        let definitions = project.definitions
        // `nil` stands for users that were not read: only changes that are due by the time alone are returned.
        let dueByTime = definitions.timedChange(of: reference.key, at: now, nil)
        let mayBeDueByUsers = readsUsers && definitions.isRamping(reference.key)
        guard dueByTime != nil || mayBeDueByUsers else { return }
        var bandit: Bandit?
        if case .weigh = dueByTime {
            // The last look may be stored outside of the definitions. Then no look is due yet.
            guard let experiment = definitions.experiments[reference.key],
                try await banditLooks.isLookDue(of: experiment, reference, at: now)
            else { return }
            bandit = experiment.details.bandit
        }
        let watch = try await readUsers(of: reference.key, in: project, for: bandit, at: now)
        if let look = watch?.banditLook, let experiment = definitions.experiments[reference.key],
            experiment.shares(look) == nil
        {
            // The weights stay, so the definitions need no new revision.
            return try await banditLooks.store(look, of: experiment, reference, at: now)
        }
        // Usually the users show that no change is due yet.
        guard definitions.timedChange(of: reference.key, at: now, watch?.users) != nil else { return }
        do {
            try await makeNewestDueChange(of: reference, at: now, watch)
        } catch let error as CoreError where error.kind != .unavailable {
            // The step is not possible. The ramp is held until a person decides.
            try await makeNewestDueChange(of: reference, at: now, watch, holdingRampAfter: error)
        }
    }

    /// Reads the users of an experiment.
    ///
    /// - Parameter bandit: the bandit whose look is due; `nil` if none is.
    /// - Returns: `nil` if the datafile does not have the experiment.
    private func readUsers(
        of key: Identifier, in project: Project, for bandit: Bandit?, at now: Instant
    ) async throws -> UserWatch? {
        guard let experiment = project.datafile.experiment(key: key) else { return nil }
        return try await catalog.inBackground { session in
            var watch = try await UserWatch.read(experiment, of: project, at: now, session)
            if let bandit { watch.banditLook = try await .read(bandit, experiment, of: project, at: now, session) }
            return watch
        }
    }

    /// Makes the change that is due by the newest definitions. Possibly no change is due any more, because another
    /// process has made it, or a person has changed the experiment.
    ///
    /// - Parameter refusal: why the step of a ramp was not possible; the ramp is then held instead. `nil` to make the
    ///   due change.
    /// - Throws: `refusal` if the due change is not a step of a ramp.
    private func makeNewestDueChange(
        of reference: ExperimentReference, at now: Instant, _ watch: UserWatch?,
        holdingRampAfter refusal: CoreError? = nil
    ) async throws {
        let key = reference.key
        let edit = ProjectEditor.Edit(
            sdkKey: reference.sdkKey, author: Self.author, moves: .refuse,
            change: { definitions, _ throws(CoreError) -> TimedChange? in
                guard var change = definitions.timedChange(of: key, at: now, watch?.users) else { return nil }
                if let refusal {
                    guard change.isStep else { throw refusal }
                    change = .hold(refusal.detail)
                }
                try definitions.apply(change, to: key, at: now, watch?.evidence)
                return change
            },
            notes: { draft in
                guard let change = draft.outcome else { return [] }
                let before = draft.project?.definitions.experiments[key]
                let after = draft.compiled.definitions.experiments[key]
                return [
                    AuditNote(
                        change.action, of: key.string, before: before?.timesForAudit ?? .null,
                        after: after?.timesForAudit ?? .null)
                ]
            })
        _ = try await ProjectEditor(catalog, .notNeeded).edit(edit)
    }
}

/// Identifies an experiment among all projects.
struct ExperimentReference: Hashable {
    let sdkKey: String
    let key: Identifier
}
