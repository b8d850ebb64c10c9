import Dispatch
import Storage

/// A change of data that all users share (datafiles, attributes, segments, the audit log), or of a sticky document.
/// Each change has a ``ProjectTransaction`` of its own.
final class ProjectChange {
    /// When the change was submitted, in monotonic nanoseconds.
    let submittedAt = DispatchTime.now().uptimeNanoseconds
    /// The statements that lock rows, so that other transactions do not change the data that is read. They may return
    /// rows.
    let lock: [SQLQuery]
    /// The statements that read, after ``lock``.
    let reads: [SQLQuery]
    /// Applies the rule to the rows of ``lock`` and ``reads``. Returns the statements that write, and the number of
    /// audit entries among their rows. Called in each attempt.
    let writes: ([Rows]) -> (queries: [SQLQuery], auditEntries: Int)
    /// Called once with `nil` if the change is durable, or with the reason why it failed.
    let complete: (StorageError?) -> Void
    /// The estimated memory that the change takes while it waits, in bytes.
    let bytes: Int

    /// - Parameter lock: by default the lock of the row `project_state`, which only one transaction of all servers has
    ///   at a time.
    init(
        bytes: Int = WaitingBytes.ofChange, lock: [SQLQuery] = [ProjectStateRow.readLocked()], reads: [SQLQuery],
        writes: @escaping ([Rows]) -> (queries: [SQLQuery], auditEntries: Int),
        complete: @escaping (StorageError?) -> Void
    ) {
        self.bytes = bytes
        self.lock = lock
        self.reads = reads
        self.writes = writes
        self.complete = complete
    }
}

/// The transaction of a ``ProjectChange``: it locks and reads, applies the rule, and writes.
final class ProjectTransaction {
    private let change: ProjectChange
    private let session: PostgreSQLSession
    private let connection: Connection
    /// Called once at the end.
    private let didEnd: () -> Void
    /// When the present attempt began.
    private var startedAt = DispatchTime.now()

    init(
        _ change: ProjectChange, in session: PostgreSQLSession, on connection: Connection, didEnd: @escaping () -> Void
    ) {
        self.change = change
        self.session = session
        self.connection = connection
        self.didEnd = didEnd
    }

    /// When the change fails if the database does not respond, in monotonic nanoseconds.
    private var deadline: UInt64 { session.deadline(since: change.submittedAt) }

    func start() {
        startedAt = .now()
        connection.isInTransaction = true
        // Other servers may hold this lock longer than locks of users' rows.
        let timeout = session.store.configuration.statementTimeout
        let begin = [Statement.begin(), Statement.limits(lockTimeout: timeout, timeout: 2 * timeout)]
        connection.run(begin + change.lock + change.reads, by: deadline) { [self] result in
            switch result {
            case .success(let rows): write(Array(rows.dropFirst(begin.count)))
            case .failure(let error): react(to: error)
            }
        }
    }

    /// Applies the rule, writes, and commits.
    private func write(_ rows: [Rows]) {
        let (queries, auditEntries) = change.writes(rows)
        connection.isInTransaction = false
        let end: [SQLQuery]
        if !queries.isEmpty {
            end = queries + [Statement.commit()]
        } else if session.store.configuration.cluster.isSynchronous {
            // The result depends on data that may not have reached the standby yet.
            end = [Statement.awaitStandby(), Statement.commit()]
        } else {
            end = [Statement.rollback()]
        }
        connection.run(end, by: deadline) { [self] result in
            switch result {
            case .success:
                if !queries.isEmpty { count(auditEntries) }
                session.complete(change, nil)
                didEnd()
            case .failure(let error): react(to: error)
            }
        }
    }

    /// Counts the committed transaction in the metrics.
    private func count(_ auditEntries: Int) {
        var transaction = CommittedTransaction()
        transaction.changes = 1
        transaction.auditEntries = auditEntries
        transaction.seconds = Double(DispatchTime.now().uptimeNanoseconds &- startedAt.uptimeNanoseconds) / 1e9
        session.store.countCommit(transaction)
    }

    /// Tries again after a serialization failure or a deadlock; otherwise fails the change.
    private func react(to error: PostgreSQLError) {
        connection.isInTransaction = false
        let waited = Double(DispatchTime.now().uptimeNanoseconds &- change.submittedAt) / 1e9
        if error.remedy == .retry, waited < session.store.settings.waitingSeconds {
            // The pause is random, so that transactions that have conflicted do not meet again.
            return session.after(milliseconds: .random(in: 1...20)) { [self] in start() }
        }
        session.store.countFailedChanges(1)
        session.store.writesFail(error.asStorageError)
        session.complete(change, error.asStorageError)
        didEnd()
    }
}
