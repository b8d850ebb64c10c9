import Bucketing
import Storage

/// Reads and writes the records of one user for the rules in `Storage`.
extension WriteTransaction {
    /// Applies a rule: reads what it lacks until it returns a result, then performs its writes.
    func apply<Result>(
        to userID: Identifier, at now: Timestamp,
        _ rule: (inout UserRecords, inout TallyChanges) throws(StorageError) -> Result?
    ) throws -> Result {
        var records = UserRecords(userID: userID)
        while true {
            if let result = try rule(&records, &tallies) {
                for write in records.writes { try perform(write, of: userID, at: now) }
                return result
            }
            for part in records.takeMissing() { try read(part, into: &records) }
        }
    }

    /// Applies a rule to two users, like ``apply(to:at:_:)``. Performs the writes of the first user first.
    func apply<Result>(
        to first: Identifier, _ second: Identifier, at now: Timestamp,
        _ rule: (inout UserRecords, inout UserRecords, inout TallyChanges) throws(StorageError) -> Result?
    ) throws -> Result {
        var (firstRecords, secondRecords) = (UserRecords(userID: first), UserRecords(userID: second))
        while true {
            if let result = try rule(&firstRecords, &secondRecords, &tallies) {
                for write in firstRecords.writes { try perform(write, of: first, at: now) }
                for write in secondRecords.writes { try perform(write, of: second, at: now) }
                return result
            }
            for part in firstRecords.takeMissing() { try read(part, into: &firstRecords) }
            for part in secondRecords.takeMissing() { try read(part, into: &secondRecords) }
        }
    }

    private func read(_ part: UserRecords.Part, into records: inout UserRecords) throws(SQLiteError) {
        switch part {
        case .periods(let experimentID): records.periods = try allocationPeriods(of: experimentID)
        case .newestDatafile: records.newestDatafile = try newestDatafile()
        default: try UserRecordRows.read(part, into: &records, on: connection)
        }
    }

    private func perform(_ write: UserRecords.Write, of userID: Identifier, at now: Timestamp) throws(SQLiteError) {
        switch write {
        case .putProfile(let record, let stored): try put(record, for: userID, replacing: stored)
        // Nobody else writes before the commit.
        case .expectNewestDatafile: break
        case .deleteProfile(let stored): try deleteProfile(of: userID, replacing: stored)
        case .putForcedVariation(let variation): try ForcedVariationRows.put(variation, in: self)
        case .deleteForcedVariation(let variation): try ForcedVariationRows.delete(variation, in: self)
        case .putExposure(let stored): try ExposureRows.put(stored, in: self)
        case .putTotal(let total, let key): try UserGoalRows.put(total, userID, key, on: connection)
        case .deleteTotals(let experimentID): try UserGoalRows.delete(userID, experimentID, on: connection)
        case .insertGoalEvent(let event): try GoalEventRows.insert(event, in: self)
        case .putPeriod(let period, let experimentID): try put(period, of: experimentID)
        case .putAttributes(let record): try AttributeRows.put(record, for: userID, in: self)
        case .takeOver(let other):
            try GoalEventRows.move(from: other, to: userID, in: self)
            try AuditRows.move(from: other, to: userID, in: self)
        case .eraseOtherRecords: try eraseOtherRecords(of: userID)
        case .eraseStickyDocuments:
            try connection.statement("DELETE FROM sticky_documents WHERE attribute_value = ?1").run {
                $0.bind(userID.string, at: 1)
            }
            changed()
        case .recordAudit(let note, let author): try record(note, by: author, at: now)
        }
    }

    private func eraseOtherRecords(of userID: Identifier) throws(SQLiteError) {
        try ForcedVariationRows.erase(userID, in: self)
        try AttributeRows.erase(userID, in: self)
        try AuditRows.erase(userID, in: self)
        for sql: StaticString in [
            "DELETE FROM exposures WHERE user_id = ?1", "DELETE FROM user_goals WHERE user_id = ?1",
            "DELETE FROM goal_events WHERE user_id = ?1",
        ] {
            try connection.statement(sql).run { $0.bind(userID.string, at: 1) }
        }
        changed()
    }
}

/// Reads the parts of a user's records.
enum UserRecordRows {
    static func read(
        _ part: UserRecords.Part, into records: inout UserRecords, on connection: Connection
    ) throws(SQLiteError) {
        let userID = records.userID
        switch part {
        case .profile: records.profile = .init(try ProfileRows.find(userID, on: connection), of: userID)
        case .attributes: records.attributes = .init(try AttributeRows.find(userID, on: connection), of: userID)
        case .definedAttributes: records.definedAttributes = try AttributeSchemaRows.numbers(on: connection)
        case .otherRecords: records.otherRecords = try otherRecords(userID, on: connection)
        case .stickyDocuments: records.stickyDocuments = try StickyDocumentRows.ofUser(userID, on: connection)
        case .forcedVariations: records.forcedVariations = try ForcedVariationRows.ofUser(userID, on: connection)
        case .exposures: records.exposures = try ExposureRows.ofUser(userID, on: connection)
        case .exposure(let experimentID):
            if let exposure = try ExposureRows.find(userID, experimentID, on: connection) {
                records.exposures = [exposure]
            }
        case .totals(let experimentID):
            for (goal, total) in try UserGoalRows.ofUser(userID, experimentID, on: connection) {
                records.totals[.init(experimentID: experimentID, goal: goal)] = total
            }
        case .goalTotals(let goal, let experimentIDs):
            for experimentID in experimentIDs {
                records.totals[.init(experimentID: experimentID, goal: goal)] =
                    try UserGoalRows.find(userID, experimentID, goal, on: connection)
            }
        case .goalEvents(let time): records.goalEvents = try GoalEventRows.ofUser(userID, since: time, on: connection)
        case .goalEvent(let senderID):
            records.hasGoalEvent = try GoalEventRows.exists(userID, senderID: senderID, on: connection)
        // The transaction itself provides what all users share.
        case .periods, .newestDatafile: break
        }
    }

    private static func otherRecords(
        _ userID: Identifier, on connection: Connection
    ) throws(SQLiteError) -> UserRecords.OtherRecords {
        UserRecords.OtherRecords(
            goalEvents: try several(
                "SELECT count(*), coalesce(max(number), 0) FROM goal_events WHERE user_id = ?1", userID, on: connection),
            auditEntries: try several(
                "SELECT count(*), coalesce(max(id), 0) FROM audit WHERE user_id = ?1", userID, on: connection))
    }

    private static func several(
        _ query: StaticString, _ userID: Identifier, on connection: Connection
    ) throws(SQLiteError) -> UserRecords.Several {
        try connection.statement(query).first {
            $0.bind(userID.string, at: 1)
        } row: {
            .init(count: Int($0.bounded(0)), newest: $0.integer(1))
        } ?? .init()
    }

    /// Reads everything, in one snapshot.
    static func everything(of userID: Identifier, on connection: Connection) throws(SQLiteError) -> UserRecords {
        var records = UserRecords(userID: userID)
        try connection.statement("BEGIN").run()
        defer { try? connection.statement("COMMIT").run() }
        for part in UserRecords.everything { try read(part, into: &records, on: connection) }
        return records
    }
}
