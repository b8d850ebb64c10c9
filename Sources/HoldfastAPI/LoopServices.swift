import HTTPServer
import HoldfastCore
import Storage

/// The services that the protocols of one event loop share: the services of the whole server, and the objects that
/// belong to this loop.
struct LoopServices {
    /// The services of the whole server.
    let services: Services
    /// The session of this event loop.
    let session: any StoreSession
    /// The projects as this loop sees them.
    let projects: ProjectView
    let decisions: StickyDecisionService
    /// Admits callers.
    let gate: AccessGate
    /// Makes requests to this server's own routes.
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
