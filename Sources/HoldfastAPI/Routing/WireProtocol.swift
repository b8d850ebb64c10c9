import HTTPServer
import HoldfastCore
import Storage

/// A protocol of clients, such as Holdfast's own REST API, OFREP, or that of Optimizely Agent: its routes, how a
/// request carries a token, and the format of errors.
///
/// To add a protocol, add a folder with a type that conforms, and a line in ``HoldfastApplication``.
protocol WireProtocol {
    var routes: [APIRoute] { get }

    /// The path prefixes that belong only to this protocol, so that a 404 below them has its error format.
    var pathPrefixes: [String] { get }

    /// The secret of the access token that a request carries; `nil` if it has none.
    func credential(of request: borrowing Request) -> Substring?

    /// Renders an error of a handler, of a check before it, or of a request without a handler.
    ///
    /// - Parameter pattern: the pattern of the route; `nil` if no route has the path.
    func response(to error: any Error, on pattern: String?) -> Response
}

extension WireProtocol {
    var pathPrefixes: [String] { [] }

    /// Whether a path belongs to this protocol.
    func claims(_ path: some StringProtocol) -> Bool {
        pathPrefixes.contains { path == $0 || path.hasPrefix($0 + "/") }
    }

    func credential(of request: borrowing Request) -> Substring? {
        tokenSecret(authorization: request.field("authorization"), apiKey: request.field("x-api-key"))
    }

    func response(to error: any Error, on pattern: String?) -> Response {
        Problem(error).response(on: pattern)
    }
}

/// Returns the secret of a bearer token, or else of `X-API-Key`, because some clients cannot send a bearer token.
func tokenSecret(authorization: String?, apiKey: String?) -> Substring? {
    authorization.flatMap(bearerSecret) ?? apiKey.flatMap { $0.isEmpty ? nil : $0[...] }
}

/// Returns the secret of an `Authorization` field with a bearer token (RFC 6750 §2.1). The name of the scheme is
/// case-insensitive (RFC 9110 §11.1).
func bearerSecret(_ value: String) -> Substring? {
    let scheme = "bearer "
    let length = scheme.utf8.count
    guard value.utf8.count > length, value.prefix(length).lowercased() == scheme else { return nil }
    return value.dropFirst(length).drop { $0 == " " }
}

/// The services that the protocols of one event loop share: of the whole server, and of the loop.
struct LoopServices {
    /// The services of the whole server.
    let services: Services
    /// The session of this event loop.
    let session: any StoreSession
    let projects: ProjectView
    let decisions: StickyDecisionService
    let gate: AccessGate
    let requests: LocalRequests
    /// Forwards requests to the upstream; `nil` if the server is not an edge.
    let forwarder: UpstreamForwarder?

    init(_ services: Services, _ session: any StoreSession, _ loop: EventLoop) {
        self.services = services
        self.session = session
        projects = ProjectView(services.projects)
        decisions = StickyDecisionService(
            session: session, projects: projects,
            exposures: ExposureRecorder(
                events: services.events, known: services.knownExposures, uses: services.uses,
                clock: services.store.clock),
            metrics: services.decisions, uses: services.uses, isCopy: services.store.isCopy)
        gate = AccessGate(
            services.access, refusals: services.refusals,
            LocalAccess(hosts: services.options.allowedHosts, origins: services.options.allowedOrigins))
        requests = LocalRequests(loop, gate)
        forwarder =
            if let upstream = services.upstream { UpstreamForwarder(upstream, gate, services.projects) } else { nil }
    }
}

@available(*, unavailable) extension LoopServices: Sendable {}
