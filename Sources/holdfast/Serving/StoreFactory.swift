import Chronology
import HTTPServer
import HoldfastCore
import Logging
import Storage
import StorageEdge
import StorageSQLite

#if PostgreSQL
    import StoragePostgreSQL
#endif

/// Opens the store that the configuration names. Only this type names concrete stores.
enum StoreFactory {
    /// Opens the store of a server.
    ///
    /// - Throws: `DatabaseError` when the database cannot be used.
    static func open(_ configuration: ServeConfiguration, _ logger: Logger) throws -> any Store {
        let store = try openWritable(configuration, logger)
        return configuration.store.isReadOnly ? try ReadOnlyStore(store) : store
    }

    /// Opens the store that the configuration names, before ``ReadOnlyStore`` wraps it.
    private static func openWritable(_ configuration: ServeConfiguration, _ logger: Logger) throws -> any Store {
        var configuration = configuration
        configuration.store.reportClock = { $0.log(to: logger) }
        guard !configuration.database.isPostgreSQL else { return try openPostgreSQL(configuration, logger) }
        var options = SQLiteConfiguration(path: configuration.database.text, configuration.store)
        options.lockTimeout = configuration.lockTimeout
        // Each event loop has a cache of its own.
        options.cacheBytes = configuration.cacheSize.bytes / configuration.http.eventLoops
        // A page of the database has 1 KiB.
        options.checkpointPages = configuration.checkpointSize.bytes / 1_024
        options.report = { $0.log(to: logger) }
        guard var upstream = configuration.upstream else { return try SQLiteStore(options) }
        upstream.report = { $0.log(to: logger) }
        return try EdgeStore(upstream, options)
    }

    /// Opens the store for a command. Servers may use the database at the same time. They delete old records according
    /// to their own settings, so the store of a command deletes none.
    ///
    /// - Parameter isReadOnly: whether the command only reads.
    /// - Throws: `DatabaseError` when the database cannot be used.
    static func open(
        _ database: DatabaseLocation, _ rules: ProfileRules = ProfileRules(), isReadOnly: Bool = false
    ) throws -> any Store {
        var settings = StoreSettings()
        settings.rules = rules
        settings.deletesOld = false
        settings.isReadOnly = isReadOnly
        settings.feed = .asStored
        guard !database.isPostgreSQL else { return try openPostgreSQL(database, settings) }
        return try SQLiteStore(SQLiteConfiguration(path: database.text, settings))
    }

    /// Reads the projects of a store for a command.
    static func projects(of store: any Store) throws -> ProjectCatalog {
        do throws(StorageError) {
            return try ProjectCatalog(store: store, logger: LineLogHandler.makeLogger(.auto, level: .error))
        } catch {
            throw Failure(error.description)
        }
    }

    /// Creates the tables, or migrates them to the schema of this release.
    ///
    /// - Returns: the versions before and after.
    static func migrate(_ database: DatabaseLocation) throws -> (from: Int, to: Int) {
        guard database.isPostgreSQL else { return try DatabaseMaintenance.migrate(path: database.text) }
        #if PostgreSQL
            return try PostgreSQLStore.migrate(PostgreSQLConfiguration(url: database.text))
        #else
            throw withoutPostgreSQL
        #endif
    }

    /// Opens both databases of a copy.
    static func copy(
        from source: DatabaseLocation, to target: DatabaseLocation
    ) throws -> (source: any CopySource, target: any CopyTarget) {
        // The source is opened first: it must exist, so a misspelt name does not create the target.
        let copySource: any CopySource =
            try source.isPostgreSQL ? copyPostgreSQL(source, isTarget: false) : SQLiteCopy.source(path: source.text)
        let copyTarget: any CopyTarget =
            try target.isPostgreSQL ? copyPostgreSQL(target, isTarget: true) : SQLiteCopy.target(path: target.text)
        return (copySource, copyTarget)
    }

    #if PostgreSQL
        private static func copyPostgreSQL(_ location: DatabaseLocation, isTarget: Bool) throws -> any CopyTarget {
            isTarget ? try PostgreSQLCopy.target(url: location.text) : try PostgreSQLCopy.source(url: location.text)
        }

        private static func openPostgreSQL(
            _ configuration: ServeConfiguration, _ logger: Logger
        ) throws -> any Store {
            var options = PostgreSQLConfiguration(url: configuration.database.text, configuration.store)
            options.isPooled = configuration.databasePooler
            options.connectionsPerSession = configuration.databaseConnections
            options.statementTimeout = configuration.databaseTimeout
            options.report = { (failure: String?) in
                let event = failure.map(StoreEvent.writesFail) ?? .writesSucceed
                event.log(to: logger)
            }
            options.reportReads = { (failure: String?) in
                if let failure {
                    logger.error("lookups in the store fail", metadata: ["reason": "\(failure)"])
                } else {
                    logger.notice("lookups in the store succeed again")
                }
            }
            options.reportPooler = {
                logger.notice(
                    "the database is behind a pooler: statements are not prepared, and changes of other servers are polled for; --database-pooler says so from the start"
                )
            }
            return try PostgreSQLStore(options)
        }

        private static func openPostgreSQL(
            _ database: DatabaseLocation, _ settings: StoreSettings
        ) throws -> any Store {
            var options = PostgreSQLConfiguration(url: database.text, settings)
            // Commands may connect through a pooler. The mode for poolers is slower, but always works.
            options.isPooled = true
            return try PostgreSQLStore(options)
        }
    #else
        private static var withoutPostgreSQL: Failure {
            Failure("the database must be a file; this program was built without PostgreSQL")
        }

        private static func copyPostgreSQL(_ location: DatabaseLocation, isTarget: Bool) throws -> any CopyTarget {
            throw withoutPostgreSQL
        }

        private static func openPostgreSQL(
            _ configuration: ServeConfiguration, _ logger: Logger
        ) throws -> any Store {
            throw withoutPostgreSQL
        }

        private static func openPostgreSQL(
            _ database: DatabaseLocation, _ settings: StoreSettings
        ) throws -> any Store {
            throw withoutPostgreSQL
        }
    #endif
}
