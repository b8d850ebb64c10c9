import ArgumentParser
import Chronology
import FoundationEssentials
import HTTPServer
import HoldfastAPI
import Storage
import StorageEdge

/// Runs the server until SIGTERM or SIGINT. See ``ServeConfiguration`` for the defaults of the options.
///
/// The options are not in an `@OptionGroup`, because ArgumentParser validates the options of a group several times in
/// debug builds, which tests start hundreds of times.
struct ServeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "serve", abstract: "Runs the server.")

    @Option(help: .init("Where to listen (default: 127.0.0.1:8080).", valueName: "host:port"))
    var listen: String?

    @OptionGroup var store: DatabaseOptions

    @Option(help: .init("Connections to PostgreSQL per event loop, 1 to 8 (default: 2).", valueName: "n"))
    var databaseConnections: String?

    @Option(
        help: .init(
            "Timeout for PostgreSQL, after which its connection is closed (default: 10s).", valueName: "time"))
    var databaseTimeout: String?

    @Flag(help: "Connect to PostgreSQL through a pooler in transaction mode.")
    var databasePooler = false

    @Flag(help: "Refuse all changes, for example while the database is copied.")
    var readOnly = false

    @Option(
        help: .init(
            "Be an edge of this server: the database is a copy of its users and definitions. Its token is in "
                + "HOLDFAST_UPSTREAM_TOKEN.", valueName: "url"))
    var upstream: String?

    @Option(help: .init("File of the token for the upstream, of scope edge.", valueName: "path"))
    var upstreamTokenFile: String?

    @Option(help: .init("Timeout for a response of the upstream (default: 2s).", valueName: "time"))
    var upstreamTimeout: String?

    @Option(
        help: .init(
            "How far an edge's copy may be behind before the upstream is asked instead, at least 1s (default: 10s).",
            valueName: "time"))
    var maxLag: String?

    @Option(
        help: .init(
            "What users without an assignment get while the upstream is away: hash, the variation of the hash without "
                + "storing it, or refuse (default: hash).", valueName: "what"))
    var offlineEnrollment: String?

    @Option(
        help: .init(
            "Maximum size of the events that wait for the upstream, 1MiB to 1TiB (default: 1GiB).", valueName: "size"))
    var outboxMaxBytes: String?

    @Option(help: .init("A datafile, or a directory of them, to activate at the start.", valueName: "path"))
    var datafile: String?

    @Flag(help: "Let datafiles at the start have the ids of other projects' experiments, and so share their users.")
    var shareIds = false

    @Option(
        help: .init("File of access tokens, one 'scope name secret' per line; reloaded on SIGHUP.", valueName: "path"))
    var tokensFile: String?

    @Option(
        help: .init(
            "File or URL of the identity provider's public keys (JWKS), if not the one that the issuer publishes.",
            valueName: "path"))
    var jwtKeys: String?

    @Option(help: .init("The identity provider whose tokens are accepted: their claim iss.", valueName: "url"))
    var jwtIssuer: String?

    @Option(
        help: .init(
            "What its tokens must be for: one of the claim aud (default: the value of --oidc-client-id).",
            valueName: "name"))
    var jwtAudience: String?

    @Option(
        help: .init(
            "File that maps values of a claim to scopes, one 'scope value' per line; reread when it changes.",
            valueName: "path"))
    var jwtScopes: String?

    @Option(help: .init("The claim with the values that are mapped to scopes (default: scope).", valueName: "name"))
    var jwtScopesClaim: String?

    @Option(help: .init("The claim that names the person in the audit log (default: sub).", valueName: "name"))
    var jwtNameClaim: String?

    @Option(
        help: .init(
            "The console as a public client of the issuer, for sign-in by authorization code with PKCE.",
            valueName: "id"))
    var oidcClientId: String?

    @Option(
        help: .init(
            "The scopes that the console asks the issuer for (default: 'openid profile email').", valueName: "list"))
    var oidcScopes: String?

    @Option(
        help: .init(
            "How many people a change of a running experiment needs: 1 or 2 (default: 1).", valueName: "count"))
    var approvals: String?

    @Option(
        help: .init(
            "Origins whose pages may use client tokens, or * (default: none).", valueName: "list"))
    var corsOrigins: String?

    @Option(
        help: .init(
            "Without tokens: names of this host besides localhost and IP addresses (default: none).",
            valueName: "list"))
    var allowedHosts: String?

    @OptionGroup var profiles: ProfileRuleOptions

    @Option(help: .init("How long entries of the audit log are kept (default: 400d).", valueName: "time"))
    var auditRetention: String?

    @Option(help: .init("How long goal events are kept, at least 22d (default: forever).", valueName: "time"))
    var eventRetention: String?

    @Option(
        help: .init("How long the feed keeps changes of users, or 0 for no feed (default: 7d).", valueName: "time"))
    var feedRetention: String?

    @Option(
        help: .init("Maximum size of the changes that the feed keeps, 1MiB to 1TiB (default: 1GiB).", valueName: "size")
    )
    var feedMaxBytes: String?

    @Option(help: .init("Number of datafiles kept per project, at least 1 (default: 100).", valueName: "n"))
    var datafileHistory: String?

    @Option(help: .init("Number of event loops, 1 to 128 (default: one per core).", valueName: "n"))
    var eventLoops: String?

    @Flag(help: "Share the address with another Holdfast server of the same user.")
    var reusePort = false

    @Option(help: .init("Memory for cached profiles (default: 64MiB, of an edge 48MiB).", valueName: "size"))
    var cacheSize: String?

    @Option(
        help: .init(
            "Size of the write-ahead log that starts a checkpoint, 64KiB to 1GiB (default: 16MiB).", valueName: "size"))
    var checkpointSize: String?

    @Option(help: .init("Maximum number of writes that wait for their commit (default: 10000).", valueName: "n"))
    var maxWaitingWrites: String?

    @Option(
        help: .init(
            "Maximum memory for writes that wait for their commit, 64KiB to 64GiB (default: 64MiB).", valueName: "size")
    )
    var maxWaitingWriteBytes: String?

    @Option(
        help: .init(
            "How long a write may wait for its commit before further writes are refused (default: 5s).",
            valueName: "time"))
    var maxWriteWait: String?

    @Option(help: .init("How long a write waits for the lock of another process (default: 2s).", valueName: "time"))
    var lockTimeout: String?

    @Option(help: .init("Maximum number of open streams of changes (default: 1000).", valueName: "n"))
    var maxChangeStreams: String?

    @Option(
        help: .init(
            "Time between heartbeats on a stream of changes, 100ms to 30s (default: 15s).", valueName: "time"))
    var changeHeartbeat: String?

    @Option(help: .init("Maximum number of open connections (default: 10000).", valueName: "n"))
    var maxConnections: String?

    @Option(help: .init("Maximum size of a request's header (default: 16KiB).", valueName: "size"))
    var maxHeaderSize: String?

    @Option(
        help: .init("Maximum size of a request's body, and of a line of an import (default: 1MiB).", valueName: "size"))
    var maxBodySize: String?

    @Option(
        help: .init(
            "Maximum memory for incomplete bodies and lines of all connections (default: 64MiB).", valueName: "size"))
    var maxUnfinishedBodies: String?

    @Option(
        help: .init(
            "Maximum memory for unsent responses of one connection; further requests wait (default: 256KiB).",
            valueName: "size"))
    var maxWaitingResponses: String?

    @Option(help: .init("Timeout for receiving a request's header (default: 10s).", valueName: "time"))
    var headerTimeout: String?

    @Option(help: .init("Timeout for receiving a request's body (default: 30s).", valueName: "time"))
    var bodyTimeout: String?

    @Option(help: .init("Timeout for idle connections (default: 75s).", valueName: "time"))
    var idleTimeout: String?

    @Option(
        help: .init("Timeout for a client that stalls while receiving a response (default: 30s).", valueName: "time"))
    var writeTimeout: String?

    @Option(
        help: .init(
            "How far an event loop may lag before it refuses requests (default: 2s).", valueName: "time"))
    var maxLoopDelay: String?

    @Option(
        help: .init("Time to keep serving after /readyz fails, before the shutdown (default: 0).", valueName: "time"))
    var shutdownDelay: String?

    @Option(help: .init("Time to complete requests in flight at shutdown (default: 10s).", valueName: "time"))
    var shutdownTimeout: String?

    @Flag(help: "Serve /mcp, the Model Context Protocol for assistants.")
    var mcp = false

    @Flag(help: "Send webhooks also to addresses that are not public, and without TLS.")
    var webhookPrivateAddresses = false

    @Option(help: .init("Directory of the secrets of webhooks that name a file.", valueName: "directory"))
    var webhookSecrets: String?

    @Option(help: .init("Time for a response to a webhook, 100ms to 1m (default: 10s).", valueName: "time"))
    var webhookTimeout: String?

    @Option(
        help: .init(
            "How long an event of a webhook is tried again before the webhook is paused (default: 1d).",
            valueName: "time"))
    var webhookRetries: String?

    @Option(help: .init("Where browsers find this server, for links in messages.", valueName: "url"))
    var publicUrl: String?

    @Flag(help: "Do not serve the console at /console/.")
    var noConsole = false

    @Flag(help: "Log each request.")
    var accessLog = false

    @Option(
        help: .init(
            "Proxies whose X-Forwarded-For is trusted, such as 10.0.0.0/8,::1 (default: none).", valueName: "list"))
    var trustedProxies: String?

    @Option(
        help: .init("Log format: auto, json or text (default: auto, which is text on a terminal).", valueName: "format")
    )
    var logFormat: String?

    @Option(
        help: .init("Collector of OpenTelemetry that gets traces of requests (default: none).", valueName: "url"))
    var tracesEndpoint: String?

    @Option(
        help: .init("Which part of the traces that begin here is recorded, 0 to 1 (default: 1).", valueName: "number"))
    var tracesSample: String?

    @Option(help: .init("The name of this service in traces (default: holdfast).", valueName: "name"))
    var tracesService: String?

    @Option(
        help: .init(
            "A file with header fields for the collector, such as 'Authorization: Bearer …' (default: none).",
            valueName: "path"))
    var tracesHeadersFile: String?

    @Option(
        help: .init(
            "Log level: trace, debug, info, notice, warning, error or critical (default: info).", valueName: "level"))
    var logLevel: String?

    func run() throws {
        let settings = Settings(environment: ProcessInfo.processInfo.environment)
        var server = ServerRun(try ConfigurationError.wrapping { try configuration(settings) }, settings)
        try server.run()
    }

    /// - Throws: ``Failure`` with the name of the invalid setting.
    private func configuration(_ settings: Settings) throws -> ServeConfiguration {
        var result = ServeConfiguration()
        settings.apply(listen, "listen", to: &result.http.address)
        try store.apply(settings, to: &result.database)
        try settings.apply(databaseConnections, "database-connections", in: 1...8, to: &result.databaseConnections)
        try settings.apply(databaseTimeout, "database-timeout", to: &result.databaseTimeout)
        try settings.apply(databasePooler, "database-pooler", to: &result.databasePooler)
        settings.apply(tokensFile, "tokens-file", to: &result.tokensFile)
        result.identity = try identity(settings)
        try settings.apply(approvals, "approvals", in: 1...2, to: &result.approvals)
        settings.apply(datafile, "datafile", to: &result.datafile)
        try settings.apply(shareIds, "share-ids", to: &result.sharesIDs)
        result.upstream = try edge(settings)
        if result.upstream != nil {
            settings.apply(upstreamTokenFile, "upstream-token-file", to: &result.upstreamTokenFile)
        }
        try settings.apply(eventLoops, "event-loops", in: 1...128, to: &result.http.eventLoops)
        try settings.apply(reusePort, "reuse-port", to: &result.http.sharesAddress)
        // The cache of an edge is smaller by default, because it shares the host with the app.
        if result.upstream != nil { result.cacheSize = ByteCount(bytes: 48 << 20) }
        try settings.apply(cacheSize, "cache-size", in: 0...Self.memory, to: &result.cacheSize)
        try settings.apply(
            checkpointSize, "checkpoint-size", in: 64 * ByteCount.KiB...ByteCount.GiB, to: &result.checkpointSize)
        try settings.apply(lockTimeout, "lock-timeout", to: &result.lockTimeout)
        try apply(settings, to: &result.store)
        try apply(settings, to: &result.services)
        try apply(settings, to: &result.http.limits)
        result.services.importLineBytes = result.http.limits.bodyBytes
        try settings.apply(orNone: shutdownDelay, "shutdown-delay", to: &result.shutdownDelay)
        try settings.apply(shutdownTimeout, "shutdown-timeout", to: &result.shutdownTimeout)
        result.traces = try traces(settings)
        try settings.apply(logFormat, "log-format", to: &result.logFormat)
        try settings.apply(logLevel, "log-level", to: &result.logLevel)
        if result.upstream != nil { try Self.expectEdge(result) }
        return result
    }

    /// The memory of the machine in bytes. A process that allocates more is killed.
    private static var memory: Int { Int(clamping: ProcessInfo.processInfo.physicalMemory) }

    private func apply(_ settings: Settings, to store: inout StoreSettings) throws {
        try profiles.apply(settings, to: &store.rules)
        try settings.apply(readOnly, "read-only", to: &store.isReadOnly)
        var auditPeriod = Period(seconds: store.auditRetention.inSeconds)
        try settings.apply(auditRetention, "audit-retention", to: &auditPeriod)
        store.auditRetention = auditPeriod.span
        var eventPeriod = Period(seconds: 0)
        let needed = Period(seconds: EventRules.minimumRetention.inSeconds)
        try settings.apply(eventRetention, "event-retention", in: needed...Period.longest, to: &eventPeriod)
        if eventPeriod.seconds > 0 { store.eventRetention = eventPeriod.span }
        store.feed = try feed(settings)
        try settings.apply(datafileHistory, "datafile-history", in: 1...1_000_000, to: &store.datafileHistory)
        try settings.apply(maxWaitingWrites, "max-waiting-writes", in: 1...10_000_000, to: &store.waitingChanges)
        var waitingBytes = ByteCount(bytes: store.waitingBytes)
        let sizes = 64 * ByteCount.KiB...64 * ByteCount.GiB
        try settings.apply(maxWaitingWriteBytes, "max-waiting-write-bytes", in: sizes, to: &waitingBytes)
        store.waitingBytes = waitingBytes.bytes
        try settings.apply(maxWriteWait, "max-write-wait", to: &store.waitingSeconds)
    }

    private func traces(_ settings: Settings) throws -> TraceCollector? {
        var (url, service, headers): (String?, String?, String?)
        var sample: Probability?
        settings.apply(tracesHeadersFile, "traces-headers-file", to: &headers)
        settings.apply(tracesEndpoint, "traces-endpoint", to: &url)
        settings.apply(tracesService, "traces-service", to: &service)
        try settings.apply(tracesSample, "traces-sample", to: &sample)
        guard let url else { return nil }
        var collector = try TraceCollector(url: url)
        if let service { collector.service = service }
        if let sample { collector.sample = sample.value }
        if let headers { _ = try TraceCollector.headers(in: headers) }
        collector.headersFile = headers
        return collector
    }

    private func identity(_ settings: Settings) throws -> IdentitySource? {
        var (keys, scopes, client): (String?, String?, String?)
        var clientScopes = "openid profile email"
        var required = IdentityProvider.Settings()
        settings.apply(jwtKeys, "jwt-keys", to: &keys)
        settings.apply(jwtScopes, "jwt-scopes", to: &scopes)
        settings.apply(jwtIssuer, "jwt-issuer", to: &required.issuer)
        settings.apply(jwtAudience, "jwt-audience", to: &required.audience)
        settings.apply(jwtScopesClaim, "jwt-scopes-claim", to: &required.scopesClaim)
        settings.apply(jwtNameClaim, "jwt-name-claim", to: &required.nameClaim)
        settings.apply(oidcClientId, "oidc-client-id", to: &client)
        settings.apply(oidcScopes, "oidc-scopes", to: &clientScopes)
        if required.audience.isEmpty, let client { required.audience = client }
        let isGiven = [scopes ?? "", required.issuer, required.audience].map { !$0.isEmpty }
        guard isGiven.contains(true) || keys != nil else { return nil }
        guard let scopes, !isGiven.contains(false) else {
            throw Failure(
                "--jwt-issuer, --jwt-audience and --jwt-scopes must be given together, perhaps with --jwt-keys; one is "
                    + "missing")
        }
        guard clientScopes.split(separator: " ").contains("openid") else {
            throw Failure("--oidc-scopes must have 'openid', with spaces between scopes; got '\(clientScopes)'")
        }
        return try IdentitySource(
            keys: keys, scopes: scopes, settings: required, client: client.map { ($0, clientScopes) })
    }

    /// - Returns: `nil` for a server that is not an edge.
    private func edge(_ settings: Settings) throws -> EdgeConfiguration? {
        var (url, token, tokenFile): (String?, String?, String?)
        settings.apply(upstream, "upstream", to: &url)
        // The token is not an option, because all users of a host can see the arguments of a process.
        settings.apply(nil, "upstream-token", to: &token)
        settings.apply(upstreamTokenFile, "upstream-token-file", to: &tokenFile)
        var result = EdgeConfiguration(url: "")
        try settings.apply(maxLag, "max-lag", to: &result.maxLag)
        try settings.apply(upstreamTimeout, "upstream-timeout", to: &result.timeout)
        try settings.apply(offlineEnrollment, "offline-enrollment", to: &result.offlineEnrollment)
        var size = ByteCount(bytes: result.outboxBytes)
        try settings.apply(outboxMaxBytes, "outbox-max-bytes", in: 1 << 20...ByteCount.TiB, to: &size)
        result.outboxBytes = size.bytes
        guard let url else { return nil }
        try Self.expectUpstream(url)
        result.url = url.hasSuffix("/") ? String(url.dropLast()) : url
        guard result.maxLag >= 1 else {
            throw Failure("--max-lag must be at least 1s; got \(Period(seconds: result.maxLag))")
        }
        if let tokenFile {
            guard token == nil else {
                throw Failure("one of --upstream-token-file and HOLDFAST_UPSTREAM_TOKEN must be given, not both")
            }
            token = try UpstreamToken.read(path: tokenFile)
        }
        result.token = try token.map(UpstreamToken.check)
        return result
    }

    /// - Throws: ``Failure`` if the text cannot be the address of a server.
    private static func expectUpstream(_ url: String) throws {
        let target = URL(string: url, encodingInvalidCharacters: false)
        guard target?.user == nil, target?.password == nil else {
            throw Failure("--upstream must be without user and password: the token is in HOLDFAST_UPSTREAM_TOKEN")
        }
        guard let target, ["http", "https"].contains(target.scheme), let host = target.host, !host.isEmpty,
            (1...65_535).contains(target.port ?? 443), target.query == nil, target.fragment == nil
        else {
            throw Failure("--upstream must be an http or https URL of a server, without a query; got '\(url)'")
        }
    }

    /// - Throws: ``Failure`` for settings that an edge does not support.
    private static func expectEdge(_ configuration: ServeConfiguration) throws {
        guard !configuration.database.isPostgreSQL else {
            throw Failure("with --upstream the database must be a file; got \(configuration.database)")
        }
        guard configuration.datafile == nil else {
            throw Failure("--datafile must be given to the upstream; an edge with --upstream has the upstream's")
        }
        guard !configuration.store.isReadOnly else {
            throw Failure("--read-only must be given to the upstream; it cannot be used with --upstream")
        }
    }

    private func feed(_ settings: Settings) throws -> FeedMode {
        var retention = 7.0 * 86_400
        try settings.apply(orNone: feedRetention, "feed-retention", to: &retention)
        var size = ByteCount(bytes: ByteCount.GiB)
        try settings.apply(feedMaxBytes, "feed-max-bytes", in: 1 << 20...ByteCount.TiB, to: &size)
        return retention == 0
            ? .off : .kept(for: TimeSpan(seconds: retention), bytes: Int64(size.bytes))
    }

    private func apply(_ settings: Settings, to services: inout Services.Options) throws {
        try settings.apply(corsOrigins, "cors-origins", to: &services.allowedOrigins)
        try settings.apply(allowedHosts, "allowed-hosts", to: &services.allowedHosts)
        try settings.apply(maxChangeStreams, "max-change-streams", in: 1...1_000_000, to: &services.changeStreams)
        let heartbeats = Period(seconds: 0.1)...Period(seconds: 30)
        try settings.apply(changeHeartbeat, "change-heartbeat", in: heartbeats, to: &services.changeHeartbeat)
        var leavesOutConsole = false
        try settings.apply(noConsole, "no-console", to: &leavesOutConsole)
        services.servesConsole = !leavesOutConsole
        try settings.apply(mcp, "mcp", to: &services.servesAssistants)
        try apply(settings, to: &services.webhooks)
        try settings.apply(accessLog, "access-log", to: &services.accessLog)
        try settings.apply(trustedProxies, "trusted-proxies", to: &services.trustedProxies)
    }

    private func apply(_ settings: Settings, to webhooks: inout WebhookOptions) throws {
        try settings.apply(
            webhookPrivateAddresses, "webhook-private-addresses", to: &webhooks.allowsPrivateAddresses)
        let times = Period(seconds: 0.1)...Period(seconds: 60)
        try settings.apply(webhookTimeout, "webhook-timeout", in: times, to: &webhooks.timeout)
        try settings.apply(webhookRetries, "webhook-retries", to: &webhooks.retryPeriod)
        webhooks.send = { WebhookTransport.send($0) }
        var directory: String?
        settings.apply(webhookSecrets, "webhook-secrets", to: &directory)
        if let directory { webhooks.readSecrets = { try WebhookTransport.readSecrets($0, in: directory) } }
        settings.apply(publicUrl, "public-url", to: &webhooks.publicURL)
        guard let url = webhooks.publicURL else { return }
        guard url.hasPrefix("https://") || url.hasPrefix("http://"), url.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F })
        else {
            throw Failure("--public-url must be a URL such as https://holdfast.example; got '\(url)'")
        }
        if url.hasSuffix("/") { webhooks.publicURL = String(url.dropLast()) }
    }

    private func apply(_ settings: Settings, to limits: inout Limits) throws {
        try settings.apply(maxConnections, "max-connections", in: 1...1_000_000, to: &limits.connections)
        for (option, name, range, path) in [
            (maxHeaderSize, "max-header-size", ByteCount.KiB...ByteCount.GiB, \Limits.headerBytes),
            (maxBodySize, "max-body-size", ByteCount.KiB...ByteCount.GiB, \.bodyBytes),
            (maxUnfinishedBodies, "max-unfinished-bodies", 0...ByteCount.TiB, \.unfinishedBodyBytes),
            (maxWaitingResponses, "max-waiting-responses", ByteCount.KiB...ByteCount.GiB, \.bufferedOutputBytes),
        ] {
            var size = ByteCount(bytes: limits[keyPath: path])
            try settings.apply(option, name, in: range, to: &size)
            limits[keyPath: path] = size.bytes
        }
        try settings.apply(headerTimeout, "header-timeout", to: &limits.headerSeconds)
        try settings.apply(bodyTimeout, "body-timeout", to: &limits.bodySeconds)
        try settings.apply(idleTimeout, "idle-timeout", to: &limits.idleSeconds)
        try settings.apply(writeTimeout, "write-timeout", to: &limits.writeSeconds)
        try settings.apply(maxLoopDelay, "max-loop-delay", to: &limits.loopDelaySeconds)
    }
}

/// The token of an edge for its upstream.
enum UpstreamToken {
    static func read(path: String) throws -> String { try check(TokenFile.secret(path: path)) }

    static func check(_ token: String) throws -> String {
        guard token.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
            throw Failure("the token for the upstream must have no spaces and control characters")
        }
        return token
    }
}
