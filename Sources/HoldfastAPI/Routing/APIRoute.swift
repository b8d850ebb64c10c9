import Definitions
import Glibc
import HTTPServer
import HoldfastCore
import Storage

/// One line of Holdfast's route table: the method and path, the required scope, the needs of the handler, and the
/// handler. The required scope is part of the line, so that no route can lack one.
///
/// ``route(of:gate:projects:)`` turns the line into a ``HTTPServer/Route`` of the server. For each request it checks
/// the caller's token and the request, calls the handler, and renders errors in the format of the route's protocol. If
/// a handler does not know a name that another server may have just defined, it reads the newest definitions and calls
/// the handler once more.
struct APIRoute {
    let method: Method
    let pattern: String
    let scope: Scope
    /// Whether the route is served even under overload, for health checks and monitoring.
    let isVital: Bool
    /// Whether the route may change something; `nil` if that depends on the method.
    let changesState: Bool?
    /// Whether the response may take long to begin; see ``takesLong``.
    private let respondsLater: Bool
    /// Whether the handler checks ``Preconditions``.
    private let isConditional: Bool
    /// Whether the handler reads the query. Otherwise any parameter is refused.
    private let readsQuery: Bool
    /// Whether an edge handles the request itself: it reads its copy, or sends changes and events to the upstream.
    /// Otherwise the edge forwards the request to the upstream.
    private(set) var isAnsweredByEdges: Bool
    /// Whether the newest definitions are read before the handler is called; see ``withNewestDefinitions``.
    private var needsNewestDefinitions = false
    /// Whether the handler accepts a compressed body. Otherwise a compressed body is refused.
    private let acceptsGzip: Bool
    /// The maximum size of the body in bytes; `nil` for the limit of the server.
    private let bodyBytes: Int?
    private let handler: Handler

    /// The function that handles a request. It may use the request only during the call.
    ///
    /// If it throws a ``DefinitionError``, it may be called again with the newest definitions. So it must throw such an
    /// error before it has any effect.
    private enum Handler {
        /// Returns the response at once.
        case immediate((borrowing Request, Call) throws -> Response)
        case asynchronous((borrowing Request, Call) async throws -> Response)
        /// Responds by callbacks, without the cost of a task.
        case callback((borrowing Request, Call) throws -> Void)
        /// Returns a receiver of the body, which responds by the call.
        case streamed((borrowing Request, Call) throws -> any BodyReceiver)
    }

    // MARK: Making a route

    /// Creates a route whose handler returns the response at once.
    init(
        _ method: Method, _ pattern: String, scope: Scope, isVital: Bool = false, isConditional: Bool = false,
        readsQuery: Bool = false, _ handle: @escaping (borrowing Request, Call) throws -> Response
    ) {
        self.init(
            method, pattern, scope: scope, isVital: isVital, isConditional: isConditional, readsQuery: readsQuery,
            .immediate(handle))
    }

    /// Creates a route whose handler is asynchronous.
    init(
        _ method: Method, _ pattern: String, scope: Scope, isVital: Bool = false, respondsLater: Bool = false,
        isConditional: Bool = false, readsQuery: Bool = false, acceptsGzip: Bool = false, bodyBytes: Int? = nil,
        _ handle: @escaping (borrowing Request, Call) async throws -> Response
    ) {
        self.init(
            method, pattern, scope: scope, isVital: isVital, respondsLater: respondsLater,
            isConditional: isConditional, readsQuery: readsQuery, acceptsGzip: acceptsGzip, bodyBytes: bodyBytes,
            .asynchronous(handle))
    }

    /// Creates a route whose handler responds by callbacks.
    init(
        _ method: Method, _ pattern: String, scope: Scope, changesState: Bool? = nil, isConditional: Bool = false,
        readsQuery: Bool = false, callback handle: @escaping (borrowing Request, Call) throws -> Void
    ) {
        self.init(
            method, pattern, scope: scope, changesState: changesState, isConditional: isConditional,
            readsQuery: readsQuery, .callback(handle))
    }

    /// Creates a route whose handler receives the body in pieces.
    init(
        _ method: Method, _ pattern: String, scope: Scope, readsQuery: Bool = false,
        streamed handle: @escaping (borrowing Request, Call) throws -> any BodyReceiver
    ) {
        self.init(method, pattern, scope: scope, readsQuery: readsQuery, .streamed(handle))
    }

    private init(
        _ method: Method, _ pattern: String, scope: Scope, isVital: Bool = false, changesState: Bool? = nil,
        respondsLater: Bool = false, isConditional: Bool = false, readsQuery: Bool, acceptsGzip: Bool = false,
        bodyBytes: Int? = nil, _ handler: Handler
    ) {
        self.acceptsGzip = acceptsGzip
        self.bodyBytes = bodyBytes
        // Routes without a token do not depend on users.
        isAnsweredByEdges = scope == .none
        self.method = method
        self.pattern = pattern
        self.scope = scope
        self.isVital = isVital
        self.changesState = changesState
        self.respondsLater = respondsLater
        self.isConditional = isConditional
        // Monitoring may add a parameter to bypass caches.
        self.readsQuery = readsQuery || scope == .none || isVital
        self.handler = handler
    }

    /// The route, which edges handle themselves; see ``isAnsweredByEdges``.
    var atEdge: APIRoute {
        var route = self
        route.isAnsweredByEdges = true
        return route
    }

    /// The route for a change that depends on definitions. Its handler is called after this server has read the
    /// definitions that others have stored.
    var withNewestDefinitions: APIRoute {
        var route = self
        route.needsNewestDefinitions = true
        return route
    }

    // MARK: Properties

    /// Whether a request may change something.
    var mayChangeState: Bool { changesState ?? !method.isSafe }

    /// Whether the handler receives the body in pieces.
    var isStreamed: Bool { if case .streamed = handler { true } else { false } }

    /// Whether the response may take long to begin, so that an edge waits longer for its upstream. Routes that apps
    /// call respond quickly, because apps do not wait.
    var takesLong: Bool {
        if respondsLater || isStreamed { return true }
        return switch scope {
        case .none, .anyToken, .token(.client, _), .token(.write, _), .profile(.write): false
        case .token(.read, _), .profile(.read): method != .get
        case .token, .unbound, .profile: true
        }
    }

    // MARK: Serving

    /// Returns the route for the server, which checks the caller's token, calls the handler, and renders errors of
    /// both.
    ///
    /// - Parameter wire: the protocol of the route, which has the credential and renders errors.
    func route(of wire: any WireProtocol, gate: AccessGate, projects: ProjectView) -> Route {
        if case .streamed(let handle) = handler { return streamedRoute(handle, of: wire, gate) }
        return Route(
            method, pattern, isVital: isVital, changesState: changesState, respondsLater: respondsLater,
            bodyBytes: bodyBytes,
            refusal: { [self] request in
                var caller: String?
                do {
                    _ = try admit(request, of: wire, gate) { caller = $0 }
                    return nil
                } catch {
                    return (wire.response(to: error, on: pattern), caller)
                }
            },
            .buffered { [self] request, responder in
                do {
                    let admission = try admit(request, of: wire, gate, setCaller: responder.setCaller)
                    respond(
                        to: request, Call(responder: responder, admission: admission, pattern: pattern), of: wire,
                        projects)
                } catch {
                    responder.send(wire.response(to: error, on: pattern))
                }
            })
    }

    /// Returns the route for the server, whose handler receives the body in pieces.
    private func streamedRoute(
        _ handle: @escaping (borrowing Request, Call) throws -> any BodyReceiver, of wire: any WireProtocol,
        _ gate: AccessGate
    ) -> Route {
        Route(
            method, pattern,
            .streamed { [self] request, responder in
                do {
                    let admission = try admit(request, of: wire, gate, setCaller: responder.setCaller)
                    return try handle(request, Call(responder: responder, admission: admission, pattern: pattern))
                } catch {
                    responder.send(wire.response(to: error, on: pattern))
                    return nil
                }
            })
    }

    /// Calls the handler, and renders its errors. If the handler may have lacked a definition, reads the newest
    /// definitions and calls the handler again.
    private func respond(
        to request: borrowing Request, _ call: Call, of wire: any WireProtocol, _ projects: ProjectView
    ) {
        do {
            switch handler {
            case .immediate(let handle): call.respond(try handle(request, call))
            case .callback(let handle): try handle(request, call)
            case .asynchronous(let handle):
                let request = RequestCopy(request)
                call.responder.send {
                    do {
                        let call = needsNewestDefinitions ? try await call.updated(projects) : call
                        let response = try await call.retrying(projects) { call in
                            try await request.withRequest { request in try await handle(request, call) }
                        }
                        // The handler may have waited, and the token may have been revoked meanwhile. After another
                        // method the change has been made already, so its caller gets the response.
                        if method == .get, !call.admission.isValid { throw Admission.revoked }
                        return response
                    } catch {
                        return wire.response(to: error, on: pattern)
                    }
                }
            // The server calls this handler by `streamedRoute`.
            case .streamed: break
            }
        } catch {
            guard call.mayLackDefinition(error) else { return call.respond(wire.response(to: error, on: pattern)) }
            let request = RequestCopy(request)
            call.responder.send { await secondResponse(to: request, call, of: wire, projects) }
        }
    }

    /// Reads the newest definitions, then calls a synchronous handler once more.
    ///
    /// - Returns: `nil` if the handler responds by callbacks.
    private func secondResponse(
        to request: RequestCopy, _ call: Call, of wire: any WireProtocol, _ projects: ProjectView
    ) async -> Response? {
        do {
            let call = try await call.updated(projects)
            return try await request.withRequest { request throws in
                if case .immediate(let handle) = handler { return try handle(request, call) }
                if case .callback(let handle) = handler { try handle(request, call) }
                return nil
            }
        } catch {
            return wire.response(to: error, on: pattern)
        }
    }

    // MARK: Checks

    /// Checks the caller's token and the request, before the handler is called.
    ///
    /// - Parameter setCaller: called with the name of the caller's token, for the log.
    /// - Throws: 401 or 403 for the caller; 400, 415 or 501 for the request.
    private func admit(
        _ request: borrowing Request, of wire: any WireProtocol, _ gate: AccessGate, setCaller: (String) -> Void
    ) throws -> Admission {
        let admission: Admission
        do {
            admission = try gate.admit(request, credential: wire.credential(of: request), to: self)
        } catch {
            if let token = error.token { setCaller(token.name) }
            throw error.problem
        }
        if let token = admission.token { setCaller(token.name) }
        try check(request)
        return admission
    }

    /// Checks the parts of the request that the handler does not check itself.
    private func check(_ request: borrowing Request) throws {
        if method != .get, let coding = request.contentCoding { try checkContentCoding(coding) }
        if mayChangeState, !isConditional {
            try Preconditions(request).refuse(on: pattern)
        }
        // Stores cannot store a NUL, and PostgreSQL does not accept one in a parameter.
        if !isVital, Self.hasEscapedNUL(request.target) {
            throw CoreError(.invalid, "a path and its parameters must not contain NUL; got '%00'")
        }
        // The bodies of admins, such as definitions, have texts in many members. All are checked here at once.
        let isOfAdmin = scope == .token(.admin) || scope == .unbound(.admin)
        if isOfAdmin, request.withBody(Self.hasNUL) {
            throw CoreError(.invalid, #"a text must not contain NUL; got '\u0000'"#)
        }
        if !readsQuery { _ = try request.query(knowing: []) }
    }

    /// - Throws: 415 if the body has a coding that the handler does not accept (RFC 9110 §8.4).
    private func checkContentCoding(_ coding: String) throws(Problem) {
        let isAccepted = coding == "identity" || (coding == "gzip" && acceptsGzip)
        guard !isAccepted else { return }
        var problem = Problem(
            .unsupportedMediaType, "the body must be sent without Content-Encoding; got '\(coding)'")
        problem.fields = [("Accept-Encoding", acceptsGzip ? "gzip" : "identity")]
        throw problem
    }

    /// Whether the target has `%00`. Compares bytes, because this runs for each request.
    private static func hasEscapedNUL(_ target: String) -> Bool {
        var target = target
        return target.withUTF8 { bytes in
            var start = 0
            while let percent = bytes[start...].firstIndex(of: UInt8(ascii: "%")) {
                start = percent + 1
                if bytes[start...].starts(with: [UInt8(ascii: "0"), UInt8(ascii: "0")]) { return true }
            }
            return false
        }
    }

    /// Whether a JSON text has a string with a NUL. JSON requires the escape `\u0000` for it.
    private static func hasNUL(_ json: UnsafeRawBufferPointer) -> Bool {
        var start = 0
        while start < json.count, let base = json.baseAddress,
            let found = memchr(base + start, Int32(UInt8(ascii: "\\")), json.count - start)
        {
            let position = UnsafeRawPointer(found) - base
            if json[position...].starts(with: "\\u0000".utf8) { return true }
            // Continues after the escaped character, which may be a backslash.
            start = position + 2
        }
        return false
    }
}
