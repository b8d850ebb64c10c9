import HTTPServer
import Storage
import StorageSQLite

/// The only place that picks a store.
enum StoreFactory {
    /// - Throws: `DatabaseError` when the database cannot be used.
    static func open(
        _ configuration: ServeConfiguration
    ) throws -> any ProfileStore & AttributeStore & ProjectStore & EventStore & AuditStore {
        var options = SQLiteConfiguration(path: configuration.database)
        options.rules.assignmentLimit = configuration.maxAssignments
        options.rules.assignmentTTL = configuration.assignmentTTL.map { .milliseconds($0.milliseconds) }
        options.eventRetention = configuration.eventRetention?.milliseconds
        options.lockTimeout = configuration.lockTimeout.seconds
        options.auditRetention = .milliseconds(configuration.auditRetention.milliseconds)
        options.waitingChanges = configuration.maxWaitingWrites
        options.waitingSeconds = configuration.maxWriteWait.seconds
        options.cacheBytes = configuration.cacheSize.bytes / configuration.eventLoops
        options.checkpointPages = configuration.checkpointSize.bytes / 1_024
        options.aroundCompletions = EventLoop.coalescingWakeUps
        return try SQLiteStore(options)
    }
}
