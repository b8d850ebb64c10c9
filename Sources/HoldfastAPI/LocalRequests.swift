import HTTPServer
import Storage

/// Requests that the server makes to its own routes on behalf of a caller. Confined to one event loop.
final class LocalRequests {
    /// Owns this object.
    weak var application: HoldfastApplication?
    private let loop: EventLoop

    init(_ loop: EventLoop) {
        self.loop = loop
    }

    /// The scope of a native route.
    func scope(_ method: Method, _ pattern: String) -> APIRoute.Scope? {
        application?.routes.first { $0.method == method && $0.pattern == pattern }?.scope
    }

    func response(to request: LocalRequest) async -> CollectedResponse {
        await settled { done in
            _ = application?.respond(to: request, on: loop) { done($0) }
        }
    }
}

@available(*, unavailable) extension LocalRequests: Sendable {}
