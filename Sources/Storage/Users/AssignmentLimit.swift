package import Bucketing
import Chronology
internal import Synchronization

/// A value that the rules take from the active definitions, such as the archived experiments. The server sets the value
/// whenever definitions are activated. All copies of the rules share the value.
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

// The limit of assignments per profile. Assignments of archived experiments do not count against the limit; see
// ``ProfileRules/archived``. To find these assignments takes a pass over the profile. The pass is skipped if all
// assignments of the profile together do not exceed the limit.

extension ProfileRules {
    /// Refuses a change early if it would certainly exceed the limit.
    ///
    /// - Parameter count: a lower bound of the number of assignments after the change.
    /// - Throws: ``StorageError/tooManyAssignments(limit:)``
    func expectRoom(for count: Int, in before: ProfileRecord?) throws(StorageError) {
        let most = max(assignmentLimit, before?.count ?? 0)
        // In the best case all archived experiments are among these assignments.
        guard count <= most || count - archived.current.count <= most else {
            throw .tooManyAssignments(limit: assignmentLimit)
        }
    }

    /// Refuses a change that makes a profile exceed the limit. A profile that exceeds the limit already, because the
    /// limit was lowered or experiments were unarchived, may stay as large as it is.
    ///
    /// - Throws: ``StorageError/tooManyAssignments(limit:)``
    func expectRoom(for after: ProfileRecord, replacing before: ProfileRecord?) throws(StorageError) {
        guard hasRoom(for: after, replacing: before) else { throw .tooManyAssignments(limit: assignmentLimit) }
    }

    private func hasRoom(for after: ProfileRecord, replacing before: ProfileRecord?) -> Bool {
        guard after.count > assignmentLimit else { return true }
        let archived = archived.current
        return counted(after, archived) <= max(assignmentLimit, counted(before, archived))
    }

    /// Returns the number of assignments that count against the limit.
    private func counted(_ record: ProfileRecord?, _ archived: Set<Identifier>) -> Int {
        guard let record else { return 0 }
        guard !archived.isEmpty else { return record.count }
        return record.entries.count { !archived.contains(record.experimentID(of: $0)) }
    }

    /// Stores candidates in order, as long as the profile has room.
    ///
    /// - Parameters:
    ///   - before: the profile before the change, without expired assignments.
    ///   - anonymous: the anonymous profile of the user; `nil` if there is none.
    /// - Returns: the experiments of the candidates for which the profile has no room.
    func assign(
        _ candidates: [ProfileChange.Candidate], in draft: inout ProfileDraft, replacing before: ProfileRecord?,
        anonymous: ProfileRecord?, at now: Instant
    ) -> [Identifier] {
        var refused: [Identifier] = []
        // Counting takes a pass over the profile, which is not needed if all candidates fit in any case.
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

    /// Returns the experiments of the candidates for which a profile has no room, without storing anything.
    package func refused(_ candidates: [ProfileChange.Candidate], in profile: ProfileRecord?) -> [Identifier] {
        guard (profile?.count ?? 0) + candidates.count > assignmentLimit else { return [] }
        var candidates = candidates
        // Neither the anonymous profile nor the time matters for the room, so both are left out here. The draft is
        // discarded.
        for index in candidates.indices { candidates[index].isFromAnonymousProfile = false }
        var draft = ProfileDraft(profile, at: .distantPast, room: candidates.count)
        return assign(candidates, in: &draft, replacing: profile, anonymous: nil, at: .distantPast)
    }

    /// Returns the profile of a user with one more assignment, from an exposure that an app server has reported.
    ///
    /// - Parameters:
    ///   - time: when the user got the variation.
    ///   - stored: the stored profile; `nil` if there is none.
    /// - Returns: `nil` if the user has an assignment in the experiment already, or if the profile has no room.
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
        return hasRoom(for: after, replacing: before) ? after : nil
    }
}
