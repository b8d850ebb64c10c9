import Bucketing
import Chronology
import Dispatch
import Storage

/// One transaction for many changes of users, with optimistic concurrency control.
///
/// It reads the users' records, applies the rules, and writes a user only if the row still has the version that was
/// read. No row is locked while rules are applied.
///
/// ```
/// start → apply → write → settle     completes the changes that are durable
///         ↑   ↓             ↓
///          read          tryAgain    starts again with the changes that conflict
/// ```
///
/// After a version conflict the transaction starts again; after several conflicts, with the rows locked. If the changes
/// concern only the contents of users' rows, only the user of the conflict is repeated. Otherwise the whole transaction
/// is repeated. Errors are in `OptimisticTransaction+Failing.swift`.
final class OptimisticTransaction {
    let session: PostgreSQLSession
    let store: PostgreSQLStore
    let connection: Connection
    /// The changes that are neither durable nor have failed.
    var changes: [PendingChange]
    /// Called once at the end, with the changes that must be tried again in other transactions.
    private let didEnd: (_ retried: [PendingChange]) -> Void
    /// Whether the transaction waits for locks until the deadline of its changes. Otherwise it waits briefly; see
    /// ``PostgreSQLStore/lockPatience``.
    var waitsForLocks: Bool
    /// The number of conflicts so far.
    var conflicts = 0
    /// Whether the users' rows are locked when they are read.
    var isLocking = false
    /// When the present attempt began.
    var startedAt = DispatchTime.now()
    /// The number of reads in the present attempt.
    var reads = 0

    // MARK: What was read

    /// The users whose rows were read.
    var users: [Identifier: UserState] = [:]
    /// The version of the newest datafile, as it was read; `nil` before.
    var newestDatafileVersion: Int64?
    /// The names of the attributes in the schema, by their numbers; `nil` before they were read.
    var attributeNames: [UInt32: Identifier]?
    /// The allocation periods of experiments, as they were read.
    var readPeriods: [Identifier: [AllocationPeriod]] = [:]
    /// The status histories of experiments, as they were read.
    var readStatuses: [Identifier: [StatusPeriod]] = [:]
    /// The series of all experiments with their version, as this process or transaction has read them.
    var series: VersionedSeries?
    /// The result of a check for users whom other servers have erased. `ages` has, for each checked user, the seconds
    /// from the erasure to the check; infinite for a user who was not erased. `checkedAt` is in monotonic nanoseconds.
    var erasures: (ages: [Identifier: Double], checkedAt: UInt64) = ([:], 0)
    /// The data that steps have asked for and that was not read yet.
    var missing = MissingRecords()

    // MARK: What is to be written

    /// The time of the changes.
    private(set) var now = Instant.epoch
    /// The writes beside the users' rows.
    private(set) var effects = TransactionEffects()

    /// The number of conflicts after which rows are locked.
    static let conflictsBeforeLocking = 3
    /// The maximum number of reads in an attempt. No rule needs as many, so the limit only prevents an endless loop.
    private static let readLimit = 12

    init(
        _ changes: [PendingChange], in session: PostgreSQLSession, on connection: Connection,
        waitsForLocks: Bool = false, didEnd: @escaping (_ retried: [PendingChange]) -> Void
    ) {
        self.changes = changes
        self.session = session
        store = session.store
        self.connection = connection
        self.waitsForLocks = waitsForLocks
        self.didEnd = didEnd
    }

    /// Ends the transaction, whose connection is free then.
    ///
    /// - Parameter changes: the changes that must be tried again in other transactions.
    func end(retrying changes: [PendingChange] = []) { didEnd(changes) }

    // MARK: For steps

    /// Returns the user's state; `nil` if it has to be read first.
    func user(_ userID: Identifier) -> UserState? {
        if let user = users[userID] { return user }
        missing.rows.insert(userID)
        return nil
    }

    /// Returns the version of the newest datafile of all projects; `nil` if it has to be read first. See
    /// ``expectNewestDatafile(_:)``.
    func newestDatafile() -> Int64? {
        if let newestDatafileVersion { return newestDatafileVersion }
        missing.newestDatafile = true
        return nil
    }

    /// Makes the commit fail unless the datafile is still the newest one.
    func expectNewestDatafile(_ version: Int64) {
        effects.newestDatafile = version
    }

    /// Returns the names of the attributes in the schema, by their numbers; `nil` if they have to be read first.
    func definedAttributes() -> [UInt32: Identifier]? {
        if let attributeNames { return attributeNames }
        missing.definedAttributes = true
        return nil
    }

    /// Returns whether another server has erased the user since an event was received; `nil` if this has to be read
    /// first. Also `true` if the event was received so long ago that a later erasure may be forgotten.
    ///
    /// - Parameter receivedAt: when the event was received, in monotonic nanoseconds.
    func wasErased(_ userID: Identifier, since receivedAt: UInt64) -> Bool? {
        guard let secondsSinceErasure = erasures.ages[userID] else {
            missing.erasures.insert(userID)
            return nil
        }
        let secondsSinceReceipt = Double(erasures.checkedAt &- min(receivedAt, erasures.checkedAt)) / 1e9
        let mayBeForgotten = secondsSinceReceipt > ErasureRules.memory.inSeconds
        return mayBeForgotten || secondsSinceErasure <= secondsSinceReceipt
    }

    /// Applies the rule of a change to the users' records, and performs the writes that the rule requests, user by
    /// user.
    ///
    /// - Returns: `nil` if something has to be read first.
    func apply<Value>(_ change: UserChange<Value>) -> Result<Value, StorageError>? {
        var records = change.userIDs.map { UserRecords(userID: $0) }
        let context = RuleContext(store.settings.rules, at: now)
        let users = change.userIDs.compactMap { user($0) }
        guard users.count == records.count else {
            notePartsNeeded(by: change, &records, context)
            return nil
        }
        while true {
            do throws(StorageError) {
                if let value = try change.rule(&records, &effects.tallies, context) {
                    for (records, user) in zip(records, users) { perform(records, of: user) }
                    return .success(value)
                }
            } catch {
                refused()
                return .failure(error)
            }
            var isComplete = true
            for (index, user) in users.enumerated() where !fill(&records[index], of: user) { isComplete = false }
            guard isComplete else { return nil }
        }
    }

    /// Notes the parts that a change needs besides the users' rows. The rows are missing, too, so all of this data is
    /// then read at once. Runs the rule only to learn these parts.
    private func notePartsNeeded<Value>(
        by change: UserChange<Value>, _ records: inout [UserRecords], _ context: RuleContext
    ) {
        var ignored = TallyChanges()
        // The result is not used, because the rule runs again once the rows were read.
        _ = try? change.rule(&records, &ignored, context)
        for index in records.indices {
            for part in records[index].takeMissing() { missing.add(part, of: records[index].userID) }
        }
        if series != nil { missing.series = false }
    }

    /// Performs the writes that a rule has requested.
    private func perform(_ records: UserRecords, of user: UserState) {
        for write in records.writes {
            effects.perform(write, of: user, at: now)
            user.perform(write)
        }
    }

    /// Fills in the records that a rule has asked for.
    ///
    /// - Returns: `false` if some of them have to be read first.
    private func fill(_ records: inout UserRecords, of user: UserState) -> Bool {
        var isComplete = true
        for part in records.takeMissing() where !fill(part, &records, of: user) {
            missing.add(part, of: user.userID)
            isComplete = false
        }
        return isComplete
    }

    /// Fills in one part.
    ///
    /// - Returns: `false` if it has to be read first.
    private func fill(_ part: UserRecords.Part, _ records: inout UserRecords, of user: UserState) -> Bool {
        switch part {
        case .definedAttributes:
            guard let attributeNames else { return false }
            records.definedAttributes = attributeNames
            return true
        case .periods(let experimentID):
            guard let known = readPeriods[experimentID] else { return false }
            records.periods = known + effects.periods.filter { $0.experimentID == experimentID }.map(\.period)
            return true
        case .statuses(let experimentID):
            guard let known = readStatuses[experimentID] else { return false }
            records.statuses = known
            return true
        case .newestDatafile:
            guard let newestDatafileVersion else { return false }
            records.newestDatafile = newestDatafileVersion
            return true
        case .removals(let acceptedAt):
            guard user.fill(part, &records) else { return false }
            if RemovedUser.first(since: acceptedAt, of: records.removals) == nil {
                effects.expectNoRemoval(of: user.userID, since: acceptedAt)
            }
            return true
        case .series(let experimentIDs):
            guard let series else { return false }
            records.series = experimentIDs.flatMap { series.byExperiment[$0] ?? [] }
                .map { effects.putSeries[$0.number] ?? $0 }
            effects.seriesVersion = series.version
            return true
        default: return user.fill(part, &records)
        }
    }

    /// Makes the commit fail if the row of a user who is only read was changed, deleted or inserted since the read.
    func keep(_ user: UserState) {
        effects.keptVersions.updateValue(user.version, forKey: user.userID)
    }

    /// Counts a change that a rule refused.
    func refused() {
        effects.refusals += 1
    }

    // MARK: Reading and applying

    /// When the oldest change fails if the database does not respond, in monotonic nanoseconds.
    private var deadline: UInt64 { session.deadline(since: changes.lazy.map(\.submittedAt).min() ?? session.now) }

    /// Runs statements on the transaction's connection.
    func run(_ queries: [SQLQuery], _ completion: @escaping Connection.Completion) {
        connection.run(queries, by: deadline, completion)
    }

    /// The statements that begin a transaction and set its limits. Mostly the limits are settings of the session, but a
    /// session behind a pooler has no settings.
    private var begin: [SQLQuery] {
        let configuration = store.configuration
        guard waitsForLocks || configuration.usesPooler else { return [Statement.begin()] }
        // The wait for locks ends before the deadline, so that the server gives up first and the connection stays
        // usable.
        let left = Double(Int64(bitPattern: deadline &- session.now)) / 1e9 - configuration.lockPatience
        return [
            Statement.begin(),
            Statement.limits(
                lockTimeout: waitsForLocks ? left : store.lockPatience,
                timeout: 2 * configuration.statementTimeout),
        ]
    }

    /// Begins an attempt.
    func start() {
        guard failOverdue() else { return }
        if isLocking {
            connection.isInTransaction = true
            // Locks the rows of all users before other data is read.
            missing.rows = Set(changes.flatMap { $0.steps.map(\.userID) })
            return read()
        }
        apply()
    }

    /// Applies the steps of all changes to the data that was read. Then writes, or reads the data that is missing.
    private func apply() {
        now = store.clock.now()
        series = series ?? store.knownSeries
        effects = TransactionEffects()
        missing = MissingRecords()
        for user in users.values { user.reset() }
        // If a step lacks data, the others still run, so that all missing data is read at once. Then all steps are
        // applied again.
        for change in changes {
            for step in change.steps { _ = step.apply(self) }
        }
        if missing.isEmpty { write() } else { read() }
    }

    /// Reads the data that is missing, and applies the steps again.
    private func read() {
        reads += 1
        guard reads <= Self.readLimit else {
            return failAll(.unavailable(reason: "a change must not need more than \(Self.readLimit) reads"))
        }
        let onlyProfiles = changes.allSatisfy { $0.kind == .profile }
        let readings = missing.readings(
            onlyProfiles ? UserRows.profileRows : UserRows.wholeRows, locked: isLocking ? Array(users.keys) : nil,
            of: store)
        let begin = isLocking && reads == 1 ? self.begin : []
        run(begin + readings.map(\.query)) { [self] result in
            switch result {
            case .success(let rows):
                for (reading, rows) in zip(readings, rows.dropFirst(begin.count)) { reading.take(rows, self) }
                apply()
            case .failure(let error): react(to: error)
            }
        }
    }

    /// Takes the rows of users. A user without a row gets an empty state.
    func takeRows(_ rows: Rows, of userIDs: [Identifier]) {
        for userID in userIDs { users[userID] = UserState(userID, hasFeed: store.hasFeed) }
        for row in rows {
            users[row.identifier(0)]?.read(
                version: row.integer(1), profile: .init(row.optionalBytes(2), of: row.identifier(0)),
                attributes: row.optionalBytes(3))
        }
    }

    // MARK: Writing

    /// Writes the changed users and the other effects, and commits.
    private func write() {
        let changed = users.values.filter { $0.hasChanged || $0.changesOtherTables }.sorted { $0.userID < $1.userID }
        guard !changed.isEmpty || !effects.isEmpty else { return endWithoutWriting() }
        // The users who have entries for the feed.
        let fed = users.values.filter { !$0.feed.isEmpty }.sorted { $0.userID < $1.userID }
        // A transaction is divisible if a conflict of one user leaves the writes of the others valid. With Citus, a
        // transaction with entries for the feed is not divisible: Citus cannot insert into the feed what a statement on
        // other nodes returns.
        let changesOnlyRows = effects.isEmpty && !changed.contains { $0.changesOtherTables }
        let isDivisible = changesOnlyRows && (fed.isEmpty || !store.isDistributed)
        let rows = UserRowWrites(changed, isGuarded: !isDivisible, feeds: isDivisible && !fed.isEmpty, at: now)
        var queries = isLocking ? [] : begin
        if let version = effects.newestDatafile { queries += ProjectStateRow.expectNewest(version) }
        queries += UserRows.keep(unwrittenVersions(changed))
        let first = queries.count
        queries += rows.queries
        queries += effects.queries(
            changed, server: store.server, feed: isDivisible ? [] : Array(fed.map(\.feed.bytes).joined()),
            isDistributed: store.isDistributed, at: now)
        queries.append(Statement.commit())
        connection.isInTransaction = false
        run(queries) { [self] result in
            switch result {
            case .success(let results):
                let touched = results[first..<first + rows.queries.count]
                settle(conflicts: isDivisible ? rows.conflicts(touched) : [], changed)
            case .failure(let error): react(to: error)
            }
        }
    }

    /// Returns the versions of rows that are not written but must not change until the commit. These are the rows of
    /// users who were only read. Users who have no row and need none, but whose rows in other tables are deleted, must
    /// not get a row; their version is `nil`.
    private func unwrittenVersions(_ changed: [UserState]) -> [Identifier: Int64?] {
        var versions = effects.keptVersions
        for user in changed {
            versions[user.userID] = nil
            if user.version == nil, !user.needsRow { versions.updateValue(nil, forKey: user.userID) }
        }
        return versions
    }

    /// Completes changes that write nothing.
    ///
    /// Their results depend on committed data. They need a commit of their own only if this data may not have reached
    /// the standby, for example because a restart ended the wait of the commit that wrote the data.
    private func endWithoutWriting() {
        let isChangeOfTwoUsers = users.count > 1 && changes.count == 1 && changes[0].steps.count == 1
        if store.isDistributed, isChangeOfTwoUsers { return confirm() }
        let areRefused = effects.refusals == changes.reduce(0) { $0 + $1.count }
        let awaitsStandby = store.configuration.cluster.isSynchronous && !areRefused
        // The changes write nothing for the series that this process knows. If there are newer series, the changes
        // might write something for them.
        let checks = effects.seriesVersion.map { [SeriesRows.expect(.integer($0))] } ?? []
        guard isLocking || awaitsStandby || !checks.isEmpty else { return settle(conflicts: [], []) }
        connection.isInTransaction = false
        let queries = (isLocking ? [] : begin) + checks + (awaitsStandby ? [Statement.awaitStandby()] : [])
        run(queries + [Statement.commit()]) { [self] result in
            if case .failure(let error) = result, awaitsStandby || !checks.isEmpty {
                react(to: error)
            } else {
                settle(conflicts: [], [])
            }
        }
    }

    /// Completes a change of two users that writes nothing, after a check that the rows of both are unchanged. Two
    /// nodes of a distributed database are not read at the same moment, so the change may have seen a state that never
    /// existed.
    private func confirm() {
        let userIDs = users.keys.sorted()
        connection.isInTransaction = false
        let end = isLocking ? [Statement.commit()] : []
        run([UserRows.profileRows(.texts(userIDs.map(\.string)))] + end) { [self] result in
            switch result {
            case .success(let rows):
                var versions: [Identifier: Int64] = [:]
                for row in rows[0] { versions[row.identifier(0)] = row.integer(1) }
                let isSame = userIDs.allSatisfy { versions[$0] == users[$0]?.version }
                if isSame { settle(conflicts: [], []) } else { tryAgain() }
            case .failure(let error): react(to: error)
            }
        }
    }

    /// Completes the changes that are durable, and tries the changes with a conflict again.
    ///
    /// - Parameters:
    ///   - conflicts: the users whose rows were not written, because another writer has changed them.
    ///   - changed: all users to be written.
    private func settle(conflicts: Set<Identifier>, _ changed: [UserState]) {
        let written = changed.filter { !conflicts.contains($0.userID) }
        store.countConflicts(conflicts.count)
        if !written.isEmpty || !effects.isEmpty { count(written) }
        if !effects.putSeries.isEmpty { store.forgetSeries() }
        store.countFailedChanges(effects.refusals)
        var unsettled: [PendingChange] = []
        for change in changes {
            change.steps.removeAll { !conflicts.contains($0.userID) }
            if change.steps.isEmpty { session.complete(change, nil) } else { unsettled.append(change) }
        }
        changes = unsettled
        if changes.isEmpty { end() } else { tryAgain() }
    }

    /// Counts the committed transaction in the metrics.
    private func count(_ written: [UserState]) {
        var transaction = CommittedTransaction()
        transaction.changes = changes.reduce(0) { $0 + $1.count } - effects.refusals
        transaction.seconds = Double(DispatchTime.now().uptimeNanoseconds &- startedAt.uptimeNanoseconds) / 1e9
        transaction.auditEntries = effects.auditEntries.count
        for user in written {
            transaction.profiles += user.profileDifference.profiles
            transaction.assignments += user.profileDifference.assignments
        }
        store.countCommit(transaction)
    }
}
