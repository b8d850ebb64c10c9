public import Bucketing
public import Chronology

/// The rules of profile changes that all stores share: how a profile changes when an app server saves variations, when
/// this server decides, and when an admin sets an override or erases the user. Pure: no I/O, no clock.
///
/// A store calls ``apply(_:to:anonymous:by:at:)-(ProfileChange,_,_,_,_)`` in its transaction, and performs the write of
/// the outcome.
public struct ProfileRules: Sendable {
    /// The maximum number of assignments in a profile.
    public var assignmentLimit: Int
    /// The lifetime of an assignment since it was last saved, unless the experiment defines another lifetime; `nil` if
    /// assignments do not expire. Overrides are not affected: an override expires only if its admin has set a time.
    public var assignmentTTL: TimeSpan?
    /// The lifetimes of the experiments that define their own. A lifetime of `nil` means that assignments in the
    /// experiment do not expire.
    public let lifetimes = DefinedValue<[Identifier: TimeSpan?]>([:])
    /// The archived experiments. Users keep their assignments in these experiments, so that results stay readable and
    /// an experiment may be unarchived. The assignments do not count against the limit.
    public let archived = DefinedValue<Set<Identifier>>([])

    public init(assignmentLimit: Int = 1_000, assignmentTTL: TimeSpan? = nil) {
        self.assignmentLimit = assignmentLimit
        self.assignmentTTL = assignmentTTL
    }

    /// Applies one change if its condition holds.
    ///
    /// - Parameters:
    ///   - stored: the stored record, including expired entries; `nil` if there is none.
    ///   - anonymous: the anonymous profile of ``ProfileChange/Operation/assign(_:decidedWith:anonymousID:)``; `nil` if
    ///     there is none.
    ///   - author: the name of the admin who sets an override.
    /// - Throws: ``StorageError/conditionFailed`` if the condition does not hold,
    ///   ``StorageError/tooManyAssignments(limit:)`` if the change makes the profile exceed the limit.
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
    /// expire, the save renews `updatedAt` and `expiresAt`. If they do not expire, nothing changes and nothing is
    /// written.
    ///
    /// Under an override, saves change the underlying assignment as if there were no override. The exception is a save
    /// of the override's own variation, which does not change the underlying assignment: clients send back the
    /// variation that they were given. Decisions change nothing while there is an override.
    ///
    /// - Parameter stored: the stored record, including expired entries; `nil` if there is none.
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

    /// Saves the variations of a map. The conflict rule decides for each experiment with another stored variation.
    private func save(
        _ map: ExperimentBucketMap, onConflict rule: ProfileChange.ConflictRule, in draft: inout ProfileDraft,
        at now: Instant
    ) {
        for entry in map.entries {
            let experimentID = entry.experimentID
            let variationID = entry.variationID
            draft.updateBeneath(experimentID) { assignment, override in
                // The client sends back the override's variation, which must not become the underlying assignment.
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
                // The anonymous profile has an assignment that the decision may not have known. If it has another
                // variation, nothing is stored, and the caller decides again: the datafile may lack that variation.
                if other.variationID == candidate.variationID {
                    assignment = takenOver(other, in: candidate.experimentID, at: now)
                }
                return
            }
            guard !candidate.isFromAnonymousProfile else { return }
            assignment = new(candidate.variationID, in: candidate.experimentID, .bucketed, at: now)
        }
    }

    /// Returns the assignment that a profile gets when it takes over an assignment of another user. Taking over counts
    /// as a save.
    func takenOver(_ other: Assignment, in experimentID: Identifier, at now: Instant) -> Assignment {
        Assignment(
            variationID: other.variationID, source: .merged, assignedAt: other.assignedAt, updatedAt: now,
            expiresAt: expiry(in: experimentID, from: now))
    }

    /// Whether an override equals the stored override, apart from the author. Setting it again changes nothing.
    private static func isRepeated(_ override: Assignment, of stored: Assignment?) -> Bool {
        stored?.source == .override && stored?.variationID == override.variationID
            && stored?.expiresAt == override.expiresAt && stored?.layer?.reason == override.layer?.reason
    }

    /// Restores an assignment from another database, unless it has expired. The conflict rule is applied to the
    /// override and to the underlying assignment independently.
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

    /// Returns a new assignment, which the user has from now on.
    private func new(
        _ variationID: Identifier, in experimentID: Identifier, _ source: Assignment.Source, at now: Instant
    ) -> Assignment {
        Assignment(
            variationID: variationID, source: source, assignedAt: now, updatedAt: now,
            expiresAt: expiry(in: experimentID, from: now))
    }

    /// Returns when an assignment that is saved now expires; `nil` if it does not expire.
    func expiry(in experimentID: Identifier, from now: Instant) -> Instant? {
        let lifetime: TimeSpan? = lifetimes.current[experimentID] ?? assignmentTTL
        return lifetime.map { now + $0 }
    }
}

extension ProfileChange.Operation {
    /// A lower bound of the number of assignments after the operation, for a check before any are inserted.
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

    /// Whether the operation creates a profile for an unknown user even if the profile has no assignments.
    fileprivate var makesEmptyProfile: Bool {
        switch self {
        case .replace, .save: true
        case .restore, .assign, .override, .remove, .erase, .eraseKeepingTotals: false
        }
    }
}
