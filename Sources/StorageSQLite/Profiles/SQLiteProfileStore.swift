import Dispatch
public import Storage
import Synchronization

/// User profiles in a SQLite file, which several processes of one host may share.
public final class SQLiteProfileStore: ProfileStore {
    private let configuration: SQLiteConfiguration
    private let file: DatabaseFile
    private let writer: Writer
    private let retention: Retention

    /// Opens the database, making it or bringing it up to date where needed.
    ///
    /// - Throws: ``DatabaseError``; the file is then as it was.
    public init(_ configuration: SQLiteConfiguration) throws(DatabaseError) {
        self.configuration = configuration
        file = DatabaseFile(path: configuration.path)
        try file.prepare(lockTimeout: configuration.lockTimeout)
        do throws(SQLiteError) {
            writer = try Writer(file: file, configuration: configuration)
        } catch {
            throw DatabaseError(configuration.path, error)
        }
        retention = Retention(writer: writer, configuration: configuration)
    }

    public func makeReader() throws(StorageError) -> sending any ProfileReader {
        do throws(SQLiteError) {
            return try SQLiteProfileReader(file: file, notices: writer.notices, configuration: configuration)
        } catch {
            throw error.asStorageError
        }
    }

    public func submit(
        _ change: ProfileChange, completion: @escaping @Sendable (Result<ProfileChangeResult, StorageError>) -> Void
    ) {
        let rules = configuration.rules
        let clock = configuration.clock
        writer.submit({ try Self.apply(change, rules, at: clock(), in: $0) }, completion: completion)
    }

    private static func apply(
        _ change: ProfileChange, _ rules: ProfileRules, at now: Timestamp, in transaction: WriteTransaction
    ) throws -> ProfileChangeResult {
        let stored = try ProfileRows.find(change.userID, on: transaction.connection)
        let outcome = try rules.apply(change.operation, to: stored, at: now)
        switch outcome.effect {
        case .none:
            break
        case .put(let record):
            try ProfileRows.put(record, for: change.userID, on: transaction.connection)
            transaction.changed(
                change.userID, profiles: stored == nil ? 1 : 0, assignments: record.count - (stored?.count ?? 0))
        case .delete:
            try ProfileRows.delete(change.userID, on: transaction.connection)
            transaction.changed(change.userID, profiles: -1, assignments: -(stored?.count ?? 0))
        }
        return outcome.result
    }

    public func observeCompletions(_ observer: @escaping @Sendable () -> Void) {
        writer.observeCompletions(observer)
    }

    /// Commits a change of the counters.
    public func probe(completion: @escaping @Sendable (Result<Void, StorageError>) -> Void) {
        writer.submit({ $0.changed() }, completion: completion)
    }

    public func statistics() -> StoreStatistics {
        writer.statistics()
    }

    public func close() {
        retention.stop()
        writer.close()
    }
}
