import Bucketing
import Dispatch
import Storage

/// Waiting changes become transactions as soon as a connection is free: as many changes as can be combined in each.
extension PostgreSQLSession {
    /// The maximum memory of the changes in one transaction, estimated; a single one may exceed it.
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

    /// Counts changes that want to wait.
    ///
    /// - Returns: why they are refused; `nil` if they may wait.
    private func admit(_ count: Int, _ bytes: Int, since time: UInt64) -> StorageError? {
        guard !isClosed else { return .closed }
        let settings = store.settings
        guard waitingChanges < settings.waitingChanges, waitingBytes < settings.waitingBytes,
            Double(time &- (oldestChange ?? time)) <= settings.waitingSeconds * 1e9
        else {
            store.refused(count)
            return .overloaded
        }
        if let refusal = store.admit(count, bytes) { return refusal }
        waitingChanges += count
        waitingBytes += bytes
        untilDone = self
        return nil
    }

    /// When the oldest waiting change was submitted.
    private var oldestChange: UInt64? {
        switch waiting.first {
        case .change(let change): change.submittedAt
        case .project(let change): change.submittedAt
        case nil: nil
        }
    }

    /// Completes a change, and releases its room in the queue.
    func complete(_ change: PendingChange, _ failure: StorageError?) {
        settled(change.count, change.bytes)
        change.complete(failure)
    }

    func complete(_ change: ProjectChange, _ failure: StorageError?) {
        settled(1, change.bytes)
        change.complete(failure)
    }

    private func settled(_ count: Int, _ bytes: Int) {
        waitingChanges -= count
        waitingBytes -= bytes
        store.settled(count, bytes)
    }

    /// Starts transactions while connections are free. A transaction that fails at once frees its connection for the
    /// next.
    func startTransactions() {
        startLane()
        setAsideBlocked()
        while !changesProject, let first = waiting.first {
            switch first {
            case .project(let change):
                guard !writers.contains(where: \.isBusy) else { return }
                waiting.removeFirst()
                let writer = writers[0]
                changesProject = true
                writer.isBusy = true
                ProjectTransaction(change, in: self, on: writer.connection) { [self] in
                    changesProject = false
                    writer.isBusy = false
                }.start()
            case .change:
                guard let writer = writers.first(where: { !$0.isBusy }) else { return }
                let changes = takeChanges()
                guard !changes.isEmpty else { return }
                writer.isBusy = true
                if writers.count > 1 { writer.users = Set(changes.flatMap { $0.steps.map(\.userID) }) }
                OptimisticTransaction(changes, in: self, on: writer.connection) { [self] unsettled in
                    waiting.insert(contentsOf: unsettled.map { .change($0) }, at: 0)
                    writer.isBusy = false
                    writer.users = []
                    coalescer.begin()
                }.start()
            }
        }
    }

    /// Takes the changes of the next transaction, in order: as many as can be combined, but none from the first change
    /// of a user on whom a transaction is in progress.
    private func takeChanges() -> [PendingChange] {
        var changes: [PendingChange] = []
        var steps = 0
        var bytes = 0
        let busy = writers.filter(\.isBusy)
        for next in waiting {
            guard case .change(let change) = next else { break }
            if !busy.isEmpty, change.steps.contains(where: { step in busy.contains { $0.users.contains(step.userID) } })
            {
                break
            }
            guard let first = changes.first else {
                changes.append(change)
                steps = change.steps.count
                bytes = change.bytes
                continue
            }
            guard !first.isAlone, !change.isAlone, first.node == change.node,
                (first.kind == .records) == (change.kind == .records),
                steps + change.steps.count <= store.configuration.batchLimit, bytes + change.bytes <= Self.batchBytes
            else { break }
            changes.append(change)
            steps += change.steps.count
            bytes += change.bytes
        }
        waiting.removeFirst(changes.count)
        return changes
    }

    // MARK: Rows that others have locked

    /// Takes over changes of users whose rows somebody else has locked. They wait for the locks, while other changes go
    /// on.
    func block(_ changes: [PendingChange]) {
        blocked += changes
        startLane()
    }

    /// Gives the first blocked change a transaction of its own, which waits for the lock.
    private func startLane() {
        while !(lane?.isBusy ?? false) {
            guard let first = blocked.first else {
                lane?.connection.close()
                return lane = nil
            }
            blocked.removeFirst()
            let lane = lane ?? Writer(makeConnection(lockTimeout: store.configuration.statementTimeout))
            self.lane = lane
            lane.isBusy = true
            lane.users = Set(first.steps.map(\.userID))
            OptimisticTransaction([first], in: self, on: lane.connection, waitsForLocks: true) { [self] unsettled in
                blocked.insert(contentsOf: unsettled, at: 0)
                lane.isBusy = false
                lane.users = []
            }.start()
        }
    }

    /// Moves waiting changes to the blocked ones if an earlier change of the same user is blocked, so that the changes
    /// of a user stay in order.
    private func setAsideBlocked() {
        guard let lane, lane.isBusy || !blocked.isEmpty else { return }
        var users = blocked.reduce(into: lane.users) { users, change in users.formUnion(change.steps.map(\.userID)) }
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
