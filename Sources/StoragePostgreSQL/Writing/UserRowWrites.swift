import Bucketing
import Chronology
import Storage

/// The statements that write users' rows: at most one for each kind of write, with all users that it concerns.
///
/// Each statement writes only rows whose version is the expected one. A row that two statements write, one the profile
/// and one the attributes, gets a new version from the first, which the second then expects.
struct UserRowWrites {
    private(set) var queries: [SQLQuery] = []
    /// The users of each statement.
    private var touched: [[Identifier]] = []

    /// - Parameters:
    ///   - users: in the order of their ids, in which rows are locked.
    ///   - isGuarded: whether the transaction fails if a row has changed since it was read.
    ///   - feeds: whether each statement puts the entries of the users whom it has changed into the feed.
    init(_ users: [UserState], isGuarded: Bool, feeds: Bool, at now: Instant) {
        /// The users whose entries a statement puts into the feed.
        var fed: Set<Identifier> = []
        /// Adds a statement about some users. Its first parameter is their ids.
        func add(
            _ some: [UserState], _ statement: Statement, _ parameters: [SQLValue]
        ) {
            guard !some.isEmpty else { return }
            var statement = isGuarded ? statement.guarded : statement
            var parameters = [.texts(some.map(\.userID.string))] + parameters
            touched.append(some.map(\.userID))
            let entries = feeds ? some.map { fed.contains($0.userID) ? [] : $0.feed.bytes } : []
            if entries.contains(where: { !$0.isEmpty }) {
                fed.formUnion(some.map(\.userID))
                parameters += [.instant(now), .blobs(entries)]
                statement = statement.feeding(time: parameters.count - 1, entries: parameters.count)
            }
            queries.append(statement.query(parameters))
        }
        let kept = users.filter { $0.version != nil && !$0.deletesRow }
        let profiles = kept.filter { $0.profileChanged || $0.attributesChanged && !$0.needsRow }
        /// The versions that the next statement expects.
        var versions: [Identifier: Int64] = [:]
        for user in kept { versions[user.userID] = user.version }
        /// Returns the expected versions of users as a parameter.
        func expected(_ some: [UserState]) -> SQLValue { .integers(some.map { versions[$0.userID] }) }
        /// Gives users new versions, and returns these as a parameter.
        func renewed(_ some: [UserState]) -> SQLValue {
            for user in some { versions[user.userID] = UserRows.newVersion() }
            return .integers(some.map { versions[$0.userID] })
        }
        let formerProfiles = expected(profiles)
        let newProfiles = renewed(profiles)
        add(
            profiles, UserRows.updateProfiles,
            [
                formerProfiles, newProfiles, .blobs(profiles.map { $0.record?.bytes }),
                .integers(profiles.map { Int64($0.record?.count ?? 0) }),
                .instants(
                    profiles.map { user in
                        user.record.map { $0.sweptAt(from: now) } ?? ProfileRecord.maybeEmpty
                    }),
            ])
        let attributes = kept.filter(\.attributesChanged)
        let formerAttributes = expected(attributes)
        let newAttributes = renewed(attributes)
        add(
            attributes, UserRows.updateAttributes,
            [formerAttributes, newAttributes, .blobs(attributes.map(\.attributes))])
        // Only rows in other tables change. The new version makes transactions that have read them conflict.
        let others = kept.filter { !$0.profileChanged && !$0.attributesChanged }
        let formerOthers = expected(others)
        let newOthers = renewed(others)
        add(others, UserRows.updateVersions, [formerOthers, newOthers])
        let deleted = users.filter(\.deletesRow)
        add(deleted, UserRows.deleteRows, [.integers(deleted.map(\.version))])
        let inserted = users.filter { ($0.version == nil || $0.deletesRow) && $0.needsRow }
        add(
            inserted, UserRows.insertRows,
            [
                .integers(inserted.map { _ in UserRows.newVersion() }), .blobs(inserted.map { $0.record?.bytes }),
                .integers(inserted.map { Int64($0.record?.count ?? 0) }),
                .instants(inserted.map { $0.record?.sweptAt(from: now) }), .blobs(inserted.map(\.attributes)),
            ])
    }

    /// Returns the users whose rows have changed since they were read, so that nothing was written for them.
    ///
    /// - Parameter results: the rows that ``queries`` returned.
    func conflicts(_ results: ArraySlice<Rows>) -> Set<Identifier> {
        var conflicts: Set<Identifier> = []
        for (users, rows) in zip(touched, results) where rows.count < users.count {
            let changed = Set(rows.map { $0.identifier(0) })
            conflicts.formUnion(users.filter { !changed.contains($0) })
        }
        return conflicts
    }
}

extension UserState {
    /// The profile to store; `nil` for none.
    var record: ProfileRecord? {
        if case .present(let record) = profile { record } else { nil }
    }

    /// By how much the transaction changes the numbers of profiles and assignments.
    var profileDifference: (profiles: Int64, assignments: Int64) {
        guard profileChanged else { return (0, 0) }
        func numbers(_ profile: UserRecords.Stored<ProfileRecord>) -> (profiles: Int64, assignments: Int64) {
            switch profile {
            case .absent: (0, 0)
            case .present(let record): (1, Int64(record.count))
            case .damaged: (1, 0)
            }
        }
        let (before, after) = (numbers(stored.profile), numbers(profile))
        return (after.profiles - before.profiles, after.assignments - before.assignments)
    }
}
