package import Bucketing
import Chronology
internal import Synchronization

/// A value that the rules take from the active definitions, such as the archived experiments. The server sets it
/// whenever definitions are activated; all copies of the rules share it.
public final class DefinedValue<Value: Sendable>: Sendable {
    private let value: Mutex<Value>

    init(_ value: Value) {
        self.value = Mutex(value)
    }

    public func set(_ new: Value) {
        value.withLock { $0 = new }
    }

    var current: Value { value.withLock { $0 } }
}

// The limit of assignments per profile. Assignments of archived experiments do not count against it; see
// ``ProfileRules/archived``. They are subtracted only if a profile exceeds
// the limit with them.

extension ProfileRules {
    /// Refuses a change early if it would certainly exceed the limit.
    ///
    /// - Parameter count: a lower bound of the number of assignments after the change.
    /// - Throws: ``StorageError/tooManyAssignments(limit:)``
    func expectRoom(for count: Int, in before: ProfileRecord?) throws(StorageError) {
        let most = max(assignmentLimit, before?.count ?? 0)
        guard count <= most || count - archived.current.count <= most else {
            throw .tooManyAssignments(limit: assignmentLimit)
        }
    }

    /// Refuses a change that makes a profile exceed the limit. A profile that exceeds it already, because the limit was
    /// lowered or experiments were unarchived, must not grow.
    ///
    /// - Throws: ``StorageError/tooManyAssignments(limit:)``
    func expectRoom(for after: ProfileRecord, replacing before: ProfileRecord?) throws(StorageError) {
        guard after.count > assignmentLimit else { return }
        let archived = archived.current
        guard counted(after, archived) <= max(assignmentLimit, counted(before, archived)) else {
            throw .tooManyAssignments(limit: assignmentLimit)
        }
    }

    /// The number of assignments that count against the limit.
    private func counted(_ record: ProfileRecord?, _ archived: Set<Identifier>) -> Int {
        guard let record else { return 0 }
        guard !archived.isEmpty else { return record.count }
        return record.entries.count { !archived.contains(record.experimentID(of: $0)) }
    }

    /// Stores the candidates for which the profile has room, in order.
    ///
    /// - Returns: the experiments of the candidates for which there is no room.
    func assign(
        _ candidates: [ProfileChange.Candidate], in draft: inout ProfileDraft, replacing before: ProfileRecord?,
        anonymous: ProfileRecord?, at now: Instant
    ) -> [Identifier] {
        var refused: [Identifier] = []
        var room = Int.max
        if draft.count + candidates.count > assignmentLimit {
            room = max(0, assignmentLimit - counted(before, archived.current))
        }
        for candidate in candidates {
            if room == 0, before?.entry(for: candidate.experimentID) == nil {
                refused.append(candidate.experimentID)
                continue
            }
            let count = draft.count
            assign(candidate, in: &draft, anonymous: anonymous, at: now)
            if draft.count > count, room != .max { room -= 1 }
        }
        return refused
    }

    /// Returns the experiments of candidates that a profile has no room for.
    package func refused(_ candidates: [ProfileChange.Candidate], in profile: ProfileRecord?) -> [Identifier] {
        guard (profile?.count ?? 0) + candidates.count > assignmentLimit else { return [] }
        var candidates = candidates
        // The result does not depend on whether the anonymous user still has the assignment, and not on the time. The
        // draft is discarded.
        for index in candidates.indices { candidates[index].isFromAnonymousProfile = false }
        var draft = ProfileDraft(profile, at: .distantPast, room: candidates.count)
        return assign(candidates, in: &draft, replacing: profile, anonymous: nil, at: .distantPast)
    }

    /// Returns the profile of a user with one more assignment, from an exposure that an app server has reported.
    ///
    /// - Parameter time: when the user got the variation.
    /// - Returns: `nil` if the user has an assignment already, or the profile has no room.
    func enrolled(
        _ variationID: Identifier, in experimentID: Identifier, since time: Instant, _ stored: ProfileRecord?,
        at now: Instant
    ) -> ProfileRecord? {
        let before = stored?.visible(at: now)
        guard before?.entry(for: experimentID) == nil else { return nil }
        var draft = ProfileDraft(before, at: now, room: 1)
        draft.update(experimentID) { assignment in
            assignment = Assignment(
                variationID: variationID, source: .saved, assignedAt: min(time, now), updatedAt: now,
                expiresAt: expiry(in: experimentID, from: now))
        }
        let after = draft.record
        do throws(StorageError) {
            try expectRoom(for: after, replacing: before)
            return after
        } catch {
            return nil
        }
    }
}
