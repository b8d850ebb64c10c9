import HTTPServer
import HoldfastCore
import Storage

/// Forwards requests that an edge cannot handle to the upstream; see ``APIRoute/isAnsweredByEdges``.
///
/// For most routes the edge checks the token of a caller, and forwards the request with its own token on behalf of the
/// caller (``OnBehalfOf``). Requests of admins are forwarded with the caller's credential, which only the upstream
/// checks. After a change the edge waits until its copy has it, so that the caller reads its own writes.
struct UpstreamForwarder {
    private let upstream: any UpstreamRequests
    private let gate: AccessGate
    private let catalog: ProjectCatalog
    private let logins = LoginForwarder()

    /// The maximum size of a forwarded body in bytes. The limit of the server may be lower.
    private static let maximumBodyBytes = 32 << 20
    /// The header fields of requests that are forwarded.
    private static let requestFields: [StaticString] = [
        "accept", "content-encoding", "content-type", "if-match", "if-none-match", "x-optimizely-sdk-key",
    ]
    /// The header fields of responses that are forwarded, in addition to type and entity tag, each also in lower case.
    private static let responseFields: [(StaticString, name: String)] = [
        "Accept-Encoding", "Allow", "Cache-Control", "Content-Disposition", "Content-Security-Policy", "Link",
        "Location", "Retry-After", "WWW-Authenticate",
    ].map { ($0, $0.description.lowercased()) }
    /// The usual content types. The content type of a ``HTTPServer/Response`` is a static string, so any other type is
    /// forwarded as a further header field.
    private static let contentTypes: [StaticString] = [
        MediaType.json, MediaType.problem, MediaType.lines, "text/csv; charset=utf-8", "text/html; charset=utf-8",
        "image/svg+xml",
    ]

    init(_ upstream: any UpstreamRequests, _ gate: AccessGate, _ catalog: ProjectCatalog) {
        self.upstream = upstream
        self.gate = gate
        self.catalog = catalog
    }

    /// Returns the route for the server, which forwards each request.
    ///
    /// - Parameter wire: the protocol of the route, which has the credential and renders errors.
    func route(_ route: APIRoute, of wire: any WireProtocol) -> Route {
        if route.isStreamed { return streamedRoute(route, of: wire) }
        return Route(
            route.method, route.pattern, changesState: route.changesState, respondsLater: true,
            refusal: { request in
                var caller: String?
                do {
                    _ = try self.request(request, of: route, wire) { caller = $0 }
                    return nil
                } catch {
                    return (wire.response(to: error, on: route.pattern), caller)
                }
            },
            .buffered { request, responder in
                do {
                    var forwarded = try self.request(request, of: route, wire, setCaller: responder.setCaller)
                    forwarded.body = request.withBody { Array($0) }
                    respond(to: forwarded, responder, wire, route.pattern)
                } catch {
                    responder.send(wire.response(to: error, on: route.pattern))
                }
            })
    }

    /// Returns the route for the server, which collects a body that is received in pieces, and then forwards the
    /// request.
    private func streamedRoute(_ route: APIRoute, of wire: any WireProtocol) -> Route {
        Route(
            route.method, route.pattern,
            .streamed { request, responder in
                do {
                    let forwarded = try self.request(request, of: route, wire, setCaller: responder.setCaller)
                    return CollectedBody(limit: Self.maximumBodyBytes) { body in
                        var forwarded = forwarded
                        if let body { forwarded.body = body }
                        respond(to: body == nil ? nil : forwarded, responder, wire, route.pattern)
                    }
                } catch {
                    responder.send(wire.response(to: error, on: route.pattern))
                    return nil
                }
            })
    }

    // MARK: The request

    /// Returns the request to forward, without its body.
    ///
    /// - Parameter setCaller: called with the caller's name, for the log.
    /// - Throws: 401 or 403, unless the upstream checks the caller.
    private func request(
        _ request: borrowing Request, of route: APIRoute, _ wire: any WireProtocol, setCaller: (String) -> Void
    ) throws(Problem) -> UpstreamRequest {
        let credential = wire.credential(of: request)
        var forwarded = UpstreamRequest(
            method: "\(route.method.name)", target: request.target, fields: [], body: [], hasOwnToken: false,
            takesLong: route.takesLong)
        for name in Self.requestFields {
            if let value = request.field(name) { forwarded.fields.append(("\(name)", value)) }
        }
        forwarded.fields.append(("X-Request-Id", request.id.description))
        if let caller = try caller(of: request, to: route, credential: credential, setCaller: setCaller) {
            forwarded.hasOwnToken = true
            forwarded.fields.append(("\(OnBehalfOf.fieldName)", caller.text))
        } else if let credential {
            forwarded.fields.append(("Authorization", "Bearer \(credential)"))
        }
        return forwarded
    }

    /// Returns the caller on whose behalf the edge forwards a request; `nil` if the upstream checks the caller's
    /// credential.
    private func caller(
        of request: borrowing Request, to route: APIRoute, credential: Substring?, setCaller: (String) -> Void
    ) throws(Problem) -> OnBehalfOf? {
        let needed: Token.Scope
        switch route.scope {
        case .none, .token(.admin, _), .unbound(.admin, _): return nil
        case .anyToken: needed = .read
        case .token(let scope, _), .unbound(let scope, _), .profile(let scope): needed = scope
        }
        let admitted: Token?
        do throws(AccessRefusal) {
            admitted = try gate.admit(request, credential: credential, to: route).token
        } catch {
            if let token = error.token { setCaller(token.name) }
            throw error.problem
        }
        guard let token = admitted else {
            // The edge requires no token. If the caller sends one, it may be a token of the upstream, which checks it.
            // A caller without a token is anonymous. Its scope is `attributes` if the route needs that, and otherwise
            // `write`, which includes `client` and `read`.
            guard credential == nil else { return nil }
            return OnBehalfOf(
                name: Author.anonymousName, scope: needed == .attributes ? .attributes : .write, projects: .all)
        }
        setCaller(token.name)
        // The upstream checks admins, because some routes allow them more. It checks tokens of scope `export`, because
        // an edge's token must not be sufficient to read the audit log.
        guard token.scope != .admin, token.scope != .export else { return nil }
        return OnBehalfOf(name: token.name, scope: token.scope, projects: token.projects)
    }

    // MARK: The response

    /// Forwards a request, and responds with the response of the upstream.
    ///
    /// - Parameter request: `nil` if its body is too large.
    private func respond(
        to request: UpstreamRequest?, _ responder: Responder, _ wire: any WireProtocol, _ pattern: String
    ) {
        guard let request else {
            return responder.send(
                wire.response(
                    to: Problem(
                        .contentTooLarge,
                        "an edge forwards bodies of at most \(Self.maximumBodyBytes >> 20) MiB; send longer ones to the upstream"
                    ), on: pattern))
        }
        responder.send {
            do throws(Problem) {
                return Self.response(try await send(request))
            } catch {
                return wire.response(to: error, on: pattern)
            }
        }
    }

    /// Sends a request to the upstream. Logins of several clients share one request. If the request may have changed
    /// something, waits until the copy has the change.
    func send(_ request: UpstreamRequest) async throws(Problem) -> ForwardedResponse {
        guard LoginForwarder.isLogin(request) else { return try await forward(request) }
        return try await logins.send(request) { request async throws(Problem) in try await forward(request) }
    }

    /// Sends one request, and updates the copy.
    private func forward(_ request: UpstreamRequest) async throws(Problem) -> ForwardedResponse {
        let response: ForwardedResponse
        do throws(UpstreamFailure) { response = try await upstream.send(request) } catch { throw Self.problem(error) }
        if request.method != "GET", (200..<300).contains(response.status) {
            await upstream.catchUp()
            // The upstream has made the change. If the catalog cannot be read now, it is read later.
            try? await catalog.refresh()
        }
        if request.hasOwnToken, response.status == 401 {
            throw Problem(.badGateway, "the upstream must accept the token of this edge; it does not")
        }
        return response
    }

    /// Returns the upstream's response for the client.
    private static func response(_ forwarded: ForwardedResponse) -> Response {
        let status = Status(code: UInt16(clamping: forwarded.status))
        var response = Response(status, body: forwarded.body.isEmpty ? .empty : .bytes(forwarded.body))
        if let type = forwarded.field("content-type") {
            response.contentType = contentTypes.first { $0.description == type }
            if response.contentType == nil { response.fields.append(("Content-Type", type)) }
        }
        if let tag = forwarded.field("etag") {
            response.entityTag = EntityTag(tag)
            if response.entityTag == nil { response.fields.append(("ETag", tag)) }
        }
        for (field, name) in responseFields {
            if let value = forwarded.field(name) { response.fields.append((field, value)) }
        }
        return response
    }

    private static func problem(_ failure: UpstreamFailure) -> Problem {
        switch failure {
        case .away:
            Problem(
                .serviceUnavailable,
                "the upstream does not respond, and this edge cannot answer the request without it; try again later")
        case .late:
            Problem(
                .gatewayTimeout,
                "the upstream has not responded in time; what the request changes may have been changed")
        case .overloaded: Problem(.serviceUnavailable, "too many requests wait for the upstream; try again later")
        case .tooLarge(let limit):
            Problem(
                .badGateway,
                "an edge forwards responses of at most \(limit >> 20) MiB; ask the upstream for longer ones")
        }
    }
}
