import Bucketing
import Chronology
import Definitions
import JSON
import Storage
internal import Synchronization

/// Decides when the look of a bandit is due, and stores the looks that change no weights. A look is one evaluation of a
/// bandit's users.
///
/// A look that changes no weights is not part of the definitions (see ``BanditLooks``), so the definitions do not show
/// when the next look is due. The recorder combines the definitions with the stored look. It keeps the look that it
/// last read or stored, so that it reads the store only if a look may be due.
final class BanditLookRecorder: Sendable {
    private let catalog: ProjectCatalog
    /// The last looks that changed no weights, as far as this process knows. Another process may have stored later
    /// ones.
    private let lastLooks = Mutex<[ExperimentReference: StoredLook]>([:])

    init(_ catalog: ProjectCatalog) {
        self.catalog = catalog
    }

    /// Returns whether a look of an experiment's bandit is due; `false` without a bandit.
    func isLookDue(
        of experiment: ExperimentDefinition, _ reference: ExperimentReference, at now: Instant
    ) async throws -> Bool {
        guard let bandit = experiment.details.bandit else { return false }
        guard bandit.with(lastLooks.withLock { $0[reference] }).isDue(at: now) else { return false }
        // Another process may have looked meanwhile.
        let stored = try await catalog.inBackground { try await $0.read(.looks(sdkKey: reference.sdkKey)) }
        let look = stored.first { $0.experimentID == experiment.id }
        lastLooks.withLock { $0[reference] = look }
        return bandit.with(look).isDue(at: now)
    }

    /// Stores a look that changes no weights, with an audit entry. If another process has stored a look since this
    /// process last read one, nothing is stored.
    func store(
        _ look: Bandit.Look, of experiment: ExperimentDefinition, _ reference: ExperimentReference, at now: Instant
    ) async throws {
        let former = lastLooks.withLock { $0[reference] }
        var before = experiment
        before.details.bandit = experiment.details.bandit?.with(former)
        var after = experiment
        after.details.bandit?.note(look, at: now)
        guard let content = after.details.bandit?.state.stored else { return }
        let stored = StoredLook(
            sdkKey: reference.sdkKey, experimentID: experiment.id, lookedAt: now, content: .object(content))
        let note = AuditNote(
            .experimentBandit, of: reference.key.string, before: before.timesForAudit, after: after.timesForAudit)
        let isStored = try await catalog.inBackground {
            try await $0.write(.putLook(stored, after: former?.lookedAt, note, by: ExperimentScheduler.author))
        }
        if isStored { lastLooks.withLock { $0[reference] = stored } }
    }
}
