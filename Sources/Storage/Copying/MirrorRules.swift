package import Bucketing
import Chronology

/// A line of an upstream's feed about one user, for the copy of an edge. It has the new state, not the operation, so
/// applying a line twice changes nothing.
package enum MirroredChange: Sendable {
    /// The assignment in an experiment; `nil` if there is none any more.
    case assignment(experimentID: Identifier, Assignment?)
    /// The user has a profile.
    case profile
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
    /// Repeats the changes that another database made to a user.
    package static func mirror(_ changes: [MirroredChange], of userID: Identifier) -> Self {
        Self(of: userID) { records, _, _ throws(StorageError) in try MirrorRules.apply(changes, to: &records[0]) }
    }
}

/// The rules by which a copy follows the database that decides. They decide nothing: an override does not win over a
/// save, and expired assignments are kept until the other database removes them.
enum MirrorRules {
    /// - Returns: `nil` if `records` lacks a part that is needed; nothing has changed then.
    static func apply(_ changes: [MirroredChange], to records: inout UserRecords) throws(StorageError) -> Void? {
        let ends = changes.contains { $0.endsUser }
        guard records.has(ends ? UserRecords.everything : [.profile]) else { return nil }
        // A damaged profile is replaced by the state in the changes; an erasure does not need it.
        let stored: ProfileRecord? =
            if ends, case .damaged = records.profile { .empty } else { try records.profile.get() }
        // Includes assignments that have expired by this host's clock: the clock of the other database decides.
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
            case .erasure, .merge: (draft, attributes) = (nil, .some(nil))
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
    fileprivate var endsUser: Bool {
        switch self {
        case .erasure, .merge: true
        case .assignment, .profile, .attributes: false
        }
    }
}

/// A change of shared records that an edge does not make itself.
package enum SharedNote: Sendable {
    /// The last uses of flags, which the upstream stores.
    case uses([LastUse])
    /// An entry in the audit log about this process.
    case ownAudit
}

extension SharedChange {
    /// The note of the change; `nil` for any other change.
    package var note: SharedNote? {
        guard parts.isEmpty else { return nil }
        var records = SharedRecords()
        guard (try? rule(&records, RuleContext(ProfileRules(), at: .epoch))) != nil else { return nil }
        var uses: [LastUse] = []
        var isAudit = !records.writes.isEmpty
        for write in records.writes {
            if case .putLastUses(let noted) = write { uses += noted }
            if case .recordAudit = write {} else { isAudit = false }
        }
        return isAudit ? .ownAudit : uses.isEmpty ? nil : .uses(uses)
    }
}
