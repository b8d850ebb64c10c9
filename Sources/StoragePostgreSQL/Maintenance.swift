import Bucketing
import Chronology
import Dispatch
import Storage

/// The background work of a server, at each tick of a timer:
///
/// - Every server reads the database server's clock, the size of the feed and, less often, the number of profiles.
/// - One server at a time, which has the lease, also sweeps: it deletes old data (see ``Sweep``), and folds tallies.
///
/// Sweeps use small transactions, which do not delay other changes. Readers do not depend on sweeps.
final class Maintenance: @unchecked Sendable {
    // Safe: mutable state is used on the executor only.
    private let store: PostgreSQLStore
    private let executor = DispatchExecutor(label: "postgresql-maintenance", qos: .utility)
    /// The session for sweeps.
    private let session: PostgreSQLSession
    /// The session for probes. It has connections of its own, because a probe must wait neither for sweeps nor for a
    /// standby that a sweep waits for.
    private let probing: PostgreSQLSession
    private let timer: any DispatchSourceTimer
    private var isSweeping = false
    /// The number of ticks so far.
    private var ticks = 0
    /// The number of the last row of `tallies` that the present sweep has folded. The next step begins after this row,
    /// so that it need not skip deleted rows. The next sweep begins at 0, because a row may be committed after a row
    /// with a higher number.
    private var lastFolded: Int64 = 0

    /// The number of the last row of the feed at the previous sweep. Only rows up to it are deleted; see
    /// ``deleteFeed(at:)``.
    private var settledFeed: Int64 = 0
    /// The pass over the feed that overwrites entries of erased users; `nil` between two passes.
    private var scrubbing: FeedScrubbing?

    /// The maximum number of rows of `tallies` that are folded at once.
    private static let foldedRows: Int64 = 10_000
    /// The number of ticks from one count of profiles to the next.
    private static let ticksPerCount = 12

    /// Takes or extends the lease of the one server that sweeps. The lease expires if the server stops. Not an advisory
    /// lock, which would be lost behind a pooler in transaction mode.
    private static let takeLease = Statement(
        "take_lease",
        """
        INSERT INTO leases (name, holder, ends_at)
        VALUES ('maintenance', $1, clock_timestamp() + make_interval(secs => $2))
        ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, ends_at = excluded.ends_at
        WHERE leases.holder = excluded.holder OR leases.ends_at < clock_timestamp()
        RETURNING 1
        """)

    init(_ store: PostgreSQLStore) throws(StorageError) {
        self.store = store
        session = PostgreSQLSession(store, on: executor)
        probing = PostgreSQLSession(store, on: executor)
        timer = DispatchSource.makeTimerSource(queue: DispatchQueue(label: "postgresql-timer", qos: .utility))
        let interval = DispatchTimeInterval.milliseconds(Int(store.settings.retentionInterval * 1_000))
        timer.schedule(deadline: .now() + interval, repeating: interval, leeway: .milliseconds(100))
        timer.setEventHandler { [weak self] in
            guard let self else { return }
            Task(executorPreference: executor) { await self.tick() }
        }
        timer.resume()
    }

    /// Runs a probe with a session of its own.
    func probe(
        _ work: @escaping @Sendable (PostgreSQLSession) async throws(StorageError) -> Void
    ) async throws(StorageError) {
        try await Task(executorPreference: executor) { () async -> Result<Void, StorageError> in
            await Result.of { () throws(StorageError) in try await work(self.probing) }
        }.value.get()
    }

    /// Blocks until the work in progress is done.
    func close() {
        timer.cancel()
        let isClosed = DispatchSemaphore(value: 0)
        executor.submit { [session, probing] in
            session.close()
            probing.close()
            isClosed.signal()
        }
        isClosed.wait()
    }

    /// Reads the clock and the metrics, and sweeps if this server has the lease.
    private func tick() async {
        guard !store.isClosed else { return }
        ticks += 1
        let counts = ticks.isMultiple(of: Self.ticksPerCount)
        await readTime()
        if counts { await count() }
        await readFeed()
        guard store.settings.deletesOld, !store.settings.isReadOnly else { return }
        // Several ticks and the longest exchange, so that a late tick does not lose the lease.
        let seconds = 3 * store.settings.retentionInterval + store.configuration.statementTimeout
        // The lease is extended also during a sweep, so that a long sweep keeps it.
        let lease = await write([Self.takeLease(.integer(store.server), .double(seconds))])
        guard !isSweeping, let lease, lease[0].count > 0 else { return }
        isSweeping = true
        // One kind of data after the other, each until nothing is left. After a failure the next sweep continues.
        for kind in Sweep.allCases {
            while !store.isClosed, await sweep(kind) {}
        }
        isSweeping = false
    }

    /// Reads the database server's clock, and stores the latest time.
    private func readTime() async {
        let sentAt = ServerTime.monotonic
        // A failure is reported by other queries. Meanwhile the last measured difference stays in use.
        guard let rows = try? await session.read([ServerTime.read()]), let time = rows[0].first else { return }
        store.time.take(microseconds: time.integer(0), latest: time.instant(1), sentAt: sentAt)
        guard !store.settings.isReadOnly else { return }
        _ = try? await session.read([ServerTime.keep(.instant(store.clock.now()))], onlyReads: false)
    }

    /// Updates the metrics of the feed.
    private func readFeed() async {
        guard let rows = try? await session.read([FeedState.read, FeedMetrics.oldestQuery]),
            let state = rows[0].first.map({ FeedState($0) })
        else { return }
        var metrics = FeedMetrics()
        metrics.rows = state.rows
        metrics.bytes = state.bytes
        metrics.oldest = rows[1].first?.instant(0)
        store.setFeedMetrics(metrics)
    }

    /// Counts the profiles and assignments that all servers have stored.
    private func count() async {
        guard let size = try? await session.read([ProfileCount.size()]) else { return }
        var percentage = ProfileCount.percentage(rows: size[0][0].double(0), isDistributed: store.isDistributed)
        while let rows = try? await session.read([ProfileCount.sample(.double(percentage))]), let row = rows[0].first {
            guard let larger = ProfileCount.largerPercentage(than: percentage, rows: row.double(2)) else {
                return store.setCounts(
                    profiles: ProfileCount.scaled(row.double(0), percentage),
                    assignments: ProfileCount.scaled(row.double(1), percentage))
            }
            percentage = larger
        }
    }

    // MARK: Sweeping

    /// The parts of a sweep, in this order.
    private enum Sweep: CaseIterable {
        /// Deletes expired assignments.
        case profiles
        /// Deletes old audit entries.
        case audit
        /// Deletes old erasures.
        case erasures
        /// Deletes old goal events.
        case goalEvents
        /// Deletes values of deleted attributes.
        case attributes
        /// Adds tallies to the totals of their keys.
        case tallies
        /// Deletes old rows of the feed.
        case feed
        /// Overwrites entries of erased users in the feed.
        case feedOfErased
    }

    /// Does one step of a sweep, in one small transaction.
    ///
    /// - Returns: whether there is more to do.
    private func sweep(_ kind: Sweep) async -> Bool {
        let now = store.clock.now()
        switch kind {
        case .profiles: return await deleteExpired(at: now)
        case .audit: return await deleteAuditEntries(at: now)
        case .erasures:
            _ = await delete(ErasureRows.prune(.double(ErasureRules.memory.inSeconds)))
            _ = await delete(RemovedUser.prune(before: now))
            return false
        case .goalEvents: return await deleteGoalEvents(at: now)
        case .attributes: return await removeAttributes()
        case .tallies: return await foldTallies()
        case .feed: return await deleteFeed(at: now)
        case .feedOfErased: return await scrubFeed()
        }
    }

    // Each of the following functions does one step, and returns whether there is more to do.

    private func deleteAuditEntries(at now: Instant) async -> Bool {
        let batch = store.settings.retentionBatch
        let time = now - store.settings.auditRetention
        let count = await delete(AuditRows.prune(.instant(time), .integer(batch)))
        store.countDeleted(expiredAssignments: 0, auditEntries: count)
        return count == batch
    }

    private func deleteGoalEvents(at now: Instant) async -> Bool {
        guard let retention = store.settings.eventRetention else { return false }
        let batch = store.settings.retentionBatch
        let time = now - max(retention, EventRules.minimumRetention)
        let count = await delete(EventRows.deleteOldestGoalEvents(.instant(time), .integer(batch)))
        guard count > 0 else { return false }
        _ = await write([SeriesRows.noteDeletedEvents(.instant(time))])
        return count == batch
    }

    /// Runs a statement that deletes rows and returns one row for each.
    ///
    /// - Returns: the number of deleted rows.
    private func delete(_ query: SQLQuery) async -> Int {
        await write([Statement.planForValues(), query])?[1].count ?? 0
    }

    /// Runs statements in one transaction.
    ///
    /// - Returns: `nil` after a failure, which is not reported: readiness and metrics show the failures of other
    ///   transactions.
    private func write(_ queries: [SQLQuery]) async -> [Rows]? {
        let results = try? await session.read([Statement.begin()] + queries + [Statement.commit()], onlyReads: false)
        return results.map { Array($0.dropFirst().dropLast()) }
    }

    /// Makes changes of users like those of clients.
    ///
    /// - Returns: whether the changes are durable.
    private func submit(_ kind: PendingChange.Kind, _ steps: [ChangeStep]) async -> Bool {
        guard !steps.isEmpty else { return true }
        return await settled { done in session.submit(PendingChange(kind, steps) { done($0 == nil) }) }
    }

    /// Deletes expired assignments, and rows of users about whom nothing is stored any more.
    private func deleteExpired(at now: Instant) async -> Bool {
        let batch = store.settings.retentionBatch
        guard let rows = try? await session.read([UserRows.expired(.instant(now), .integer(batch))]) else {
            return false
        }
        let found = rows[0].map { (userID: $0.identifier(0), isEmpty: $0.integer(1) != 0) }
        var removed: [Identifier: Int] = [:]
        let steps = found.filter { !$0.isEmpty }.map { row in
            ChangeStep(row.userID) { transaction in
                guard let user = transaction.user(row.userID) else { return false }
                // A damaged profile stays, so that reading it reports the damage.
                guard case .present(let record) = user.profile else { return true }
                let rest = record.visible(at: transaction.now)
                guard rest != record else { return true }
                user.set(rest)
                removed[row.userID] = record.count - (rest?.count ?? 0)
                return true
            }
        }
        let isStored = await submit(.profile, steps)
        if isStored { store.countDeleted(expiredAssignments: removed.values.reduce(0, +), auditEntries: 0) }
        let hasAdvanced = await deleteEmptyRows(of: found.filter(\.isEmpty).map(\.userID))
        // If nothing has changed, the next step would find the same rows again.
        let hasChanged = (isStored && !removed.isEmpty) || hasAdvanced
        return hasChanged && found.count == batch
    }

    /// Deletes the rows of those users about whom nothing is stored any more. Removes the mark
    /// ``ProfileRecord/maybeEmpty`` from the other rows, so that the next sweep does not find them.
    ///
    /// - Returns: whether all rows were deleted or lost their mark.
    private func deleteEmptyRows(of users: [Identifier]) async -> Bool {
        guard !users.isEmpty else { return false }
        let forcedVariations = SQLQuery.each(UserRecords.PartRows.forcedVariations.rows, of: users)
        // The versions are read first. If something is stored about a user after that, the row gets another version and
        // is not deleted.
        guard
            let rows = try? await session.read([UserRows.emptyRows(.texts(users.map(\.string))), forcedVariations])
        else { return false }
        let forced = Set(rows[1].map { ForcedVariation($0).userID.string })
        let deleted = rows[0].filter { !forced.contains($0.text(0)) }
        let names = deleted.map { $0.text(0) }
        let kept = Set(users.map(\.string)).subtracting(names)
        let results = await write([
            UserRows.deleteRows(.texts(names), .integers(deleted.map { $0.integer(1) })),
            UserRows.unmarkRows(.texts(kept.sorted())),
        ])
        return results != nil
    }

    /// Deletes users' values of an attribute that was deleted from the schema. Each step records its progress, so that
    /// another server can continue.
    private func removeAttributes() async -> Bool {
        guard let removals = try? await session.read([AttributeRows.removals()]), let removal = removals[0].first else {
            return false
        }
        let number = removal.integer(0)
        let batch = store.settings.retentionBatch
        guard let rows = try? await session.read([UserRows.attributePage(.text(removal.text(1)), .integer(batch))])
        else { return false }
        guard let last = rows[0].last else {
            _ = await delete(AttributeRows.endRemoval(.integer(number)))
            return true
        }
        let attribute = UInt32(clamping: number)
        let steps = rows[0].compactMap { row -> ChangeStep? in
            guard AttributeRecord(checking: row.bytes(1))?[attribute] != nil else { return nil }
            return Self.removal(of: attribute, from: row.identifier(0))
        }
        guard await submit(.attributes, steps) else { return false }
        _ = await delete(AttributeRows.advanceRemoval(.integer(number), .text(last.text(0))))
        return true
    }

    /// Returns the step that deletes a user's value of an attribute.
    private static func removal(of attribute: UInt32, from userID: Identifier) -> ChangeStep {
        ChangeStep(userID) { transaction in
            guard let user = transaction.user(userID) else { return false }
            // A damaged record stays, so that reading it reports the damage.
            guard let bytes = user.attributes, let record = AttributeRecord(checking: bytes),
                record[attribute] != nil
            else { return true }
            let rest = record.applying([attribute: .remove]) { _ in }
            user.set(rest.isEmpty ? nil : rest)
            return true
        }
    }

    /// Makes a change of data that all users share.
    ///
    /// - Parameter writes: see ``ProjectChange/writes``.
    /// - Returns: whether the change is durable.
    private func submit(
        lock: [SQLQuery], reads: [SQLQuery], writes: @escaping ([Rows]) -> (queries: [SQLQuery], auditEntries: Int)
    ) async -> Bool {
        await settled { done in
            session.submit(ProjectChange(lock: lock, reads: reads, writes: writes) { done($0 == nil) })
        }
    }

    /// Adds the oldest tallies to the totals of their keys; see ``TallyRow``.
    private func foldTallies() async -> Bool {
        var last = lastFolded
        var isFull = false
        let reads = [Statement.planForValues(), TallyRows.take(.integer(last), .integer(Self.foldedRows))]
        let isStored = await submit(lock: [], reads: reads) { rows in
            let taken = rows[1]
            // Column 7 is the number of a row of the table. Totals have none.
            let numbers = taken.filter { !$0.isNull(7) }.map { $0.integer(7) }
            isFull = numbers.count == Self.foldedRows
            last = numbers.max() ?? 0
            return (taken.count > 0 ? [TallyRows.insert(TallyRow.folded(taken), areTotals: true)] : [], 0)
        }
        lastFolded = isFull && isStored ? last : 0
        return lastFolded > 0
    }

    // MARK: The feed

    /// Deletes the rows of the feed that are older than the feed is kept. Rows that are newer than the previous sweep
    /// stay, because a transaction with a lower number may still be open.
    private func deleteFeed(at now: Instant) async -> Bool {
        let mode = store.settings.feed
        let batch = store.settings.retentionBatch
        let bound = settledFeed
        guard let rows = try? await session.read([FeedState.lastNumber(.postgreSQL), FeedState.read]),
            let last = rows[0].first?.integer(0), let known = rows[1].first.map({ FeedState($0) })
        else { return false }
        var isMore = false
        let reads = [known.countNew(to: bound), FeedState.oldest(to: bound, limit: batch)]
        let isStored = await submit(lock: [FeedRows.lockState()], reads: reads) { rows in
            guard let stored = rows[0].first.map({ FeedState($0) }) else { return ([], 0) }
            var state = stored
            // If another server has counted the new rows meanwhile, they must not be counted twice.
            if stored.countedTo == known.countedTo, let row = rows[1].first { state.count(to: bound, row) }
            let count = state.deleteOldest(of: rows[2].map { .init($0) }, mode, at: now)
            isMore = count == batch
            guard state != stored else { return ([], 0) }
            return ((count > 0 ? state.deletions : []) + [state.update], 0)
        }
        if !isMore { settledFeed = last }
        return isStored && isMore
    }

    /// Overwrites the entries of erased users in the feed.
    private func scrubFeed() async -> Bool {
        guard var pass = scrubbing else {
            guard let rows = try? await session.read([FeedRemoval.newestErasure]),
                let newest = rows[0].first?.integer(0)
            else { return false }
            scrubbing = FeedScrubbing(newestErasure: newest)
            return true
        }
        // The removals are read after the rows, so that they include all that concern these rows.
        guard let rows = try? await session.read([pass.query, FeedScrubbing.removals]) else {
            return false
        }
        let queries = pass.take(rows[0].map { FeedRow($0) }, rows[1].map { FeedRemoval($0) })
        guard await write(queries) != nil else { return false }
        scrubbing = pass.isComplete ? nil : pass
        return scrubbing != nil
    }
}
