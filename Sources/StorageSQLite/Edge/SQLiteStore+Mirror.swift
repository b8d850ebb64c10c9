package import Bucketing
package import Storage

/// The writes of an edge into its copy of the upstream's database.
///
/// Each call is one transaction, and blocks until it is durable. The transaction also stores the ``EdgeState`` that the
/// copy has reached, so that the state and the data cannot contradict each other after a crash.
extension SQLiteStore {
    /// Reads the stored state.
    package func edgeState() throws(StorageError) -> EdgeState {
        try projectReader.read { connection throws(SQLiteError) in try EdgeState.read(connection) }
    }

    /// Stores the state only.
    package func put(_ state: EdgeState) throws(StorageError) {
        try mirror(state) { _ in }
    }

    /// Repeats the upstream's changes of users, in order.
    ///
    /// - Parameter users: each user once.
    package func mirror(
        _ users: [(userID: Identifier, changes: [MirroredChange])], reaching state: EdgeState
    ) throws(StorageError) {
        let rules = settings.rules
        try mirror(state) { transaction in
            let now = transaction.now
            for user in users {
                try transaction.apply(UserChange<Void>.mirror(user.changes, of: user.userID), rules, at: now)
            }
        }
    }

    /// Replaces all users of a range by the upstream's users. Writes only the records that differ.
    ///
    /// - Parameters:
    ///   - users: all users in the range, in the byte order of their ids.
    ///   - first: the range begins after this user.
    ///   - last: the last user of the range; `nil` if it has no end.
    package func replaceUsers(
        with users: [MirroredUser], after first: Identifier, through last: Identifier?, reaching state: EdgeState
    ) throws(StorageError) {
        try mirror(state) { transaction in
            try transaction.replaceProfiles(with: users, after: first, through: last)
            try transaction.replaceAttributes(with: users, after: first, through: last)
        }
    }

    /// Replaces the definitions (the data that all users share) by those of the upstream. Numbers and versions stay the
    /// same.
    ///
    /// - Parameters:
    ///   - definitions: contains only the datafiles that the file lacks. A datafile in parts may contain only the parts
    ///     that differ from the datafile in the file.
    ///   - isWhole: whether `definitions` contains all datafiles whole, so that the file's datafiles are deleted first.
    package func mirror(
        _ definitions: ProjectState, isWhole: Bool, reaching state: EdgeState
    ) throws(StorageError) {
        try mirror(state) { transaction in
            if isWhole {
                try transaction.connection.change("DELETE FROM datafiles")
                try transaction.connection.change("DELETE FROM definitions")
                // A new store id makes the readers of datafiles read all of them again, whatever their versions are.
                try transaction.connection.change(
                    "UPDATE feed_state SET store_id = ?1", .integer(Int64.random(in: 1...Int64.max)))
            }
            try transaction.mirror(definitions)
        }
    }

    /// Runs a write transaction that also stores the state.
    private func mirror(
        _ state: EdgeState, _ body: @escaping @Sendable (WriteTransaction) throws -> Void
    ) throws(StorageError) {
        let outcome = Outcome<Void>()
        writer.submit { transaction in
            try body(transaction)
            try state.write(transaction.connection)
            transaction.changed()
        } completion: {
            outcome.settle($0)
        }
        try outcome.wait().get()
    }
}

extension WriteTransaction {
    /// Replaces the profiles of a range of users: merges the stored profiles with the new ones, both in the order of
    /// the users' ids.
    fileprivate func replaceProfiles(
        with users: [MirroredUser], after first: Identifier, through last: Identifier?
    ) throws(SQLiteError) {
        let stored = try rows("SELECT user_id, record FROM profiles WHERE user_id > ?1", after: first, through: last)
        /// The stored profiles that were not compared yet.
        var rest = stored[...]
        /// Deletes the stored profiles that come before a user; deletes all that are left if `user` is `nil`.
        func deleteStored(before user: Identifier?) throws(SQLiteError) {
            while let row = rest.first {
                if let user, row.userID >= user { return }
                rest.removeFirst()
                try deleteProfile(of: row.userID, replacing: (try? ProfileRecord(checking: row.record)) ?? .empty)
            }
        }
        for user in users {
            guard let profile = user.profile else { continue }
            try deleteStored(before: user.userID)
            guard let row = rest.first, row.userID == user.userID else {
                try put(profile, for: user.userID, replacing: nil)
                continue
            }
            rest.removeFirst()
            guard row.record != profile.bytes else { continue }
            try put(profile, for: user.userID, replacing: (try? ProfileRecord(checking: row.record)) ?? .empty)
        }
        try deleteStored(before: nil)
    }

    /// Replaces the attributes of a range of users.
    fileprivate func replaceAttributes(
        with users: [MirroredUser], after first: Identifier, through last: Identifier?
    ) throws(SQLiteError) {
        let stored = try rows(
            "SELECT user_id, record FROM user_attributes WHERE user_id > ?1", after: first, through: last)
        let former = Dictionary(stored.map { ($0.userID, $0.record) }, uniquingKeysWith: { $1 })
        var kept: Set<Identifier> = []
        for user in users {
            guard let attributes = user.attributes else { continue }
            kept.insert(user.userID)
            if former[user.userID] != attributes.bytes { try AttributeRows.put(attributes, for: user.userID, in: self) }
        }
        for row in stored where !kept.contains(row.userID) { try AttributeRows.erase(row.userID, in: self) }
    }

    /// Returns the rows of a range of users, in the byte order of their ids.
    ///
    /// - Parameter sql: selects the id and the record of users after `?1`.
    private func rows(
        _ sql: StaticString, after first: Identifier, through last: Identifier?
    ) throws(SQLiteError) -> [(userID: Identifier, record: [UInt8])] {
        let bounds = [first] + (last.map { [$0] } ?? [])
        let parameters = bounds.map { SQLValue.text($0) }
        // The statement has two forms, so its text is its name.
        let text = "\(sql)\(last == nil ? "" : " AND user_id <= ?2") ORDER BY user_id"
        return try connection.all(SQLQuery(text, text, parameters)) { ($0.identifier(0), $0.bytes(1)) }
    }

    /// Replaces the definitions; see ``SQLiteStore/mirror(_:isWhole:reaching:)``.
    fileprivate func mirror(_ state: ProjectState) throws(SQLiteError) {
        for table: StoredTable in [.projects, .attributes, .segments, .forcedVariations] {
            try connection.run(SQLQuery("mirror_\(table)", "DELETE FROM \(table.rawValue)"))
        }
        for project in state.projects { try insert(project.values, into: .projects) }
        for attribute in state.schema.attributes { try insert(attribute.values, into: .attributes) }
        for segment in state.schema.segments.values { try insert(segment.values, into: .segments) }
        for variation in state.forcedVariations { try insert(variation.values, into: .forcedVariations) }
        try connection.change(
            """
            DELETE FROM definitions WHERE sdk_key IN (
                SELECT sdk_key FROM datafiles WHERE sdk_key NOT IN (SELECT sdk_key FROM projects))
            """)
        try connection.change("DELETE FROM datafiles WHERE sdk_key NOT IN (SELECT sdk_key FROM projects)")
        for datafile in state.datafiles {
            // Keeps the former datafile, too, so that its readers can read the difference.
            try perform(.insertDatafile(datafile, datafile.body), keeping: 2)
        }
        // A decision names the version of the upstream's newest datafile. The upstream may have deleted this datafile,
        // so the number is stored, and not derived from the rows.
        try connection.change("DELETE FROM sqlite_sequence WHERE name = 'datafiles'")
        try connection.change(
            "INSERT INTO sqlite_sequence (name, seq) VALUES ('datafiles', ?1)", .integer(state.newestDatafile))
        try changedProjects()
    }
}
