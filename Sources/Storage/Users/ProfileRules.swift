public import Bucketing
public import Chronology

/// The rules of profile changes that all stores share: what becomes of a profile when an app server saves variations,
/// when this server decides, and when an admin sets an override or erases the user. Pure: no I/O, no clock.
///
/// A store calls ``apply(_:to:anonymous:by:at:)-(ProfileChange,_,_,_,_)`` in its transaction, and performs the write of
/// the outcome.
public struct ProfileRules: Sendable {
    /// The maximum number of assignments in a profile.
    public var assignmentLimit: Int
    /// The lifetime of an assignment since it was last saved, unless the experiment defines another one; `nil` means
    /// forever. An override expires only if its admin has set a time.
    public var assignmentTTL: TimeSpan?
    /// The lifetimes that experiments define instead, by experiment; `nil` means forever.
    public let lifetimes = DefinedValue<[Identifier: TimeSpan?]>([:])
    /// The archived experiments, whose assignments do not count against the limit: users keep them, so that results
    /// stay readable and an experiment may be unarchived.
    public let archived = DefinedValue<Set<Identifier>>([])

    public init(assignmentLimit: Int = 1_000, assignmentTTL: TimeSpan? = nil) {
        self.assignmentLimit = assignmentLimit
        self.assignmentTTL = assignmentTTL
    }

    /// Applies one change if its condition holds.
    ///
    /// - Parameters:
    ///   - anonymous: the anonymous profile of ``ProfileChange/Operation/assign(_:decidedWith:anonymousID:)``; `nil` if
    ///     there is none.
    ///   - author: the author of an override.
    /// - Throws: ``StorageError/conditionFailed``, ``StorageError/tooManyAssignments(limit:)``
    public func apply(
        _ change: ProfileChange, to stored: ProfileRecord?, anonymous: ProfileRecord? = nil,
        by author: String? = nil, at now: Instant
    ) throws(StorageError) -> ProfileOutcome {
        if let condition = change.condition, !condition(stored?.visible(at: now)) { throw .conditionFailed }
        return try apply(change.operation, to: stored, anonymous: anonymous, by: author, at: now)
    }

    /// Applies one operation.
    ///
    /// An assignment that is saved again with the same variation keeps its source and `assignedAt`. If assignments
    /// expire, it is renewed (`updatedAt`, `expiresAt`); otherwise it stays as it is and nothing is written.
    ///
    /// Under an override, saves change the underlying assignment as if there were no override. The exception is a save
    /// of the override's own variation: it does not change the underlying assignment, because clients send back the
    /// variation that they were given. Decisions change nothing while there is an override.
    ///
    /// - Parameter stored: the stored record, including expired entries.
    /// - Throws: ``StorageError/tooManyAssignments(limit:)`` if the change makes the profile exceed the limit.
    public func apply(
        _ operation: ProfileChange.Operation, to stored: ProfileRecord?, anonymous: ProfileRecord? = nil,
        by author: String? = nil, at now: Instant
    ) throws(StorageError) -> ProfileOutcome {
        let before = stored?.visible(at: now)
        if operation.isErasure {
            let result = ProfileChangeResult(existed: before != nil, changed: before != nil, profile: nil)
            return ProfileOutcome(result: result, effect: stored == nil ? .none : .delete)
        }
        try expectRoom(for: operation.minimumAssignments, in: before)
        var draft = ProfileDraft(before, at: now, room: operation.maximumNewAssignments)
        var refused: [Identifier] = []
        if case .assign(let candidates, _, _) = operation {
            refused = assign(candidates, in: &draft, replacing: before, anonymous: anonymous?.visible(at: now), at: now)
        } else {
            edit(&draft, operation, by: author, at: now)
        }
        guard before != nil || !draft.isEmpty || operation.makesEmptyProfile else {
            return ProfileOutcome(
                result: ProfileChangeResult(existed: false, changed: false, profile: nil, refused: refused),
                effect: .none)
        }
        let after = draft.record
        try expectRoom(for: after, replacing: before)
        let changed = after != before
        return ProfileOutcome(
            result: ProfileChangeResult(existed: before != nil, changed: changed, profile: after, refused: refused),
            effect: changed ? .put(after) : .none
        )
    }

    /// Performs an operation other than an assignment of decisions.
    private func edit(
        _ draft: inout ProfileDraft, _ operation: ProfileChange.Operation, by author: String?, at now: Instant
    ) {
        switch operation {
        case .replace(let map):
            draft.removeBeneath { !map.contains($0) }
            save(map, onConflict: .replace, in: &draft, at: now)
        case .save(let map, let rule):
            save(map, onConflict: rule, in: &draft, at: now)
        case .restore(let assignments, let map, let rule):
            for (experimentID, assignment) in assignments.sorted(by: { $0.key < $1.key }) {
                restore(assignment, in: experimentID, onConflict: rule, in: &draft, at: now)
            }
            save(map, onConflict: rule, in: &draft, at: now)
        case .assign: break
        case .override(let experimentID, let variationID, let reason, let expiresAt):
            draft.update(experimentID) { assignment in
                let new = Assignment(
                    variationID: variationID, source: .override,
                    assignedAt: assignment?.variationID == variationID ? assignment?.assignedAt ?? now : now,
                    updatedAt: now, expiresAt: expiresAt,
                    layer: OverrideLayer(author: author, reason: reason, beneath: assignment?.withoutOverride))
                if !Self.isRepeated(new, of: assignment) { assignment = new }
            }
        case .remove(let experimentID):
            draft.update(experimentID) { $0 = $0?.layer?.beneath }
        case .erase, .eraseKeepingTotals:
            draft = ProfileDraft(nil, at: now)
        }
    }

    /// Saves the variations of a map, each as the conflict rule says.
    private func save(
        _ map: ExperimentBucketMap, onConflict rule: ProfileChange.ConflictRule, in draft: inout ProfileDraft,
        at now: Instant
    ) {
        // The entries are in order, so that those of a new profile are appended instead of inserted.
        for entry in map.entries {
            let experimentID = entry.experimentID
            let variationID = entry.variationID
            draft.updateBeneath(experimentID) { assignment, override in
                let isOfOverride = override?.variationID == variationID
                guard let stored = assignment else {
                    if !isOfOverride { assignment = new(variationID, in: experimentID, .saved, at: now) }
                    return
                }
                if stored.variationID != variationID, !isOfOverride {
                    if rule == .replace { assignment = new(variationID, in: experimentID, .saved, at: now) }
                } else {
                    // The variation stays, and the assignment is renewed if assignments expire.
                    let expiry = expiry(in: experimentID, from: now)
                    guard stored.expiresAt != nil || expiry != nil else { return }
                    assignment?.updatedAt = now
                    assignment?.expiresAt = expiry
                }
            }
        }
    }

    /// Stores a decision, unless the user has got another variation since the decision was made.
    func assign(
        _ candidate: ProfileChange.Candidate, in draft: inout ProfileDraft, anonymous: ProfileRecord?,
        at now: Instant
    ) {
        draft.update(candidate.experimentID) { assignment in
            if let stored = assignment {
                guard stored.source != .override, stored.variationID == candidate.replacing,
                    stored.variationID != candidate.variationID
                else { return }
            } else if let other = anonymous?[candidate.experimentID].flatMap(TakeoverRules.assignment),
                other.variationID != candidate.replacing
            {
                // The anonymous profile got this variation after the decision was made, and the datafile may not have
                // it. Unless it is the decided one, nothing is stored, and the caller decides again.
                if other.variationID == candidate.variationID {
                    assignment = takenOver(other, in: candidate.experimentID, at: now)
                }
                return
            }
            guard !candidate.isFromAnonymousProfile else { return }
            assignment = new(candidate.variationID, in: candidate.experimentID, .bucketed, at: now)
        }
    }

    /// Returns an assignment of another user as the profile that takes it over stores it. Taking over counts as a save.
    func takenOver(_ other: Assignment, in experimentID: Identifier, at now: Instant) -> Assignment {
        Assignment(
            variationID: other.variationID, source: .merged, assignedAt: other.assignedAt, updatedAt: now,
            expiresAt: expiry(in: experimentID, from: now))
    }

    /// Whether an override equals the stored one, apart from the author.
    private static func isRepeated(_ override: Assignment, of stored: Assignment?) -> Bool {
        stored?.source == .override && stored?.variationID == override.variationID
            && stored?.expiresAt == override.expiresAt && stored?.layer?.reason == override.layer?.reason
    }

    /// Applies the conflict rule to the override and to the underlying assignment independently.
    private func restore(
        _ restored: Assignment, in experimentID: Identifier, onConflict rule: ProfileChange.ConflictRule,
        in draft: inout ProfileDraft, at now: Instant
    ) {
        guard let restored = restored.visible(at: now) else { return }
        func chosen(_ stored: Assignment?, _ restored: Assignment?) -> Assignment? {
            rule == .replace ? restored ?? stored : stored ?? restored
        }
        func override(_ assignment: Assignment?) -> Assignment? {
            assignment?.source == .override ? assignment : nil
        }
        draft.update(experimentID) { assignment in
            let beneath = chosen(assignment?.withoutOverride, restored.withoutOverride)
            assignment = chosen(override(assignment), override(restored))?.covering(beneath) ?? beneath
        }
    }

    /// Returns an assignment that begins now.
    private func new(
        _ variationID: Identifier, in experimentID: Identifier, _ source: Assignment.Source, at now: Instant
    ) -> Assignment {
        Assignment(
            variationID: variationID, source: source, assignedAt: now, updatedAt: now,
            expiresAt: expiry(in: experimentID, from: now))
    }

    /// Returns when an assignment expires that is saved now; `nil` for never.
    func expiry(in experimentID: Identifier, from now: Instant) -> Instant? {
        let lifetime: TimeSpan? = lifetimes.current[experimentID] ?? assignmentTTL
        return lifetime.map { now + $0 }
    }
}

extension ProfileChange.Operation {
    /// A lower bound of the number of assignments after the operation, so that too many are refused before they are
    /// inserted.
    fileprivate var minimumAssignments: Int {
        switch self {
        case .replace(let map), .save(let map, _), .restore(_, let map, _): map.entries.count
        case .assign, .override, .remove, .erase, .eraseKeepingTotals: 0
        }
    }

    /// An upper bound of the number of assignments that the operation adds, for which memory is reserved.
    fileprivate var maximumNewAssignments: Int {
        switch self {
        case .replace(let map), .save(let map, _): map.entries.count
        case .restore(let assignments, let map, _): assignments.count + map.entries.count
        case .assign(let candidates, _, _): candidates.count
        case .override: 1
        case .remove, .erase, .eraseKeepingTotals: 0
        }
    }

    /// Whether the operation creates a profile even if it is empty.
    fileprivate var makesEmptyProfile: Bool {
        switch self {
        case .replace, .save: true
        case .restore, .assign, .override, .remove, .erase, .eraseKeepingTotals: false
        }
    }
}
