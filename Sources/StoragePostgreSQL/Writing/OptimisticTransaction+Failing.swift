import Bucketing
import Dispatch
import Storage

/// The reactions of a transaction to an error. The changes are tried again, in the same transaction or in several
/// others, or they fail.
extension OptimisticTransaction {
    /// The reaction to the error of a statement.
    private enum Reaction {
        /// Read and apply all changes again.
        case tryAgain
        /// Let the changes of users whose rows are locked wait, and try the others again.
        case separateBlocked
        /// Give each change a transaction of its own.
        case separateAll
        /// Give the changes of each node of a distributed database a transaction of their own.
        case separateNodes
        /// - Parameter concernsOthers: whether other changes would fail for the same reason.
        case fail(concernsOthers: Bool)
    }

    /// Reacts to the error of a statement.
    func react(to error: PostgreSQLError) {
        connection.isInTransaction = false
        switch reaction(to: error) {
        case .tryAgain:
            store.countConflicts(1)
            // The conflict may come from series that are outdated.
            store.forgetSeries()
            tryAgain()
        case .separateBlocked: separateBlocked()
        case .separateAll:
            for change in changes { change.needsOwnTransaction = true }
            end(retrying: changes)
        case .separateNodes: separateNodes(error)
        case .fail(let concernsOthers): failAll(error.asStorageError, concernsOthers: concernsOthers)
        }
    }

    /// Determines the reaction to an error, by its cause and by the number of changes.
    private func reaction(to error: PostgreSQLError) -> Reaction {
        if error.remedy == .applyAgain || error.remedy == .retry { return .tryAgain }
        let hasSeveralChanges = changes.count > 1
        if case .none = error.remedy {
            // Citus locks whole shards for some statements, so the blocked changes could not be found.
            let mayFindBlocked = !waitsForLocks && !store.isDistributed
            if error.state == PostgreSQLError.lockNotAvailable, mayFindBlocked { return .separateBlocked }
            // The data of one change may be the cause. Alone, the others may succeed.
            if error.mayConcernOneChange, hasSeveralChanges { return .separateAll }
        }
        // One node may be unreachable. The users of other nodes may succeed.
        let isSeparated = changes.first?.node != nil
        if store.isDistributed, error.mayConcernOneNode, hasSeveralChanges, !isSeparated { return .separateNodes }
        let concernsSomeUsers = error.concernsSomeUsers(isDistributed: store.isDistributed)
        return .fail(concernsOthers: !concernsSomeUsers && !error.mayConcernOneChange)
    }

    /// Gives the changes of each node of a distributed database a transaction of their own, so that an unreachable node
    /// fails only its own users.
    private func separateNodes(_ error: PostgreSQLError) {
        let users = Set(changes.flatMap { $0.steps.map(\.userID) })
        run([UserRows.nodes(.texts(users.map(\.string)))]) { [self] result in
            guard case .success(let rows) = result else { return failAll(error.asStorageError) }
            let nodes = UserRows.nodes(rows[0])
            var byNode: [Int64: [PendingChange]] = [:]
            var others: [PendingChange] = []
            for change in changes {
                let nodesOfChange = Set(change.steps.map { nodes[$0.userID] })
                let node = nodesOfChange.count == 1 ? nodes[change.steps[0].userID] : nil
                change.node = node
                change.needsOwnTransaction = node == nil
                if let node { byNode[node, default: []].append(change) } else { others.append(change) }
            }
            end(retrying: byNode.values.flatMap { $0 } + others)
        }
    }

    /// Fails all changes, and ends.
    ///
    /// - Parameter concernsOthers: whether changes of other users would fail, too. `false` if the cause is a locked
    ///   row, or one node of a distributed database.
    func failAll(_ error: StorageError, concernsOthers: Bool = true) {
        store.countFailedChanges(changes.reduce(0) { $0 + $1.count })
        if concernsOthers { store.writesFail(error) }
        for change in changes { session.complete(change, error) }
        changes = []
        end()
    }

    /// Reads and applies again after a conflict: at once after the first one, then after a random pause that grows.
    /// Changes that have waited too long fail as overloaded.
    func tryAgain() {
        conflicts += 1
        isLocking = conflicts >= Self.conflictsBeforeLocking
        forgetReads()
        failChangesThatWaitedTooLong()
        guard !changes.isEmpty else { return end() }
        startedAt = .now()
        guard conflicts > 1 else { return start() }
        let longestPause = 1 << min(conflicts, Self.longestPauseExponent)
        session.after(milliseconds: .random(in: 0...longestPause)) { [self] in start() }
    }

    /// The pause after a conflict is at most 2 to the power of this number, in milliseconds.
    private static let longestPauseExponent = 6

    /// Fails changes as overloaded that have waited for longer than the store's limit.
    private func failChangesThatWaitedTooLong() {
        let time = DispatchTime.now().uptimeNanoseconds
        let longest = UInt64(store.settings.waitingSeconds * 1e9)
        let overdue = changes.filter { time &- $0.submittedAt > longest }
        changes.removeAll { time &- $0.submittedAt > longest }
        for change in overdue { session.complete(change, .overloaded) }
        store.countFailedChanges(overdue.reduce(0) { $0 + $1.count })
    }

    /// Discards the data that was read, so that the next attempt reads it again.
    private func forgetReads() {
        reads = 0
        users = [:]
        newestDatafileVersion = nil
        attributeNames = nil
        readPeriods = [:]
        readStatuses = [:]
        series = nil
        erasures = ([:], 0)
    }

    /// Fails changes whose deadline has passed. Ends if no change is left.
    ///
    /// - Returns: whether any change is left.
    func failOverdue() -> Bool {
        let time = session.now
        func isOverdue(_ change: PendingChange) -> Bool { session.deadline(since: change.submittedAt) <= time }
        guard changes.contains(where: isOverdue) else { return true }
        let overdue = changes.filter(isOverdue)
        changes.removeAll(where: isOverdue)
        let seconds = store.configuration.statementTimeout
        for change in overdue {
            store.countFailedChanges(change.count)
            session.complete(change, .unavailable(reason: "the database has not responded within \(seconds) seconds"))
        }
        if changes.isEmpty { end() }
        return !changes.isEmpty
    }

    // MARK: Rows that others have locked

    /// Determines the users whose rows somebody else has locked. Lets their changes wait, and ends with the others.
    private func separateBlocked() {
        let stored = users.values.filter { $0.version != nil }.map(\.userID)
        let rows = UserRows.unlockedRows(.texts(stored.sorted().map(\.string)))
        run([Statement.begin(), rows, Statement.rollback()]) { [self] result in
            switch result {
            case .success(let rows):
                let free = Set(rows[1].map { $0.identifier(0) })
                separate(lockedUsers: Set(stored).subtracting(free))
            // Somebody has locked the whole table.
            case .failure(let error) where error.state == PostgreSQLError.lockNotAvailable: startWaitingForLocks()
            case .failure(let error): react(to: error)
            }
        }
    }

    /// Lets the changes of users with locked rows wait, and ends with the others.
    private func separate(lockedUsers: Set<Identifier>) {
        func isBlocked(_ change: PendingChange) -> Bool { change.steps.contains { lockedUsers.contains($0.userID) } }
        let blocked = changes.filter(isBlocked)
        let others = changes.filter { !isBlocked($0) }
        // If no change is blocked, something other than a user's row is locked, or the row is free by now.
        guard !blocked.isEmpty else { return startWaitingForLocks() }
        session.block(blocked)
        changes = []
        end(retrying: others)
    }

    /// Starts again, and waits for locks as long as the changes may.
    private func startWaitingForLocks() {
        waitsForLocks = true
        forgetReads()
        start()
    }
}
