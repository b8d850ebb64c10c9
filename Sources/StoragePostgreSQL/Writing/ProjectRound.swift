import Dispatch
import Storage

/// A change of what all users share: datafiles, attributes, segments, the audit log. They are rare, so that each has a
/// transaction of its own, one after the other on all servers.
final class ProjectChange {
    /// Monotonic nanoseconds.
    let submittedAt = DispatchTime.now().uptimeNanoseconds
    /// Whether it waits for transactions that depend on the newest datafile.
    let changesDatafiles: Bool
    /// What to read, under a lock that keeps others from changing it.
    let reads: [Query]
    /// Says what to write, if anything, from the rows of each read; may be called again. An audit entry counts as one.
    let decide: (ProjectStateRow, [Rows]) -> (queries: [Query], auditEntries: Int)
    let complete: (StorageError?) -> Void

    init(
        changesDatafiles: Bool = false, reads: [Query],
        decide: @escaping (ProjectStateRow, [Rows]) -> (queries: [Query], auditEntries: Int),
        complete: @escaping (StorageError?) -> Void
    ) {
        self.changesDatafiles = changesDatafiles
        self.reads = reads
        self.decide = decide
        self.complete = complete
    }
}

/// The transaction of a ``ProjectChange``.
final class ProjectRound {
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

    func start() {
        startedAt = .now()
        connection.isInTransaction = true
        let first = [Statement.begin()] + (change.changesDatafiles ? [ProjectStateRow.lockNewest] : [])
        connection.run(first + [ProjectStateRow.readLocked()] + change.reads) { [self] result in
            switch result {
            case .success(let rows): write(ProjectStateRow(rows[first.count], 0), Array(rows[(first.count + 1)...]))
            case .failure(let error): failed(error)
            }
        }
    }

    private func write(_ state: ProjectStateRow, _ rows: [Rows]) {
        let (queries, auditEntries) = change.decide(state, rows)
        connection.isInTransaction = false
        connection.run(queries + [Statement.commit()]) { [self] result in
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

    private func failed(_ error: PostgreSQLError) {
        connection.isInTransaction = false
        let waited = Double(DispatchTime.now().uptimeNanoseconds &- change.submittedAt) / 1e9
        if error.remedy == .retry, waited < session.store.configuration.waitingSeconds {
            return session.after(milliseconds: .random(in: 1...20)) { [self] in start() }
        }
        session.store.failed(1)
        session.store.writesFail(error.asStorageError)
        session.complete(change, error.asStorageError)
        ended()
    }
}
