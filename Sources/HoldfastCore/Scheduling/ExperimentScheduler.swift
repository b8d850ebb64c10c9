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
/// 2. ``beginLook()`` decides whether to read the users of experiments with an active ramp: after a commit of this
///    process, and otherwise every ``longestQuiet`` intervals, because another process may have committed and then
///    ended.
/// 3. ``makeDueChange(of:in:at:looksAtUsers:)`` makes the due change of each experiment.
public final class ExperimentScheduler: Sendable {
    private let catalog: ProjectCatalog
    private let store: any Store
    private let state = Mutex(State())

    private let timer = RepeatedTask(every: .milliseconds(250))

    private struct State {
        /// The experiments with a schedule, a ramp or a bandit, by SDK key, with the version of the project.
        var timed: [String: (version: Int64, keys: [Identifier])] = [:]
        /// The number of commits of this process at the last look at users.
        var commits: UInt64?
        /// The number of intervals since the last look at users.
        var quiet = 0
        /// When the change of an experiment, which was refused, is tried again.
        var retries: [Place: Instant] = [:]
        /// The last looks of bandits that changed no weights, as far as this process knows them; see ``BanditLooks``.
        var looks: [Place: StoredLook] = [:]
    }

    /// Identifies an experiment.
    private struct Place: Hashable {
        let sdkKey: String
        let key: Identifier
    }

    /// The number of intervals after which users are looked at without a commit.
    private static let longestQuiet = 8
    /// The time after which a refused change is tried again.
    private static let retryDelay = TimeSpan.minutes(1)
    static let author = Author(name: "experiment schedule")

    public init(_ catalog: ProjectCatalog, store: any Store) {
        self.catalog = catalog
        self.store = store
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
        let places = timedExperiments()
        guard !places.isEmpty else { return }
        let looksAtUsers = beginLook()
        for (project, place) in places where !isWaiting(place, at: now) {
            do {
                try await makeDueChange(of: place, in: project, at: now, looksAtUsers: looksAtUsers)
                state.withLock { _ = $0.retries.removeValue(forKey: place) }
            } catch is StorageError {
                // The next interval tries again. Readiness reports the store.
            } catch {
                state.withLock { $0.retries[place] = now + Self.retryDelay }
                catalog.logger.warning(
                    "what an experiment's schedule asks for is not possible",
                    metadata: [
                        "sdk_key": "\(place.sdkKey)", "experiment": "\(place.key)",
                        "error": "\((error as? CoreError)?.detail ?? "\(error)")",
                    ])
            }
        }
    }

    /// Whether an experiment's change was refused and is not tried again yet.
    private func isWaiting(_ place: Place, at now: Instant) -> Bool {
        timer.isClosed || state.withLock { $0.retries[place].map { now < $0 } ?? false }
    }

    /// Returns the experiments with a schedule, a ramp or a bandit. A project's definitions are searched once per
    /// version.
    private func timedExperiments() -> [(project: Project, place: Place)] {
        let projects = catalog.snapshot().projects.values.filter { !$0.isSuperseded }
        return state.withLock { state in
            var timed: [String: (version: Int64, keys: [Identifier])] = [:]
            for project in projects {
                if let known = state.timed[project.sdkKey], known.version == project.version {
                    timed[project.sdkKey] = known
                } else {
                    timed[project.sdkKey] = (project.version, project.definitions.timedExperiments)
                }
            }
            state.timed = timed
            return projects.flatMap { project in
                (timed[project.sdkKey]?.keys ?? []).map { (project, Place(sdkKey: project.sdkKey, key: $0)) }
            }
        }
    }

    /// Returns whether the users of experiments with an active ramp are to be read in this interval.
    private func beginLook() -> Bool {
        let commits = store.metrics().commits
        return state.withLock { state in
            state.quiet += 1
            guard state.commits != commits || state.quiet >= Self.longestQuiet else { return false }
            state.commits = commits
            state.quiet = 0
            return true
        }
    }

    /// Makes the change of one experiment that is due, if there is one.
    ///
    /// A change by a schedule depends on the time alone. A step of a ramp and a look of a bandit also depend on the
    /// users, which are read only if such a change may be due.
    private func makeDueChange(
        of place: Place, in project: Project, at now: Instant, looksAtUsers: Bool
    ) async throws {
        let definitions = project.definitions
        let due = definitions.timedChange(of: place.key, at: now, nil)
        guard due != nil || looksAtUsers && definitions.isRamping(place.key) else { return }
        var bandit: Bandit?
        if case .weigh = due {
            guard try await isLookDue(of: place, definitions, at: now) else { return }
            bandit = definitions.experiments[place.key]?.details.bandit
        }
        let watch = try await watch(place.key, project, bandit, at: now)
        // The bandit has looked, and no weight changes.
        if let look = watch?.bandit, let experiment = definitions.experiments[place.key],
            experiment.shares(look) == nil
        {
            return try await storeLook(look, of: experiment, place, at: now)
        }
        // Most looks at users change nothing.
        guard definitions.timedChange(of: place.key, at: now, watch?.users) != nil else { return }
        do {
            try await makeDueChange(place, at: now, watch)
        } catch let error as CoreError where error.kind != .unavailable {
            // The step is not possible. The ramp is held instead, until a person decides.
            try await makeDueChange(place, at: now, watch, holding: error)
        }
    }

    // MARK: Looks of bandits that change no weights

    /// Whether a look of a bandit is due, given its looks that changed no weights, which are not in the definitions.
    private func isLookDue(of place: Place, _ definitions: ProjectDefinitions, at now: Instant) async throws -> Bool {
        guard let experiment = definitions.experiments[place.key], let bandit = experiment.details.bandit else {
            return false
        }
        guard bandit.with(state.withLock { $0.looks[place] }).isDue(at: now) else { return false }
        // Another process may have looked meanwhile.
        let looks = try await catalog.inBackground { try await $0.read(.looks(sdkKey: place.sdkKey)) }
        let look = looks.first { $0.experimentID == experiment.id }
        state.withLock { $0.looks[place] = look }
        return bandit.with(look).isDue(at: now)
    }

    /// Stores a look that changes no weights, unless another process has stored a newer one than this process knows.
    private func storeLook(
        _ look: Bandit.Look, of experiment: ExperimentDefinition, _ place: Place, at now: Instant
    ) async throws {
        let former = state.withLock { $0.looks[place] }
        var before = experiment
        var after = experiment
        before.details.bandit = experiment.details.bandit?.with(former)
        after.details.bandit?.note(look, at: now)
        guard let content = after.details.bandit?.state.stored else { return }
        let stored = StoredLook(
            sdkKey: place.sdkKey, experimentID: experiment.id, lookedAt: now, content: .object(content))
        let note = AuditNote(
            .experimentBandit, of: place.key.string, before: before.timesForAudit, after: after.timesForAudit)
        let isStored = try await catalog.inBackground {
            try await $0.write(.putLook(stored, after: former?.lookedAt, note, by: Self.author))
        }
        if isStored { state.withLock { $0.looks[place] = stored } }
    }

    /// Reads the users of an experiment.
    ///
    /// - Parameter bandit: the bandit whose look is due; `nil` if none is.
    /// - Returns: `nil` if the datafile does not have the experiment.
    private func watch(
        _ key: Identifier, _ project: Project, _ bandit: Bandit?, at now: Instant
    ) async throws -> UserWatch? {
        guard let experiment = project.datafile.experiment(key: key) else { return nil }
        return try await catalog.inBackground { session in
            var watch = try await UserWatch.read(experiment, of: project, at: now, session)
            if let bandit { watch.bandit = try await .read(bandit, experiment, of: project, at: now, session) }
            return watch
        }
    }

    /// Makes the change that is due by the newest definitions. There may be none: another process may have been
    /// quicker, or a person may have changed the experiment.
    ///
    /// - Parameter refusal: why the step of a ramp was not possible. The ramp is then held instead.
    /// - Throws: `refusal` if the due change is not a step of a ramp.
    private func makeDueChange(
        _ place: Place, at now: Instant, _ watch: UserWatch?, holding refusal: CoreError? = nil
    ) async throws {
        let key = place.key
        let edit = ProjectEditor.Edit(
            sdkKey: place.sdkKey, author: Self.author, moves: .refuse,
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
                func times(_ definitions: ProjectDefinitions?) -> JSONValue {
                    definitions?.experiments[key].map(\.timesForAudit) ?? .null
                }
                return [
                    AuditNote(
                        change.action, of: key.string, before: times(draft.project?.definitions),
                        after: times(draft.compiled.definitions))
                ]
            })
        _ = try await ProjectEditor(catalog, .notNeeded).edit(edit)
    }
}

extension TimedChange {
    /// Whether the change begins a step of a ramp.
    fileprivate var isStep: Bool {
        if case .begin = self { true } else { false }
    }
}

extension ExperimentDefinition {
    /// The members that a schedule, a ramp or a bandit changes, for the audit log.
    fileprivate var timesForAudit: JSONValue {
        [
            "experiment": [
                "key": JSONValue(key), "status": .string(ExperimentStatus.name(of: status)),
                "traffic": .shortest(enrolledTraffic), "enrollment": .string(enrollment.rawValue),
                "schedule": details.schedule?.json ?? .null,
                "variations": .array(
                    variations.map { variation in
                        let weight = variation.weight.map { JSONValue.shortest($0) } ?? .null
                        return ["key": JSONValue(variation.key), "weight": weight]
                    }),
                "bandit": ["state": details.bandit?.description(of: self).object?["state"] ?? .null],
                "ramp": ["state": details.ramp?.json.object?["state"] ?? .null],
            ]
        ]
    }
}

extension TimedChange {
    /// The action in the audit log.
    var action: AuditAction {
        switch self {
        case .start, .end: .experimentSchedule
        case .begin, .complete, .wait, .alarm, .hold: .experimentRamp
        case .weigh: .experimentBandit
        }
    }
}
