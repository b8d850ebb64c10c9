import Bucketing
import Chronology
internal import Dispatch
public import Storage
internal import Synchronization

/// Records the last day on which each flag was evaluated and on which each experiment had an exposure, by variation.
/// These days show which flags are no longer used.
///
/// Each process writes each use once a day, in the background. After a failure it tries again a minute later.
public final class UseRecorder: Sendable {
    private struct State {
        /// The subjects that were used today.
        var noted: Set<LastUse.Subject> = []
        /// The subjects that were used today and are not written yet.
        var waiting: Set<LastUse.Subject> = []
        /// The catalog version at which the flags of each project were last recorded, by SDK key.
        var projects: [String: Int64] = [:]
    }

    private let store: any Store
    private let state = Mutex(State())
    private let timer = RepeatedTask(every: .seconds(60))
    /// The UTC day, counted from 1970-01-01. It may be a minute behind.
    private let today: Atomic<Int64>

    /// The maximum number of subjects that are recorded on a day.
    private static let limit = 100_000

    public init(_ store: any Store) {
        self.store = store
        today = Atomic(store.clock.now().day)
    }

    /// Starts to write every minute, until ``close()``.
    public func start(_ catalog: ProjectCatalog) {
        timer.start { [weak self, weak catalog] in
            guard let self, let catalog else { return }
            noteDay()
            try? await noteFlags(of: catalog)
            try? await write(catalog)
        }
    }

    /// Writes the waiting subjects. Blocks until done.
    public func close() {
        timer.close()
        guard let uses = take(), let session = try? BackgroundSession(store, label: "uses") else { return }
        try? session.wait { $0.write(.note(uses), $1) }
        session.close()
    }

    // MARK: Noting

    /// The current day, for ``EvaluationMarks``.
    var currentDay: Int64 { today.load(ordering: .relaxed) }

    /// Records a use today.
    public func note(_ subject: LastUse.Subject) {
        state.withLock { state in
            guard state.noted.count < Self.limit, state.noted.insert(subject).inserted else { return }
            state.waiting.insert(subject)
        }
    }

    /// Records an evaluation that an app reports.
    public func note(_ series: ReportedEvaluations.Series) {
        guard let key = series.flagKey else { return }
        note(LastUse.Subject(sdkKey: series.sdkKey, .evaluated, key, variation: series.variationKey ?? ""))
    }

    /// Records the use of an experiment's variation.
    func note(_ exposure: Exposure) {
        note(
            LastUse.Subject(
                sdkKey: exposure.sdkKey, .exposed, exposure.experimentID, variation: exposure.variationID))
    }

    /// Returns the stored last uses of a project, combined with the uses that this process has recorded today.
    public func uses(of sdkKey: String, stored: [LastUse]) -> [LastUse] {
        let day = currentDay
        return stored + state.withLock { $0.noted }.filter { $0.sdkKey == sdkKey }.map { LastUse($0, day: day) }
    }

    /// Begins a new day, if there is one: all subjects may be recorded again.
    private func noteDay() {
        let day = store.clock.now().day
        guard today.exchange(day, ordering: .relaxed) != day else { return }
        // Subjects that still wait are written with the new day.
        state.withLock { $0.noted = $0.waiting }
    }

    /// Records the existence of flags that have not been recorded yet.
    private func noteFlags(of catalog: ProjectCatalog) async throws {
        for project in catalog.snapshot().projects.values {
            let version = project.catalogVersion
            guard state.withLock({ $0.projects[project.sdkKey] }) != version else { continue }
            let sdkKey = project.sdkKey
            let stored = try await catalog.inBackground { try await $0.read(.lastUses(sdkKey: sdkKey)) }
            let known = Set(stored.filter { $0.subject.kind == .known }.map(\.subject.key))
            for flag in project.datafile.flags where !known.contains(flag.key) {
                note(LastUse.Subject(sdkKey: sdkKey, .known, flag.key, variation: ""))
            }
            state.withLock { $0.projects[sdkKey] = version }
        }
    }

    // MARK: Writing

    /// Removes and returns the uses that are not written yet; `nil` if there are none.
    private func take() -> [LastUse]? {
        let day = currentDay
        let subjects = state.withLock { state in
            defer { state.waiting = [] }
            return state.waiting
        }
        // Sorted, so that two servers of a database lock rows in the same order.
        return subjects.isEmpty ? nil : subjects.sorted(by: <).map { LastUse($0, day: day) }
    }

    /// Writes the waiting uses. If this fails, they wait for the next attempt.
    private func write(_ catalog: ProjectCatalog) async throws {
        guard let uses = take() else { return }
        do {
            try await catalog.inBackground { try await $0.write(.note(uses)) }
        } catch {
            state.withLock { $0.waiting.formUnion(uses.map(\.subject)) }
            throw error
        }
    }
}

extension LastUse.Subject: Comparable {
    public static func < (left: Self, right: Self) -> Bool {
        (left.sdkKey, left.kind.rawValue, left.key, left.variation)
            < (right.sdkKey, right.kind.rawValue, right.key, right.variation)
    }
}

/// The evaluations that one event loop has recorded today, so that a repeated evaluation costs only a look-up in a set.
/// Only hashes are kept: if those of two pairs of flag and variation collide, only one pair is recorded.
final class EvaluationMarks {
    private let recorder: UseRecorder
    private var day: Int64 = 0
    private var noted: Set<Int> = []

    init(_ recorder: UseRecorder) {
        self.recorder = recorder
    }

    /// Records an evaluation, unless it was recorded today.
    ///
    /// - Parameters:
    ///   - key: the key of a flag, or of an experiment, which may be served as a flag with the same key.
    ///   - variation: the key of the variation that the user got.
    func note(_ key: Identifier, _ variation: Identifier?, in project: Project) {
        if day != recorder.currentDay {
            day = recorder.currentDay
            noted.removeAll(keepingCapacity: true)
        }
        var hasher = Hasher()
        hasher.combine(key)
        hasher.combine(UInt8.max)
        if let variation { hasher.combine(variation) }
        hasher.combine(project.sdkKey)
        guard noted.insert(hasher.finalize()).inserted else { return }
        guard project.datafile.flag(key: key) != nil else { return }
        recorder.note(LastUse.Subject(sdkKey: project.sdkKey, .evaluated, key, variation: variation ?? ""))
    }
}
