import Bucketing
import Chronology
import Storage

/// The writes of a transaction that are not part of one user's ``UserState``, and the conditions under which it may
/// commit.
///
/// Rules request writes, which ``perform(_:of:at:)`` records. ``queries(_:server:feed:isDistributed:at:)`` turns them
/// into statements.
struct TransactionEffects {
    var tallies = TallyChanges()
    /// The newest datafile that the changes depend on.
    var newestDatafile: Int64?
    /// The version of the series that the changes depend on.
    ///
    /// Why the version is compared: a series is tracked from some commit on. After that commit it is filled with the
    /// users who had events before. So a transaction that stores an event without knowing the series must commit before
    /// the series is tracked, or not at all. For this, series change under the lock of event numbers, and a transaction
    /// that stores events compares the version under the same lock, which it keeps until its commit.
    ///
    /// A transaction that knows the series and one that fills it write the same user's row, so one of them is repeated.
    /// If the filling one writes nothing, it has read no event that counts, and the other one has computed the user's
    /// totals itself.
    var seriesVersion: Int64?
    /// The series that have new values of breakdowns, by number. Written under the lock, after the comparison of the
    /// version, so that no values of other transactions are lost.
    private(set) var putSeries: [Int64: TrackedSeries] = [:]
    /// Users who were erased, or merged into another (the account).
    private var removals: [(userID: Identifier, account: Identifier?)] = []
    /// Users who must not have been erased or merged since a time, by the hashes of their ids.
    private var expectedUsers: [Int64: Instant] = [:]
    /// Erasures and merges, for the feed.
    private var feedRemovals: [FeedRemoval.Cause] = []
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
    /// The versions of rows that were only read, and must still be the same at the commit; `nil`: there must be no row.
    var keptVersions: [Identifier: Int64?] = [:]
    /// The number of changes that a rule refused.
    var refusals = 0

    /// The advisory lock under which events are numbered, so that transactions commit in the order of their numbers: a
    /// reader who has seen a number has seen all lower ones.
    private static let numbering: Int64 = 4_739_118_003
    private static let lock = Statement("event_lock", "SELECT pg_advisory_xact_lock($1)")
    static var lockNumbers: SQLQuery { lock(.integer(numbering)) }

    /// Whether there is nothing to write.
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

    /// Makes the commit fail if the user was erased, or merged into another, at this time or later.
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
        var queries: [SQLQuery] = []
        func add<Element>(_ elements: [Element], _ query: ([Element]) -> SQLQuery) {
            if !elements.isEmpty { queries.append(query(elements)) }
        }
        // Checked now, because the users' rows are locked.
        add(expectedUsers.sorted { $0.key < $1.key }) {
            ErasureRows.expectNoRemoval(.integers($0.map(\.key)), .instants($0.map(\.value)))
        }
        for (former, userID) in takenOver {
            let users = [SQLValue.text(former), .text(userID)]
            queries.append(EventRows.copyGoalEvents.query(users))
            queries.append(.each(UserRecords.PartRows.goalEventsOfSenders.rows, of: [former], .delete))
            queries.append(AuditRows.move.query(users))
        }
        add(users.filter(\.isErased).map(\.userID)) { erased in
            queries += UserRecords.erasure.map { SQLQuery.each($0.rows, of: erased, $0.action) }
            return .each(UserRecords.PartRows.forcedVariations.rows, of: erased, .delete)
        }
        add(stickyErasures) { .each(UserRecords.PartRows.stickyDocuments.rows, of: $0, .delete) }
        add(users.flatMap { user in user.deletedTotals.map { [SQLValue.text(user.userID), .text($0)] } }) {
            .each(UserRecords.PartRows.totals.rows, $0, .delete)
        }
        func insert(_ rows: [[SQLValue]], into table: StoredTable) {
            add(rows) { .insert($0, into: table) }
        }
        insert(users.flatMap { user in user.putTotals.map { $1.values(user.userID, $0) } }, into: .userGoals)
        add(users.flatMap(\.deletedForcedVariations).map(\.key)) {
            .each(UserRecords.PartRows.forcedVariations.rows, $0, .delete)
        }
        insert(users.flatMap(\.putForcedVariations).map(\.values), into: .forcedVariations)
        insert(periods.map { $0.period.values($0.experimentID) }, into: .allocationPeriods)
        if !exposures.isEmpty || !goalEvents.isEmpty || seriesVersion != nil { queries.append(Self.lockNumbers) }
        if let seriesVersion { queries.append(SeriesRows.expect(.integer(seriesVersion))) }
        add(putSeries.values.sorted { $0.number < $1.number }) { .insert($0.map(\.values), into: .trackedSeries) }
        if !putSeries.isEmpty { queries.append(SeriesRows.raise()) }
        insert(exposures.map(\.values), into: .exposures)
        insert(goalEvents.map(\.values), into: .goalEvents)
        if !tallies.isEmpty { queries.append(TallyRows.insert(tallies)) }
        insert(auditEntries.map(\.values), into: .audit)
        add(Set(removals.map(ErasureRules.mark)).sorted()) { ErasureRows.insert(.integers($0), .integer(server)) }
        for (userID, account) in removals {
            queries += RemovedUser.statements(userID, into: account, at: now, .postgreSQL)
        }
        queries += self.feed(feed, isDistributed: isDistributed, at: now)
        if changesProjects { queries += [ProjectStateRow.changed(), ProjectStateRow.notify()] }
        return queries
    }

    /// Returns the statements that insert entries into the feed.
    private func feed(_ entries: [UInt8], isDistributed: Bool, at now: Instant) -> [SQLQuery] {
        guard !entries.isEmpty else { return [] }
        return (isDistributed ? [FeedRows.assignTransaction()] : [])
            + [FeedRows.insert(.instant(now), .bytes(entries))] + feedRemovals.flatMap { $0.statements(number: nil) }
    }
}
