import Dispatch
import Storage

/// Deletes assignments that have expired, goal events that were kept long enough, what is old in the audit log, and
/// erasures that need not be remembered, a few in each transaction, so that other changes wait for none of it long. Readers do not depend on it: to them an
/// assignment is gone at the moment it expires.
final class Retention: @unchecked Sendable {
    // Safe: all is constant, and a timer source may be cancelled from any thread.
    private let writer: Writer
    private let clock: WallClock
    private let batch: Int
    private let auditRetention: Timestamp
    private let eventRetention: Timestamp?
    private let timer: any DispatchSourceTimer
    private let profiles = BatchChain()
    private let events = BatchChain()

    init(writer: Writer, configuration: SQLiteConfiguration) {
        self.writer = writer
        clock = configuration.clock
        batch = configuration.retentionBatch
        auditRetention = configuration.auditRetention.wholeMilliseconds
        eventRetention = configuration.eventRetention.map { max($0, EventRules.minimumRetention) }
        timer = DispatchSource.makeTimerSource(queue: DispatchQueue(label: "retention", qos: .utility))
        let interval = DispatchTimeInterval.milliseconds(Int(configuration.retentionInterval * 1_000))
        timer.schedule(deadline: .now() + interval, repeating: interval, leeway: .milliseconds(100))
        timer.setEventHandler { [weak self] in
            guard let self else { return }
            writer.refreshFigures()
            profiles.start { [self] in sweepProfiles($0) }
            if let eventRetention { events.start { [self] in sweepEvents(eventRetention, $0) } }
        }
        timer.resume()
    }

    func stop() {
        timer.cancel()
    }

    private func sweepProfiles(_ done: @escaping BatchChain.Done) {
        writer.submit { [clock, batch, auditRetention] transaction in
            let now = clock()
            let expired = try Self.deleteExpired(at: now, limit: batch, in: transaction)
            let old = try AuditRows.prune(before: now - auditRetention, limit: batch, in: transaction)
            try ErasureRows.prune(limit: batch, in: transaction)
            return (expired, old)
        } completion: { [self] result in
            // A failure shows in readiness and metrics; the next sweep tries again.
            guard case .success(let (expired, old)) = result else { return done(false) }
            writer.countDeleted(expiredAssignments: expired.assignments, auditEntries: old)
            done(expired.found == batch && expired.assignments > 0 || old == batch)
        }
    }

    private func sweepEvents(_ eventRetention: Timestamp, _ done: @escaping BatchChain.Done) {
        writer.submit { [clock, batch] transaction in
            try GoalEventRows.deleteOldest(
                receivedBefore: clock() - eventRetention, limit: batch, in: transaction)
        } completion: { [batch] result in
            if case .success(batch) = result { done(true) } else { done(false) }
        }
    }

    private static func deleteExpired(
        at now: Timestamp, limit: Int, in transaction: WriteTransaction
    ) throws(SQLiteError) -> (found: Int, assignments: Int) {
        let rows = try ProfileRows.expired(at: now, limit: limit, on: transaction.connection)
        var assignments = 0
        for (userID, bytes) in rows {
            // A damaged profile is left for those who ask for it to be told.
            guard let record = try? ProfileRows.decode(bytes, of: userID) else { continue }
            let rest = record.visible(at: now)
            if let rest {
                try transaction.put(rest, for: userID, replacing: record)
            } else {
                try transaction.deleteProfile(of: userID, replacing: record)
            }
            assignments += record.count - (rest?.count ?? 0)
        }
        return (rows.count, assignments)
    }
}
