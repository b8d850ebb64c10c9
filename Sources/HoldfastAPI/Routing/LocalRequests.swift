import HTTPServer
import Storage

/// Requests that the server makes to its own routes on behalf of a caller. Confined to one event loop.
final class LocalRequests {
    /// Owns this object.
    weak var application: HoldfastApplication?
    private let loop: EventLoop
    private let gate: AccessGate

    init(_ loop: EventLoop, _ gate: AccessGate) {
        self.loop = loop
        self.gate = gate
    }

    /// The scope of a native route.
    func scope(_ method: Method, _ pattern: String) -> APIRoute.Scope? {
        application?.routes.first { $0.method == method && $0.pattern == pattern }?.scope
    }

    /// - Parameter approval: that of the proposal which the request carries out.
    func response(to request: LocalRequest, approving approval: Approval? = nil) async -> CollectedResponse {
        var limits = Limits()
        // The body was admitted when it was proposed.
        if approval != nil { limits.bodyBytes = max(limits.bodyBytes, request.body.count) }
        return await settled { done in
            // A request is admitted before this call returns.
            gate.approval = approval
            defer { gate.approval = nil }
            _ = application?.respond(to: request, on: loop, limits: limits) { done($0) }
        }
    }
}

@available(*, unavailable) extension LocalRequests: Sendable {}
