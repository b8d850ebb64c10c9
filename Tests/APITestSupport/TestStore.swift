import Foundation
import ProcessTestSupport
import Storage
import StorageSQLite
import Synchronization

#if PostgreSQL
    import PostgreSQLTestSupport
    import StoragePostgreSQL
#endif

/// The store that the API tests run over: SQLite, or with `HOLDFAST_TEST_DATABASE` in the environment PostgreSQL; see
/// `TestDatabase.Kind`.
enum TestStore {
    static let isPostgreSQL = ProcessInfo.processInfo.environment["HOLDFAST_TEST_DATABASE"] != nil

    /// Returns what `--database` names: the same for the same name and directory.
    static func location(_ name: String, in directory: TemporaryDirectory) throws -> String {
        guard isPostgreSQL else { return directory.file(name) }
        #if PostgreSQL
            return try directory.attachments.withLock { attachments in
                if let known = attachments[name] as? TestDatabase { return known.url }
                let database = try TestDatabase()
                attachments[name] = database
                return database.url
            }
        #else
            throw TestFailure("the tests were built without PostgreSQL")
        #endif
    }

    /// The options that a server needs for it.
    static var options: [String] {
        #if PostgreSQL
            if TestDatabase.Kind.chosen == .pooled { return ["--database-pooler"] }
        #endif
        return []
    }

    /// On a slow machine nothing must be refused for lack of time.
    static func open(_ location: String) throws -> any Store {
        #if PostgreSQL
            guard !isPostgreSQL else {
                var configuration = PostgreSQLConfiguration(url: location)
                configuration.settings.waitingSeconds = 120
                configuration.statementTimeout = 120
                configuration.isPooled = TestDatabase.Kind.chosen == .pooled
                return try PostgreSQLStore(configuration)
            }
        #endif
        var configuration = SQLiteConfiguration(path: location)
        configuration.settings.waitingSeconds = 120
        configuration.cacheBytes = 1 << 20
        return try SQLiteStore(configuration)
    }
}
