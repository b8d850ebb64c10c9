import Bucketing
import Dispatch
import Storage

/// One transaction for many changes of users, optimistic: it reads the users' records, applies the rules, and writes only where
/// the version of a user is still the one that was read. No row stays locked while rules are applied. Those who lost a race
/// are read and applied again; after several lost races, under locks.
///
/// If only contents of users' rows change, a lost race concerns only its user. Otherwise the whole transaction is made
/// again.
final class WriteRound {
    private let session: PostgreSQLSession
    private let store: PostgreSQLStore
    private let connection: Connection
    private var changes: [PendingChange]
    /// Called at the end, with those that are to be tried one by one.
    private let ended: ([PendingChange]) -> Void
    private var lostRaces = 0
    /// Whether the users' rows are locked.
    private var isLocking = false
    private var startedAt = DispatchTime.now()
    private var reads = 0

    // MARK: What was read

    var users: [Identifier: UserState] = [:]
    var newestDatafileVersion: Int64?
    var attributeNumbers: Set<UInt32>?
    /// The allocation periods of experiments, as they were read.
    var readPeriods: [Identifier: [AllocationPeriod]] = [:]
    /// Seconds since users were erased; infinite for those who were not.
    var erasures: (ages: [Identifier: Double], checkedAt: UInt64) = ([:], 0)
    private var needs = RoundNeeds()

    // MARK: What is to be written

    private(set) var now: Timestamp = 0
    private(set) var effects = RoundEffects()

    /// Lost races after which rows are locked.
    private static let patience = 3
    /// More reads than any rule asks for.
    private static let mostReads = 12

    init(
        _ changes: [PendingChange], in session: PostgreSQLSession, on connection: Connection,
        ended: @escaping ([PendingChange]) -> Void
    ) {
        self.changes = changes
        self.session = session
        store = session.store
        self.connection = connection
        self.ended = ended
    }

    // MARK: For steps

    /// The user's state; `nil` if it has to be read first.
    func user(_ userID: Identifier) -> UserState? {
        if let user = users[userID] { return user }
        needs.rows.insert(userID)
        return nil
    }

    /// The version of the newest datafile of all projects, which stays the newest until the commit; `nil` if it has to be
    /// read first.
    func newestDatafile() -> Int64? {
        if let newestDatafileVersion { return newestDatafileVersion }
        needs.newestDatafile = true
        return nil
    }

    func expectNewestDatafile(_ version: Int64) {
        effects.newestDatafile = version
    }

    /// The numbers of the attributes in the schema; `nil` if they have to be read first.
    func definedAttributes() -> Set<UInt32>? {
        if let attributeNumbers { return attributeNumbers }
        needs.definedAttributes = true
        return nil
    }

    /// Whether the user was erased since something was received; `nil` if that has to be read first.
    ///
    /// - Parameter receivedAt: monotonic nanoseconds.
    func wasErased(_ userID: Identifier, since receivedAt: UInt64) -> Bool? {
        guard let erasedFor = erasures.ages[userID] else {
            needs.erasures.insert(userID)
            return nil
        }
        let waited = Double(erasures.checkedAt &- min(receivedAt, erasures.checkedAt)) / 1e9
        return waited > ErasureRows.memory || erasedFor <= waited
    }

    /// Notes the erasure of a user, even if nothing was stored: another server may have events waiting.
    func erased(_ user: UserState) {
        user.deleteRow()
        effects.erasedUsers.append(user.userID)
    }

    /// Applies a rule to a user's records.
    ///
    /// - Returns: `nil` if something has to be read first.
    func apply<Value>(
        to userID: Identifier, _ rule: (inout UserRecords, inout TallyChanges) throws(StorageError) -> Value?
    ) -> Result<Value, StorageError>? {
        var records = UserRecords(userID: userID)
        guard let user = user(userID) else {
            // What the rule asks for first is read together with the row.
            var ignored = TallyChanges()
            _ = try? rule(&records, &ignored)
            for part in records.takeMissing() { needs.add(part, of: userID) }
            return nil
        }
        while true {
            do throws(StorageError) {
                if let value = try rule(&records, &effects.tallies) {
                    perform(records, of: user)
                    return .success(value)
                }
            } catch {
                return .failure(error)
            }
            guard fill(&records, of: user) else { return nil }
        }
    }

    /// Applies a rule to the records of two users, see ``apply(to:_:)``. Performs the writes of the first user first.
    func apply<Value>(
        to first: Identifier, _ second: Identifier,
        _ rule: (inout UserRecords, inout UserRecords, inout TallyChanges) throws(StorageError) -> Value?
    ) -> Result<Value, StorageError>? {
        let (firstUser, secondUser) = (user(first), user(second))
        guard let firstUser, let secondUser else { return nil }
        var (firstRecords, secondRecords) = (UserRecords(userID: first), UserRecords(userID: second))
        while true {
            do throws(StorageError) {
                if let value = try rule(&firstRecords, &secondRecords, &effects.tallies) {
                    perform(firstRecords, of: firstUser)
                    perform(secondRecords, of: secondUser)
                    return .success(value)
                }
            } catch {
                return .failure(error)
            }
            let isFilled = (fill(&firstRecords, of: firstUser), fill(&secondRecords, of: secondUser))
            guard isFilled.0, isFilled.1 else { return nil }
        }
    }

    private func perform(_ records: UserRecords, of user: UserState) {
        for write in records.writes {
            effects.perform(write, of: user, at: now)
            user.perform(write)
        }
    }

    /// Gives a rule what it lacks.
    ///
    /// - Returns: `false` if something has to be read first.
    private func fill(_ records: inout UserRecords, of user: UserState) -> Bool {
        var isComplete = true
        for part in records.takeMissing() where !fill(part, &records, of: user) {
            needs.add(part, of: user.userID)
            isComplete = false
        }
        return isComplete
    }

    private func fill(_ part: UserRecords.Part, _ records: inout UserRecords, of user: UserState) -> Bool {
        switch part {
        case .definedAttributes:
            guard let attributeNumbers else { return false }
            records.definedAttributes = attributeNumbers
            return true
        case .periods(let experimentID):
            guard let known = readPeriods[experimentID] else { return false }
            records.periods = known + effects.periods.filter { $0.experimentID == experimentID }.map(\.period)
            return true
        default: return user.fill(part, &records)
        }
    }

    /// Requires that a user who was only read is the same at the commit.
    func keep(_ user: UserState) {
        effects.keptVersions[user.userID] = user.version
    }

    func refused() {
        effects.refusals += 1
    }

    // MARK: Reading and applying

    func start() {
        if isLocking {
            connection.isInTransaction = true
            // Their rows are the first thing that is read.
            needs.rows = Set(changes.flatMap { $0.steps.map(\.userID) })
            return read()
        }
        apply()
    }

    private func apply() {
        now = store.settings.clock()
        effects = RoundEffects()
        needs = RoundNeeds()
        for user in users.values { user.reset() }
        // A step that lacks something does not keep those after it from asking for what they need: all begin anew once it
        // has been read.
        for change in changes {
            for step in change.steps { _ = step.apply(self) }
        }
        if needs.isEmpty { write() } else { read() }
    }

    private func read() {
        reads += 1
        guard reads <= Self.mostReads else {
            return fail(.unavailable(reason: "a change asks for more and more to be read"))
        }
        let onlyProfiles = changes.allSatisfy { $0.kind == .profile }
        let rowStatement = isLocking ? nil : onlyProfiles ? UserRows.profileRows : UserRows.wholeRows
        let readings = needs.readings(rowStatement, server: store.server)
        let begin = isLocking && reads == 1 ? [Statement.begin()] : []
        connection.run(begin + readings.map(\.query)) { [self] result in
            switch result {
            case .success(let rows):
                for (reading, rows) in zip(readings, rows.dropFirst(begin.count)) { reading.take(rows, self) }
                apply()
            case .failure(let error): failed(error)
            }
        }
    }

    func takeRows(_ rows: Rows, of userIDs: [Identifier]) {
        for userID in userIDs { users[userID] = UserState(userID) }
        for row in rows.indices {
            users[rows.identifier(row, 0)]?.read(
                version: rows.integer(row, 1), profile: UserRows.decodeProfile(rows, row, 2),
                attributes: rows.isNull(row, 3) ? nil : rows.bytes(row, 3))
        }
    }

    // MARK: Writing

    private func write() {
        let changed = users.values.filter { $0.hasChanged || $0.changesOtherTables }.sorted { $0.userID < $1.userID }
        guard !changed.isEmpty || !effects.isEmpty else { return endWithoutWriting() }
        let isDivisible = effects.isEmpty && !changed.contains { $0.changesOtherTables }
        let rows = UserRowWrites(changed, isGuarded: !isDivisible)
        var queries = isLocking ? [] : [Statement.begin()]
        if let version = effects.newestDatafile { queries += ProjectStateRow.expectNewest(version) }
        let written = Set(changed.map(\.userID))
        let kept = effects.keptVersions.filter { !written.contains($0.key) }.sorted { $0.key < $1.key }
        queries += kept.map { UserRows.keepRow(.text($0.key.string), .integer($0.value)) }
        let first = queries.count
        queries += rows.queries
        queries += effects.queries(changed, server: store.server)
        queries.append(Statement.commit())
        connection.isInTransaction = false
        connection.run(queries) { [self] result in
            switch result {
            case .success(let results):
                let touched = results[first..<first + rows.queries.count]
                settle(losers: isDivisible ? rows.losers(touched) : [], changed)
            case .failure(let error): failed(error)
            }
        }
    }

    /// What rules found counts even if they changed nothing: they read what was committed.
    private func endWithoutWriting() {
        guard isLocking else { return settle(losers: [], []) }
        connection.isInTransaction = false
        connection.run([Statement.commit()]) { [self] _ in settle(losers: [], []) }
    }

    private func settle(losers: Set<Identifier>, _ changed: [UserState]) {
        let written = changed.filter { !losers.contains($0.userID) }
        if !written.isEmpty || !effects.isEmpty { count(written) }
        store.failed(effects.refusals)
        var unsettled: [PendingChange] = []
        for change in changes {
            change.steps.removeAll { !losers.contains($0.userID) }
            if change.steps.isEmpty { session.complete(change, nil) } else { unsettled.append(change) }
        }
        changes = unsettled
        if changes.isEmpty { ended([]) } else { again() }
    }

    private func count(_ written: [UserState]) {
        var transaction = CommittedTransaction()
        transaction.changes = changes.reduce(0) { $0 + $1.count } - effects.refusals
        transaction.seconds = Double(DispatchTime.now().uptimeNanoseconds &- startedAt.uptimeNanoseconds) / 1e9
        transaction.auditEntries = effects.auditEntries.count
        for user in written {
            transaction.profiles += user.profileDifference.profiles
            transaction.assignments += user.profileDifference.assignments
        }
        store.committed(transaction)
    }

    // MARK: Failing

    private func failed(_ error: PostgreSQLError) {
        connection.isInTransaction = false
        switch error.remedy {
        case .applyAgain, .retry: again()
        case .none where error.mayConcernOneChange && changes.count > 1:
            for change in changes { change.isAlone = true }
            ended(changes)
        case _ where error.mayConcernOneNode && store.isDistributed && changes.count > 1 && changes[0].node == nil:
            divide(error)
        case .none, .reconnect:
            fail(error.asStorageError, isOneNode: store.isDistributed && error.mayConcernOneNode)
        }
    }

    /// Makes a transaction for each node of a distributed database: one that cannot be reached fails only its users.
    private func divide(_ error: PostgreSQLError) {
        let users = Set(changes.flatMap { $0.steps.map(\.userID) })
        connection.run([UserRows.nodes(.texts(users.map(\.string)))]) { [self] result in
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

    /// - Parameter isOneNode: whether the fault lies in a node of a distributed database; the others go on.
    private func fail(_ error: StorageError, isOneNode: Bool = false) {
        store.failed(changes.reduce(0) { $0 + $1.count })
        if !isOneNode { store.writesFail(error) }
        for change in changes { session.complete(change, error) }
        changes = []
        ended([])
    }

    /// Reads and applies again, after a pause that grows. A failed commit may have been one of several in a row.
    private func again() {
        lostRaces += 1
        isLocking = lostRaces >= Self.patience
        reads = 0
        users = [:]
        newestDatafileVersion = nil
        attributeNumbers = nil
        readPeriods = [:]
        erasures = ([:], 0)
        let time = DispatchTime.now().uptimeNanoseconds
        let longest = UInt64(store.settings.waitingSeconds * 1e9)
        let overdue = changes.filter { time &- $0.submittedAt > longest }
        changes.removeAll { time &- $0.submittedAt > longest }
        for change in overdue { session.complete(change, .overloaded) }
        store.failed(overdue.reduce(0) { $0 + $1.count })
        guard !changes.isEmpty else { return ended([]) }
        startedAt = .now()
        guard lostRaces > 1 else { return start() }
        session.after(milliseconds: .random(in: 0...(1 << min(lostRaces, 6)))) { [self] in start() }
    }
}
