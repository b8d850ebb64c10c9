import Bucketing
import Storage

/// The transaction in progress, as the changes in it see it. For the writer's queue only.
final class WriteTransaction {
    let connection: Connection
    /// Users whose profiles have been changed in this transaction.
    private(set) var changedUserIDs: [Identifier] = []
    private(set) var profiles: Int64 = 0
    private(set) var assignments: Int64 = 0
    /// Entries made in the audit log.
    private(set) var auditEntries: UInt64 = 0
    /// Changes that a rule refused.
    private(set) var refusals = 0
    /// Whether there is anything to commit.
    private(set) var hasWritten = false

    init(_ connection: Connection) {
        self.connection = connection
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

    /// Takes note of a profile that was written, with how the numbers of profiles and assignments changed by it.
    func changed(_ userID: Identifier, profiles: Int, assignments: Int) {
        changedUserIDs.append(userID)
        self.profiles += Int64(profiles)
        self.assignments += Int64(assignments)
        hasWritten = true
    }

    /// Takes note of an entry in the audit log.
    func recorded() {
        auditEntries += 1
        hasWritten = true
    }

    /// Takes note of a change of something else than profiles.
    func changed() {
        hasWritten = true
    }
}

@available(*, unavailable) extension WriteTransaction: Sendable {}
