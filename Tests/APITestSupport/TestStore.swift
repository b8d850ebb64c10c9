import Foundation
import ProcessTestSupport
import Storage
import StorageSQLite
import Synchronization

#if PostgreSQL
    import PostgreSQLTestSupport
    import StoragePostgreSQL
#endif

/// The store that the API tests run over: SQLite, or with `HOLDFAST_TEST_DATABASE` in the environment PostgreSQL
/// (`postgresql`), also distributed (`citus`).
enum TestStore {
    static var isPostgreSQL: Bool {
        ["postgresql", "citus"].contains(ProcessInfo.processInfo.environment["HOLDFAST_TEST_DATABASE"])
    }

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

    /// On a slow machine nothing must be refused for lack of time.
    static func open(_ location: String) throws -> any Store {
        #if PostgreSQL
            guard !isPostgreSQL else {
                var configuration = PostgreSQLConfiguration(url: location)
                configuration.settings.waitingSeconds = 120
                configuration.statementTimeout = 120
                return try PostgreSQLStore(configuration)
            }
        #endif
        var configuration = SQLiteConfiguration(path: location)
        configuration.settings.waitingSeconds = 120
        configuration.cacheBytes = 1 << 20
        return try SQLiteStore(configuration)
    }
}
