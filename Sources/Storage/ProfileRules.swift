import Bucketing

/// What a change makes of a profile: every rule that all stores share, and no I/O.
public struct ProfileRules: Sendable {
    /// Assignments that a profile may hold.
    public var assignmentLimit: Int
    /// How long an assignment lives after it was last saved; `nil` means for ever. Overrides never expire.
    public var assignmentTTL: Duration?

    public init(assignmentLimit: Int = 1_000, assignmentTTL: Duration? = nil) {
        self.assignmentLimit = assignmentLimit
        self.assignmentTTL = assignmentTTL
    }

    /// Applies one change if its condition holds.
    ///
    /// - Throws: ``StorageError/conditionFailed``, and what applying the operation throws.
    public func apply(
        _ change: ProfileChange, to stored: ProfileRecord?, at now: Timestamp
    ) throws(StorageError) -> ProfileOutcome {
        if let condition = change.condition, !condition(stored?.visible(at: now)) { throw .conditionFailed }
        return try apply(change.operation, to: stored, at: now)
    }

    /// Applies one operation.
    ///
    /// An assignment that is saved again with the same variation keeps its source and `assignedAt`. It is renewed
    /// (`updatedAt`, `expiresAt`) if assignments expire, and is left as it is otherwise, so that nothing is written.
    ///
    /// - Parameter stored: what the store holds for the user, whether expired or not.
    /// - Throws: ``StorageError/tooManyAssignments(limit:)`` when the change makes a profile greater than the limit.
    public func apply(
        _ operation: ProfileChange.Operation, to stored: ProfileRecord?, at now: Timestamp
    ) throws(StorageError) -> ProfileOutcome {
        let before = stored?.visible(at: now)
        if case .erase = operation {
            let result = ProfileChangeResult(existed: before != nil, changed: before != nil, profile: nil)
            return ProfileOutcome(result: result, effect: stored == nil ? .none : .delete)
        }
        let mostEntries = max(assignmentLimit, before?.count ?? 0)
        guard operation.leastAssignments <= mostEntries else { throw .tooManyAssignments(limit: assignmentLimit) }
        var draft = ProfileDraft(before, at: now, room: operation.mostNewAssignments)
        edit(&draft, operation, at: now)
        guard before != nil || !draft.isEmpty || operation.makesEmptyProfile else {
            return ProfileOutcome(result: ProfileChangeResult(existed: false, changed: false, profile: nil), effect: .none)
        }
        let after = draft.record
        guard after.count <= mostEntries else {
            throw .tooManyAssignments(limit: assignmentLimit)
        }
        let changed = after != before
        return ProfileOutcome(
            result: ProfileChangeResult(existed: before != nil, changed: changed, profile: after),
            effect: changed ? .put(after) : .none
        )
    }

    private func edit(_ draft: inout ProfileDraft, _ operation: ProfileChange.Operation, at now: Timestamp) {
        switch operation {
        case .replace(let map):
            draft.removeAll { experimentID, assignment in
                assignment.source != .override && !map.contains(experimentID)
            }
            save(map, onConflict: .replace, in: &draft, at: now)
        case .merge(let map, let rule):
            save(map, onConflict: rule, in: &draft, at: now)
        case .assign(let proposals, _):
            for proposal in proposals {
                assign(proposal, in: &draft, at: now)
            }
        case .override(let experimentID, let variationID):
            override(experimentID, with: variationID, in: &draft, at: now)
        case .remove(let experimentID):
            draft.update(experimentID) { $0 = nil }
        case .erase:
            draft.removeAll { _, _ in true }
        }
    }

    private func save(
        _ map: ExperimentBucketMap, onConflict rule: ProfileChange.ConflictRule, in draft: inout ProfileDraft,
        at now: Timestamp
    ) {
        // They are in order, so that those of a new profile are appended rather than inserted.
        for entry in map.entries {
            let variationID = entry.variationID
            draft.update(entry.experimentID) { assignment in
                guard let stored = assignment else {
                    assignment = new(variationID, .saved, at: now)
                    return
                }
                if stored.source == .override { return }
                if stored.variationID != variationID {
                    if rule == .replace { assignment = new(variationID, .saved, at: now) }
                } else if stored.expiresAt != nil || assignmentTTL != nil {
                    assignment?.updatedAt = now
                    assignment?.expiresAt = expiry(from: now)
                }
            }
        }
    }

    private func assign(_ proposal: ProfileChange.Proposal, in draft: inout ProfileDraft, at now: Timestamp) {
        draft.update(proposal.experimentID) { assignment in
            if let stored = assignment {
                guard stored.source != .override, stored.variationID == proposal.replacing,
                    stored.variationID != proposal.variationID
                else { return }
            }
            assignment = new(proposal.variationID, .bucketed, at: now)
        }
    }

    private func override(
        _ experimentID: Identifier, with variationID: Identifier, in draft: inout ProfileDraft, at now: Timestamp
    ) {
        draft.update(experimentID) { assignment in
            let stored = assignment
            let stays = stored?.variationID == variationID
            if stays, stored?.source == .override { return }
            assignment = Assignment(
                variationID: variationID, source: .override, assignedAt: stays ? stored?.assignedAt ?? now : now,
                updatedAt: now, expiresAt: nil
            )
        }
    }

    private func new(_ variationID: Identifier, _ source: Assignment.Source, at now: Timestamp) -> Assignment {
        Assignment(
            variationID: variationID, source: source, assignedAt: now, updatedAt: now, expiresAt: expiry(from: now)
        )
    }

    private func expiry(from now: Timestamp) -> Timestamp? {
        guard let assignmentTTL else { return nil }
        let (sum, overflow) = now.addingReportingOverflow(assignmentTTL.wholeMilliseconds)
        return overflow ? .max : sum
    }
}

extension ProfileChange.Operation {
    /// Assignments that the profile has afterwards in any case, so that too many are refused before they are sorted in.
    fileprivate var leastAssignments: Int {
        switch self {
        case .replace(let map), .merge(let map, _): map.entries.count
        case .assign, .override, .remove, .erase: 0
        }
    }

    fileprivate var mostNewAssignments: Int {
        switch self {
        case .replace(let map), .merge(let map, _): map.entries.count
        case .assign(let proposals, _): proposals.count
        case .override: 1
        case .remove, .erase: 0
        }
    }

    /// Whether the operation leaves a profile behind even if that holds nothing.
    fileprivate var makesEmptyProfile: Bool {
        switch self {
        case .replace, .merge: true
        case .assign, .override, .remove, .erase: false
        }
    }
}
