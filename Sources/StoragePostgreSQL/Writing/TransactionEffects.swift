import Bucketing
import Chronology
import Storage

/// The writes of a transaction that are not part of one user's ``UserState``, and the conditions for its commit.
///
/// Rules request writes, which ``perform(_:of:at:)`` records. ``queries(_:server:feed:isDistributed:at:)`` turns the
/// writes and the conditions into statements.
struct TransactionEffects {
    /// The changes of the counts from which results of experiments are computed.
    var tallies = TallyChanges()
    /// The version of the datafile that must still be the newest at the commit; `nil` for none.
    var newestDatafile: Int64?
    /// The version of the series that the changes depend on; `nil` for none.
    ///
    /// Why the version is compared: a series is tracked from some commit on. After this commit the series is filled
    /// with the users who had events before. So a transaction that stores an event without knowing the series must
    /// commit before the series is tracked, or not at all. For this purpose, series change under the lock of event
    /// numbers, and a transaction that stores events compares the version under the same lock, which it keeps until its
    /// commit.
    ///
    /// A transaction that knows the series and a transaction that fills it write the same user's row, so one of them is
    /// repeated. If the filling transaction writes nothing, it has read no event that counts. The other transaction has
    /// computed the user's totals itself then.
    var seriesVersion: Int64?
    /// The series with new values of breakdowns, by number. Written under the lock, after the comparison of the
    /// version, so that no values of other transactions are lost.
    private(set) var putSeries: [Int64: TrackedSeries] = [:]
    /// Users who were erased, or merged into an account.
    private var removals: [(userID: Identifier, account: Identifier?)] = []
    /// Users who must not have been erased or merged since a time, by the hashes of their ids.
    private var expectedUsers: [Int64: Instant] = [:]
    /// Erasures and merges, for the feed.
    private var feedRemovals: [FeedRemoval.Cause] = []
    /// New entries of the audit log.
    private(set) var auditEntries: [AuditEntry] = []
    /// New exposures, in the order in which they arrived.
    private var exposures: [StoredExposure] = []
    /// New goal events, in the order in which they arrived.
    private var goalEvents: [GoalEvent] = []
    /// Whether to notify all servers of a change of projects.
    private var changesProjects = false
    /// New allocation periods.
    private(set) var periods: [AllocationPeriod.OfExperiment] = []
    /// Users whose goal events and audit entries move to another user.
    private var takenOver: [(from: Identifier, to: Identifier)] = []
    /// Users whose sticky documents are deleted.
    private var stickyErasures: [Identifier] = []
    /// The versions of rows that were only read and must be the same at the commit; `nil` if there must be no row.
    var keptVersions: [Identifier: Int64?] = [:]
    /// The number of changes that a rule refused.
    var refusals = 0

    /// The advisory lock under which events are numbered. Transactions commit in the order of their events' numbers, so
    /// a reader who has seen a number has seen all lower numbers. The value is arbitrary.
    private static let numbering: Int64 = 4_739_118_003
    private static let lock = Statement("event_lock", "SELECT pg_advisory_xact_lock($1)")
    /// The statement that takes the lock until the commit.
    static var lockNumbers: SQLQuery { lock(.integer(numbering)) }

    /// Whether there is nothing to write besides users' rows.
    var isEmpty: Bool {
        tallies.isEmpty && removals.isEmpty && auditEntries.isEmpty && exposures.isEmpty && goalEvents.isEmpty
            && !changesProjects && periods.isEmpty && takenOver.isEmpty && stickyErasures.isEmpty
    }

    /// Records a write of a rule, unless it is part of the user's state.
    mutating func perform(_ write: UserRecords.Write, of user: UserState, at now: Instant) {
        let userID = user.userID
        if let cause = FeedRemoval.Cause(write, of: userID) { feedRemovals.append(cause) }
        switch write {
        case .putProfile, .deleteProfile, .putTotal, .deleteTotals, .putAttributes: break
        case .expectNewestDatafile(let version): newestDatafile = version
        case .putPeriod(let period, let experimentID):
            let isKnown = periods.contains { $0.experimentID == experimentID && $0.period.number == period.number }
            if !isKnown { periods.append((experimentID, period)) }
        case .putSeries(let series): putSeries[series.number] = series
        case .takeOver(let other): takenOver.append((other, userID))
        case .eraseStickyDocuments: stickyErasures.append(userID)
        case .putForcedVariation, .deleteForcedVariation: changesProjects = true
        case .putExposure(let stored):
            // One statement must not insert the same row twice.
            exposures.removeAll {
                $0.exposure.userID == userID && $0.exposure.experimentID == stored.exposure.experimentID
            }
            exposures.append(stored)
        case .insertGoalEvent(let event): goalEvents.append(event)
        case .eraseOtherRecords:
            if !user.records.forcedVariations.isEmpty { changesProjects = true }
            exposures.removeAll { $0.exposure.userID == userID }
            goalEvents.removeAll { $0.userID == userID }
            for index in auditEntries.indices where auditEntries[index].userID == userID {
                auditEntries[index].anonymize()
            }
        case .noteRemoval(let account): removals.append((userID, account))
        case .recordAudit(let note, let author):
            auditEntries.append(AuditEntry(note, by: author, at: now))
        }
    }

    /// Makes the commit fail if the user was erased or merged at this time or later.
    mutating func expectNoRemoval(of userID: Identifier, since time: Instant) {
        let hash = ErasureRules.hash(userID)
        expectedUsers[hash] = min(expectedUsers[hash] ?? time, time)
    }

    /// Returns the statements that follow the writes of the users' rows, erasures first.
    ///
    /// - Parameters:
    ///   - users: the users that have changed, in the order of their ids.
    ///   - feed: the entries of all users for the feed; empty if the statements of the rows write them, or there is no
    ///     feed.
    func queries(
        _ users: [UserState], server: Int64, feed: [UInt8], isDistributed: Bool, at now: Instant
    ) -> [SQLQuery] {
        var queries = queriesOfErasures(users) + queriesOfTotals(users) + queriesOfEvents()
        queries.insert(auditEntries.map(\.values), into: .audit)
        queries.add(Set(removals.map(ErasureRules.mark)).sorted()) { marks in
            ErasureRows.insert(.integers(marks), .integer(server))
        }
        for (userID, account) in removals {
            queries += RemovedUser.statements(userID, into: account, at: now, .postgreSQL)
        }
        queries += queriesOfFeed(feed, isDistributed: isDistributed, at: now)
        if changesProjects { queries += [ProjectStateRow.changed(), ProjectStateRow.notify()] }
        return queries
    }

    /// Returns the statements that check for erasures, and that delete or move the records of erased and merged users.
    /// The checks see all earlier erasures, because the users' rows are locked.
    private func queriesOfErasures(_ users: [UserState]) -> [SQLQuery] {
        var queries: [SQLQuery] = []
        queries.add(expectedUsers.sorted { $0.key < $1.key }) { expected in
            ErasureRows.expectNoRemoval(.integers(expected.map(\.key)), .instants(expected.map(\.value)))
        }
        for (former, userID) in takenOver {
            let users = [SQLValue.text(former), .text(userID)]
            queries.append(EventRows.copyGoalEvents.query(users))
            queries.append(.each(UserRecords.PartRows.goalEventsOfSenders.rows, of: [former], .delete))
            queries.append(AuditRows.move.query(users))
        }
        let erased = users.filter(\.isErased).map(\.userID)
        if !erased.isEmpty {
            queries += UserRecords.erasure.map { SQLQuery.each($0.rows, of: erased, $0.action) }
            queries.append(.each(UserRecords.PartRows.forcedVariations.rows, of: erased, .delete))
        }
        queries.add(stickyErasures) { .each(UserRecords.PartRows.stickyDocuments.rows, of: $0, .delete) }
        return queries
    }

    /// Returns the statements that write totals, forced variations and allocation periods.
    private func queriesOfTotals(_ users: [UserState]) -> [SQLQuery] {
        var queries: [SQLQuery] = []
        let deletedTotals = users.flatMap { user in
            user.deletedTotals.map { [SQLValue.text(user.userID), .text($0)] }
        }
        queries.add(deletedTotals) { .each(UserRecords.PartRows.totals.rows, $0, .delete) }
        let totals = users.flatMap { user in user.putTotals.map { key, total in total.values(user.userID, key) } }
        queries.insert(totals, into: .userGoals)
        queries.add(users.flatMap(\.deletedForcedVariations).map(\.key)) {
            .each(UserRecords.PartRows.forcedVariations.rows, $0, .delete)
        }
        queries.insert(users.flatMap(\.putForcedVariations).map(\.values), into: .forcedVariations)
        queries.insert(periods.map { $0.period.values($0.experimentID) }, into: .allocationPeriods)
        return queries
    }

    /// Returns the statements that write events, series and tallies. Events and series are written under the lock of
    /// event numbers; see ``seriesVersion``.
    private func queriesOfEvents() -> [SQLQuery] {
        var queries: [SQLQuery] = []
        let needsLock = !exposures.isEmpty || !goalEvents.isEmpty || seriesVersion != nil
        if needsLock { queries.append(Self.lockNumbers) }
        if let seriesVersion { queries.append(SeriesRows.expect(.integer(seriesVersion))) }
        queries.insert(putSeries.values.sorted { $0.number < $1.number }.map(\.values), into: .trackedSeries)
        if !putSeries.isEmpty { queries.append(SeriesRows.raise()) }
        queries.insert(exposures.map(\.values), into: .exposures)
        queries.insert(goalEvents.map(\.values), into: .goalEvents)
        if !tallies.isEmpty { queries.append(TallyRows.insert(tallies)) }
        return queries
    }

    /// Returns the statements that insert entries into the feed.
    private func queriesOfFeed(_ entries: [UInt8], isDistributed: Bool, at now: Instant) -> [SQLQuery] {
        guard !entries.isEmpty else { return [] }
        return (isDistributed ? [FeedRows.assignTransaction()] : [])
            + [FeedRows.insert(.instant(now), .bytes(entries))] + feedRemovals.flatMap { $0.statements(number: nil) }
    }
}

extension [SQLQuery] {
    /// Adds a statement about some elements, unless there are none.
    fileprivate mutating func add<Value>(_ elements: [Value], _ query: ([Value]) -> SQLQuery) {
        if !elements.isEmpty { append(query(elements)) }
    }

    /// Adds a statement that inserts rows, unless there are none.
    fileprivate mutating func insert(_ rows: [[SQLValue]], into table: StoredTable) {
        if !rows.isEmpty { append(.insert(rows, into: table)) }
    }
}
