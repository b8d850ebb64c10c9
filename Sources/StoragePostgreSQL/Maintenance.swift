import Bucketing
import Dispatch
import Storage

/// Deletes expired assignments, old goal events, old audit entries and values of deleted attributes; folds tallies;
/// counts profiles. It uses small transactions, and one server at a time does it. Readers do not depend on it.
final class Maintenance: @unchecked Sendable {
    // Safe: mutable state is used on the executor only.
    private let store: PostgreSQLStore
    private let executor = DispatchExecutor(label: "postgresql-maintenance", qos: .utility)
    private let session: PostgreSQLSession
    /// For probes: their connections wait neither for sweeps nor for a standby that a sweep waits for.
    private let probing: PostgreSQLSession
    private let timer: any DispatchSourceTimer
    private var isSweeping = false
    private var ticks = 0
    /// The number of the last row of `tallies` that the present sweep has folded, so that the next step need not pass over
    /// those deleted before it. A later sweep begins anew: a row may be committed after one with a higher number.
    private var lastFolded: Int64 = 0

    /// The row of the feed that was the last at the former sweep.
    private var settledFeed: Int64 = 0
    private var scrubbing: FeedScrubbing?

    /// Rows of `tallies` that are folded at once.
    private static let foldedRows: Int64 = 10_000
    /// Sweeps between two counts.
    private static let ticksPerCount = 12

    /// Takes or extends the lease of the one server that sweeps; it expires if the server stops sweeping. An advisory
    /// lock would not do: a pooler in transaction mode would lose it.
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
            executor.submit { self.tick() }
        }
        timer.resume()
    }

    /// Schedules a probe.
    func probe(_ work: @escaping @Sendable (PostgreSQLSession) -> Void) {
        executor.submit { [probing] in work(probing) }
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

    private func tick() {
        guard !store.isClosed else { return }
        ticks += 1
        readTime()
        if ticks.isMultiple(of: Self.ticksPerCount) { count() }
        readFeed()
        guard store.settings.deletesOld, !store.settings.isReadOnly else { return }
        let seconds = 3 * store.settings.retentionInterval + store.configuration.statementTimeout
        let lease = Self.takeLease(.integer(store.server), .double(seconds))
        // A long sweep keeps its lease.
        guard !isSweeping else { return write([lease]) { _ in } }
        isSweeping = true
        write([lease]) { [self] rows in
            guard let rows, rows[0].count > 0 else { return isSweeping = false }
            sweep(Sweep.allCases[...])
        }
    }

    /// Reads the server's clock, and keeps the latest time.
    private func readTime() {
        let sentAt = ServerTime.monotonic
        session.read([ServerTime.read()]) { [self] result in
            // A failure shows elsewhere. The monotonic clock goes on.
            guard case .success(let rows) = result, rows[0].count > 0 else { return }
            store.time.take(microseconds: rows[0][0].integer(0), latest: rows[0][0].integer(1), sentAt: sentAt)
            guard !store.settings.isReadOnly else { return }
            session.read([ServerTime.keep(.integer(store.clock.now()))], onlyReads: false) { _ in }
        }
    }

    private func readFeed() {
        session.read([Query(FeedState.read), Query(FeedMetrics.oldestQuery)]) { [store] result in
            guard case .success(let rows) = result, let state = rows[0].first.map({ FeedState($0) }) else { return }
            var metrics = FeedMetrics()
            (metrics.rows, metrics.bytes, metrics.oldest) = (state.rows, state.bytes, rows[1].first?.bounded(0))
            store.took(metrics)
        }
    }

    /// Counts the profiles and assignments that all servers have stored.
    private func count() {
        session.read([ProfileCount.size()]) { [self] result in
            guard case .success(let rows) = result else { return }
            count(ProfileCount.percentage(rows: rows[0][0].double(0), isDistributed: store.isDistributed))
        }
    }

    private func count(_ percentage: Double) {
        session.read([ProfileCount.sample(.double(percentage))]) { [self] result in
            guard case .success(let rows) = result, rows[0].count > 0 else { return }
            if let larger = ProfileCount.largerPercentage(than: percentage, rows: rows[0][0].double(2)) {
                return count(larger)
            }
            store.recounted(
                profiles: ProfileCount.scaled(rows[0][0].double(0), percentage),
                assignments: ProfileCount.scaled(rows[0][0].double(1), percentage))
        }
    }

    // MARK: Sweeping

    private enum Sweep: CaseIterable {
        case profiles, audit, erasures, goalEvents, attributes, tallies, feed, feedOfErased
    }

    /// Sweeps one kind of data after the other, each until nothing is left. After a failure the next sweep continues.
    private func sweep(_ rest: ArraySlice<Sweep>) {
        guard let first = rest.first, !store.isClosed else { return isSweeping = false }
        let done: (_ isMore: Bool) -> Void = { [self] isMore in sweep(isMore ? rest : rest.dropFirst()) }
        let settings = store.settings
        let (now, batch) = (store.clock.now(), settings.retentionBatch)
        switch first {
        case .profiles: deleteExpired(at: now, done)
        case .audit:
            let time = now - settings.auditRetention.wholeMilliseconds
            delete(AuditRows.prune(.integer(time), .integer(batch))) { [store] count in
                store.countDeleted(expiredAssignments: 0, auditEntries: count)
                done(count == batch)
            }
        case .erasures:
            delete(ErasureRows.prune(.double(ErasureRules.memory))) { _ in }
            delete(Query(RemovedUser.prune(before: now))) { _ in done(false) }
        case .goalEvents:
            guard let retention = settings.eventRetention else { return done(false) }
            let time = now - max(retention, EventRules.minimumRetention)
            delete(EventRows.deleteOldestGoalEvents(.integer(time), .integer(batch))) { [self] count in
                guard count > 0 else { return done(false) }
                write([SeriesRows.noteDeletedEvents(.integer(time))]) { _ in done(count == batch) }
            }
        case .attributes: removeAttributes(done)
        case .tallies: foldTallies(done)
        case .feed: deleteFeed(at: now, done)
        case .feedOfErased: scrubFeed(done)
        }
    }

    private func delete(_ query: Query, _ completion: @escaping (_ count: Int) -> Void) {
        write([Statement.planForValues(), query]) { completion($0?[1].count ?? 0) }
    }

    /// - Parameter completion: called with `nil` after a failure. It is not reported here: readiness and metrics show
    ///   failures of other transactions.
    private func write(_ queries: [Query], _ completion: @escaping ([Rows]?) -> Void) {
        session.read([Statement.begin()] + queries + [Statement.commit()], onlyReads: false) { result in
            completion((try? result.get()).map { Array($0.dropFirst().dropLast()) })
        }
    }

    private func deleteExpired(at now: Timestamp, _ done: @escaping (Bool) -> Void) {
        let batch = store.settings.retentionBatch
        session.read([UserRows.expired(.integer(now), .integer(batch))]) { [self] result in
            guard case .success(let rows) = result, rows[0].count > 0 else { return done(false) }
            let isMore = rows[0].count == batch
            let found = rows[0].map { (userID: $0.identifier(0), isEmpty: $0.integer(1) != 0) }
            let (users, empty) = (found.filter { !$0.isEmpty }.map(\.userID), found.filter(\.isEmpty).map(\.userID))
            guard !users.isEmpty else { return deleteEmptyRows(of: empty) { done($0 && isMore) } }
            var removed: [Identifier: Int] = [:]
            let steps = users.map { userID in
                ChangeStep(userID) { transaction in
                    guard let user = transaction.user(userID) else { return false }
                    // A damaged profile stays, so that reading it reports the damage.
                    guard case .present(let record) = user.profile else { return true }
                    let rest = record.visible(at: transaction.now)
                    guard rest != record else { return true }
                    user.set(rest)
                    removed[userID] = record.count - (rest?.count ?? 0)
                    return true
                }
            }
            session.submit(
                PendingChange(.profile, steps) { [self] failure in
                    let assignments = removed.values.reduce(0, +)
                    if failure == nil { store.countDeleted(expiredAssignments: assignments, auditEntries: 0) }
                    let hasAdvanced = failure == nil && !removed.isEmpty
                    deleteEmptyRows(of: empty) { done((hasAdvanced || $0) && isMore) }
                })
        }
    }

    /// Deletes the rows of users about whom nothing is stored any more. Others are not looked at again.
    ///
    /// - Parameter done: called with whether a row was deleted or is not looked at again.
    private func deleteEmptyRows(of users: [Identifier], _ done: @escaping (Bool) -> Void) {
        guard !users.isEmpty else { return done(false) }
        let forced = Query.each(UserRecords.PartRows.forcedVariations.rows, of: users)
        // The versions are read first: what is stored about a user later renews it.
        session.read([UserRows.emptyRows(.texts(users.map(\.string))), forced]) { [self] result in
            guard case .success(let rows) = result else { return done(false) }
            let forced = Set(rows[1].map { ForcedVariation($0).userID.string })
            let deleted = rows[0].filter { !forced.contains($0.text(0)) }
            let names = deleted.map { $0.text(0) }
            let kept = Set(users.map(\.string)).subtracting(names)
            write([
                UserRows.deleteRows(.texts(names), .integers(deleted.map { $0.integer(1) })),
                UserRows.unmarkRows(.texts(kept.sorted())),
            ]) { done($0 != nil) }
        }
    }

    /// Deletes values of attributes that were removed from the schema. Each step records its progress, so that another
    /// server may go on.
    private func removeAttributes(_ done: @escaping (Bool) -> Void) {
        session.read([AttributeRows.removals()]) { [self] result in
            guard case .success(let rows) = result, rows[0].count > 0 else { return done(false) }
            let number = rows[0][0].integer(0)
            removeValues(of: number, after: rows[0][0].text(1), done)
        }
    }

    private func removeValues(of number: Int64, after userID: String, _ done: @escaping (Bool) -> Void) {
        let batch = store.settings.retentionBatch
        session.read([UserRows.attributePage(.text(userID), .integer(batch))]) { [self] result in
            guard case .success(let rows) = result else { return done(false) }
            guard rows[0].count > 0 else {
                return delete(AttributeRows.endRemoval(.integer(number))) { _ in done(true) }
            }
            let advance = AttributeRows.advanceRemoval(.integer(number), .text(rows[0].last?.text(0)))
            let attribute = UInt32(clamping: number)
            let steps = rows[0].compactMap { row -> ChangeStep? in
                guard AttributeRecord(checking: row.bytes(1))?[attribute] != nil else { return nil }
                return Self.removal(of: attribute, from: row.identifier(0))
            }
            guard !steps.isEmpty else { return delete(advance) { _ in done(true) } }
            session.submit(
                PendingChange(.attributes, steps) { [self] failure in
                    guard failure == nil else { return done(false) }
                    delete(advance) { _ in done(true) }
                })
        }
    }

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

    /// Adds tallies to the totals of their keys, the oldest first.
    private func foldTallies(_ done: @escaping (Bool) -> Void) {
        var (last, isFull) = (lastFolded, false)
        session.submit(
            ProjectChange(
                lock: [], reads: [Statement.planForValues(), TallyRows.take(.integer(last), .integer(Self.foldedRows))]
            ) { rows in
                let taken = rows[1]
                let numbers = taken.filter { !$0.isNull(7) }.map { $0.integer(7) }
                isFull = numbers.count == Self.foldedRows
                last = numbers.max() ?? 0
                return (taken.count > 0 ? [TallyRows.insert(TallyRow.folded(taken), areTotals: true)] : [], 0)
            } complete: { [self] failure in
                lastFolded = isFull && failure == nil ? last : 0
                done(lastFolded > 0)
            })
    }

    // MARK: The feed

    /// Deletes what has been kept long enough. The newest rows are left alone until the next sweep: a transaction with a
    /// lower number may still be open.
    private func deleteFeed(at now: Timestamp, _ done: @escaping (Bool) -> Void) {
        let (mode, batch, bound) = (store.settings.feed, store.settings.retentionBatch, settledFeed)
        session.read([Query(FeedState.lastNumber(.postgreSQL)), Query(FeedState.read)]) { [self] result in
            guard case .success(let rows) = result, let last = rows[0].first?.integer(0),
                let known = rows[1].first.map({ FeedState($0) })
            else { return done(false) }
            var isMore = false
            session.submit(
                ProjectChange(
                    lock: [FeedRows.lockState()],
                    reads: [
                        Query(known.countNew(to: bound)), Query(FeedState.oldest(to: bound, limit: batch)),
                    ]
                ) { rows in
                    guard let stored = rows[0].first.map({ FeedState($0) }) else { return ([], 0) }
                    var state = stored
                    // Another server may have counted them meanwhile.
                    if stored.countedTo == known.countedTo, let row = rows[1].first { state.count(to: bound, row) }
                    let count = state.deleteOldest(of: rows[2].map { .init($0) }, mode, at: now)
                    isMore = count == batch
                    guard state != stored else { return ([], 0) }
                    return ((count > 0 ? state.deletions : []).map { Query($0) } + [Query(state.update)], 0)
                } complete: { [self] failure in
                    if !isMore { settledFeed = last }
                    done(failure == nil && isMore)
                })
        }
    }

    /// Overwrites what the feed still has of erased users.
    private func scrubFeed(_ done: @escaping (Bool) -> Void) {
        guard var pass = scrubbing else {
            return session.read([Query(FeedRemoval.newestErasure)]) { [self] result in
                guard case .success(let rows) = result, let newest = rows[0].first?.integer(0) else {
                    return done(false)
                }
                scrubbing = FeedScrubbing(newestErasure: newest)
                done(true)
            }
        }
        // What is removed is read after the rows, so that it is not forgotten before them.
        session.read([Query(pass.query), Query(FeedScrubbing.removals)]) { [self] result in
            guard case .success(let rows) = result else { return done(false) }
            let queries = pass.take(rows[0].map { FeedRow($0) }, rows[1].map { FeedRemoval($0) })
            write(queries.map { Query($0) }) { [self] results in
                guard results != nil else { return done(false) }
                scrubbing = pass.isComplete ? nil : pass
                done(scrubbing != nil)
            }
        }
    }
}
