import Bucketing
import Chronology
import Storage

/// Reads and writes the records of users for the rules in `Storage`.
extension WriteTransaction {
    /// Applies a change: calls its rule until the rule returns a result, and after each call reads the parts that the
    /// rule lacks. Then performs the writes that the rule has requested, user by user.
    ///
    /// - Throws: `StorageError` if the rule refuses the change; ``SQLiteError``.
    func apply<Value>(_ change: UserChange<Value>, _ rules: ProfileRules, at now: Instant) throws -> Value {
        var records = change.userIDs.map { UserRecords(userID: $0) }
        let context = RuleContext(rules, at: now)
        while true {
            if let result = try change.rule(&records, &tallies, context) {
                for user in records {
                    for write in user.writes {
                        try perform(write, of: user.userID, at: now)
                        feed?.append(write, of: user.userID)
                    }
                }
                return result
            }
            for index in records.indices {
                for part in records[index].takeMissing() { try read(part, into: &records[index]) }
            }
        }
    }

    /// Reads a part of a user's records.
    private func read(_ part: UserRecords.Part, into records: inout UserRecords) throws(SQLiteError) {
        switch part {
        case .definedAttributes: records.definedAttributes = try definedAttributes()
        case .periods(let experimentID): records.periods = try allocationPeriods(of: experimentID)
        case .statuses(let experimentID): records.statuses = try statusPeriods(of: experimentID)
        case .newestDatafile: records.newestDatafile = try newestDatafile()
        case .series(let experimentIDs):
            records.series = []
            for experimentID in experimentIDs { records.series += try trackedSeries(of: experimentID) }
        default:
            records.begin(part)
            for (part, keys) in UserRecords.rows(of: part, records.userID, .sqlite) {
                try connection.run(part.rows.query(keys)) { part.take($0, &records) }
            }
        }
    }

    /// Performs a write that a rule has requested.
    private func perform(_ write: UserRecords.Write, of userID: Identifier, at now: Instant) throws(SQLiteError) {
        let user = SQLValue.text(userID)
        switch write {
        case .putProfile(let record, let stored): try put(record, for: userID, replacing: stored)
        // The datafile is still the newest: nobody else writes before the commit.
        case .expectNewestDatafile: break
        case .deleteProfile(let stored): try deleteProfile(of: userID, replacing: stored)
        case .putForcedVariation(let variation):
            try insert(variation.values, into: .forcedVariations)
            try changedProjects()
        case .deleteForcedVariation(let variation):
            try delete(.forcedVariations, variation.key)
            try changedProjects()
        case .putExposure(let stored): try insert(stored.values, into: .exposures)
        case .putTotal(let total, let key): try insert(total.values(userID, key), into: .userGoals)
        case .deleteTotals(let experimentID): try delete(.totals, [user, .text(experimentID)])
        case .insertGoalEvent(let event): try insert(event.values, into: .goalEvents)
        case .putPeriod(let period, let experimentID): try put([(experimentID, period)])
        case .putSeries(let series):
            try insert(series.values, into: .trackedSeries)
            try connection.change("UPDATE counters SET newest_series = newest_series + 1")
            forgetDefinitions()
        case .putAttributes(let record, _): try AttributeRows.put(record, for: userID, in: self)
        case .takeOver(let other): try takeOver(other, userID)
        case .eraseOtherRecords: try eraseOtherRecords(of: userID)
        case .eraseStickyDocuments:
            try delete(.stickyDocuments, [user])
            changed()
        case .noteRemoval(let account):
            noteRemoval(ErasureRules.mark(userID, into: account))
            for statement in RemovedUser.statements(userID, into: account, at: now, .sqlite) { try run(statement) }
        case .recordAudit(let note, let author): try record(note, by: author, at: now)
        }
    }

    /// Moves the goal events and audit entries of another user to a user. If both users have an event with the same
    /// sender's id, the other user's event is deleted instead.
    ///
    /// - Parameters:
    ///   - other: the user whose rows are moved.
    ///   - userID: the user who gets the rows.
    private func takeOver(_ other: Identifier, _ userID: Identifier) throws(SQLiteError) {
        for sql: StaticString in [
            """
            DELETE FROM goal_events WHERE user_id = ?1 AND sender_id IN
            (SELECT sender_id FROM goal_events WHERE user_id = ?2 AND sender_id IS NOT NULL)
            """,
            "UPDATE goal_events SET user_id = ?2 WHERE user_id = ?1",
            "UPDATE audit SET user_id = ?2 WHERE user_id = ?1",
        ] { try connection.change(sql, .text(other), .text(userID)) }
        changed()
    }

    /// Deletes all records of a user except the profile.
    private func eraseOtherRecords(of userID: Identifier) throws(SQLiteError) {
        let user = [SQLValue.text(userID)]
        if try delete(.forcedVariations, user) > 0 { try changedProjects() }
        try AttributeRows.erase(userID, in: self)
        for (rows, action) in UserRecords.erasure { try connection.run(rows.query(user, action)) }
        changed()
    }

    /// Deletes rows by their keys.
    ///
    /// - Returns: the number of deleted rows.
    @discardableResult
    private func delete(_ part: UserRecords.PartRows, _ keys: [SQLValue]) throws(SQLiteError) -> Int {
        try connection.change(part.rows.query(keys, .delete))
    }

    /// Inserts a row; see ``StoredTable/conflict``.
    func insert(_ values: [SQLValue], into table: StoredTable) throws(SQLiteError) {
        try connection.insert(values, into: table)
        changed()
    }

    /// Runs a statement that writes.
    func run(_ query: SQLQuery) throws(SQLiteError) {
        try connection.run(query)
        changed()
    }

    /// Records an admin's change in the audit log, in the same transaction as the change.
    func record(_ note: AuditNote, by author: Author, at now: Instant) throws(SQLiteError) {
        try insert(AuditEntry(note, by: author, at: now).values, into: .audit)
        noteAuditEntry()
    }
}
