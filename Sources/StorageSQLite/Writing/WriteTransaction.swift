import Bucketing
import Chronology
import Dispatch
import Storage

/// The open transaction of the ``Writer``, through which changes read and write rows. Used on the writer's queue only.
///
/// The writer begins the transaction, passes it to each change, and commits. Besides writing rows, the transaction
/// collects data for the commit: the changed users for the caches, the counters, the tallies and the feed.
final class WriteTransaction {
    let connection: Connection
    private let clock: StoreClock
    /// Contains the users who may have a profile, except users whom another process has added.
    private let userFilter: BloomFilter?
    /// The erasures of other processes.
    private let erasures: Erasures
    /// When the current change was submitted, in monotonic nanoseconds.
    var submittedAt: UInt64 = 0
    /// The users who were erased or merged, as ``ErasureRules/mark(_:into:)``.
    private var removals: [Int64] = []
    /// The changes of users in this transaction, in order.
    private(set) var userChanges = UserChanges()
    /// The hashes of users who had no profile before.
    private(set) var newUsers: [UInt64] = []
    /// By how much the transaction changes the number of profiles.
    private(set) var profiles: Int64 = 0
    /// By how much the transaction changes the number of assignments.
    private(set) var assignments: Int64 = 0
    /// The changes of tallies, written once at the end.
    var tallies = TallyChanges()
    /// The changes for readers of the feed; `nil` if the feed is off.
    var feed: TransactionFeed?
    /// The number of entries made in the audit log.
    private(set) var auditEntries: UInt64 = 0
    /// The number of changes that a rule refused.
    private(set) var refusals = 0
    /// The number of pages that were written to the log, which shows that the log has room for as many.
    private(set) var provenPages = 0
    /// Whether there is anything to commit.
    private(set) var hasWritten = false
    // Data that was read in this transaction, kept so that further changes need not read it again.

    /// See ``newestDatafile()``.
    private var newestDatafileVersion: Int64?
    /// See ``definedAttributes()``.
    private var attributeNames: [UInt32: Identifier]?
    /// The allocation periods of experiments, including those that this transaction has added.
    private var allocationPeriods: [Identifier: [AllocationPeriod]] = [:]
    /// The status histories of experiments.
    private var statusPeriods: [Identifier: [StatusPeriod]] = [:]
    /// The series of experiments.
    private var series: [Identifier: [TrackedSeries]] = [:]

    /// - Parameters:
    ///   - userFilter: contains all users with a profile, except users whom another process has added; `nil` if there
    ///     is no filter.
    ///   - erasures: updated at the start of the transaction.
    ///   - hasFeed: whether changes are kept for readers of the feed.
    init(
        _ connection: Connection, _ clock: StoreClock, userFilter: BloomFilter?, _ erasures: Erasures, hasFeed: Bool
    ) {
        feed = hasFeed ? TransactionFeed() : nil
        self.connection = connection
        self.clock = clock
        self.userFilter = userFilter
        self.erasures = erasures
    }

    /// The present time, which is not before the time of any earlier commit.
    var now: Instant { clock.now() }

    /// Makes one change of the transaction.
    ///
    /// - Parameter change: a `StorageError` that it throws fails only this change, and must be thrown before anything
    ///   is written. A ``SQLiteError`` fails the whole transaction.
    func result<Value>(of change: () throws -> Value) throws(SQLiteError) -> Result<Value, StorageError> {
        let refusal: StorageError
        do {
            return .success(try change())
        } catch let error as SQLiteError {
            throw error
        } catch let error as StorageError {
            refusal = error
        } catch {
            refusal = .unavailable(reason: "\(error)")
        }
        refusals += 1
        return .failure(refusal)
    }

    // MARK: Profiles

    /// Returns the stored profile of a user, including expired assignments; `nil` if there is none.
    func profile(of userID: Identifier) throws -> ProfileRecord? {
        try ProfileRows.find(userID, on: connection).map { try ProfileRecord(stored: $0, of: userID) }
    }

    /// Whether the user almost certainly has no profile: only another process may have added one. `false` if there is
    /// no filter.
    func isUnknown(_ userID: Identifier) -> Bool {
        guard let userFilter else { return false }
        return !userFilter.mayContain(userID.withKey(\.hash))
    }

    /// Inserts a new profile.
    ///
    /// - Returns: `false` if the user has a profile already; nothing was written then.
    func insert(_ record: ProfileRecord, for userID: Identifier) throws(SQLiteError) -> Bool {
        guard try ProfileRows.insert(record, for: userID, on: connection) else { return false }
        noteProfile(of: userID, record, replacing: nil)
        return true
    }

    /// Applies a change of a profile.
    ///
    /// A change of the profile only takes a fast path (``create(_:anonymous:_:at:)``, then
    /// ``update(_:anonymous:_:at:)``). Other changes, such as erasures, are made by their rule in `Storage`.
    ///
    /// - Throws: `StorageError` if the change is refused; ``SQLiteError``.
    func apply(
        _ change: ProfileChange, by author: Author?, _ rules: ProfileRules
    ) throws -> ProfileChangeResult {
        let now = now
        var anonymous: ProfileRecord?
        if case .assign(_, let version, let anonymousID) = change.operation {
            guard try version == newestDatafile() else { throw StorageError.staleDatafile }
            anonymous = try anonymousID.flatMap { try profile(of: $0) }
        }
        if !change.operation.isErasure { try expectNotErased(change.userID) }
        guard change.concernsProfileOnly else { return try apply(.profile(change, by: author), rules, at: now) }
        return try create(change, anonymous: anonymous, rules, at: now)
            ?? update(change, anonymous: anonymous, rules, at: now)
    }

    /// Inserts a new profile without reading the present one.
    ///
    /// - Returns: `nil` if the user may have a profile, or if the change creates none; nothing was written then.
    private func create(
        _ change: ProfileChange, anonymous: ProfileRecord?, _ rules: ProfileRules, at now: Instant
    ) throws(SQLiteError) -> ProfileChangeResult? {
        guard isUnknown(change.userID),
            let outcome = try? rules.apply(change, to: nil, anonymous: anonymous, at: now),
            case .put(let record) = outcome.effect,
            try insert(record, for: change.userID)
        else { return nil }
        feed?.append(record, replacing: nil, of: change.userID)
        return outcome.result
    }

    /// Reads the present profile, and writes the changed one.
    private func update(
        _ change: ProfileChange, anonymous: ProfileRecord?, _ rules: ProfileRules, at now: Instant
    ) throws -> ProfileChangeResult {
        let stored = try profile(of: change.userID)
        let outcome = try rules.apply(change, to: stored, anonymous: anonymous, at: now)
        switch outcome.effect {
        case .none: break
        case .put(let record):
            try put(record, for: change.userID, replacing: stored)
            feed?.append(record, replacing: stored, of: change.userID)
        case .delete: try deleteProfile(of: change.userID, replacing: stored)
        }
        return outcome.result
    }

    /// Stores a profile.
    ///
    /// - Parameter stored: the present profile; `nil` if there is none.
    func put(
        _ record: ProfileRecord, for userID: Identifier, replacing stored: ProfileRecord?
    ) throws(SQLiteError) {
        // An INSERT or an UPDATE is faster than an upsert. Nobody else writes between the read and this write.
        let isWritten =
            try stored == nil
            ? ProfileRows.insert(record, for: userID, on: connection)
            : ProfileRows.update(record, for: userID, on: connection)
        assert(isWritten)
        noteProfile(of: userID, record, replacing: stored)
    }

    /// Deletes a profile.
    ///
    /// - Parameter stored: the present profile; `nil` if there is none.
    func deleteProfile(of userID: Identifier, replacing stored: ProfileRecord?) throws(SQLiteError) {
        try ProfileRows.delete(userID, on: connection)
        noteProfile(of: userID, nil, replacing: stored)
    }

    /// Notes a written or deleted profile for the caches and the counters.
    private func noteProfile(of userID: Identifier, _ record: ProfileRecord?, replacing stored: ProfileRecord?) {
        userID.withKey { key in
            userChanges.appendProfile(record?.bytes, of: key)
            if record != nil, stored == nil { newUsers.append(key.hash) }
        }
        profiles += (record == nil ? 0 : 1) - (stored == nil ? 0 : 1)
        assignments += Int64((record?.count ?? 0) - (stored?.count ?? 0))
        hasWritten = true
    }

    // MARK: Erased users

    /// Whether another process has erased the user since an event was received. Also `true` if the event was received
    /// so long ago that a later erasure may be forgotten.
    ///
    /// - Parameter receivedAt: when the event was received, in monotonic nanoseconds.
    func wasErased(_ userID: Identifier, since receivedAt: UInt64) throws(SQLiteError) -> Bool {
        try erasures.mayHaveErased(userID, since: receivedAt, on: connection)
    }

    /// Refuses a change of a user whom another process has erased while the change waited.
    ///
    /// - Throws: `StorageError.erased`
    func expectNotErased(_ userID: Identifier) throws {
        if try wasErased(userID, since: submittedAt) { throw StorageError.erased }
    }

    /// Notes a user who was erased or merged into another.
    ///
    /// - Parameter mark: see ``ErasureRules/mark(_:into:)``.
    func noteRemoval(_ mark: Int64) {
        removals.append(mark)
        hasWritten = true
    }

    /// Records the erasures and merges of this transaction, so that all processes drop waiting changes of the erased
    /// users.
    ///
    /// - Returns: the time of the erasures; `nil` if there were none.
    func recordErasures() throws(SQLiteError) -> UInt64? {
        guard !removals.isEmpty else { return nil }
        let now = DispatchTime.now().uptimeNanoseconds
        for mark in removals { try ErasureRows.insert(mark, at: now, on: connection) }
        return now
    }

    // MARK: Probing

    /// Checks that a transaction of this size could be committed.
    ///
    /// - Throws: `StorageError.unavailable`, which does not fail the other changes.
    func ensureRoom(pages: Int) throws(StorageError) {
        do throws(SQLiteError) {
            try connection.extendLog(pages: pages)
        } catch {
            throw error.asStorageError
        }
        didWrite(pages: pages)
    }

    /// Notes that this number of pages was written.
    func didWrite(pages: Int) {
        provenPages = max(provenPages, pages)
    }

    // MARK: Bookkeeping

    /// Notes changed attributes.
    func changedAttributes(of userID: Identifier) {
        userID.withKey { userChanges.appendAttributes(of: $0) }
        hasWritten = true
    }

    /// Notes an entry in the audit log.
    func noteAuditEntry() {
        auditEntries += 1
        hasWritten = true
    }

    // MARK: Allocations and statuses

    /// Returns the allocation periods of an experiment.
    func allocationPeriods(of experimentID: Identifier) throws(SQLiteError) -> [AllocationPeriod] {
        if let known = allocationPeriods[experimentID] { return known }
        let periods = try connection.all(AllocationPeriod.ofExperiment(experimentID)) {
            AllocationPeriod.decode($0).period
        }
        allocationPeriods[experimentID] = periods
        return periods
    }

    /// Stores allocation periods.
    func put(_ periods: [AllocationPeriod.OfExperiment]) throws(SQLiteError) {
        for (experimentID, period) in periods {
            try insert(period.values(experimentID), into: .allocationPeriods)
            allocationPeriods[experimentID] = nil
        }
    }

    /// Returns the status history of an experiment.
    func statusPeriods(of experimentID: Identifier) throws(SQLiteError) -> [StatusPeriod] {
        if let known = statusPeriods[experimentID] { return known }
        let periods = try connection.all(StatusPeriod.ofExperiment(experimentID)) { StatusPeriod.decode($0).period }
        statusPeriods[experimentID] = periods
        return periods
    }

    // MARK: Series

    /// Returns the tracked series of an experiment.
    func trackedSeries(of experimentID: Identifier) throws(SQLiteError) -> [TrackedSeries] {
        if let known = series[experimentID] { return known }
        let found = try connection.all(TrackedSeries.ofExperiment(experimentID)) { TrackedSeries($0) }
        series[experimentID] = found
        return found
    }

    /// Forgets the series, allocations and statuses that were read, because some of them have changed.
    func forgetDefinitions() {
        series = [:]
        allocationPeriods = [:]
        statusPeriods = [:]
    }

    // MARK: Datafiles and attributes

    /// Returns the names of the attributes in the schema, by their numbers.
    func definedAttributes() throws(SQLiteError) -> [UInt32: Identifier] {
        if let attributeNames { return attributeNames }
        let rows = try connection.all("SELECT number, name FROM attributes") {
            (UInt32(clamping: $0.integer(0)), $0.identifier(1))
        }
        let names = Dictionary(rows, uniquingKeysWith: { first, _ in first })
        attributeNames = names
        return names
    }

    /// Returns the version of the newest datafile of all projects; 0 if there is none.
    func newestDatafile() throws(SQLiteError) -> Int64 {
        if let newestDatafileVersion { return newestDatafileVersion }
        let version = try connection.integer(
            "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'datafiles'")
        newestDatafileVersion = version
        return version
    }

    /// Announces a changed datafile, forced variation, attribute or segment to all processes.
    func changedProjects() throws(SQLiteError) {
        try connection.statement("UPDATE counters SET project_changes = project_changes + 1").run()
        newestDatafileVersion = nil
        attributeNames = nil
        changed()
    }

    /// Notes a change that needs no other bookkeeping.
    func changed() {
        hasWritten = true
    }
}

@available(*, unavailable) extension WriteTransaction: Sendable {}
