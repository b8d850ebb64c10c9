import Bucketing
import Dispatch
import Storage

/// Turns waiting changes into transactions as soon as a connection is free. A transaction combines as many changes as
/// possible.
///
/// ```
/// submit → waiting → takeChanges → OptimisticTransaction     on a free writer
///            ↓ if rows of the user are locked
///          blocked → OptimisticTransaction, one at a time    on the blocked writer, which waits for the lock
/// ```
extension PostgreSQLSession {
    /// The estimated memory of the changes in one transaction, in bytes. A single change may exceed it.
    private static let batchBytes = 4 << 20

    func submit(_ change: PendingChange) {
        if let refusal = admit(change.count, change.bytes, since: change.submittedAt) {
            return change.complete(refusal)
        }
        waiting.append(.change(change))
        if !isInBatch { startTransactions() }
    }

    func submit(_ change: ProjectChange) {
        if let refusal = admit(1, change.bytes, since: change.submittedAt) { return change.complete(refusal) }
        waiting.append(.project(change))
        if !isInBatch { startTransactions() }
    }

    /// Reserves room in the queue for changes. They must be released by ``complete(_:_:)-(PendingChange,_)`` later.
    ///
    /// - Returns: why the changes are refused; `nil` if they may wait.
    private func admit(_ count: Int, _ bytes: Int, since time: UInt64) -> StorageError? {
        guard !isClosed else { return .closed }
        let settings = store.settings
        let hasRoom = waitingChanges < settings.waitingChanges && waitingBytes < settings.waitingBytes
        // A new change would probably wait as long as the oldest one has waited by now.
        let longestWait = Double(time &- (oldestChange ?? time)) / 1e9
        guard hasRoom, longestWait <= settings.waitingSeconds else {
            store.countRefusedChanges(count)
            return .overloaded
        }
        if let refusal = store.admit(count, bytes) { return refusal }
        waitingChanges += count
        waitingBytes += bytes
        untilDone = self
        return nil
    }

    /// When the oldest waiting change was submitted, in monotonic nanoseconds.
    private var oldestChange: UInt64? {
        switch waiting.first {
        case .change(let change): change.submittedAt
        case .project(let change): change.submittedAt
        case nil: nil
        }
    }

    /// Completes a change, and releases its room in the queue.
    func complete(_ change: PendingChange, _ failure: StorageError?) {
        release(change.count, change.bytes)
        change.complete(failure)
    }

    func complete(_ change: ProjectChange, _ failure: StorageError?) {
        release(1, change.bytes)
        change.complete(failure)
    }

    private func release(_ count: Int, _ bytes: Int) {
        waitingChanges -= count
        waitingBytes -= bytes
        store.release(count, bytes)
    }

    /// Starts transactions while connections are free. A transaction that fails at once frees its connection for the
    /// next.
    func startTransactions() {
        startBlocked()
        setAsideBlocked()
        while !changesProject, let first = waiting.first {
            switch first {
            case .project(let change):
                // A change of projects is the only transaction of the session.
                guard !writers.contains(where: \.isBusy) else { return }
                waiting.removeFirst()
                start(change, on: writers[0])
            case .change:
                guard let writer = writers.first(where: { !$0.isBusy }) else { return }
                let changes = takeChanges()
                guard !changes.isEmpty else { return }
                start(changes, on: writer)
            }
        }
    }

    private func start(_ change: ProjectChange, on writer: Writer) {
        changesProject = true
        writer.isBusy = true
        ProjectTransaction(change, in: self, on: writer.connection) { [self] in
            changesProject = false
            writer.isBusy = false
        }.start()
    }

    private func start(_ changes: [PendingChange], on writer: Writer) {
        writer.isBusy = true
        if writers.count > 1 { writer.users = Set(changes.flatMap { $0.steps.map(\.userID) }) }
        OptimisticTransaction(changes, in: self, on: writer.connection) { [self] retried in
            waiting.insert(contentsOf: retried.map { .change($0) }, at: 0)
            writer.isBusy = false
            writer.users = []
            coalescer.begin()
        }.start()
    }

    /// Takes the changes of the next transaction: the first waiting changes, as many as can be combined. Ends before
    /// the first change of a user on whom a transaction is in progress, so that the changes of a user stay in order.
    private func takeChanges() -> [PendingChange] {
        var changes: [PendingChange] = []
        var steps = 0
        var bytes = 0
        let busy = writers.filter(\.isBusy)
        for next in waiting {
            guard case .change(let change) = next, !change.concernsUsers(of: busy) else { break }
            if let first = changes.first {
                let fits =
                    steps + change.steps.count <= store.configuration.batchLimit
                    && bytes + change.bytes <= Self.batchBytes
                guard fits, first.canShareTransaction(with: change) else { break }
            }
            changes.append(change)
            steps += change.steps.count
            bytes += change.bytes
        }
        waiting.removeFirst(changes.count)
        return changes
    }

    // MARK: Rows that others have locked

    /// Adds changes of users whose rows somebody else has locked to the blocked changes. They wait for the locks, while
    /// other changes are written.
    func block(_ changes: [PendingChange]) {
        blocked += changes
        startBlocked()
    }

    /// Starts the first blocked change in a transaction of its own, which waits for the lock. Closes the connection for
    /// blocked changes once none is left.
    private func startBlocked() {
        // A transaction that fails at once leaves the writer free.
        while !(blockedWriter?.isBusy ?? false) {
            guard let first = blocked.first else {
                blockedWriter?.connection.close()
                return blockedWriter = nil
            }
            blocked.removeFirst()
            let writer = blockedWriter ?? Writer(makeConnection(lockTimeout: store.configuration.statementTimeout))
            blockedWriter = writer
            writer.isBusy = true
            writer.users = Set(first.steps.map(\.userID))
            OptimisticTransaction([first], in: self, on: writer.connection, waitsForLocks: true) { [self] retried in
                blocked.insert(contentsOf: retried, at: 0)
                writer.isBusy = false
                writer.users = []
            }.start()
        }
    }

    /// Moves waiting changes to the blocked changes if an earlier change of the same user is blocked, so that the
    /// changes of a user stay in order.
    private func setAsideBlocked() {
        guard let blockedWriter, blockedWriter.isBusy || !blocked.isEmpty else { return }
        var users = blocked.reduce(into: blockedWriter.users) { users, change in
            users.formUnion(change.steps.map(\.userID))
        }
        waiting.removeAll { next in
            guard case .change(let change) = next, change.steps.contains(where: { users.contains($0.userID) }) else {
                return false
            }
            users.formUnion(change.steps.map(\.userID))
            blocked.append(change)
            return true
        }
    }
}

extension PendingChange {
    /// Whether the change concerns a user on whom one of the writers has a transaction in progress.
    fileprivate func concernsUsers(of writers: [PostgreSQLSession.Writer]) -> Bool {
        !writers.isEmpty && steps.contains { step in writers.contains { $0.users.contains(step.userID) } }
    }

    /// Whether the change may be made in the same transaction as another one.
    fileprivate func canShareTransaction(with other: PendingChange) -> Bool {
        // A transaction of changes of profiles and attributes is divisible: a conflict of one user does not affect the
        // others. A change of other records would make it indivisible.
        let areEquallyDivisible = (kind == .records) == (other.kind == .records)
        return !needsOwnTransaction && !other.needsOwnTransaction && node == other.node && areEquallyDivisible
    }
}
