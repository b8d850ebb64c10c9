import Bucketing
import Chronology
import Dispatch
import Storage
import Synchronization

/// The process's only writer to the database: a serial queue that commits all waiting changes in one transaction (group
/// commit). A change is acknowledged after its commit, and after all readers of this process were notified of it.
///
/// ```
/// submit → waiting … drain → commit → transact           one transaction with all waiting changes
///                                   → report             reports the results to the submitters
///                                   → recover, report    if the transaction failed
/// ```
final class Writer: Sendable {
    private struct State {
        var waiting: [PendingWrite] = []
        /// The number of changes in `waiting`.
        var waitingChanges = 0
        /// The estimated memory that the waiting changes take, in bytes.
        var waitingBytes = 0
        /// Whether a call of `drain` is on the queue, or in progress.
        var isScheduled = false
        var isClosed = false
        /// Why transactions fail; `nil` if they succeed.
        var failure: Failure?
        /// Why closing the database failed.
        var closeFailure: StorageError?
        var metrics = StoreMetrics()

        /// Returns whether the caller must schedule a call of `drain`, and notes that the call is scheduled. Until that
        /// call is done, further callers get `false`.
        mutating func needsDraining() -> Bool {
            guard !isScheduled, !waiting.isEmpty else { return false }
            isScheduled = true
            return true
        }

        /// Sets the metrics that the database counts.
        mutating func take(_ counters: Counters) {
            metrics.profiles = Int(counters.profiles)
            metrics.assignments = Int(counters.assignments)
        }
    }

    /// Why transactions fail. The failure is over once a transaction succeeds that is as large as the largest failed
    /// one. A smaller one proves nothing, because it may still fit on a disk that is nearly full.
    private struct Failure {
        var error: StorageError
        /// The size of the largest failed transaction, in pages of the log.
        var pages: Int
    }

    /// The row of the table `counters`. Statements select the columns in this order.
    private struct Counters {
        var commits: Int64 = 0
        var profiles: Int64 = 0
        var assignments: Int64 = 0
        var latestTime = Instant.distantPast
        /// The number of the last row of the feed.
        var feedNumber: Int64 = 0

        init() {}

        init(_ row: Statement) {
            commits = row.integer(0)
            profiles = row.integer(1)
            assignments = row.integer(2)
            latestTime = row.instant(3)
            feedNumber = row.integer(4)
        }
    }

    /// Notifies the readers of this process of each commit.
    let notices = CommitNotices()
    /// The clock of the store. It is advanced to the time of every commit that this process has seen, so that times
    /// never go back, although several processes commit.
    let clock: StoreClock
    let userFilter: UserFilter
    /// The opened file, which must stay in place.
    let file: DatabaseFile
    private let checkpointer: Checkpointer
    private let configuration: SQLiteConfiguration
    private let queue = ThreadQueue(name: "sqlite-writer")
    private let state = Mutex(State())
    /// The maximum number of pages that a probe writes.
    private static let probePages = 4_096
    /// The connection; `nil` once the writer is closed.
    private let connection: QueueBound<Connection?>
    /// The erasures of other processes.
    private let erasures: QueueBound<Erasures>
    /// Whether changes are kept for readers of the feed.
    private let hasFeed: Bool
    /// When the files were last found in place, in monotonic nanoseconds; 0 after a failure.
    private let filesSeen: QueueBound<UInt64>

    init(file: DatabaseFile, configuration: SQLiteConfiguration) throws(SQLiteError) {
        let connection = try file.writer(lockTimeout: configuration.lockTimeout)
        hasFeed = try FeedRows.open(
            configuration.settings.isReadOnly ? .asStored : configuration.settings.feed, on: connection)
        self.connection = QueueBound(connection, queue)
        erasures = QueueBound(Erasures(), queue)
        clock = StoreClock(
            configuration.settings.clock ?? systemWallClock,
            maximumStep: configuration.isEdge ? StoreClock.maximumCorrection : StoreClock.maximumStep,
            report: configuration.settings.reportClock)
        filesSeen = QueueBound(0, queue)
        self.file = file.opened()
        checkpointer = Checkpointer(file: self.file, configuration)
        self.configuration = configuration
        userFilter = UserFilter(file: self.file, configuration: configuration)
        queue.sync { [self] in
            refreshCounters()
            if let commit = try? self.connection.value?.lastCommit().commit { userFilter.didCommit(commit, after: nil) }
        }
    }

    // MARK: Submitting

    /// Schedules a change after those submitted earlier.
    ///
    /// - Parameters:
    ///   - executor: where the completion is called; `nil` for the writer's queue. A change that is refused at once is
    ///     reported before the call returns.
    ///   - bytes: the estimated memory that the change takes while it waits.
    ///   - body: makes the change; see ``WriteTransaction/result(of:)``.
    ///   - completion: called once the change is durable or has failed.
    func submit<Value: Sendable>(
        on executor: (any StoreExecutor)? = nil, bytes: Int = WaitingBytes.ofChange,
        _ body: @escaping @Sendable (WriteTransaction) throws -> Value, completion: @escaping Completion<Value>
    ) {
        let completion = PendingCompletion(completion)
        submit(
            PendingWrite(changes: 1, bytes: bytes, on: executor) { transaction throws(SQLiteError) in
                let result = try transaction.result { try body(transaction) }
                return { completion.call(result) }
            } reportFailure: { error in
                completion.call(.failure(error))
            })
    }

    /// Schedules changes for one transaction, in order. A refused change does not affect the others. Cheaper than
    /// submitting the changes one by one.
    func submit<Change: Sendable, Value: Sendable>(
        on executor: any StoreExecutor, bytes: Int, _ changes: [Change],
        _ body: @escaping @Sendable (Change, WriteTransaction) throws -> Value,
        completion: @escaping ([Result<Value, StorageError>]) -> Void
    ) {
        let completion = PendingCompletion(completion)
        submit(
            PendingWrite(changes: changes.count, bytes: bytes, on: executor) { transaction throws(SQLiteError) in
                var results: [Result<Value, StorageError>] = []
                results.reserveCapacity(changes.count)
                for change in changes { results.append(try transaction.result { try body(change, transaction) }) }
                let finalResults = results
                return { completion.call(finalResults) }
            } reportFailure: { error in
                completion.call(changes.map { _ in .failure(error) })
            })
    }

    /// Makes a change after those submitted earlier, and waits until it is durable.
    func perform<Value: Sendable>(
        _ body: @escaping @Sendable (WriteTransaction) throws -> Value
    ) async throws(StorageError) -> Value {
        try await completed { submit(body, completion: $0) }
    }

    /// Checks that transactions succeed, with a commit that changes only the counters. While transactions fail, also
    /// writes as many pages to the log as the largest failed transaction, so that a success ends the failure.
    ///
    /// - Throws: the error of the transaction.
    func probe() async throws(StorageError) {
        try await perform { [self] transaction in
            if let failure = state.withLock(\.failure) { try transaction.ensureRoom(pages: failure.pages) }
            transaction.changed()
        }
    }

    /// Why transactions fail; `nil` if they succeed.
    var failure: StorageError? { state.withLock { $0.failure?.error } }

    /// Why acknowledged writes may be missing in the closed database; `nil` if none is missing.
    var closeFailure: StorageError? { state.withLock(\.closeFailure) }

    /// Adds a write to the queue, or reports at once that it is refused.
    private func submit(_ write: PendingWrite) {
        let (refusal, isFirst) = state.withLock { state -> (StorageError?, Bool) in
            if state.isClosed { return (.closed, false) }
            guard hasRoom(for: write, in: state) else {
                state.metrics.refusedChanges += UInt64(write.changes)
                return (.overloaded, false)
            }
            state.waiting.append(write)
            state.waitingChanges += write.changes
            state.waitingBytes += write.bytes
            return (nil, state.needsDraining())
        }
        if isFirst { drainSoon() }
        if let refusal { write.report(refusal) }
    }

    /// Whether a write may wait: the queue is not full, and the oldest write has not waited too long. A new write would
    /// probably wait as long as the oldest one.
    private func hasRoom(for write: PendingWrite, in state: State) -> Bool {
        guard let oldest = state.waiting.first else { return true }
        // May be negative: of two concurrent submissions, the later one may be the first in the queue.
        let waited = Int64(bitPattern: write.submittedAt &- oldest.submittedAt)
        return state.waitingChanges < configuration.settings.waitingChanges
            && state.waitingBytes < configuration.settings.waitingBytes
            && Double(waited) <= configuration.settings.waitingSeconds * 1e9
    }

    /// Wakes the writer. Do not call it with the lock held: the writer's thread takes the lock as soon as it wakes.
    private func drainSoon() {
        queue.async { [self] in drain() }
    }

    // MARK: Committing

    /// Commits the waiting writes, and schedules the next call if further writes have come meanwhile.
    private func drain() {
        let batch = takeWaiting(configuration.batchLimit)
        if !batch.isEmpty { commit(batch) }
        let isMoreWaiting = state.withLock { state in
            state.isScheduled = false
            return state.needsDraining()
        }
        if isMoreWaiting { drainSoon() }
    }

    /// Takes waiting writes until they have at least `limit` changes, or until none is left. A write is never split, so
    /// the changes may exceed the limit.
    private func takeWaiting(_ limit: Int) -> [PendingWrite] {
        state.withLock { state in
            guard state.waitingChanges > limit else {
                defer {
                    state.waiting = []
                    state.waitingChanges = 0
                    state.waitingBytes = 0
                }
                return state.waiting
            }
            var writes = 0
            var changes = 0
            var bytes = 0
            while changes < limit {
                changes += state.waiting[writes].changes
                bytes += state.waiting[writes].bytes
                writes += 1
            }
            defer {
                state.waiting.removeFirst(writes)
                state.waitingChanges -= changes
                state.waitingBytes -= bytes
            }
            return Array(state.waiting.prefix(writes))
        }
    }

    /// Commits writes in one transaction, and reports their results.
    private func commit(_ batch: [PendingWrite]) {
        let start = DispatchTime.now()
        do throws(SQLiteError) {
            let transaction = try transact(batch)
            let seconds = start.seconds(to: .now())
            let changes = Self.countChanges(batch)
            let hasRecovered = state.withLock { state in
                state.metrics.failedChanges += UInt64(transaction.refusals)
                guard transaction.hasWritten else { return false }
                state.metrics.auditEntries += transaction.auditEntries
                state.metrics.commits += 1
                state.metrics.changes += UInt64(changes - transaction.refusals)
                state.metrics.commitSeconds.observe(seconds)
                state.metrics.batchSizes.observe(Double(changes))
                guard let failure = state.failure, transaction.provenPages >= failure.pages else { return false }
                state.failure = nil
                return true
            }
            report(batch)
            guard transaction.hasWritten else { return }
            if hasRecovered { configuration.report(.writesSucceed) }
            if let connection = connection.value { checkpointer.logDidGrow(on: connection) }
        } catch {
            let pages = recover(from: error)
            let isFirst = state.withLock { state in
                defer {
                    state.failure = Failure(error: error.asStorageError, pages: max(pages, state.failure?.pages ?? 0))
                }
                return state.failure == nil
            }
            if isFirst { configuration.report(.writesFail(reason: error.asStorageError.description)) }
            // Writes that still wait would wait as long for the same lock, so they fail as well.
            let others = error.isBusy ? takeWaiting(.max) : []
            state.withLock { $0.metrics.failedChanges += UInt64(Self.countChanges(batch + others)) }
            report(batch + others, error.asStorageError)
        }
    }

    /// Reports the results of writes, or why all of them failed, with one job for each executor, so that each wakes
    /// once.
    private func report(_ writes: [PendingWrite], _ failure: StorageError? = nil) {
        var groups: [(executor: any StoreExecutor, writes: [PendingWrite])] = []
        for write in writes {
            guard let executor = write.executor else {
                write.report(failure)
                continue
            }
            if let index = groups.firstIndex(where: { $0.executor === executor }) {
                groups[index].writes.append(write)
            } else {
                groups.append((executor, [write]))
            }
        }
        for (executor, writes) in groups {
            executor.submit { for write in writes { write.report(failure) } }
        }
    }

    private static func countChanges(_ batch: [PendingWrite]) -> Int {
        batch.reduce(0) { $0 + $1.changes }
    }

    /// Performs writes in one transaction, and commits it if there is anything to commit.
    ///
    /// The order of the last steps keeps the caches of readers correct:
    ///
    /// 1. The number of the commit is announced (`announce`).
    /// 2. The user filter gets the new users.
    /// 3. The database commits.
    /// 4. The readers get the changes (`deliver`).
    private func transact(_ batch: [PendingWrite]) throws(SQLiteError) -> WriteTransaction {
        let connection = try openConnection(for: batch)
        try connection.statement("BEGIN IMMEDIATE").run()
        try file.contents?.expectUnchanged(on: connection)
        // If another process has written, its commits may have later times than this process's clock.
        if try erasures.value.update(on: connection) { clock.advance(to: try counters(on: connection).latestTime) }
        let transaction = WriteTransaction(
            connection, clock, userFilter: userFilter.latestFilter, erasures.value, hasFeed: hasFeed)
        for write in batch {
            transaction.submittedAt = write.submittedAt
            try write.perform(in: transaction)
        }
        if !transaction.tallies.isEmpty { try VariationRows.add(transaction.tallies, in: transaction) }
        guard transaction.hasWritten else {
            try connection.statement("COMMIT").run()
            return transaction
        }
        let erasure = try transaction.recordErasures()
        transaction.feed?.endRow()
        let counters = try raiseCounters(transaction)
        if let feed = transaction.feed {
            try FeedRows.insert(feed, upTo: counters.feedNumber, at: transaction.now, on: connection)
        }
        notices.announce(counters.commits)
        userFilter.add(transaction.newUsers)
        let (former, header) = try connection.commit()
        erasures.value.didCommit(header, erasure: erasure)
        userFilter.didCommit(Commit(number: counters.commits, header: header), after: former)
        notices.deliver(
            .init(number: counters.commits, changes: transaction.userChanges, header: header, after: former))
        state.withLock { $0.take(counters) }
        transaction.didWrite(pages: connection.takeWrittenPages())
        // The commit is durable only if the synced files are still in place. `now` is read before the check.
        let now = DispatchTime.now().uptimeNanoseconds
        try file.expectInPlace()
        try file.contents?.expectUnchanged(on: connection)
        filesSeen.value = now
        return transaction
    }

    /// Adds the changes of a transaction to the counters.
    private func raiseCounters(_ transaction: WriteTransaction) throws(SQLiteError) -> Counters {
        // Without RETURNING, for which SQLite makes a temporary table at each commit.
        try transaction.connection.statement(
            """
            UPDATE counters SET
                commits = commits + 1, profiles = profiles + ?1, assignments = assignments + ?2, latest_time = ?3,
                feed_number = feed_number + ?4
            """
        ).run {
            $0.bind(transaction.profiles, at: 1)
            $0.bind(transaction.assignments, at: 2)
            $0.bind(transaction.now.milliseconds, at: 3)
            $0.bind(Int64(transaction.feed?.rows.count ?? 0), at: 4)
        }
        return try counters(on: transaction.connection)
    }

    /// Reads the counters.
    private func counters(on connection: Connection) throws(SQLiteError) -> Counters {
        var counters = Counters()
        try connection.statement("SELECT commits, profiles, assignments, latest_time, feed_number FROM counters").run(
            row: { row in
                counters = Counters(row)
            })
        return counters
    }

    /// Prepares the connection for the next transaction, or marks it for replacement.
    ///
    /// - Returns: the number of pages that a probe must write to show that the failure is over.
    private func recover(from error: SQLiteError) -> Int {
        notices.announce(0)
        filesSeen.value = 0
        guard let connection = connection.value else { return 0 }
        let pages = connection.takeWrittenPages()
        if connection.isInTransaction { try? connection.execute("ROLLBACK") }
        if connection.isInTransaction || error.asksForReopening { connection.needsReopening = true }
        if error.code == SQLiteError.fileHasMoved { checkpointer.copyDeletedLog(on: connection) }
        return min(pages, Self.probePages)
    }

    /// Returns the connection for the next transaction, after a check that the files are in place.
    private func openConnection(for batch: [PendingWrite]) throws(SQLiteError) -> Connection {
        // The files were checked after the last commit. Writes that were submitted before this check need no further
        // one.
        let seen = filesSeen.value
        if !batch.allSatisfy({ $0.submittedAt < seen }) { try file.expectInPlace() }
        if let open = connection.value, !open.needsReopening { return open }
        // Opens the new connection before it closes the old one, because SQLite deletes the log with the last
        // connection.
        let fresh = try file.writer(lockTimeout: configuration.lockTimeout)
        connection.value = fresh
        return fresh
    }

    // MARK: Metrics

    /// Reads the counters and the size of the feed, which other processes change as well. Call it on the writer's
    /// queue.
    private func refreshCounters() {
        guard let connection = connection.value, let counters = try? counters(on: connection) else { return }
        clock.advance(to: counters.latestTime)
        let feedState = try? FeedRows.state(on: connection)
        let feed = feedState.flatMap { try? FeedRows.metrics($0, on: connection) }
        state.withLock { state in
            state.take(counters)
            if let feed { state.metrics.feed = feed }
        }
    }

    /// Schedules an update of the metrics that other processes change as well.
    func refreshMetrics() {
        queue.async { [self] in refreshCounters() }
    }

    func metrics() -> StoreMetrics {
        var metrics = state.withLock { state in
            var metrics = state.metrics
            metrics.waitingChanges = state.waitingChanges
            metrics.waitingBytes = state.waitingBytes
            return metrics
        }
        let sizes = file.sizes
        metrics.own = [
            StoreMetric(
                "holdfast_store_failed_checkpoints_total", .counter,
                "Times that the write-ahead log could not be copied into the database.", checkpointer.failures),
            StoreMetric(
                "holdfast_store_user_filter_bytes", .gauge,
                "Bytes of the filter of users with a profile, including one that is being filled.",
                UInt64(userFilter.bytes)),
            StoreMetric("holdfast_store_database_bytes", .gauge, "Size of the database file.", UInt64(sizes.database)),
            StoreMetric("holdfast_store_log_bytes", .gauge, "Size of the write-ahead log.", UInt64(sizes.log)),
        ]
        return metrics
    }

    /// Counts data that a sweep has deleted.
    func countDeleted(expiredAssignments: Int, auditEntries: Int) {
        state.withLock { state in
            state.metrics.expiredAssignments += UInt64(expiredAssignments)
            state.metrics.deletedAuditEntries += UInt64(auditEntries)
        }
    }

    // MARK: Closing

    /// Commits waiting changes, copies the log into the database, and closes it.
    func close() {
        state.withLock { $0.isClosed = true }
        queue.sync { [self] in
            while state.withLock({ !$0.waiting.isEmpty }) { drain() }
            userFilter.close()
            checkpointer.close(before: connection.value)
            if let connection = connection.value { checkFiles(before: connection) }
            // SQLite copies and deletes the log if nobody else has the database open.
            connection.value = nil
            let remaining = file.sizes.log
            if remaining > 0 { configuration.report(.logRemains(bytes: remaining)) }
        }
    }

    /// Checks the files before the connection is closed.
    ///
    /// If a file was overwritten, SQLite must not copy the log into the wrong database. If another log has taken the
    /// place of the open one, SQLite must not delete the other log.
    private func checkFiles(before connection: Connection) {
        do throws(SQLiteError) {
            // If only the log was deleted, SQLite still has it open and copies it.
            if !file.lacksOnlyLog { try file.expectInPlace() }
            try file.contents?.expectUnchanged(on: connection)
        } catch {
            if error.code == SQLiteError.fileWasOverwritten || (try? file.expectNoOtherLog()) == nil {
                connection.setCheckpointOnClose(false)
            }
            state.withLock { $0.closeFailure = error.asStorageError }
        }
    }
}

extension DispatchTime {
    /// Returns the seconds until a later time.
    func seconds(to end: DispatchTime) -> Double {
        Double(end.uptimeNanoseconds &- uptimeNanoseconds) / 1e9
    }
}
