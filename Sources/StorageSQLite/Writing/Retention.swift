import Bucketing
import Chronology
import Dispatch
import Storage
import Synchronization

/// Deletes expired assignments, old goal events and audit entries, and outdated erasures, in small transactions that do not
/// delay other changes. Readers do not depend on it: they do not see an expired assignment.
final class Retention: @unchecked Sendable {
    // Safe: all state is constant, and a timer source may be cancelled from any thread.
    private let writer: Writer
    private let batch: Int
    private let auditRetention: TimeSpan
    private let eventRetention: TimeSpan?
    private let timer: any DispatchSourceTimer
    private let profiles = BatchChain()
    private let events = BatchChain()
    private let feed: FeedRetention

    init(writer: Writer, reader: BackgroundReader, configuration: SQLiteConfiguration) {
        self.writer = writer
        batch = configuration.settings.retentionBatch
        auditRetention = configuration.settings.auditRetention
        eventRetention = configuration.settings.eventRetention.map { max($0, EventRules.minimumRetention) }
        feed = FeedRetention(writer: writer, reader: reader, configuration: configuration)
        timer = DispatchSource.makeTimerSource(queue: DispatchQueue(label: "retention", qos: .utility))
        let interval = DispatchTimeInterval.milliseconds(Int(configuration.settings.retentionInterval * 1_000))
        timer.schedule(deadline: .now() + interval, repeating: interval, leeway: .milliseconds(100))
        timer.setEventHandler { [weak self] in
            guard let self else { return }
            writer.refreshMetrics()
            profiles.start { await self.sweepProfiles() }
            if let eventRetention { events.start { await self.sweepEvents(eventRetention) } }
            feed.sweep()
        }
        timer.resume()
    }

    func stop() {
        timer.cancel()
    }

    private func sweepProfiles() async -> Bool {
        let deleted = try? await writer.perform { [batch, auditRetention] transaction in
            let now = transaction.now
            let expired = try Self.deleteExpired(at: now, limit: batch, in: transaction)
            let old = try Self.delete(
                """
                DELETE FROM audit
                WHERE id IN (SELECT id FROM audit WHERE recorded_at < ?1 ORDER BY recorded_at LIMIT ?2)
                """, before: now - auditRetention, limit: batch, in: transaction)
            try ErasureRows.prune(limit: batch, in: transaction)
            try transaction.connection.run(RemovedUser.prune(before: now))
            return (expired, old)
        }
        // Readiness and metrics report a failure; the next sweep tries again.
        guard let (expired, old) = deleted else { return false }
        writer.countDeleted(expiredAssignments: expired.assignments, auditEntries: old)
        return expired.found == batch && expired.records > 0 || old == batch
    }

    private func sweepEvents(_ eventRetention: TimeSpan) async -> Bool {
        let deleted = try? await writer.perform { [batch] transaction in
            // The tallies keep counting them.
            let time = transaction.now - eventRetention
            let count = try Self.delete(
                """
                DELETE FROM goal_events
                WHERE number IN (SELECT number FROM goal_events ORDER BY number LIMIT ?2) AND received_at < ?1
                """, before: time, limit: batch, in: transaction)
            if count > 0 {
                try transaction.connection.change(
                    "UPDATE counters SET events_since = max(events_since, ?1)", .instant(time))
            }
            return count
        }
        return deleted == batch
    }

    /// Deletes the oldest rows that are from before a time.
    ///
    /// - Returns: the number of deleted rows.
    private static func delete(
        _ sql: StaticString, before time: Instant, limit: Int, in transaction: WriteTransaction
    ) throws(SQLiteError) -> Int {
        let count = try transaction.connection.change(sql, .instant(time), .integer(limit))
        if count > 0 { transaction.changed() }
        return count
    }

    private static func deleteExpired(
        at now: Instant, limit: Int, in transaction: WriteTransaction
    ) throws(SQLiteError) -> (found: Int, records: Int, assignments: Int) {
        let rows = try ProfileRows.expired(at: now, limit: limit, on: transaction.connection)
        var (records, assignments) = (0, 0)
        for (userID, bytes) in rows {
            // A damaged profile stays, so that reading it reports the damage.
            guard let record = try? ProfileRecord(checking: bytes) else { continue }
            let rest = record.visible(at: now)
            if let rest {
                try transaction.put(rest, for: userID, replacing: record)
            } else {
                try transaction.deleteProfile(of: userID, replacing: record)
            }
            records += 1
            assignments += record.count - (rest?.count ?? 0)
        }
        return (rows.count, records, assignments)
    }
}

/// Deletes the values of attributes that were removed from the schema, in small transactions that do not delay other
/// changes. Each transaction records its progress, so that the deletion continues after a restart and in any process.
/// Readers do not depend on it.
final class AttributeRemoval: @unchecked Sendable {
    // Safe: all state is constant, and a timer source may be cancelled from any thread.
    private let writer: Writer
    private let reader: BackgroundReader
    private let batch: Int
    private let timer: any DispatchSourceTimer
    private let chain = BatchChain()

    /// How many rows a transaction may scan per row that it changes.
    private static let scanFactor = 4

    init(writer: Writer, reader: BackgroundReader, configuration: SQLiteConfiguration) {
        self.writer = writer
        self.reader = reader
        batch = configuration.settings.retentionBatch
        timer = DispatchSource.makeTimerSource(queue: DispatchQueue(label: "attribute-removal", qos: .utility))
        let interval = DispatchTimeInterval.milliseconds(Int(configuration.settings.retentionInterval * 1_000))
        timer.schedule(deadline: .now(), repeating: interval, leeway: .milliseconds(100))
        let isReadOnly = configuration.settings.isReadOnly
        timer.setEventHandler { [weak self] in if !isReadOnly { self?.resume() } }
        timer.resume()
    }

    func stop() {
        timer.cancel()
    }

    /// Continues what another process, or this one before a restart, did not finish.
    private func resume() {
        let hasWork = try? reader.read { connection throws(SQLiteError) in
            try connection.integer("SELECT EXISTS (SELECT 1 FROM attribute_removals)") == 1
        }
        if hasWork == true { sweep() }
    }

    /// Deletes all values that are due.
    func sweep() {
        chain.start { await self.sweepOnce() }
    }

    private func sweepOnce() async -> Bool {
        // Readiness and metrics report a failure; the next sweep tries again.
        (try? await writer.perform { [batch] in try Self.deleteSome(batch, in: $0) }) ?? false
    }

    /// - Returns: whether there is more to do.
    private static func deleteSome(_ batch: Int, in transaction: WriteTransaction) throws(SQLiteError) -> Bool {
        guard let (number, after) = try next(on: transaction.connection) else { return false }
        let rows = try transaction.connection.all(
            "SELECT user_id, record FROM user_attributes WHERE user_id > ?1 ORDER BY user_id LIMIT ?2",
            .text(after), .integer(batch * scanFactor)
        ) { (userID: $0.identifier(0), record: $0.bytes(1)) }
        var changed = 0
        var reached: Identifier?
        for (userID, bytes) in rows where changed < batch {
            reached = userID
            // A damaged record stays, so that reading it reports the damage.
            guard let record = AttributeRecord(checking: bytes), record[number] != nil else { continue }
            try AttributeRows.put(record.applying([number: .remove]) { _ in }, for: userID, in: transaction)
            changed += 1
        }
        try note(number, reached: reached, in: transaction)
        return true
    }

    private static func next(on connection: Connection) throws(SQLiteError) -> (number: UInt32, after: Identifier)? {
        try connection.all("SELECT number, after_user_id FROM attribute_removals LIMIT 1") { row in
            (UInt32(clamping: row.integer(0)), row.identifier(1))
        }.first
    }

    /// Records the progress.
    ///
    /// - Parameter reached: the last user that was processed; `nil` once the deletion is complete.
    private static func note(
        _ number: UInt32, reached: Identifier?, in transaction: WriteTransaction
    ) throws(SQLiteError) {
        let removal = SQLValue.integer(Int(number))
        if let reached {
            try transaction.connection.change(
                "UPDATE attribute_removals SET after_user_id = ?2 WHERE number = ?1", removal, .text(reached))
        } else {
            try transaction.connection.change("DELETE FROM attribute_removals WHERE number = ?1", removal)
        }
        transaction.changed()
    }
}

/// Runs work in batches, each in its own transaction: one batch at a time, however often it is started, and the next when
/// the previous one is done.
final class BatchChain: Sendable {
    private static let executor = DispatchExecutor(label: "batches", qos: .utility)
    private let isRunning = Atomic(false)

    /// Runs batches until nothing is left. Does nothing if a chain is running.
    ///
    /// - Parameter batch: returns whether there is more to do.
    func start(_ batch: @escaping @Sendable () async -> Bool) {
        guard !isRunning.exchange(true, ordering: .acquiringAndReleasing) else { return }
        Task(executorPreference: Self.executor) {
            while await batch() {}
            self.isRunning.store(false, ordering: .releasing)
        }
    }
}
