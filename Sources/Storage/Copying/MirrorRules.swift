package import Bucketing
import Chronology

/// A change that a line of the upstream's feed reports, for the copy of an edge. The case holds the state after the
/// change, so applying a change twice has no effect.
package enum MirroredChange: Sendable {
    /// The assignment in an experiment; `nil` if it was removed.
    case assignment(experimentID: Identifier, Assignment?)
    /// The user has a profile, perhaps without assignments.
    case profile
    /// The attributes; `nil` if the user has none.
    case attributes(AttributeRecord?)
    /// Everything about the user was erased.
    case erasure
    /// The user was merged into an account. Other lines of the feed report the merged state of the account.
    case merge(into: Identifier)

    /// Whether the change deletes all records of the user.
    fileprivate var removesUser: Bool {
        switch self {
        case .erasure, .merge: true
        case .assignment, .profile, .attributes: false
        }
    }
}

/// A user as a copy stores it.
package struct MirroredUser: Sendable {
    package var userID: Identifier
    /// `nil` if the user has no profile.
    package var profile: ProfileRecord?
    /// `nil` if the user has no attributes.
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
        Self(of: userID) { records, _, _ throws(StorageError) in
            try MirrorRules.apply(changes, to: &records[0]) ? () : nil
        }
    }
}

/// The rules by which the copy of an edge follows the upstream's database. They repeat the decisions of the upstream
/// and make none: an assignment replaces an override if the feed says so, and an expired assignment stays until the
/// feed removes it.
enum MirrorRules {
    /// Applies the changes of one user, in order.
    ///
    /// - Returns: `false` if `records` lacks a part that is needed; nothing has changed then.
    /// - Throws: ``StorageError/damaged(reason:)`` if the stored profile is damaged and no change removes the user.
    static func apply(_ changes: [MirroredChange], to records: inout UserRecords) throws(StorageError) -> Bool {
        let isRemoval = changes.contains { $0.removesUser }
        guard records.has(isRemoval ? UserRecords.everything : [.profile]) else { return false }
        let stored = try storedProfile(records, isRemoval: isRemoval)
        var state = MirroredState(stored)
        for change in changes { state.apply(change) }

        // Changes after a removal belong to a new user with the same id, so the deletions come first.
        if isRemoval { records.write(.eraseOtherRecords) }
        // Sticky documents are read only for a removal. For other changes the list is empty.
        if !records.stickyDocuments.isEmpty { records.write(.eraseStickyDocuments) }
        write(state.profile?.record, replacing: stored, in: &records)
        if let attributes = state.attributes { records.write(.putAttributes(attributes, changed: [])) }
        noteRemovals(changes, in: &records)
        return true
    }

    /// Returns the stored profile; `nil` if there is none. A removal does not depend on the content of the profile, so
    /// a damaged profile then counts as one without assignments.
    private static func storedProfile(
        _ records: UserRecords, isRemoval: Bool
    ) throws(StorageError) -> ProfileRecord? {
        if isRemoval, case .damaged = records.profile { return .empty }
        return try records.profile.get()
    }

    /// Requests the write that a changed or deleted profile needs.
    private static func write(
        _ profile: ProfileRecord?, replacing stored: ProfileRecord?, in records: inout UserRecords
    ) {
        if let profile {
            if profile != stored { records.write(.putProfile(profile, replacing: stored)) }
        } else if stored != nil {
            records.write(.deleteProfile(replacing: stored))
        }
    }

    /// Records each erasure and merge, because changes and events of the user may still wait; see ``ErasureRules``.
    private static func noteRemovals(_ changes: [MirroredChange], in records: inout UserRecords) {
        for change in changes {
            switch change {
            case .erasure: records.write(.noteRemoval(into: nil))
            case .merge(let account): records.write(.noteRemoval(into: account))
            case .assignment, .profile, .attributes: break
            }
        }
    }
}

/// The profile and the attributes of a user, as mirrored changes leave them.
private struct MirroredState {
    /// `nil` if the user has no profile.
    private(set) var profile: ProfileDraft?
    /// The new attributes, ``AttributeRecord/empty`` if the user has none; `nil` if no change concerns attributes.
    private(set) var attributes: AttributeRecord?

    /// - Parameter stored: the stored profile.
    init(_ stored: ProfileRecord?) {
        profile = stored.map { Self.draft($0) }
    }

    mutating func apply(_ change: MirroredChange) {
        switch change {
        case .assignment(let experimentID, let assignment):
            // Removing an assignment does not create a profile.
            if assignment != nil { createProfile() }
            profile?.update(experimentID) { $0 = assignment }
        case .profile: createProfile()
        case .attributes(let record): attributes = record ?? .empty
        case .erasure, .merge:
            profile = nil
            attributes = .empty
        }
    }

    /// Creates an empty profile, unless the user has one.
    private mutating func createProfile() {
        if profile == nil { profile = Self.draft(nil) }
    }

    /// Returns a draft with all assignments, even expired ones: the clock of the upstream's database decides when they
    /// end.
    private static func draft(_ record: ProfileRecord?) -> ProfileDraft { ProfileDraft(record, at: .distantPast) }
}
