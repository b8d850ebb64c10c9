import ArgumentParser
import Foundation
import HTTPServer
import Storage

/// Runs the server until SIGTERM or SIGINT. See ``ServeConfiguration`` for the defaults of the options.
///
/// The options are not a group of their own: in a debug build, which tests start hundreds of times, ArgumentParser checks
/// those of a group several times as often.
struct ServeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "serve", abstract: "Runs the server.")

    @Option(help: .init("Where to listen (default: 127.0.0.1:8080).", valueName: "host:port"))
    var listen: String?

    @OptionGroup var store: DatabaseOptions

    @Option(help: .init("Connections to PostgreSQL of each event loop, 1 to 8 (default: 2).", valueName: "n"))
    var databaseConnections: String?

    @Option(
        help: .init(
            "Time that PostgreSQL may take before its connection is closed (default: 10s).", valueName: "time"))
    var databaseTimeout: String?

    @Flag(help: "Connect to PostgreSQL through a pooler in transaction mode.")
    var databasePooler = false

    @Flag(help: "Refuse all changes, while the database is copied to another.")
    var readOnly = false

    @Option(help: .init("A datafile, or a directory of them, to activate at the start.", valueName: "path"))
    var datafile: String?

    @Option(help: .init("File of access tokens, 'scope name secret' a line; read again on SIGHUP.", valueName: "path"))
    var tokensFile: String?

    @Option(
        help: .init(
            "Origins whose pages may use client tokens, or * (default: none).", valueName: "list"))
    var corsOrigins: String?

    @OptionGroup var profiles: ProfileRuleOptions

    @Option(help: .init("How long an entry of the audit log is kept (default: 400d).", valueName: "time"))
    var auditRetention: String?

    @Option(help: .init("How long goal events are kept, at least 22d (default: forever).", valueName: "time"))
    var eventRetention: String?

    @Option(help: .init("Datafiles of one project that are kept, at least 1 (default: 100).", valueName: "n"))
    var datafileHistory: String?

    @Option(help: .init("Event loops, 1 to 128 (default: one for each core).", valueName: "n"))
    var eventLoops: String?

    @Flag(help: "Share the address with another server of the same user.")
    var reusePort = false

    @Option(help: .init("Memory for cached profiles (default: 64MiB).", valueName: "size"))
    var cacheSize: String?

    @Option(
        help: .init(
            "Size of the write-ahead log at which it is copied, 64KiB to 1GiB (default: 16MiB).", valueName: "size"))
    var checkpointSize: String?

    @Option(help: .init("Writes that may wait for their commit (default: 10000).", valueName: "n"))
    var maxWaitingWrites: String?

    @Option(
        help: .init(
            "Time that a write may wait for its commit before others are refused (default: 5s).", valueName: "time"))
    var maxWriteWait: String?

    @Option(help: .init("Time that a write waits for another process (default: 2s).", valueName: "time"))
    var lockTimeout: String?

    @Option(help: .init("Streams of changes open at once (default: 1000).", valueName: "n"))
    var maxChangeStreams: String?

    @Option(
        help: .init(
            "Time between keep-alive comments on a stream of changes, to 30s (default: 15s).", valueName: "time"))
    var changeHeartbeat: String?

    @Option(help: .init("Connections open at once (default: 10000).", valueName: "n"))
    var maxConnections: String?

    @Option(help: .init("Size of a request's header (default: 16KiB).", valueName: "size"))
    var maxHeaderSize: String?

    @Option(help: .init("Size of a request's body, and of a line of an import (default: 1MiB).", valueName: "size"))
    var maxBodySize: String?

    @Option(
        help: .init("Memory for incomplete bodies and lines of all connections (default: 64MiB).", valueName: "size"))
    var maxUnfinishedBodies: String?

    @Option(
        help: .init(
            "Memory for unsent responses of one connection; further requests wait (default: 256KiB).",
            valueName: "size"))
    var maxWaitingResponses: String?

    @Option(help: .init("Time for a request's header (default: 10s).", valueName: "time"))
    var headerTimeout: String?

    @Option(help: .init("Time for a request's body (default: 30s).", valueName: "time"))
    var bodyTimeout: String?

    @Option(help: .init("Time that a connection may be idle (default: 75s).", valueName: "time"))
    var idleTimeout: String?

    @Option(help: .init("Time that a client may stall while it receives a response (default: 30s).", valueName: "time"))
    var writeTimeout: String?

    @Option(
        help: .init(
            "Time that an event loop may be behind before it refuses requests (default: 2s).", valueName: "time"))
    var maxLoopDelay: String?

    @Option(
        help: .init("Time to keep serving after /readyz fails, before the shutdown (default: 0).", valueName: "time"))
    var shutdownDelay: String?

    @Option(help: .init("Time to complete requests in flight at shutdown (default: 10s).", valueName: "time"))
    var shutdownTimeout: String?

    @Flag(help: "Do not serve the console at /console/.")
    var noConsole = false

    @Flag(help: "Log each request.")
    var accessLog = false

    @Option(
        help: .init(
            "Proxies whose X-Forwarded-For is trusted, such as 10.0.0.0/8,::1 (default: none).", valueName: "list"))
    var trustedProxies: String?

    @Option(help: .init("auto, json or text (default: auto: text on a terminal).", valueName: "format"))
    var logFormat: String?

    @Option(help: .init("trace, debug, info, notice, warning, error or critical (default: info).", valueName: "level"))
    var logLevel: String?

    func run() throws {
        let settings = Settings(environment: ProcessInfo.processInfo.environment)
        try ServerRun(try ConfigurationError.wrapping { try configuration(settings) }, settings).run()
    }

    /// - Throws: ``Failure``, naming the setting that is wrong.
    private func configuration(_ settings: Settings) throws -> ServeConfiguration {
        var result = ServeConfiguration()
        settings.apply(listen, "listen", to: &result.listen)
        try store.apply(settings, to: &result.database)
        try settings.apply(databaseConnections, "database-connections", in: 1...8, to: &result.databaseConnections)
        try settings.apply(databaseTimeout, "database-timeout", to: &result.databaseTimeout)
        try settings.apply(databasePooler, "database-pooler", to: &result.databasePooler)
        try settings.apply(readOnly, "read-only", to: &result.readOnly)
        settings.apply(tokensFile, "tokens-file", to: &result.tokensFile)
        try settings.apply(corsOrigins, "cors-origins", to: &result.corsOrigins)
        settings.apply(datafile, "datafile", to: &result.datafile)
        try profiles.apply(settings, to: &result.rules)
        try settings.apply(auditRetention, "audit-retention", to: &result.auditRetention)
        var retention = Period(seconds: 0)
        let needed = Period(seconds: Double(EventRules.minimumRetention) / 1_000)
        try settings.apply(eventRetention, "event-retention", in: needed...Period.longest, to: &retention)
        if retention.seconds > 0 { result.eventRetention = retention }
        try settings.apply(datafileHistory, "datafile-history", in: 1...1_000_000, to: &result.datafileHistory)
        try settings.apply(eventLoops, "event-loops", in: 1...128, to: &result.eventLoops)
        try settings.apply(reusePort, "reuse-port", to: &result.reusePort)
        try settings.apply(cacheSize, "cache-size", in: 0...Self.memory, to: &result.cacheSize)
        try settings.apply(
            checkpointSize, "checkpoint-size", in: 64 * ByteCount.KiB...ByteCount.GiB, to: &result.checkpointSize)
        try settings.apply(maxWaitingWrites, "max-waiting-writes", in: 1...10_000_000, to: &result.maxWaitingWrites)
        try settings.apply(maxWriteWait, "max-write-wait", to: &result.maxWriteWait)
        try settings.apply(lockTimeout, "lock-timeout", to: &result.lockTimeout)
        try settings.apply(maxChangeStreams, "max-change-streams", in: 1...1_000_000, to: &result.maxChangeStreams)
        let heartbeats = Period(seconds: 0.1)...Period(seconds: 30)
        try settings.apply(changeHeartbeat, "change-heartbeat", in: heartbeats, to: &result.changeHeartbeat)
        try applyLimits(settings, to: &result)
        try settings.apply(orNone: shutdownDelay, "shutdown-delay", to: &result.shutdownDelay)
        try settings.apply(shutdownTimeout, "shutdown-timeout", to: &result.shutdownTimeout)
        try settings.apply(noConsole, "no-console", to: &result.noConsole)
        try settings.apply(accessLog, "access-log", to: &result.accessLog)
        try settings.apply(trustedProxies, "trusted-proxies", to: &result.trustedProxies)
        try settings.apply(logFormat, "log-format", to: &result.logFormat)
        try settings.apply(logLevel, "log-level", to: &result.logLevel)
        return result
    }

    /// The memory of the machine in bytes. A process that allocates more is killed.
    private static var memory: Int { Int(clamping: ProcessInfo.processInfo.physicalMemory) }

    private func applyLimits(_ settings: Settings, to result: inout ServeConfiguration) throws {
        try settings.apply(maxConnections, "max-connections", in: 1...1_000_000, to: &result.limits.connections)
        for (option, name, range, path) in [
            (maxHeaderSize, "max-header-size", ByteCount.KiB...ByteCount.GiB, \ServeConfiguration.limits.headerBytes),
            (maxBodySize, "max-body-size", ByteCount.KiB...ByteCount.GiB, \.limits.bodyBytes),
            (maxUnfinishedBodies, "max-unfinished-bodies", 0...ByteCount.TiB, \.limits.unfinishedBodyBytes),
            (maxWaitingResponses, "max-waiting-responses", ByteCount.KiB...ByteCount.GiB, \.limits.bufferedOutputBytes),
        ] {
            var size = ByteCount(bytes: result[keyPath: path])
            try settings.apply(option, name, in: range, to: &size)
            result[keyPath: path] = size.bytes
        }
        for (option, name, path) in [
            (headerTimeout, "header-timeout", \ServeConfiguration.limits.headerSeconds),
            (bodyTimeout, "body-timeout", \.limits.bodySeconds), (idleTimeout, "idle-timeout", \.limits.idleSeconds),
            (writeTimeout, "write-timeout", \.limits.writeSeconds),
            (maxLoopDelay, "max-loop-delay", \.limits.loopDelaySeconds),
        ] {
            var period = Period(seconds: result[keyPath: path])
            try settings.apply(option, name, to: &period)
            result[keyPath: path] = period.seconds
        }
    }
}
