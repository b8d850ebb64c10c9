package import Bucketing
import Chronology

/// A change that a line of the upstream's feed reports, for the copy of an edge. It has the new state, not the
/// operation, so applying a change twice has no effect.
package enum MirroredChange: Sendable {
    /// The assignment in an experiment; `nil` if it was removed.
    case assignment(experimentID: Identifier, Assignment?)
    /// The user has a profile, perhaps without assignments.
    case profile
    /// The attributes; `nil` if the user has none.
    case attributes(AttributeRecord?)
    /// Everything about the user was erased.
    case erasure
    /// The user was merged into another. The lines of the other user have the merged state.
    case merge(into: Identifier)
}

/// A user as a copy stores it.
package struct MirroredUser: Sendable {
    package var userID: Identifier
    package var profile: ProfileRecord?
    package var attributes: AttributeRecord?

    package init(userID: Identifier, profile: ProfileRecord?, attributes: AttributeRecord?) {
        self.userID = userID
        self.profile = profile
        self.attributes = attributes
    }
}

extension UserChange<Void> {
    /// Repeats changes that the upstream's database has made to a user.
    package static func mirror(_ changes: [MirroredChange], of userID: Identifier) -> Self {
        Self(of: userID) { records, _, _ throws(StorageError) in try MirrorRules.apply(changes, to: &records[0]) }
    }
}

/// The rules by which the copy of an edge follows the upstream's database. They only repeat what the upstream has
/// decided: an assignment replaces an override if the feed says so, and expired assignments are kept until the feed
/// removes them.
enum MirrorRules {
    /// Applies the changes of one user, in order.
    ///
    /// - Returns: `nil` if `records` lacks a part that is needed; nothing has changed then.
    static func apply(_ changes: [MirroredChange], to records: inout UserRecords) throws(StorageError) -> Void? {
        let ends = changes.contains { $0.endsUser }
        guard records.has(ends ? UserRecords.everything : [.profile]) else { return nil }
        // If an erasure or a merge ends the user, the stored profile does not matter, so it may be damaged.
        let stored: ProfileRecord? =
            if ends, case .damaged = records.profile { .empty } else { try records.profile.get() }
        // Expired assignments are kept, because the clock of the upstream's database decides when they end.
        var draft = stored.map { ProfileDraft($0, at: .distantPast) }
        var attributes: AttributeRecord??
        for change in changes {
            switch change {
            case .assignment(let experimentID, let assignment):
                if assignment == nil, draft == nil { continue }
                var changed = draft ?? ProfileDraft(nil, at: .distantPast)
                changed.update(experimentID) { $0 = assignment }
                draft = changed
            case .profile: draft = draft ?? ProfileDraft(nil, at: .distantPast)
            case .attributes(let record): attributes = .some(record)
            case .erasure, .merge:
                draft = nil
                attributes = .some(nil)
            }
        }
        if ends { records.write(.eraseOtherRecords) }
        if !records.stickyDocuments.isEmpty { records.write(.eraseStickyDocuments) }
        if let record = draft?.record {
            if record != stored { records.write(.putProfile(record, replacing: stored)) }
        } else if stored != nil {
            records.write(.deleteProfile(replacing: stored))
        }
        if let attributes { records.write(.putAttributes(attributes ?? .empty, changed: [])) }
        for change in changes {
            switch change {
            case .erasure: records.write(.noteRemoval(into: nil))
            case .merge(let account): records.write(.noteRemoval(into: account))
            case .assignment, .profile, .attributes: break
            }
        }
        return ()
    }
}

extension MirroredChange {
    /// Whether no records of the user are left after the change.
    fileprivate var endsUser: Bool {
        switch self {
        case .erasure, .merge: true
        case .assignment, .profile, .attributes: false
        }
    }
}

/// A change of shared records that an edge accepts. It only notes something, and decides nothing.
package enum SharedNote: Sendable {
    /// The last uses of flags, which the edge passes on to the upstream.
    case uses([LastUse])
    /// Entries of the audit log about this process, which the edge stores itself.
    case ownAudit
}

extension SharedChange {
    /// What the change notes; `nil` for a change that an edge does not accept. A change that needs no records is tried
    /// on empty records, to learn which writes it requests.
    package var note: SharedNote? {
        guard parts.isEmpty else { return nil }
        var records = SharedRecords()
        guard (try? rule(&records, RuleContext(ProfileRules(), at: .epoch))) != nil else { return nil }
        var uses: [LastUse] = []
        var isOnlyAudit = !records.writes.isEmpty
        for write in records.writes {
            if case .putLastUses(let noted) = write { uses += noted }
            if case .recordAudit = write { continue }
            isOnlyAudit = false
        }
        if isOnlyAudit { return .ownAudit }
        return uses.isEmpty ? nil : .uses(uses)
    }
}
