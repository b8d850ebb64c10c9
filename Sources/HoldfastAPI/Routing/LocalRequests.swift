import HTTPServer
import Storage

/// Requests that the server makes to its own routes on behalf of a caller, for example to make the change of an
/// approved proposal. Confined to one event loop.
final class LocalRequests {
    /// The application, which owns this object.
    weak var application: HoldfastApplication?
    private let loop: EventLoop
    private let gate: AccessGate

    init(_ loop: EventLoop, _ gate: AccessGate) {
        self.loop = loop
        self.gate = gate
    }

    /// Returns the scope of the route with a method and a pattern; `nil` if no route has them.
    func scope(_ method: Method, _ pattern: String) -> APIRoute.Scope? {
        application?.routes.first { $0.method == method && $0.pattern == pattern }?.scope
    }

    /// Makes a request, and returns its response.
    ///
    /// - Parameter approval: the approval of the proposal whose request is made; `nil` for other requests.
    func response(to request: LocalRequest, approving approval: Approval? = nil) async -> CollectedResponse {
        var limits = Limits()
        // The body was within the limit when the change was proposed.
        if approval != nil { limits.bodyBytes = max(limits.bodyBytes, request.body.count) }
        return await settled { done in
            // The gate adds the approval to the admission of this request. No other request gets it, because requests
            // are admitted before `respond` returns, and all on this event loop.
            gate.approval = approval
            defer { gate.approval = nil }
            _ = application?.respond(to: request, on: loop, limits: limits) { done($0) }
        }
    }
}

@available(*, unavailable) extension LocalRequests: Sendable {}
