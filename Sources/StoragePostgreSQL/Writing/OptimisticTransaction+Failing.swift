import Bucketing
import Dispatch
import Storage

/// What happens to the changes of a transaction that failed: they are tried again together, in parts, or alone, or they
/// fail.
extension OptimisticTransaction {
    /// Reacts to the error of a statement.
    func failed(_ error: PostgreSQLError) {
        connection.isInTransaction = false
        switch error.remedy {
        case .applyAgain, .retry:
            store.conflicted(1)
            store.forgetSeries()
            tryAgain()
        case .none where error.state == PostgreSQLError.lockNotAvailable && !waitsForLocks && !store.isDistributed:
            separateBlocked()
        case .none where error.mayConcernOneChange && changes.count > 1:
            for change in changes { change.isAlone = true }
            ended(changes)
        case _ where error.mayConcernOneNode && store.isDistributed && changes.count > 1 && changes[0].node == nil:
            divide(error)
        case .none, .reconnect:
            let concernsOthers =
                !error.concernsSomeUsers(isDistributed: store.isDistributed) && !error.mayConcernOneChange
            fail(error.asStorageError, concernsAll: concernsOthers)
        }
    }

    /// Gives each node of a distributed database its own transaction, so that an unreachable node fails only its own
    /// users.
    private func divide(_ error: PostgreSQLError) {
        let users = Set(changes.flatMap { $0.steps.map(\.userID) })
        run([UserRows.nodes(.texts(users.map(\.string)))]) { [self] result in
            guard case .success(let rows) = result else { return fail(error.asStorageError) }
            let nodes = UserRows.nodes(rows[0])
            var divided: [Int64: [PendingChange]] = [:]
            var others: [PendingChange] = []
            for change in changes {
                let node = Set(change.steps.map { nodes[$0.userID] }).count == 1 ? nodes[change.steps[0].userID] : nil
                change.node = node
                change.isAlone = node == nil
                if let node { divided[node, default: []].append(change) } else { others.append(change) }
            }
            ended(divided.values.flatMap { $0 } + others)
        }
    }

    /// Fails all changes.
    ///
    /// - Parameter concernsAll: `false` if the cause is a locked row, or one node of a distributed database, so that
    ///   changes of other users may succeed.
    func fail(_ error: StorageError, concernsAll: Bool = true) {
        store.failed(changes.reduce(0) { $0 + $1.count })
        if concernsAll { store.writesFail(error) }
        for change in changes { session.complete(change, error) }
        changes = []
        ended([])
    }

    /// Reads and applies again: at once after the first conflict, then after a random pause that grows.
    func tryAgain() {
        conflicts += 1
        isLocking = conflicts >= Self.conflictsBeforeLocking
        forget()
        let time = DispatchTime.now().uptimeNanoseconds
        let longest = UInt64(store.settings.waitingSeconds * 1e9)
        let overdue = changes.filter { time &- $0.submittedAt > longest }
        changes.removeAll { time &- $0.submittedAt > longest }
        for change in overdue { session.complete(change, .overloaded) }
        store.failed(overdue.reduce(0) { $0 + $1.count })
        guard !changes.isEmpty else { return ended([]) }
        startedAt = .now()
        guard conflicts > 1 else { return start() }
        session.after(milliseconds: .random(in: 0...(1 << min(conflicts, 6)))) { [self] in start() }
    }

    /// Discards what was read.
    private func forget() {
        reads = 0
        users = [:]
        newestDatafileVersion = nil
        attributeNames = nil
        readPeriods = [:]
        readStatuses = [:]
        series = nil
        erasures = ([:], 0)
    }

    /// Fails changes whose deadline is over.
    ///
    /// - Returns: whether any are left.
    func failOverdue() -> Bool {
        let time = session.now
        func isOverdue(_ change: PendingChange) -> Bool { session.deadline(since: change.submittedAt) <= time }
        guard changes.contains(where: isOverdue) else { return true }
        let overdue = changes.filter(isOverdue)
        changes.removeAll(where: isOverdue)
        let seconds = store.configuration.statementTimeout
        for change in overdue {
            store.failed(change.count)
            session.complete(change, .unavailable(reason: "the database has not responded within \(seconds) seconds"))
        }
        if changes.isEmpty { ended([]) }
        return !changes.isEmpty
    }

    // MARK: Rows that others have locked

    /// Separates the changes of users whose rows somebody else has locked from those that can go on.
    private func separateBlocked() {
        let stored = users.values.filter { $0.version != nil }.map(\.userID)
        let rows = UserRows.unlockedRows(.texts(stored.sorted().map(\.string)))
        run([Statement.begin(), rows, Statement.rollback()]) { [self] result in
            switch result {
            case .success(let rows):
                let free = Set(rows[1].map { $0.identifier(0) })
                separate(Set(stored).subtracting(free))
            // Somebody has locked the whole table.
            case .failure(let error) where error.state == PostgreSQLError.lockNotAvailable: separate([])
            case .failure(let error): failed(error)
            }
        }
    }

    /// Lets the changes of users with locked rows wait, and ends with the others.
    private func separate(_ locked: Set<Identifier>) {
        func isBlocked(_ change: PendingChange) -> Bool { change.steps.contains { locked.contains($0.userID) } }
        let blocked = changes.filter(isBlocked)
        let others = changes.filter { !isBlocked($0) }
        guard blocked.isEmpty else {
            session.block(blocked)
            changes = []
            return ended(others)
        }
        // Something other than a user's row is locked, or the row is free by now.
        waitsForLocks = true
        forget()
        start()
    }
}
