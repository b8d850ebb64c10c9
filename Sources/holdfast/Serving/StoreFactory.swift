import Logging
import Storage
import StorageSQLite

/// Chooses the store; the only place that names one.
enum StoreFactory {
    /// - Throws: `DatabaseError` when the database cannot be used.
    static func open(
        _ configuration: ServeConfiguration, _ logger: Logger
    ) throws -> any Store {
        var options = SQLiteConfiguration(path: configuration.database)
        options.rules = configuration.rules
        options.eventRetention = configuration.eventRetention?.milliseconds
        options.datafileHistory = configuration.datafileHistory
        options.lockTimeout = configuration.lockTimeout.seconds
        options.auditRetention = .milliseconds(configuration.auditRetention.milliseconds)
        options.waitingChanges = configuration.maxWaitingWrites
        options.waitingSeconds = configuration.maxWriteWait.seconds
        options.cacheBytes = configuration.cacheSize.bytes / configuration.eventLoops
        options.checkpointPages = configuration.checkpointSize.bytes / 1_024
        options.report = { $0.log(to: logger) }
        return try SQLiteStore(options)
    }

    /// For a command that runs beside the servers of a database and leaves retention to them.
    ///
    /// - Throws: `DatabaseError` when the database cannot be used.
    static func open(_ path: String, _ rules: ProfileRules = ProfileRules()) throws -> any Store {
        var options = SQLiteConfiguration(path: path)
        options.rules = rules
        options.deletesOld = false
        return try SQLiteStore(options)
    }
}

extension StoreEvent {
    fileprivate func log(to logger: Logger) {
        switch self {
        case .writesFail(let reason): logger.error("writes to the store fail", metadata: ["reason": "\(reason)"])
        case .writesSucceed: logger.notice("writes to the store succeed again")
        case .checkpointFails(let reason):
            logger.error("the write-ahead log cannot be copied into the database", metadata: ["reason": "\(reason)"])
        case .logRemains(let bytes):
            logger.notice(
                "the write-ahead log stays beside the database", metadata: ["bytes": .stringConvertible(bytes)])
        }
    }
}
