import Definitions
import Glibc
import HTTPServer
import HoldfastCore
import Storage

/// One line of Holdfast's route table. The required scope is part of the line, so that no route can lack one.
struct APIRoute {
    enum Scope: Equatable, CustomStringConvertible {
        /// No token is required. The route must not reveal anything about users.
        case none
        /// Any token is sufficient. For routes that both apps and dashboards need, and that do not reveal more than a
        /// decision.
        case anyToken
        /// Requires a token of a scope, or of an alternative scope for programs that allows only such routes.
        case token(Token.Scope, or: Token.Scope? = nil)
        /// Like ``token(_:or:)``, but the token must not be bound to projects. For routes about all projects, or about
        /// the users of all.
        case unbound(Token.Scope, or: Token.Scope? = nil)
        /// A token of the scope, or one of scope `client` for a user of its own. The handler must call
        /// ``Call/checkProfile(of:)``.
        case profile(Token.Scope)

        /// Whether the token may call the route.
        func admits(_ token: Token) -> Bool {
            switch self {
            case .none, .anyToken: true
            case .token: isAllowed(to: token)
            case .unbound: isAllowed(to: token) && token.projects == .all
            case .profile(let needed): token.scope.allows(needed) || token.scope == .client
            }
        }

        /// The scopes of which one is required. Scopes that include them are not listed.
        var needed: [Token.Scope] {
            switch self {
            case .none, .anyToken: []
            case .token(let scope, let other), .unbound(let scope, let other): [scope] + (other.map { [$0] } ?? [])
            case .profile(let scope): [scope]
            }
        }

        /// Whether the token's scope is sufficient, regardless of its projects.
        private func isAllowed(to token: Token) -> Bool { needed.contains { token.scope.allows($0) } }

        /// Returns the reason for which a token may not call the route.
        func refusal(of token: Token) -> String {
            if case .unbound = self, isAllowed(to: token) {
                let list = token.projects.sdkKeys?.joined(separator: ", ") ?? ""
                return
                    "a token for all projects is required; the token '\(token.name)' is bound to the projects \(list)"
            }
            return "the scope \(self) is required; the token '\(token.name)' has the scope \(token.scope)"
        }

        /// Whether a token that is part of a page may call the route.
        var isForPages: Bool { self == .anyToken || needed.contains(.client) }

        var description: String {
            switch self {
            case .none: "none"
            case .anyToken: "any"
            case .token, .unbound, .profile: needed.map { "\($0)" }.joined(separator: " or ")
            }
        }
    }

    /// A handler may use the request only during the call. If it throws an error that may be due to a definition that
    /// another server has just stored, it is called again with the newest definitions. It must not have had an effect
    /// before it throws such an error.
    private enum Handler {
        /// Returns the response.
        case immediate((borrowing Request, Call) throws -> Response)
        case asynchronous((borrowing Request, Call) async throws -> Response)
        /// Responds by callbacks, without the cost of a task.
        case callback((borrowing Request, Call) throws -> Void)
        case streamed((borrowing Request, Call) throws -> any BodyReceiver)
    }

    let method: Method
    let pattern: String
    let scope: Scope
    /// Whether the route is served even under overload, for health checks and monitoring.
    let isVital: Bool
    let changesState: Bool?
    private let respondsLater: Bool
    /// Whether the handler checks ``Preconditions``.
    private let isConditional: Bool
    /// Whether the handler reads the query. Otherwise any parameter is refused.
    private let readsQuery: Bool
    /// Whether an edge handles the request itself: from its copy, or by sending changes and events to the upstream.
    /// Otherwise it forwards the request.
    private(set) var isAnsweredByEdges: Bool
    /// See ``withNewestDefinitions``.
    private var needsNewestDefinitions = false
    /// Whether the handler accepts a compressed body. Otherwise it is refused.
    private let acceptsGzip: Bool
    /// ``Route/bodyBytes``
    private let bodyBytes: Int?
    private let handler: Handler

    init(
        _ method: Method, _ pattern: String, scope: Scope, isVital: Bool = false, isConditional: Bool = false,
        readsQuery: Bool = false, _ handle: @escaping (borrowing Request, Call) throws -> Response
    ) {
        self.init(
            method, pattern, scope: scope, isVital: isVital, isConditional: isConditional, readsQuery: readsQuery,
            .immediate(handle))
    }

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

    init(
        _ method: Method, _ pattern: String, scope: Scope, changesState: Bool? = nil, isConditional: Bool = false,
        readsQuery: Bool = false, callback handle: @escaping (borrowing Request, Call) throws -> Void
    ) {
        self.init(
            method, pattern, scope: scope, changesState: changesState, isConditional: isConditional,
            readsQuery: readsQuery, .callback(handle))
    }

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

    /// The route with ``isAnsweredByEdges``.
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

    /// Whether the handler receives the body in pieces.
    var isStreamed: Bool { if case .streamed = handler { true } else { false } }

    /// Whether the response may take long to begin. This is not the case for routes that apps call, because apps do not
    /// wait.
    var takesLong: Bool {
        if respondsLater || isStreamed { return true }
        return switch scope {
        case .none, .anyToken, .token(.client, _), .token(.write, _), .profile(.write): false
        case .token(.read, _), .profile(.read): method != .get
        case .token, .unbound, .profile: true
        }
    }

    /// Returns the route for the server, which checks the caller's token, calls the handler, and renders errors of
    /// both.
    func route(of wire: any WireProtocol, gate: AccessGate, projects: ProjectView) -> Route {
        if case .streamed(let handle) = handler {
            return Route(
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

    /// Calls the handler, calls it again with the newest definitions if it may have lacked one, and renders its errors.
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
                        // It may have waited, for what the caller must not see any more.
                        if method == .get, !call.admission.isValid { throw Admission.revoked }
                        return response
                    } catch {
                        return wire.response(to: error, on: pattern)
                    }
                }
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

    /// Checks everything that does not depend on the handler.
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
        if method != .get, let coding = request.contentCoding, coding != "identity", !acceptsGzip || coding != "gzip" {
            // RFC 9110 §8.4
            var problem = Problem(
                .unsupportedMediaType, "the body must be sent without Content-Encoding; got '\(coding)'")
            problem.fields = [("Accept-Encoding", acceptsGzip ? "gzip" : "identity")]
            throw problem
        }
        if changesState ?? !method.isSafe, !isConditional {
            try Preconditions(request).refuse(on: pattern)
        }
        // Stores cannot store a NUL, and PostgreSQL does not accept one in a parameter.
        if !isVital, Self.hasEscapedNUL(request.target) {
            throw CoreError(.invalid, "a path and its parameters must not contain NUL; got '%00'")
        }
        if scope == .token(.admin) || scope == .unbound(.admin), request.withBody(Self.hasNUL) {
            throw CoreError(.invalid, #"a text must not contain NUL; got '\u0000'"#)
        }
        if !readsQuery { _ = try request.query(knowing: []) }
        return admission
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

    /// Whether a JSON text has a string with a NUL, which is always escaped.
    private static func hasNUL(_ json: UnsafeRawBufferPointer) -> Bool {
        var start = 0
        while start < json.count, let base = json.baseAddress,
            let found = memchr(base + start, Int32(UInt8(ascii: "\\")), json.count - start)
        {
            let place = UnsafeRawPointer(found) - base
            if json[place...].starts(with: "\\u0000".utf8) { return true }
            // Continues after the escaped character, which may be a backslash.
            start = place + 2
        }
        return false
    }
}
