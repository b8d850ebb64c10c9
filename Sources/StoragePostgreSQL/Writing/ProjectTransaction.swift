import Dispatch
import Storage

/// A change of data that all users share (datafiles, attributes, segments, the audit log), or of a sticky document.
/// Each has its own ``ProjectTransaction``, which locks, reads, applies the rule, and writes.
final class ProjectChange {
    /// Monotonic nanoseconds.
    let submittedAt = DispatchTime.now().uptimeNanoseconds
    /// The statements that keep other transactions from changing what is read. Their rows may be read, too.
    let lock: [SQLQuery]
    let reads: [SQLQuery]
    /// Applies the rule to the rows of ``lock`` and ``reads``. Returns the statements that write, and the number of
    /// their audit entries. Each attempt calls it.
    let writes: ([Rows]) -> (queries: [SQLQuery], auditEntries: Int)
    /// Called once with `nil` if the change is durable, or with the reason why it failed.
    let complete: (StorageError?) -> Void
    /// The memory that the change takes while it waits, estimated.
    let bytes: Int

    /// - Parameter lock: by default the lock of the projects, which only one transaction of all servers has at a time.
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

/// The transaction of a ``ProjectChange``.
final class ProjectTransaction {
    private let change: ProjectChange
    private let session: PostgreSQLSession
    private let connection: Connection
    private let ended: () -> Void
    private var startedAt = DispatchTime.now()

    init(
        _ change: ProjectChange, in session: PostgreSQLSession, on connection: Connection, ended: @escaping () -> Void
    ) {
        self.change = change
        self.session = session
        self.connection = connection
        self.ended = ended
    }

    private var deadline: UInt64 { session.deadline(since: change.submittedAt) }

    func start() {
        startedAt = .now()
        connection.isInTransaction = true
        // Others may hold the lock longer than the rows of users.
        let timeout = session.store.configuration.statementTimeout
        let begin = [Statement.begin(), Statement.limits(lockTimeout: timeout, timeout: 2 * timeout)]
        connection.run(begin + change.lock + change.reads, by: deadline) { [self] result in
            switch result {
            case .success(let rows): write(Array(rows.dropFirst(begin.count)))
            case .failure(let error): failed(error)
            }
        }
    }

    private func write(_ rows: [Rows]) {
        let (queries, auditEntries) = change.writes(rows)
        connection.isInTransaction = false
        let end: [SQLQuery]
        if !queries.isEmpty {
            end = queries + [Statement.commit()]
        } else if session.store.configuration.cluster.isSynchronous {
            // The result depends on what was read, which may not have reached the standby yet.
            end = [Statement.awaitStandby(), Statement.commit()]
        } else {
            end = [Statement.rollback()]
        }
        connection.run(end, by: deadline) { [self] result in
            switch result {
            case .success:
                if !queries.isEmpty { count(auditEntries) }
                session.complete(change, nil)
                ended()
            case .failure(let error): failed(error)
            }
        }
    }

    private func count(_ auditEntries: Int) {
        var transaction = CommittedTransaction()
        transaction.changes = 1
        transaction.auditEntries = auditEntries
        transaction.seconds = Double(DispatchTime.now().uptimeNanoseconds &- startedAt.uptimeNanoseconds) / 1e9
        session.store.committed(transaction)
    }

    /// Tries again after a serialization failure or a deadlock; otherwise fails the change.
    private func failed(_ error: PostgreSQLError) {
        connection.isInTransaction = false
        let waited = Double(DispatchTime.now().uptimeNanoseconds &- change.submittedAt) / 1e9
        if error.remedy == .retry, waited < session.store.settings.waitingSeconds {
            return session.after(milliseconds: .random(in: 1...20)) { [self] in start() }
        }
        session.store.failed(1)
        session.store.writesFail(error.asStorageError)
        session.complete(change, error.asStorageError)
        ended()
    }
}
