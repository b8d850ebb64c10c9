import HoldfastCore

extension APIRoute {
    /// The tokens with which a route may be called. ``AccessGate`` checks the caller's token before the handler is
    /// called.
    enum Scope: Equatable, CustomStringConvertible {
        /// No token is required. The route must not reveal anything about users.
        case none
        /// Any token is sufficient. For routes that both apps and dashboards need. They reveal no more than a decision
        /// does.
        case anyToken
        /// Requires a token of a scope. The alternative scope is for programs that may call only a few routes; for
        /// example, one that exports data needs `export` and not `admin`.
        case token(Token.Scope, or: Token.Scope? = nil)
        /// Like ``token(_:or:)``, but the token must not be bound to projects. For routes about all projects, or about
        /// users, who belong to all projects.
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

        /// The scopes of which one is required. A scope that includes one of them is sufficient, but not listed.
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

        /// Whether web pages may call the route. The tokens in pages have the scope `client`.
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
