import HoldfastCore

extension APIRoute {
    /// The tokens that may call a route. ``AccessGate`` checks it before the handler is called.
    enum Scope: Equatable, CustomStringConvertible {
        /// No token is required. The route must not reveal anything about users.
        case none
        /// Any token is sufficient. For routes that both apps and dashboards need, and that do not reveal more than a
        /// decision.
        case anyToken
        /// Requires a token of a scope. The alternative scope is for programs that may call only a few routes; for
        /// example, one that exports data needs `export` and not `admin`.
        case token(Token.Scope, or: Token.Scope? = nil)
        /// Like ``token(_:or:)``, but the token must not be bound to projects. For routes about all projects, or about
        /// the users of all.
        case unbound(Token.Scope, or: Token.Scope? = nil)
        /// Requires a token of a scope, or one of scope `client`, which may use only some profiles. The handler must
        /// call ``Call/checkProfile(of:)``.
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

        /// Returns the reason why a token may not call the route.
        func refusal(of token: Token) -> String {
            if case .unbound = self, isAllowed(to: token) {
                let list = token.projects.sdkKeys?.joined(separator: ", ") ?? ""
                return
                    "a token for all projects is required; the token '\(token.name)' is bound to the projects \(list)"
            }
            return "the scope \(self) is required; the token '\(token.name)' has the scope \(token.scope)"
        }

        /// Whether a token that is part of a web page, and so of scope `client`, may call the route.
        var isForPages: Bool { self == .anyToken || needed.contains(.client) }

        var description: String {
            switch self {
            case .none: "none"
            case .anyToken: "any"
            case .token, .unbound, .profile: needed.map { "\($0)" }.joined(separator: " or ")
            }
        }
    }
}
