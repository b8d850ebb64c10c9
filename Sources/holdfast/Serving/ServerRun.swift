import CHTTPClient
import CSystem
import Dispatch
import FoundationEssentials
import Glibc
import HTTPServer
import HoldfastAPI
import HoldfastCore
import Logging
import Storage
import StorageEdge
import Tracing

/// One run of the server, from its configuration to the end of the process.
///
/// ``run(whenListening:)`` has the steps in their order: checks that need no database, the start, waiting for a signal,
/// and the shutdown. The functions below have the details. Reloads are in `ServerRun+Reload.swift`.
struct ServerRun {
    /// The configuration. The limits of connections and the tracing are adjusted during the start.
    var configuration: ServeConfiguration
    /// The settings from which the configuration was read, for checks of the environment.
    private let settings: Settings
    let logger: Logger

    init(_ configuration: ServeConfiguration, _ settings: Settings) {
        self.configuration = configuration
        self.settings = settings
        logger = LineLogHandler.makeLogger(configuration.logFormat, level: configuration.logLevel)
    }

    /// Serves until SIGTERM or SIGINT.
    ///
    /// - Parameter whenListening: called once the server listens, with its address.
    mutating func run(whenListening: (SocketAddress) throws -> Void = { _ in }) throws {
        try expectLibraries()
        limitMemoryArenas()
        let tokens = configuration.tokensFile.map(TokenFile.init(path:))
        let (access, watch) = try makeAccessControl(tokens)
        watch?.begin(access)
        defer { watch?.cancel() }
        try refuseOpenAddress(access)
        let notifier = try ServiceNotifier(environment: settings.environment, logger: logger)
        let signals = Signals(delay: configuration.shutdownDelay)

        warnOfUnknownVariables()
        try limitConnections()
        let store = try openStore()
        var isStopped = false
        defer { if !isStopped { store.close() } }
        try reloadOnHangUp(signals, tokens, access, store, notifier)
        let tracer = setUpTracing()
        let projects = try ProjectCatalog(store: store, logger: logger)
        let loaded = try loadDatafiles(into: projects)
        let services = Services(
            store: store, projects: projects, events: try EventQueue(store: store), access: access,
            build: BuildInfo(version: Holdfast.version, startedAt: Date().timeIntervalSince1970), logger: logger,
            options: configuration.services, upstream: (store as? EdgeStore).map(EdgeForwarding.init))

        let server = try listen(services)
        logListening(server, services, datafiles: loaded)
        notifier?.serve(server, store)
        startBackgroundWork(services)
        try whenListening(server.address)

        let name = signals.waitForTermination()
        logger.notice("stopping", metadata: ["signal": "\(name)"])
        services.readiness.shutDown()
        notifier?.stopping(
            within: configuration.shutdownDelay + configuration.shutdownTimeout + Self.checkpointSeconds)
        signals.waitForDelay()
        stop(server, services)
        isStopped = true
        if let tracer { closeTracer(tracer) }
        if let failure = store.closeFailure {
            logger.error("the write-ahead log was not copied into the database", metadata: ["reason": "\(failure)"])
            throw Failure("\(configuration.database): acknowledged writes may be missing in it: \(failure)")
        }
    }

    /// The additional time of a shutdown in seconds, for copying the write-ahead log into the database after the last
    /// response.
    private static let checkpointSeconds = 60.0

    // MARK: Checks before the start

    /// - Throws: ``ConfigurationError`` if an option needs a library that is not installed.
    private func expectLibraries() throws {
        let optionsWithCryptography = [
            ("--tokens-file", configuration.tokensFile != nil), ("--jwt-issuer", configuration.identity != nil),
            ("--mcp", configuration.services.servesAssistants),
        ]
        if let (option, _) = optionsWithCryptography.first(where: \.1), !CryptographyLibrary.isInstalled {
            throw ConfigurationError(reason: Failure("\(option) needs libcrypto: apt-get install libssl3"))
        }
        let optionsWithRequests = [
            ("--upstream", configuration.upstream != nil), ("--traces-endpoint", configuration.traces != nil),
        ]
        if let (option, _) = optionsWithRequests.first(where: \.1), http_client_is_available() == 0 {
            throw ConfigurationError(reason: Failure("\(option) needs libcurl: apt-get install libcurl4"))
        }
    }

    /// Limits the memory that glibc keeps. By default glibc has eight arenas per core. Dispatch runs work on changing
    /// threads, and freed memory stays in the arena of the thread that allocated it. With many arenas the free memory
    /// would be several times the memory in use.
    private func limitMemoryArenas() {
        csystem_limit_arenas(Int32(clamping: max(2, configuration.http.eventLoops)))
    }

    /// Reads the tokens, and the files and keys of the identity provider.
    ///
    /// - Throws: ``ConfigurationError`` if a file is invalid.
    private func makeAccessControl(_ tokens: TokenFile?) throws -> (access: AccessControl, watch: IdentityWatch?) {
        try ConfigurationError.wrapping {
            let watch = try configuration.identity.map { try IdentityWatch($0, logger) }
            let access = AccessControl(
                tokens: try tokens?.read() ?? [], identity: watch?.provider, approvals: configuration.approvals)
            return (access, watch)
        }
    }

    /// Refuses a configuration in which unknown people are admins: without tokens every caller is an admin, so the
    /// server must listen only to this host, and cannot require the approval of a second person.
    private func refuseOpenAddress(_ access: AccessControl) throws {
        let address: SocketAddress
        do throws(SocketAddressError) {
            address = try SocketAddress(resolving: configuration.http.address)
        } catch {
            if error.isTemporary { throw error }
            throw ConfigurationError(reason: error)
        }
        guard access.isOpen, !address.isLoopback || configuration.approvals > 1 else { return }
        guard configuration.approvals == 1 else {
            throw ConfigurationError(
                reason: Failure("--approvals 2 needs callers with names: give --tokens-file or --jwt-issuer, too"))
        }
        throw ConfigurationError(
            reason: Failure(
                "refusing to listen on \(address), which others can reach, without access tokens: "
                    + "give --tokens-file PATH with lines 'scope name secret', or --jwt-issuer, or listen on 127.0.0.1")
        )
    }

    /// Warns of unknown variables, which may be misspelt. Variables of `holdfast health` and of commands are known,
    /// because they may share the environment of the server.
    private func warnOfUnknownVariables() {
        for variable in settings.unknownVariables(besides: HealthCommand.settings + ServerOptions.settings) {
            let hint = variable.nearest.map { "; did you mean \($0)?" } ?? ""
            logger.warning(
                "a variable that begins with HOLDFAST_ must name an option; \(variable.name) names none\(hint)")
        }
    }

    /// Limits the number of connections to the number of available descriptors.
    private mutating func limitConnections() throws {
        let limit = try DescriptorLimit(raisingFor: configuration.http)
        if let shortage = limit.shortage { logger.warning("\(shortage)") }
        configuration.http.limits.connections = limit.connections
    }

    // MARK: Start

    /// - Throws: ``ConfigurationError`` if only another configuration can help.
    private func openStore() throws -> any Store {
        do {
            return try StoreFactory.open(configuration, logger)
        } catch let error as DatabaseError where error.isPermanent {
            throw ConfigurationError(reason: error)
        }
    }

    /// Makes the tracer of `--traces-endpoint`, and passes it to the services.
    private mutating func setUpTracing() -> Tracer? {
        guard let tracer = configuration.traces?.tracer(logger) else { return nil }
        let system = configuration.database.isPostgreSQL ? "postgresql" : "sqlite"
        configuration.services.tracing = Services.Tracing(tracer, databaseSystem: system)
        return tracer
    }

    /// Stores the datafiles of `--datafile`, and makes them active.
    ///
    /// - Returns: their SDK keys.
    private func loadDatafiles(into projects: ProjectCatalog) throws -> [String] {
        let sharing: SharePolicy = configuration.sharesIDs ? .allow : .refuse(.all)
        let loaded =
            try configuration.datafile.map { try DatafileSource(path: $0).load(into: projects, sharing: sharing) } ?? []
        if !configuration.sharesIDs, let warning = projects.snapshot().sharedIDsWarning {
            logger.warning("\(warning)")
        }
        return loaded
    }

    /// Starts the server.
    ///
    /// - Throws: ``ConfigurationError`` if the process may not use the address, ``Failure`` if it is in use.
    private func listen(_ services: Services) throws -> HTTPServer {
        do {
            let server = try HTTPServer(configuration.http) { try HoldfastApplication(services: services, loop: $0) }
            services.observe(server)
            return server
        } catch {
            let code = (error as? SystemError)?.code
            let hint = code == EADDRINUSE ? "; \(addressHint)" : ""
            let failure = Failure("cannot serve at \(configuration.http.address): \(error)\(hint)")
            // A port below 1024, for example.
            if code == EACCES { throw ConfigurationError(reason: failure) }
            throw failure
        }
    }

    /// The advice if another process listens at the address.
    private var addressHint: String {
        configuration.http.sharesAddress
            ? "with --reuse-port the process that listens there must be a Holdfast server of the same user"
            : "another process listens there: stop it, choose another address with --listen, or share this one with "
                + "another Holdfast server by --reuse-port"
    }

    /// Logs the state of the server once it listens.
    private func logListening(_ server: HTTPServer, _ services: Services, datafiles: [String]) {
        logger.info(
            "listening",
            metadata: [
                "address": "http://\(server.address)", "database": "\(configuration.database)",
                "profiles": .stringConvertible(services.store.metrics().profiles),
                "event_loops": .stringConvertible(configuration.http.eventLoops),
                "datafiles": "\(datafiles.joined(separator: ","))",
                "tokens": services.access.isOpen ? "none" : "required",
                "read_only": .stringConvertible(configuration.store.isReadOnly),
                "version": "\(Holdfast.version)",
                "pid": .stringConvertible(getpid()),
            ])
    }

    /// Starts the services that work without requests. The store of an edge is a copy, so the upstream schedules
    /// experiments, sends webhooks and monitors. A read-only server changes nothing, so it only monitors.
    private func startBackgroundWork(_ services: Services) {
        let isCopy = services.store.isCopy
        let isReadOnly = configuration.store.isReadOnly
        if !isReadOnly, !isCopy {
            services.scheduler.start()
            services.webhooks.start()
        }
        if !isReadOnly { services.uses.start(services.projects) }
        if !isCopy { services.monitor.start() }
    }

    // MARK: Shutdown

    /// Completes requests in flight, commits accepted writes, and releases everything.
    private func stop(_ server: HTTPServer, _ services: Services) {
        services.changes.close()
        let deadline = DispatchTime.now() + configuration.shutdownTimeout
        server.stop(within: configuration.shutdownTimeout)
        server.wait()
        let lost = services.close(before: deadline)
        if lost > 0 {
            logger.error("events were not stored in time", metadata: ["events": .stringConvertible(lost)])
        }
        logger.notice("stopped")
    }

    /// Sends the last spans.
    private func closeTracer(_ tracer: Tracer) {
        let lost = tracer.close()
        guard lost > 0 else { return }
        logger.warning("spans were not sent in time", metadata: ["spans": .stringConvertible(lost)])
    }
}
