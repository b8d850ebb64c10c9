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

/// One run of the server, from its configuration to the end of the process. ``run(whenListening:)`` tells its steps in
/// their order; the functions below have the details.
struct ServerRun {
    private var configuration: ServeConfiguration
    private let settings: Settings
    private let logger: Logger

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
        // By default glibc has eight arenas per core. Dispatch runs work on changing threads, and freed memory stays in
        // the arena of the thread that allocated it. With many arenas the free memory would be several times the memory
        // in use.
        csystem_limit_arenas(Int32(clamping: max(2, configuration.http.eventLoops)))
        let tokens = configuration.tokensFile.map(TokenFile.init(path:))
        let (access, watch) = try ConfigurationError.wrapping {
            let watch = try configuration.identity.map { try IdentityWatch($0, logger) }
            let access = AccessControl(
                tokens: try tokens?.read() ?? [], identity: watch?.provider, approvals: configuration.approvals)
            return (access, watch)
        }
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
        let tracer = configuration.traces?.tracer(logger)
        if let tracer {
            let system = configuration.database.isPostgreSQL ? "postgresql" : "sqlite"
            configuration.services.tracing = Services.Tracing(tracer, databaseSystem: system)
        }
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
        // The additional time is for copying the write-ahead log into the database after the last response.
        notifier?.stopping(within: configuration.shutdownDelay + configuration.shutdownTimeout + 60)
        signals.waitForDelay()
        stop(server, services)
        isStopped = true
        if let tracer, case let lost = tracer.close(), lost > 0 {
            logger.warning("spans were not sent in time", metadata: ["spans": .stringConvertible(lost)])
        }
        if let failure = store.closeFailure {
            logger.error("the write-ahead log was not copied into the database", metadata: ["reason": "\(failure)"])
            throw Failure("\(configuration.database): acknowledged writes may be missing in it: \(failure)")
        }
    }

    // MARK: Checks before the start

    /// - Throws: ``ConfigurationError`` if an option needs a library that is not installed.
    private func expectLibraries() throws {
        let optionsOfCryptography = [
            ("--tokens-file", configuration.tokensFile != nil), ("--jwt-issuer", configuration.identity != nil),
            ("--mcp", configuration.services.servesAssistants),
        ]
        if let (option, _) = optionsOfCryptography.first(where: \.1), !CryptographyLibrary.isInstalled {
            throw ConfigurationError(reason: Failure("\(option) needs libcrypto: apt-get install libssl3"))
        }
        let optionsOfRequests = [
            ("--upstream", configuration.upstream != nil), ("--traces-endpoint", configuration.traces != nil),
        ]
        if let (option, _) = optionsOfRequests.first(where: \.1), http_client_is_available() == 0 {
            throw ConfigurationError(reason: Failure("\(option) needs libcurl: apt-get install libcurl4"))
        }
    }

    /// Refuses a public address without tokens: every caller would be an admin, so only this host may connect.
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

    /// Limits the connections to those for which there are descriptors.
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

    /// Starts the services that work by themselves. The store of an edge is a copy: its experiments and webhooks are
    /// the upstream's work. A read-only server changes nothing.
    private func startBackgroundWork(_ services: Services) {
        let isCopy = services.store.isCopy
        if !configuration.store.isReadOnly {
            if !isCopy {
                services.scheduler.start()
                services.webhooks.start()
            }
            services.uses.start(services.projects)
        }
        if !isCopy { services.monitor.start() }
    }

    // MARK: Reload

    /// Reads the token files again at each SIGHUP, and reports that to systemd.
    private func reloadOnHangUp(
        _ signals: Signals, _ tokens: TokenFile?, _ access: AccessControl, _ store: any Store,
        _ notifier: ServiceNotifier?
    ) throws {
        let audit = try BackgroundSession(store, label: "signals")
        signals.onHangUp { [logger, configuration] in
            let upstream = configuration.upstreamTokenFile.flatMap { path in
                (store as? EdgeStore).map { UpstreamTokenReload(path: path, store: $0, access: access) }
            }
            let reload = {
                let problem = upstream?.read(logger)
                // An edge need not have a token file.
                guard tokens != nil || upstream == nil else { return problem }
                return Self.reload(tokens, access, audit, logger) ?? problem
            }
            if let notifier { notifier.reloading(reload) } else { _ = reload() }
        }
    }

    /// Activates the tokens of the file. If the file is invalid, the former tokens stay active.
    ///
    /// - Returns: a description of the failure without details; `nil` if the tokens were read.
    private static func reload(
        _ file: TokenFile?, _ access: AccessControl, _ audit: BackgroundSession, _ logger: Logger
    ) -> String? {
        guard let file else {
            let problem = "there is no token file to reload"
            logger.warning("\(problem)")
            return problem
        }
        do {
            let tokens = try file.read()
            let former = access.replaceTokens(tokens)
            logger.notice("read the token file again", metadata: ["tokens": .stringConvertible(tokens.count)])
            let note = AuditNote(
                .tokensReload, of: file.path, before: Token.describe(former), after: Token.describe(tokens))
            audit.run { session in
                session.write(.record(note, by: Author(name: "signal SIGHUP"))) { result in
                    guard case .failure(let error) = result else { return }
                    logger.error(
                        "the change of tokens was not recorded in the audit log", metadata: ["error": "\(error)"])
                }
            }
            return nil
        } catch {
            let problem = "the token file was not read; the former tokens stay active"
            access.reloadFailure = problem
            logger.error("\(problem)", metadata: ["error": "\(error)"])
            return problem
        }
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
}

/// Reloads the token of an edge for its upstream.
private struct UpstreamTokenReload {
    let path: String
    let store: EdgeStore
    let access: AccessControl

    /// - Returns: a description of the failure without details; `nil` if the token was read.
    func read(_ logger: Logger) -> String? {
        do {
            store.replaceToken(try UpstreamToken.read(path: path))
            logger.notice("read the token for the upstream again")
            return nil
        } catch {
            let problem = "the token for the upstream was not read; the former one is used"
            access.reloadFailure = problem
            logger.error("\(problem)", metadata: ["error": "\(error)"])
            return problem
        }
    }
}

/// The limit of open files and sockets of the process.
struct DescriptorLimit {
    /// The maximum number of open connections. The descriptors for everything else are reserved: without a free
    /// descriptor the process cannot wait for a timer, and Dispatch ends it.
    let connections: Int
    /// A warning if ``connections`` is less than configured; otherwise `nil`.
    let shortage: String?

    /// The minimum number of connections with which a server starts.
    private static let leastConnections = 16

    /// Returns the number of descriptors for the database, the event loops, Dispatch, the log, and connections that are
    /// being refused.
    private static func reserve(_ http: HTTPServer.Configuration) -> Int {
        max(200, 100 + 8 * http.eventLoops)
    }

    /// Raises the soft limit to the number that the connections require, at most to the hard limit.
    ///
    /// - Throws: ``ConfigurationError`` if the limit is too low for a server.
    init(raisingFor http: HTTPServer.Configuration) throws {
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        var limit = rlimit()
        let wanted = http.limits.connections
        let reserve = Self.reserve(http)
        guard getrlimit(resource, &limit) == 0 else {
            connections = wanted
            shortage = nil
            return
        }
        let needed = rlim_t(wanted + reserve)
        if limit.rlim_cur < needed {
            limit.rlim_cur = min(needed, limit.rlim_max)
            setrlimit(resource, &limit)
            getrlimit(resource, &limit)
        }
        guard limit.rlim_cur < needed else {
            connections = wanted
            shortage = nil
            return
        }
        connections = max(0, Int(clamping: limit.rlim_cur) - reserve)
        let least = min(wanted, Self.leastConnections)
        guard connections >= least else {
            throw ConfigurationError(
                reason: Failure(
                    "the limit of open files must be at least \(reserve + least); it is \(limit.rlim_cur): raise it "
                        + "(ulimit -n)"))
        }
        shortage =
            "\(wanted) connections need a limit of \(needed) open files; it is \(limit.rlim_cur), enough for "
            + "\(connections): raise it (ulimit -n), or lower --max-connections"
    }
}
