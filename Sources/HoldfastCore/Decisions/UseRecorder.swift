import Bucketing
import Chronology
internal import Dispatch
public import Storage
internal import Synchronization

/// Records for each variation the last day on which its flag was evaluated, or its experiment had an exposure. These
/// days show which flags are no longer used.
///
/// Each process writes each use once a day, in the background. After a failure, it tries again a minute later.
public final class UseRecorder: Sendable {
    private struct State {
        /// The subjects that were used today. A subject is a variation of a flag or of an experiment, or a flag that
        /// this server knows.
        var noted: Set<LastUse.Subject> = []
        /// The subjects that were used today and are not written yet.
        var waiting: Set<LastUse.Subject> = []
        /// The catalog version of each project whose flags were last recorded, by SDK key.
        var recordedVersions: [String: Int64] = [:]
    }

    private let store: any Store
    private let state = Mutex(State())
    private let timer = RepeatedTask(every: .seconds(60))
    /// The UTC day, counted from 1970-01-01. It is updated every minute, so it may be late by a minute.
    private let today: Atomic<Int64>

    /// The maximum number of subjects that are recorded on a day. It bounds the memory.
    private static let limit = 100_000

    public init(_ store: any Store) {
        self.store = store
        today = Atomic(store.clock.now().day)
    }

    /// Starts to write every minute, until ``close()``.
    public func start(_ catalog: ProjectCatalog) {
        timer.start { [weak self, weak catalog] in
            guard let self, let catalog else { return }
            beginDay()
            try? await noteFlags(of: catalog)
            try? await write(catalog)
        }
    }

    /// Writes the waiting subjects, and ends the recording. Blocks until done.
    public func close() {
        timer.close()
        guard let uses = takeWaiting(), let session = try? BackgroundSession(store, label: "uses") else { return }
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

    /// Begins a new day if the UTC day has changed. All subjects are then recorded again.
    private func beginDay() {
        let day = store.clock.now().day
        guard today.exchange(day, ordering: .relaxed) != day else { return }
        // Subjects that still wait are written with the new day.
        state.withLock { $0.noted = $0.waiting }
    }

    /// Records the day on which this server first saw each flag. A flag without an evaluation since that day is unused;
    /// its use before that day is unknown.
    private func noteFlags(of catalog: ProjectCatalog) async throws {
        for project in catalog.snapshot().projects.values {
            let sdkKey = project.sdkKey
            let version = project.catalogVersion
            guard state.withLock({ $0.recordedVersions[sdkKey] }) != version else { continue }
            let stored = try await catalog.inBackground { try await $0.read(.lastUses(sdkKey: sdkKey)) }
            let recordedKeys = Set(stored.filter { $0.subject.kind == .known }.map(\.subject.key))
            for flag in project.datafile.flags where !recordedKeys.contains(flag.key) {
                note(LastUse.Subject(sdkKey: sdkKey, .known, flag.key, variation: ""))
            }
            state.withLock { $0.recordedVersions[sdkKey] = version }
        }
    }

    // MARK: Writing

    /// Removes and returns the uses that are not written yet; `nil` if there are none.
    private func takeWaiting() -> [LastUse]? {
        let day = currentDay
        let subjects = state.withLock { state in
            let waiting = state.waiting
            state.waiting = []
            return waiting
        }
        // Sorted, so that two servers of a database lock rows in the same order.
        return subjects.isEmpty ? nil : subjects.sorted(by: <).map { LastUse($0, day: day) }
    }

    /// Writes the waiting uses. If this fails, they wait for the next attempt.
    private func write(_ catalog: ProjectCatalog) async throws {
        guard let uses = takeWaiting() else { return }
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

/// The evaluations that one event loop has recorded today. A repeated evaluation costs only a lookup in a set.
///
/// Only hashes are kept. If the hashes of two variations collide, only one of the variations is recorded.
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
