import Bucketing
import Chronology
import Storage

/// The statements that write users' rows: at most one for each kind of write, about all its users.
///
/// Each statement writes only rows that have the expected version. Two statements write a row if both its profile and
/// its attributes have changed. The first one then gives the row a new version, which the second one expects.
struct UserRowWrites {
    private(set) var queries: [SQLQuery] = []
    /// The users of each statement.
    private var touched: [[Identifier]] = []
    /// Whether the transaction fails if a row has changed since it was read.
    private let isGuarded: Bool
    /// Whether each statement also puts the entries of its users into the feed.
    private let feeds: Bool
    private let now: Instant
    /// The users whose entries a statement puts into the feed.
    private var fed: Set<Identifier> = []
    /// The versions that the next statement expects.
    private var versions: [Identifier: Int64] = [:]

    /// - Parameters:
    ///   - users: in the order of their ids, in which rows are locked.
    ///   - isGuarded: whether the transaction fails if a row has changed since it was read.
    ///   - feeds: whether each statement also puts the entries of its users into the feed, for rows that it has
    ///     written.
    init(_ users: [UserState], isGuarded: Bool, feeds: Bool, at now: Instant) {
        self.isGuarded = isGuarded
        self.feeds = feeds
        self.now = now
        let kept = users.filter { $0.version != nil && !$0.deletesRow }
        for user in kept { versions[user.userID] = user.version }
        // Attributes that are deleted from a row that becomes empty also mark the row for the sweep, in `expires_at`.
        updateProfiles(of: kept.filter { $0.profileChanged || ($0.attributesChanged && !$0.needsRow) })
        updateAttributes(of: kept.filter(\.attributesChanged))
        // Only rows in other tables change. The new version makes transactions that have read those rows conflict.
        updateVersions(of: kept.filter { !$0.profileChanged && !$0.attributesChanged })
        let deleted = users.filter(\.deletesRow)
        add(UserRows.deleteRows, of: deleted, [.integers(deleted.map(\.version))])
        insertRows(of: users.filter { ($0.version == nil || $0.deletesRow) && $0.needsRow })
    }

    // MARK: Statements

    /// Adds a statement about some users, unless there are none.
    ///
    /// - Parameter parameters: follow the first parameter, the ids of the users.
    private mutating func add(_ statement: Statement, of users: [UserState], _ parameters: [SQLValue]) {
        guard !users.isEmpty else { return }
        var statement = isGuarded ? statement.guarded : statement
        var parameters = [.texts(users.map(\.userID.string))] + parameters
        touched.append(users.map(\.userID))
        let entries = feeds ? users.map { fed.contains($0.userID) ? [] : $0.feed.bytes } : []
        if entries.contains(where: { !$0.isEmpty }) {
            fed.formUnion(users.map(\.userID))
            parameters += [.instant(now), .blobs(entries)]
            statement = statement.feeding(time: parameters.count - 1, entries: parameters.count)
        }
        queries.append(statement.query(parameters))
    }

    /// Gives users new versions.
    ///
    /// - Returns: the expected versions and the new ones, as parameters.
    private mutating func renewVersions(of users: [UserState]) -> [SQLValue] {
        let expected = users.map { versions[$0.userID] }
        for user in users { versions[user.userID] = UserRows.newVersion() }
        return [.integers(expected), .integers(users.map { versions[$0.userID] })]
    }

    private mutating func updateProfiles(of users: [UserState]) {
        let versions = renewVersions(of: users)
        let profiles: [SQLValue] = [
            .blobs(users.map { $0.record?.bytes }), .integers(users.map { Int64($0.record?.count ?? 0) }),
            .instants(
                users.map { user in user.record.map { $0.sweptAt(from: now) } ?? ProfileRecord.maybeEmpty }),
        ]
        add(UserRows.updateProfiles, of: users, versions + profiles)
    }

    private mutating func updateAttributes(of users: [UserState]) {
        let versions = renewVersions(of: users)
        add(UserRows.updateAttributes, of: users, versions + [.blobs(users.map(\.attributes))])
    }

    private mutating func updateVersions(of users: [UserState]) {
        let versions = renewVersions(of: users)
        add(UserRows.updateVersions, of: users, versions)
    }

    private mutating func insertRows(of users: [UserState]) {
        add(
            UserRows.insertRows, of: users,
            [
                .integers(users.map { _ in UserRows.newVersion() }), .blobs(users.map { $0.record?.bytes }),
                .integers(users.map { Int64($0.record?.count ?? 0) }),
                .instants(users.map { $0.record?.sweptAt(from: now) }), .blobs(users.map(\.attributes)),
            ])
    }

    // MARK: Results

    /// Returns the users whose rows were not written, because they have changed since they were read.
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
