import Bucketing
import Chronology
import Dispatch
import Storage
import Synchronization

/// Deletes old data at intervals: expired assignments, goal events, audit entries and erasures. Also starts the sweeps
/// of ``FeedRetention``.
///
/// A sweep uses small transactions, which do not delay other changes. Readers do not depend on sweeps: they ignore
/// expired assignments by themselves.
final class Retention: @unchecked Sendable {
    // Safe: all state is constant, and a timer source may be cancelled from any thread.
    private let writer: Writer
    /// The maximum number of rows that one transaction deletes from a table.
    private let batch: Int
    private let auditRetention: TimeSpan
    /// How long goal events are kept; `nil` to keep them for ever.
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

    /// Deletes expired assignments, old audit entries and old erasures.
    ///
    /// - Returns: whether there is more to do.
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
        // If no record was changed, all found profiles are damaged, and the next batch would find them again.
        let hasMoreExpired = expired.found == batch && expired.records > 0
        return hasMoreExpired || old == batch
    }

    /// Deletes old goal events. The tallies keep counting them.
    ///
    /// - Returns: whether there is more to do.
    private func sweepEvents(_ eventRetention: TimeSpan) async -> Bool {
        let deleted = try? await writer.perform { [batch] transaction in
            let time = transaction.now - eventRetention
            let count = try Self.delete(
                """
                DELETE FROM goal_events
                WHERE number IN (SELECT number FROM goal_events ORDER BY number LIMIT ?2) AND received_at < ?1
                """, before: time, limit: batch, in: transaction)
            if count > 0 {
                // Records from which time on all events are stored.
                try transaction.connection.change(
                    "UPDATE counters SET events_since = max(events_since, ?1)", .instant(time))
            }
            return count
        }
        return deleted == batch
    }

    /// Deletes rows that are older than a time.
    ///
    /// - Parameter sql: deletes the oldest `?2` rows that are from before `?1`.
    /// - Returns: the number of deleted rows.
    private static func delete(
        _ sql: StaticString, before time: Instant, limit: Int, in transaction: WriteTransaction
    ) throws(SQLiteError) -> Int {
        let count = try transaction.connection.change(sql, .instant(time), .integer(limit))
        if count > 0 { transaction.changed() }
        return count
    }

    /// The result of ``deleteExpired(at:limit:in:)``.
    private struct ExpiredProfiles {
        /// The number of profiles with expired assignments, including damaged profiles.
        var found = 0
        /// The number of profiles that were changed or deleted.
        var records = 0
        /// The number of deleted assignments.
        var assignments = 0
    }

    /// Deletes expired assignments, and profiles that have no other assignments.
    private static func deleteExpired(
        at now: Instant, limit: Int, in transaction: WriteTransaction
    ) throws(SQLiteError) -> ExpiredProfiles {
        let rows = try ProfileRows.expired(at: now, limit: limit, on: transaction.connection)
        var expired = ExpiredProfiles()
        expired.found = rows.count
        for (userID, bytes) in rows {
            // A damaged profile stays, so that reading it reports the damage.
            guard let record = try? ProfileRecord(checking: bytes) else { continue }
            let rest = record.visible(at: now)
            if let rest {
                try transaction.put(rest, for: userID, replacing: record)
            } else {
                try transaction.deleteProfile(of: userID, replacing: record)
            }
            expired.records += 1
            expired.assignments += record.count - (rest?.count ?? 0)
        }
        return expired
    }
}

/// Runs a sweep in batches, each in its own transaction. A batch starts when the previous one is done, so that other
/// changes are committed in between.
final class BatchChain: Sendable {
    private static let executor = DispatchExecutor(label: "batches", qos: .utility)
    private let isRunning = Atomic(false)

    /// Runs batches until nothing is left. Does nothing if batches are already running.
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
