import ArgumentParser
import FoundationEssentials

/// Runs the server until SIGTERM or SIGINT: reads the configuration from the options and the environment
/// (`ServeCommand+Configuration.swift`), and passes it to ``ServerRun``. ``ServeConfiguration`` has the defaults.
///
/// Options are texts, because ``Settings`` parses them together with their environment variables.
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
}
