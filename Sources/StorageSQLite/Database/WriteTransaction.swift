import Bucketing
import Dispatch
import Storage

/// The transaction in progress, as the changes in it see it. For the writer's queue only.
final class WriteTransaction {
    let connection: Connection
    private let knownUsers: BloomFilter?
    private let erasures: Erasures
    /// When the change was submitted that is being made, in monotonic nanoseconds.
    var submittedAt: UInt64 = 0
    private var erasedUsers: [Identifier] = []
    /// What has been changed of users in this transaction, in order.
    private(set) var userChanges = UserChanges()
    /// The hashes of users who had no profile before.
    private(set) var newUsers: [UInt64] = []
    private(set) var profiles: Int64 = 0
    private(set) var assignments: Int64 = 0
    /// Entries made in the audit log.
    private(set) var auditEntries: UInt64 = 0
    /// Changes that a rule refused.
    private(set) var refusals = 0
    /// Pages for which there was shown to be room in the log.
    private(set) var provenPages = 0
    /// Whether there is anything to commit.
    private(set) var hasWritten = false
    /// Read when first asked for.
    private var newestDatafileVersion: Int64?

    /// - Parameters:
    ///   - knownUsers: those who may have a profile; others have none, unless another process has made it.
    ///   - erasures: up to date.
    init(_ connection: Connection, knownUsers: BloomFilter?, _ erasures: Erasures) {
        self.connection = connection
        self.knownUsers = knownUsers
        self.erasures = erasures
    }

    /// Makes one of the transaction's changes.
    ///
    /// - Parameter change: what it throws of ``StorageError`` is the result of this change alone, and must be thrown
    ///   before anything is written; a ``SQLiteError`` fails the whole transaction.
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

    /// The stored profile of a user, whatever has expired in it.
    func profile(of userID: Identifier) throws -> ProfileRecord? {
        try ProfileRows.find(userID, on: connection).map { try ProfileRows.decode($0, of: userID) }
    }

    /// Whether to look for a profile would in all likelihood be in vain.
    func isUnknown(_ userID: Identifier) -> Bool {
        guard let knownUsers else { return false }
        return !knownUsers.mayContain(userID.withKey(\.hash))
    }

    /// - Returns: whether there was no profile, so that this is it now.
    func insert(_ record: ProfileRecord, for userID: Identifier) throws(SQLiteError) -> Bool {
        guard try ProfileRows.insert(record, for: userID, on: connection) else { return false }
        changed(userID, to: record, from: nil)
        return true
    }

    /// - Parameter stored: what is stored now.
    func put(
        _ record: ProfileRecord, for userID: Identifier, replacing stored: ProfileRecord?
    ) throws(SQLiteError) {
        // Either takes less than a statement that does what is needed, and nobody else writes in between.
        let isWritten =
            try stored == nil
            ? ProfileRows.insert(record, for: userID, on: connection)
            : ProfileRows.update(record, for: userID, on: connection)
        assert(isWritten)
        changed(userID, to: record, from: stored)
    }

    func deleteProfile(of userID: Identifier, replacing stored: ProfileRecord?) throws(SQLiteError) {
        try ProfileRows.delete(userID, on: connection)
        changed(userID, to: nil, from: stored)
    }

    private func changed(_ userID: Identifier, to record: ProfileRecord?, from stored: ProfileRecord?) {
        userID.withKey { key in
            userChanges.appendProfile(record?.bytes, of: key)
            if record != nil, stored == nil { newUsers.append(key.hash) }
        }
        profiles += (record == nil ? 0 : 1) - (stored == nil ? 0 : 1)
        assignments += Int64((record?.count ?? 0) - (stored?.count ?? 0))
        hasWritten = true
    }

    // MARK: Erased users

    /// Whether another process has erased the user since an event was received.
    func wasErased(_ userID: Identifier, since receivedAt: UInt64) throws(SQLiteError) -> Bool {
        try erasures.mayHold(userID, since: receivedAt, on: connection)
    }

    /// - Throws: ``StorageError/erased`` when another process has erased the user while this change waited.
    func expectNotErased(_ userID: Identifier) throws {
        if try wasErased(userID, since: submittedAt) { throw StorageError.erased }
    }

    /// Takes note that a user was erased, also one of whom nothing was stored: another process may have something waiting.
    func erased(_ userID: Identifier) {
        erasedUsers.append(userID)
        hasWritten = true
    }

    /// Has all processes forget what they have waiting of the users who were erased.
    ///
    /// - Returns: when that was; `nil` if nobody was erased.
    func recordErasures() throws(SQLiteError) -> UInt64? {
        guard !erasedUsers.isEmpty else { return nil }
        let now = DispatchTime.now().uptimeNanoseconds
        for userID in erasedUsers { try ErasureRows.insert(userID, at: now, on: connection) }
        return now
    }

    // MARK: Probing

    /// Shows that a transaction of so many pages could be committed.
    ///
    /// - Throws: ``StorageError/unavailable(reason:)``, which leaves the other changes be.
    func proveRoom(pages: Int) throws(StorageError) {
        do throws(SQLiteError) {
            try connection.extendLog(pages: pages)
        } catch {
            throw error.asStorageError
        }
        hasProven(pages: pages)
    }

    /// Takes note that so many pages were written.
    func hasProven(pages: Int) {
        provenPages = max(provenPages, pages)
    }

    // MARK: Taking note of what was written

    /// Takes note of changed attributes.
    func changedAttributes(of userID: Identifier) {
        userID.withKey { userChanges.appendAttributes(of: $0) }
        hasWritten = true
    }

    /// Takes note of an entry in the audit log.
    func recorded() {
        auditEntries += 1
        hasWritten = true
    }

    // MARK: Datafiles

    /// The version of the newest datafile of all projects; 0 when there is none.
    func newestDatafile() throws(SQLiteError) -> Int64 {
        if let newestDatafileVersion { return newestDatafileVersion }
        let version = try DatafileRows.newestVersion(on: connection)
        newestDatafileVersion = version
        return version
    }

    /// Takes note of a changed datafile, forced variation, attribute or segment, for all processes to see.
    func changedProjects() throws(SQLiteError) {
        try connection.statement("UPDATE counters SET project_changes = project_changes + 1").run()
        newestDatafileVersion = nil
        changed()
    }

    /// Takes note of a change of something else than profiles.
    func changed() {
        hasWritten = true
    }
}

@available(*, unavailable) extension WriteTransaction: Sendable {}
