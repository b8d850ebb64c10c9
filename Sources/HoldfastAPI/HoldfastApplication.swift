import Chronology
import Definitions
public import HTTPServer
import HoldfastCore
import Logging
public import Storage
public import Tracing

/// The application of one event loop: the wire protocols, the loop's own session of the store, and the loop's metrics.
///
/// `HTTPServer` creates an application for each event loop and uses it only on that loop's thread. The protocols
/// declare the routes; the router finds the route of a request. Errors are rendered by the protocol of the route, or
/// without a route by the protocol that claims the path, so that each client gets errors in its own format.
public final class HoldfastApplication: Application {
    public let router: Router
    private let services: Services
    private let session: any StoreSession
    private let protocols: [any WireProtocol]
    /// The routes of all protocols. The router has these routes first, and after them the routes of preflights.
    let routes: [APIRoute]
    /// The protocol of each route of the router, by the route's index.
    private let protocolOfRoute: [any WireProtocol]
    private var metrics: RequestMetrics
    /// The number of refused connections since the last log line about them.
    private var refusedConnections = 0
    /// The time from which the next such line may be written: at most one a second.
    private var nextRefusalLine = ContinuousClock.now

    /// - Throws: ``StorageError`` when the store cannot be read.
    public init(services: Services, loop: EventLoop) throws {
        self.services = services
        let own = try services.store.makeSession(on: loop)
        session = services.options.tracing.map { TracedSession(own, system: $0.databaseSystem) } ?? own
        try session.prepareLookups()
        let loopServices = LoopServices(services, session, loop)
        let protocols = Self.protocols(loopServices)
        let routes = protocols.flatMap(\.routes)
        let preflights = services.options.allowedOrigins == nil ? [] : CrossOriginPreflight.routes(for: routes)
        let protocolOfRoute =
            protocols.flatMap { wire in wire.routes.map { _ in wire } } + preflights.map { _ in protocols[0] }
        router = Router(
            zip(routes, protocolOfRoute).map { route, wire in
                if let forwarder = loopServices.forwarder, !route.isAnsweredByEdges {
                    return forwarder.route(route, of: wire)
                }
                return route.route(of: wire, gate: loopServices.gate, projects: loopServices.projects)
            } + preflights)
        metrics = RequestMetrics(routes: router.routes.count)
        self.protocols = protocols
        self.routes = routes
        self.protocolOfRoute = protocolOfRoute
        loopServices.requests.application = self
    }

    /// Returns the protocols that the options enable. The first one also renders the errors for paths that no protocol
    /// claims.
    private static func protocols(_ loop: LoopServices) -> [any WireProtocol] {
        let services = loop.services
        var protocols: [any WireProtocol] = [
            NativeProtocol(loop),
            OperationsProtocol(loop),
            UserProfileServiceProtocol(loop),
            AgentProtocol(loop),
            OptimizelySDKProtocol(loop),
            OFREPProtocol(loop), OpenFeatureManifestProtocol(loop),
            BucketeerProtocol(loop),
            SegmentProtocol(loop),
            GrowthBookProtocol(loop),
            ManualProtocol(services),
        ]
        // An edge has an upstream, and no edges of its own.
        if services.upstream == nil { protocols.append(EdgeProtocol(loop)) }
        if services.options.servesAssistants { protocols.append(MCPProtocol(loop)) }
        if services.options.servesConsole { protocols.append(ConsoleProtocol(services.access)) }
        return protocols
    }

    public var tracer: Tracer? { services.options.tracing?.tracer }

    public var logsRequests: Bool { services.options.accessLog }

    public func beginBatch() {
        session.beginBatch()
    }

    public func endBatch() {
        session.endBatch()
    }

    public func response(to failure: RequestFailure, at location: RequestFailure.Location) -> Response {
        var detail = failure.detail
        let wire: any WireProtocol
        var pattern: String?
        switch location {
        case .route(let index):
            wire = protocolOfRoute[index]
            pattern = router.routes[index].pattern
        case .path(let path):
            detail += routeHint(for: path)
            wire = protocols.first { $0.claims(path) } ?? protocols[0]
        case .none: wire = protocols[0]
        }
        return wire.response(to: Problem(failure.status, detail), on: pattern)
    }

    /// Returns the hint in the error for an unknown path: the pattern that was probably meant, and where all patterns
    /// are listed.
    private func routeHint(for path: String) -> String {
        let listing = "/openapi.json lists all"
        guard let pattern = longestPatternBeginning(path) ?? mostSimilarPattern(to: path) else { return "; \(listing)" }
        return "; did you mean \(pattern)? \(listing)"
    }

    /// Returns the longest pattern that is the beginning of a path with the same number of segments: `/v1/assign` for
    /// `/v1/assignments`.
    private func longestPatternBeginning(_ path: String) -> String? {
        let slashes = path.count { $0 == "/" }
        return routes.map(\.pattern)
            .filter { pattern in
                path.hasPrefix(pattern) && pattern.count { $0 == "/" } == slashes && pattern.last != "/"
            }
            .max { $0.count < $1.count }
    }

    /// Returns the pattern whose spelling is most similar to a path; `nil` if none is similar.
    private func mostSimilarPattern(to path: String) -> String? {
        let segments = path.split(separator: "/", omittingEmptySubsequences: false)
        let candidates = routes.map { Self.filled($0.pattern, from: segments) }
        guard let nearest = Spelling.nearest(to: path, among: candidates),
            let index = candidates.firstIndex(of: nearest)
        else { return nil }
        return routes[index].pattern
    }

    /// Replaces the parameters of a pattern by the segments of a path, so that they do not count as differences. The
    /// pattern stays as it is if it has another number of segments, or a first segment that is not similar.
    private static func filled(_ pattern: String, from segments: [Substring]) -> String {
        let parts = pattern.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == segments.count, segments.count > 1,
            Spelling.nearest(to: String(segments[1]), among: [String(parts[1])]) != nil
        else { return pattern }
        return zip(parts, segments).map { part, segment in part.hasPrefix("{") ? segment : part }.joined(separator: "/")
    }

    public var readsOrigin: Bool { services.options.allowedOrigins != nil }

    /// Returns the header fields by which pages may read a response. Pages may read the responses of client routes, and
    /// of requests without a route: otherwise a page could not distinguish a refusal from a network failure.
    public func fields(origin: String?, route: Int?) -> [(name: StaticString, value: String)] {
        guard let origins = services.options.allowedOrigins else { return [] }
        // The routes of preflights come after those of the table.
        if let route, route < routes.count, !routes[route].scope.isForPages { return [] }
        return origins.fields(for: origin)
    }

    public var markedRequestField: StaticString? { "holdfast-edge" }

    /// The header fields by which an edge recognizes responses of this server. It ignores responses without them.
    public func markers() -> [(name: StaticString, value: String)] {
        // The response tells an edge that this server is an edge, too, and cannot be its upstream.
        guard services.upstream == nil else { return [(EdgeFields.generation, EdgeFields.isEdge)] }
        return [
            (EdgeFields.generation, services.projects.snapshot().generation.text),
            (EdgeFields.time, "\(services.store.clock.now().milliseconds)"),
        ]
    }

    public func requestCompleted(_ summary: RequestSummary) {
        metrics.count(summary)
        if let span = summary.span { end(span, summary) }
        guard services.options.accessLog else { return }
        var metadata: Logger.Metadata = [
            "method": "\(summary.method.name)", "target": "\(services.access.loggable(summary.target ?? "-"))",
            "status": .stringConvertible(summary.status.code),
            "microseconds": .stringConvertible(summary.nanoseconds / 1_000), "bytes": .stringConvertible(summary.bytes),
            "request_id": "\(services.access.loggable(summary.id.description))",
        ]
        metadata.addClient(of: summary.peer, forwardedFor: summary.forwardedFor, services.options.trustedProxies)
        if let span = summary.span { metadata["trace_id"] = "\(span.context.traceID)" }
        if let caller = summary.caller { metadata["token"] = "\(caller)" }
        services.logger.info("request", metadata: metadata)
    }

    /// Ends the span of a request. The span has the pattern of the route instead of the path, which may contain a user
    /// id.
    private func end(_ span: Span, _ summary: RequestSummary) {
        let method = summary.method.name
        let code = Int(summary.status.code)
        var attributes: Span.Attributes = [
            ("http.request.method", .text("\(method)")), ("http.response.status_code", .number(code)),
            ("url.scheme", .text("http")),
        ]
        let pattern = summary.route.map { router.routes[$0].pattern }
        if let pattern { attributes += [("http.route", .text(pattern)), ("url.path", .text(pattern))] }
        span.end(pattern.map { "\(method) \($0)" } ?? "\(method)", attributes, error: code >= 500 ? "\(code)" : nil)
    }

    public func report(_ event: ServerEvent) {
        switch event {
        case .acceptFailed(let error):
            services.logger.error("a connection could not be accepted", metadata: ["error": "\(error)"])
        case .connectionRefused:
            refusedConnections += 1
            // The number of lines is limited. Otherwise peers could fill the disk.
            guard ContinuousClock.now >= nextRefusalLine else { return }
            services.logger.warning(
                "connections were refused: there are too many",
                metadata: ["connections": .stringConvertible(refusedConnections)])
            refusedConnections = 0
            nextRefusalLine = .now + .seconds(1)
        case .streamCutOff(let id, let route):
            services.logger.warning(
                "a response was cut off by the shutdown",
                metadata: ["route": "\(name(of: route))", "request_id": "\(services.access.loggable(id.description))"])
        case .connectionsCutOff(let count):
            services.logger.warning(
                "requests were cut off by the shutdown", metadata: ["connections": .stringConvertible(count)])
        case .handlerTimedOut(let id):
            services.logger.error(
                "a request got no response in time",
                metadata: ["request_id": "\(services.access.loggable(id.description))"])
        }
    }

    /// Returns the method and pattern of a route, for the log.
    private func name(of route: Int?) -> String {
        route.map { "\(router.routes[$0].method.name) \(router.routes[$0].pattern)" } ?? "-"
    }

    public func stop() {
        session.close()
    }

    /// Returns the metrics of this loop for `GET /metrics`.
    func snapshot(_ connections: ConnectionMetrics) -> LoopSnapshot {
        // The last label is for requests without a route.
        let labels =
            router.routes.map { "method=\"\($0.method.name)\",route=\"\($0.pattern)\"" } + ["method=\"\",route=\"\""]
        return LoopSnapshot(
            routeLabels: labels, metrics: metrics, connections: connections, cache: session.cacheMetrics)
    }
}

/// An event loop runs the completions of its store session.
extension EventLoop: StoreExecutor {
    public func watch(
        _ descriptor: Int32, _ ready: @escaping @Sendable () -> Void
    ) throws(StorageError) -> any DescriptorWatch {
        do throws(SystemError) {
            return try watch(descriptor: descriptor, ready)
        } catch {
            throw .unavailable(reason: "\(error)")
        }
    }
}

extension EventLoop.Watch: DescriptorWatch {}
