import HTTPServer
public import Storage
internal import Synchronization

/// Holds the active tokens, and who signs people in. Without any, every caller has every scope, and the server listens on
/// loopback only. Each event loop reads them through its own ``AccessGate``.
public final class AccessControl: Sendable {
    private let current: Mutex<[Token]>
    private let provider: Mutex<IdentityProvider?>
    /// Incremented by each change, so that event loops take the lock only after one.
    private let generation = Atomic<UInt64>(1)
    private let observers = Mutex<[@Sendable () -> Void]>([])
    private let failure = Mutex<String?>(nil)
    private let keysState = Mutex<IdentityKeys?>(nil)
    private let refresh = Mutex<(@Sendable () -> Bool)?>(nil)
    private let consoleSignIn = Mutex<SignIn?>(nil)
    /// Whether a change of running experiments needs a second person.
    let needsApproval: Bool
    /// How many people such a change needs.
    var approvals: Int64 { needsApproval ? 2 : 1 }

    /// - Parameter approvals: how many people a change of running experiments needs: 1 or 2.
    public init(tokens: [Token] = [], identity: IdentityProvider? = nil, approvals: Int = 1) {
        needsApproval = approvals > 1
        current = Mutex(tokens)
        provider = Mutex(identity)
    }

    /// Activates other keys and another map of scopes, for every request from now on.
    public func replaceIdentity(_ identity: IdentityProvider) {
        provider.withLock { $0 = identity }
        changed()
    }

    /// What is known of the keys of the identity provider; `nil` if nobody signs people in.
    public var identityKeys: IdentityKeys? {
        get { keysState.withLock { $0 } }
        set { keysState.withLock { $0 = newValue } }
    }

    /// How people sign in to the console; `nil` if they can only with a token.
    public var signIn: SignIn? {
        get { consoleSignIn.withLock { $0 } }
        set { consoleSignIn.withLock { $0 = newValue } }
    }

    /// - Parameter fetch: begins to fetch the keys of the identity provider, and returns whether it has; it need not if it
    ///   has just done so.
    public func onUnknownKey(_ fetch: @escaping @Sendable () -> Bool) {
        refresh.withLock { $0 = fetch }
    }

    /// Returns whether newer keys of the identity provider are being fetched.
    func requestKeys() -> Bool { refresh.withLock { $0 }?() ?? false }

    private func changed() {
        generation.add(1, ordering: .releasing)
        for replaced in observers.withLock({ $0 }) { replaced() }
    }

    /// Activates other tokens, for every request from now on.
    ///
    /// - Returns: the previous tokens.
    @discardableResult
    public func replaceTokens(_ tokens: [Token]) -> [Token] {
        let former = current.withLock { current in
            defer { current = tokens }
            return current
        }
        for token in tokens {
            if let same = former.first(where: token.hasSecret) { token.inheritUse(of: same) }
        }
        reloadFailure = nil
        changed()
        return former
    }

    /// Why the active tokens are not those of the file, without details; `nil` once they have been read.
    public var reloadFailure: String? {
        get { failure.withLock { $0 } }
        set { failure.withLock { $0 = newValue } }
    }

    /// Calls `replaced` after each replacement of the tokens.
    func observe(_ replaced: @escaping @Sendable () -> Void) {
        observers.withLock { $0.append(replaced) }
    }

    /// Returns a caller's text for the log, or a placeholder if it contains a token's secret: callers sometimes send
    /// the secret in the wrong place, such as the URL.
    func loggable(_ text: String) -> String {
        if let text = Self.withoutKey(text) { return loggable(text) }
        let decoded = Array(text.utf8).withUnsafeBytes { PercentDecoding.decode($0) }
        let forms = [text, decoded ?? text]
        if let question = text.firstIndex(of: "?"), let query = Self.withoutSecrets(text[question...].dropFirst()) {
            return loggable(text[...question] + query)
        }
        let isSecret =
            tokens.contains { token in forms.contains(where: token.isContained) }
            || identity != nil && forms.contains { $0.contains("eyJ") }
        return isSecret ? "(hidden: it contains the secret of a token)" : text
    }

    /// The parameters of a URL in which callers send secrets, and in which an identity provider returns its code.
    private static let secretParameters: Set<String> = [
        "token", "access_token", "id_token", "refresh_token", "ticket", "code", "api_key", "apikey", "authorization",
        "secret", "password",
    ]
    private static let hidden = "(hidden)"

    /// Hides the client key of a path, also one of another server.
    ///
    /// - Returns: `nil` if the text is no such path.
    private static func withoutKey(_ text: String) -> String? {
        for prefix in GrowthBookProtocol.keyPrefixes where text.hasPrefix(prefix) {
            let rest = text.dropFirst(prefix.count)
            let end = rest.firstIndex(of: "?") ?? rest.endIndex
            guard rest[..<end] != hidden[...], !rest[..<end].isEmpty else { return nil }
            return prefix + hidden + rest[end...]
        }
        return nil
    }

    /// - Returns: `nil` if the query has no such parameter.
    private static func withoutSecrets(_ query: Substring) -> String? {
        var isChanged = false
        let parts = query.split(separator: "&", omittingEmptySubsequences: false).map { part -> Substring in
            guard let sign = part.firstIndex(of: "="), part[sign...].dropFirst() != hidden[...] else { return part }
            let name = Array(part[..<sign].utf8).withUnsafeBytes { PercentDecoding.decode($0) } ?? String(part[..<sign])
            guard secretParameters.contains(name.lowercased().replacing("-", with: "_")) else { return part }
            isChanged = true
            return part[...sign] + hidden
        }
        return isChanged ? parts.joined(separator: "&") : nil
    }

    /// Whether there are no tokens and nobody signs people in, so that every caller has every scope.
    public var isOpen: Bool { tokens.isEmpty && identity == nil }

    var identity: IdentityProvider? { provider.withLock { $0 } }

    var tokens: [Token] { current.withLock { $0 } }
    var currentGeneration: UInt64 { generation.load(ordering: .acquiring) }
}

/// What is known of the keys of an identity provider.
public struct IdentityKeys: Sendable {
    /// Whether they are fetched from an address, and not read from a file.
    public var areFetched = false
    /// When they were read last, in milliseconds since 1970; at first when the server started.
    public var readAt: Timestamp
    /// How often they could not be read.
    public var failures = 0
    /// Why they were not read the last time, without details.
    public var failure: String?

    public init(readAt: Timestamp) {
        self.readAt = readAt
    }
}

/// How the console signs people in: as a public client of an identity provider, by authorization code with PKCE
/// (RFC 7636).
public struct SignIn: Sendable, Equatable {
    public var issuer: String
    public var authorizationEndpoint: String
    public var tokenEndpoint: String
    public var clientID: String
    /// With spaces between them.
    public var scopes: String
    /// What the tokens must be for.
    public var audience: String
    /// The origins that the page sends requests to.
    public var origins: [String]

    public init(
        issuer: String, authorizationEndpoint: String, tokenEndpoint: String, clientID: String, scopes: String,
        audience: String, origins: [String]
    ) {
        self.issuer = issuer
        self.authorizationEndpoint = authorizationEndpoint
        self.tokenEndpoint = tokenEndpoint
        self.clientID = clientID
        self.scopes = scopes
        self.audience = audience
        self.origins = origins
    }
}

/// The token that admitted a request. A response that is still being sent when tokens are replaced checks it again.
struct Admission: Sendable {
    /// `nil` if the route or the server requires none.
    let token: Token?
    let scope: APIRoute.Scope
    let control: AccessControl
    /// The generation of the tokens that were searched.
    let generation: UInt64
    /// What the request carries out, once the caller has approved it.
    let approval: Approval?

    static let revoked = Problem(.unauthorized, "the token is no longer valid")

    /// Whether the request would still be admitted.
    var isValid: Bool {
        if let token, token.hasExpired { return false }
        guard control.currentGeneration != generation, scope != .none else { return true }
        guard let token else { return control.isOpen }
        if let person = token.person { return control.identity?.admits(person) ?? false }
        if let edge = token.edge {
            return control.tokens.contains { $0.hasSecret(of: edge) && $0.scope == .edge }
        }
        return control.tokens.contains {
            $0.hasSecret(of: token) && $0.projects == token.projects && scope.admits($0)
        }
    }
}
