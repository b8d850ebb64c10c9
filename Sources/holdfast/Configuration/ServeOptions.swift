import ArgumentParser
import HTTPServer
import Storage

/// The options of `holdfast serve`; see ``ServeConfiguration`` for the defaults.
struct ServeOptions: ParsableArguments {
    @Option(help: .init("Where to listen (default: 127.0.0.1:8080).", valueName: "host:port"))
    var listen: String?

    @OptionGroup var store: DatabaseOptions

    @Option(help: .init("A datafile, or a directory of them, to put in force at the start.", valueName: "path"))
    var datafile: String?

    @Option(help: .init("File of access tokens, 'scope name secret' a line; read again on SIGHUP.", valueName: "path"))
    var tokensFile: String?

    @Option(help: .init("How long an assignment lives after it was last saved (default: forever).", valueName: "time"))
    var assignmentTTL: String?

    @Option(help: .init("How long an entry of the audit log is kept (default: 400d).", valueName: "time"))
    var auditRetention: String?

    @Option(help: .init("How long goal events are kept, at least 22d (default: forever).", valueName: "time"))
    var eventRetention: String?

    @Option(help: .init("Event loops (default: one for each core).", valueName: "n"))
    var eventLoops: String?

    @Flag(help: "Share the address with another server that does so too.")
    var reusePort = false

    @Option(help: .init("Memory for cached profiles (default: 64MiB).", valueName: "size"))
    var cacheSize: String?

    @Option(
        help: .init("Size of the write-ahead log at which it is copied, 64KiB to 1GiB (default: 16MiB).", valueName: "size"))
    var checkpointSize: String?

    @Option(help: .init("Assignments of one profile (default: 1000).", valueName: "n"))
    var maxAssignments: String?

    @Option(help: .init("Writes that may wait for their commit (default: 10000).", valueName: "n"))
    var maxWaitingWrites: String?

    @Option(help: .init("Time that a write may have waited for its commit before others are refused (default: 5s).", valueName: "time"))
    var maxWriteWait: String?

    @Option(help: .init("Time that a write waits for another process (default: 2s).", valueName: "time"))
    var lockTimeout: String?

    @Option(help: .init("Streams of changes open at once (default: 1000).", valueName: "n"))
    var maxChangeStreams: String?

    @Option(help: .init("Time between signs of life of a stream of changes, to 30s (default: 15s).", valueName: "time"))
    var changeHeartbeat: String?

    @Option(help: .init("Connections open at once (default: 10000).", valueName: "n"))
    var maxConnections: String?

    @Option(help: .init("Size of a request's header (default: 16KiB).", valueName: "size"))
    var maxHeaderSize: String?

    @Option(help: .init("Size of a request's body, and of a line of an import (default: 1MiB).", valueName: "size"))
    var maxBodySize: String?

    @Option(
        help: .init("Memory for bodies and lines that have come in part, of all connections (default: 64MiB).", valueName: "size"))
    var maxUnfinishedBodies: String?

    @Option(help: .init("Time for a request's header (default: 10s).", valueName: "time"))
    var headerTimeout: String?

    @Option(help: .init("Time for a request's body (default: 30s).", valueName: "time"))
    var bodyTimeout: String?

    @Option(help: .init("Time that a connection may be idle (default: 75s).", valueName: "time"))
    var idleTimeout: String?

    @Option(help: .init("Time that a client may take nothing of its answer (default: 30s).", valueName: "time"))
    var writeTimeout: String?

    @Option(help: .init("Time that an event loop may be behind before it refuses requests (default: 2s).", valueName: "time"))
    var maxLoopDelay: String?

    @Option(help: .init("Time to answer what is in flight at the end (default: 10s).", valueName: "time"))
    var shutdownTimeout: String?

    @Flag(help: "Log each request.")
    var accessLog = false

    @Option(help: .init("auto, json or text (default: auto: text on a terminal).", valueName: "format"))
    var logFormat: String?

    @Option(help: .init("trace, debug, info, notice, warning, error or critical (default: info).", valueName: "level"))
    var logLevel: String?

    /// - Throws: ``Failure``, naming the setting that is wrong.
    func configuration(environment: [String: String]) throws -> ServeConfiguration {
        let settings = Settings(environment: environment)
        var result = ServeConfiguration()
        settings.apply(listen, "listen", to: &result.listen)
        store.apply(settings, to: &result.database)
        settings.apply(tokensFile, "tokens-file", to: &result.tokensFile)
        settings.apply(datafile, "datafile", to: &result.datafile)
        var ttl = Period(seconds: 0)
        try settings.apply(assignmentTTL, "assignment-ttl", to: &ttl)
        if ttl.seconds > 0 { result.assignmentTTL = ttl }
        try settings.apply(auditRetention, "audit-retention", to: &result.auditRetention)
        var retention = Period(seconds: 0)
        try settings.apply(eventRetention, "event-retention", to: &retention)
        if retention.seconds > 0 {
            guard retention.milliseconds >= EventRules.minimumRetention else {
                throw Failure("--event-retention: results need the events of the last 22 days; give 22d or more")
            }
            result.eventRetention = retention
        }
        try settings.apply(eventLoops, "event-loops", in: 1...256, to: &result.eventLoops)
        try settings.apply(reusePort, "reuse-port", to: &result.reusePort)
        try settings.apply(cacheSize, "cache-size", to: &result.cacheSize)
        try settings.apply(checkpointSize, "checkpoint-size", to: &result.checkpointSize)
        guard (64 << 10...1 << 30).contains(result.checkpointSize.bytes) else {
            throw Failure("--checkpoint-size: a size from 64KiB to 1GiB is wanted")
        }
        try settings.apply(maxAssignments, "max-assignments", in: 1...100_000, to: &result.maxAssignments)
        try settings.apply(maxWaitingWrites, "max-waiting-writes", in: 1...10_000_000, to: &result.maxWaitingWrites)
        try settings.apply(maxWriteWait, "max-write-wait", to: &result.maxWriteWait)
        try settings.apply(lockTimeout, "lock-timeout", to: &result.lockTimeout)
        try settings.apply(maxChangeStreams, "max-change-streams", in: 1...1_000_000, to: &result.maxChangeStreams)
        try settings.apply(changeHeartbeat, "change-heartbeat", to: &result.changeHeartbeat)
        guard (0.1...30).contains(result.changeHeartbeat.seconds) else {
            throw Failure("--change-heartbeat: a time from 100ms to 30s is wanted")
        }
        try applyLimits(settings, to: &result)
        try settings.apply(shutdownTimeout, "shutdown-timeout", to: &result.shutdownTimeout)
        try settings.apply(accessLog, "access-log", to: &result.accessLog)
        try settings.apply(logFormat, "log-format", to: &result.logFormat)
        try settings.apply(logLevel, "log-level", to: &result.logLevel)
        return result
    }

    private func applyLimits(_ settings: Settings, to result: inout ServeConfiguration) throws {
        try settings.apply(maxConnections, "max-connections", in: 1...1_000_000, to: &result.limits.connections)
        var header = ByteCount(bytes: result.limits.headerBytes)
        try settings.apply(maxHeaderSize, "max-header-size", to: &header)
        guard header.bytes >= 1 << 10 else { throw Failure("--max-header-size: a size of 1KiB or more is wanted") }
        result.limits.headerBytes = header.bytes
        var body = ByteCount(bytes: result.limits.bodyBytes)
        try settings.apply(maxBodySize, "max-body-size", to: &body)
        guard body.bytes >= 1 << 10 else { throw Failure("--max-body-size: a size of 1KiB or more is wanted") }
        result.limits.bodyBytes = body.bytes
        var bodies = ByteCount(bytes: result.limits.unfinishedBodyBytes)
        try settings.apply(maxUnfinishedBodies, "max-unfinished-bodies", to: &bodies)
        result.limits.unfinishedBodyBytes = bodies.bytes
        for (option, name, path) in [
            (headerTimeout, "header-timeout", \ServeConfiguration.limits.headerSeconds),
            (bodyTimeout, "body-timeout", \.limits.bodySeconds), (idleTimeout, "idle-timeout", \.limits.idleSeconds),
            (writeTimeout, "write-timeout", \.limits.writeSeconds),
            (maxLoopDelay, "max-loop-delay", \.limits.turnSeconds),
        ] {
            var period = Period(seconds: result[keyPath: path])
            try settings.apply(option, name, to: &period)
            result[keyPath: path] = period.seconds
        }
    }
}

/// The option that every command with a database has.
struct DatabaseOptions: ParsableArguments {
    @Option(help: .init("The SQLite database file (default: ./holdfast.db).", valueName: "path"))
    var database: String?

    func apply(_ settings: Settings, to path: inout String) {
        settings.apply(database, "database", to: &path)
    }

    /// The path from the option, the environment, or the default.
    func path(environment: [String: String]) -> String {
        var path = ServeConfiguration().database
        apply(Settings(environment: environment), to: &path)
        return path
    }
}
