import Bucketing

/// The transaction in progress, as the changes in it see it. For the writer's queue only.
final class WriteTransaction {
    let connection: Connection
    /// Users whose profiles have been changed in this transaction.
    private(set) var changedUserIDs: [Identifier] = []
    private(set) var profiles: Int64 = 0
    private(set) var assignments: Int64 = 0
    /// Entries made in the audit log.
    private(set) var auditEntries: UInt64 = 0
    /// Whether there is anything to commit.
    private(set) var hasWritten = false

    init(_ connection: Connection) {
        self.connection = connection
    }

    /// Takes note of a profile that was written, with how the numbers of profiles and assignments changed by it.
    func changed(_ userID: Identifier, profiles: Int, assignments: Int) {
        changedUserIDs.append(userID)
        self.profiles += Int64(profiles)
        self.assignments += Int64(assignments)
        hasWritten = true
    }

    /// Takes note of an entry in the audit log.
    func recorded() {
        auditEntries += 1
        hasWritten = true
    }

    /// Takes note of a change of something else than profiles.
    func changed() {
        hasWritten = true
    }
}

@available(*, unavailable) extension WriteTransaction: Sendable {}
