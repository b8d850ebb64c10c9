import Chronology
import FoundationEssentials
import HTTPServer
import HoldfastAPI
import Storage
import StorageEdge

/// Reads the configuration of the server: each setting from its option, or else from its environment variable.
extension ServeCommand {
    /// Returns the defaults with the settings that are given.
    ///
    /// - Throws: ``Failure`` with the name of the invalid setting.
    func configuration(_ settings: Settings) throws -> ServeConfiguration {
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
        if result.upstream != nil { result.cacheSize = ByteCount(bytes: 48 * ByteCount.MiB) }
        try settings.apply(cacheSize, "cache-size", in: 0...Self.memory, to: &result.cacheSize)
        try settings.apply(
            checkpointSize, "checkpoint-size", in: 64 * ByteCount.KiB...ByteCount.GiB, to: &result.checkpointSize)
        try settings.apply(lockTimeout, "lock-timeout", to: &result.lockTimeout)
        try apply(settings, to: &result.store)
        try apply(settings, to: &result.services)
        try apply(settings, to: &result.http.limits)
        // `--max-body-size` limits a line of an import, too.
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

    // MARK: Parts

    /// Reads the settings of the store.
    private func apply(_ settings: Settings, to store: inout StoreSettings) throws {
        try profiles.apply(settings, to: &store.rules)
        try settings.apply(readOnly, "read-only", to: &store.isReadOnly)
        var auditPeriod = Period(seconds: store.auditRetention.inSeconds)
        try settings.apply(auditRetention, "audit-retention", to: &auditPeriod)
        store.auditRetention = auditPeriod.span
        // A period of 0 cannot be given. It stays if the setting is missing, and goal events are then kept for ever.
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

    /// Reads the collector of traces.
    ///
    /// - Returns: `nil` if requests are not traced.
    private func traces(_ settings: Settings) throws -> TraceCollector? {
        var url: String?
        var service: String?
        var headers: String?
        var sample: Probability?
        // All settings are read even if there is no collector, so that their variables do not count as unknown.
        settings.apply(tracesHeadersFile, "traces-headers-file", to: &headers)
        settings.apply(tracesEndpoint, "traces-endpoint", to: &url)
        settings.apply(tracesService, "traces-service", to: &service)
        try settings.apply(tracesSample, "traces-sample", to: &sample)
        guard let url else { return nil }
        var collector = try TraceCollector(url: url)
        if let service { collector.service = service }
        if let sample { collector.sample = sample.value }
        // The file is read again for each batch of spans. Reading it now reports its faults at the start.
        if let headers { _ = try TraceCollector.headers(in: headers) }
        collector.headersFile = headers
        return collector
    }

    /// Reads the identity provider.
    ///
    /// - Returns: `nil` if no identity provider signs people in.
    private func identity(_ settings: Settings) throws -> IdentitySource? {
        var keys: String?
        var scopes: String?
        var client: String?
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
        // These three settings must be given together.
        let isEachGiven = [scopes ?? "", required.issuer, required.audience].map { !$0.isEmpty }
        guard isEachGiven.contains(true) || keys != nil else { return nil }
        guard let scopes, !isEachGiven.contains(false) else {
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

    /// Reads the upstream of an edge.
    ///
    /// - Returns: `nil` for a server that is not an edge.
    private func edge(_ settings: Settings) throws -> EdgeConfiguration? {
        var url: String?
        var token: String?
        var tokenFile: String?
        // All settings are read even if there is no upstream, so that their variables do not count as unknown.
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

    /// Checks the address of the upstream.
    ///
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

    /// Reads how long and how much the feed keeps; a retention of 0 turns the feed off.
    private func feed(_ settings: Settings) throws -> FeedMode {
        // A week.
        var retention = 7.0 * 86_400
        try settings.apply(orNone: feedRetention, "feed-retention", to: &retention)
        var size = ByteCount(bytes: ByteCount.GiB)
        try settings.apply(feedMaxBytes, "feed-max-bytes", in: 1 << 20...ByteCount.TiB, to: &size)
        return retention == 0
            ? .off : .kept(for: TimeSpan(seconds: retention), bytes: Int64(size.bytes))
    }

    /// Reads the settings of the services.
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

    /// Reads the settings of webhooks.
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

    /// Reads the limits of connections, requests and responses.
    private func apply(_ settings: Settings, to limits: inout Limits) throws {
        try settings.apply(maxConnections, "max-connections", in: 1...1_000_000, to: &limits.connections)
        func applySize(_ option: String?, _ name: String, in range: ClosedRange<Int>, to bytes: inout Int) throws {
            var size = ByteCount(bytes: bytes)
            try settings.apply(option, name, in: range, to: &size)
            bytes = size.bytes
        }
        let sizes = ByteCount.KiB...ByteCount.GiB
        try applySize(maxHeaderSize, "max-header-size", in: sizes, to: &limits.headerBytes)
        try applySize(maxBodySize, "max-body-size", in: sizes, to: &limits.bodyBytes)
        try applySize(
            maxUnfinishedBodies, "max-unfinished-bodies", in: 0...ByteCount.TiB, to: &limits.unfinishedBodyBytes)
        try applySize(maxWaitingResponses, "max-waiting-responses", in: sizes, to: &limits.bufferedOutputBytes)
        try settings.apply(headerTimeout, "header-timeout", to: &limits.headerSeconds)
        try settings.apply(bodyTimeout, "body-timeout", to: &limits.bodySeconds)
        try settings.apply(idleTimeout, "idle-timeout", to: &limits.idleSeconds)
        try settings.apply(writeTimeout, "write-timeout", to: &limits.writeSeconds)
        try settings.apply(maxLoopDelay, "max-loop-delay", to: &limits.loopDelaySeconds)
    }
}
