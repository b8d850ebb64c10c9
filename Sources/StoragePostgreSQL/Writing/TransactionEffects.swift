import Bucketing
import Chronology
import Storage

/// The writes of a transaction that are not part of one user's ``UserState``.
struct TransactionEffects {
    var tallies = TallyChanges()
    /// The newest datafile that the changes depend on.
    var newestDatafile: Int64?
    /// The version of the series that the changes depend on.
    ///
    /// A series is tracked from some commit on, and is then filled with users who did something before. Whoever stores an
    /// event without knowing the series must therefore commit before it, or not at all: series change under the lock of
    /// event numbers, exclusively, and a transaction compares their version under that lock, which it keeps until its commit. A
    /// transaction that knows the series and one that fills it write the same user's row, so that one of them is repeated; if
    /// the one that fills writes nothing, it has read no event that counts, and the other has computed the user's totals
    /// itself.
    var seriesVersion: Int64?
    /// The series that have new values of breakdowns, by number. Under the lock, nobody else has added others meanwhile.
    private(set) var putSeries: [Int64: TrackedSeries] = [:]
    /// Users who were erased, or became part of another.
    private var removals: [(userID: Identifier, account: Identifier?)] = []
    /// Since when nothing must have happened to users, by hashes of their ids.
    private var expectedUsers: [Int64: Instant] = [:]
    /// Erasures and merges, for the feed.
    private var feedRemovals: [FeedRemoval.Cause] = []
    private(set) var auditEntries: [AuditEntry] = []
    /// In the order in which they arrived.
    private var exposures: [StoredExposure] = []
    private var goalEvents: [GoalEvent] = []
    private var changesProjects = false
    private(set) var periods: [AllocationPeriod.OfExperiment] = []
    /// Users whose goal events and audit entries move to another user.
    private var takenOver: [(from: Identifier, to: Identifier)] = []
    /// Users whose sticky documents are deleted.
    private var stickyErasures: [Identifier] = []
    /// The versions of rows that were only read, and must not have changed at the commit; `nil`: there was no row.
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

    /// Makes the commit fail if the user has been erased, or become part of another, since this time.
    mutating func expectNoRemoval(of userID: Identifier, since time: Instant) {
        let hash = ErasureRules.hash(userID)
        expectedUsers[hash] = min(expectedUsers[hash] ?? time, time)
    }

    /// Returns the statements that follow the writes of the users' rows, erasures first.
    ///
    /// - Parameters:
    ///   - users: the users that have changed, in the order of their ids.
    ///   - feed: what the feed says of all users; empty if it is written elsewhere, or not at all.
    func queries(
        _ users: [UserState], server: Int64, feed: [UInt8], isDistributed: Bool, at now: Instant
    ) -> [SQLQuery] {
        var queries: [SQLQuery] = []
        func add<Element>(_ elements: [Element], _ query: ([Element]) -> SQLQuery) {
            if !elements.isEmpty { queries.append(query(elements)) }
        }
        // Now that the users' rows are locked.
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

    private func feed(_ entries: [UInt8], isDistributed: Bool, at now: Instant) -> [SQLQuery] {
        guard !entries.isEmpty else { return [] }
        return (isDistributed ? [FeedRows.assignTransaction()] : [])
            + [FeedRows.insert(.instant(now), .bytes(entries))] + feedRemovals.flatMap { $0.statements(number: nil) }
    }
}

/// The statements that write users' rows.
struct UserRowWrites {
    private(set) var queries: [SQLQuery] = []
    /// The users of each statement.
    private var touched: [[Identifier]] = []

    /// - Parameters:
    ///   - users: in the order of their ids, in which rows are locked.
    ///   - isGuarded: whether the transaction fails if a row has changed since it was read.
    ///   - feeds: whether each statement puts the entries of the users whom it has changed into the feed.
    init(_ users: [UserState], isGuarded: Bool, feeds: Bool, at now: Instant) {
        var fed: Set<Identifier> = []
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
        var versions: [Identifier: Int64] = [:]
        for user in kept { versions[user.userID] = user.version }
        func expected(_ some: [UserState]) -> SQLValue { .integers(some.map { versions[$0.userID] }) }
        func renewed(_ some: [UserState]) -> SQLValue {
            for user in some { versions[user.userID] = UserRows.newVersion() }
            return .integers(some.map { versions[$0.userID] })
        }
        let (formerProfiles, newProfiles) = (expected(profiles), renewed(profiles))
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
        let (formerAttributes, newAttributes) = (expected(attributes), renewed(attributes))
        add(
            attributes, UserRows.updateAttributes,
            [formerAttributes, newAttributes, .blobs(attributes.map(\.attributes))])
        let others = kept.filter { !$0.profileChanged && !$0.attributesChanged }
        let (formerOthers, newOthers) = (expected(others), renewed(others))
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

    /// Returns the users whose rows have changed since they were read, so that nothing was written.
    ///
    /// - Parameter results: of ``queries``.
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

    /// By how much the change alters the numbers of profiles and assignments.
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
