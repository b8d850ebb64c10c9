public import Chronology
import HTTPServer
import Storage
internal import Synchronization

/// Holds the active tokens and the identity provider. Without either, every caller has every scope, and the server
/// listens on loopback only. Each event loop reads them through its own ``AccessGate``.
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
    /// Whether a change of running experiments requires the approval of a second person.
    let needsApproval: Bool
    /// The number of people that such a change requires.
    var approvals: Int64 { needsApproval ? 2 : 1 }

    /// - Parameter approvals: the number of people that a change of running experiments requires: 1 or 2.
    public init(tokens: [Token] = [], identity: IdentityProvider? = nil, approvals: Int = 1) {
        needsApproval = approvals > 1
        current = Mutex(tokens)
        provider = Mutex(identity)
    }

    /// Replaces the keys and the map of scopes, for every request from now on.
    public func replaceIdentity(_ identity: IdentityProvider) {
        provider.withLock { $0 = identity }
        changed()
    }

    /// The state of the identity provider's keys; `nil` if there is no identity provider.
    public var identityKeys: IdentityKeys? {
        get { keysState.withLock { $0 } }
        set { keysState.withLock { $0 = newValue } }
    }

    /// The sign-in of the console; `nil` if people can only enter a token.
    public var signIn: SignIn? {
        get { consoleSignIn.withLock { $0 } }
        set { consoleSignIn.withLock { $0 = newValue } }
    }

    /// Sets the function that is called when a token names an unknown key.
    ///
    /// - Parameter fetch: starts to fetch the keys of the identity provider. It returns `false` if they have just been
    ///   fetched.
    public func onUnknownKey(_ fetch: @escaping @Sendable () -> Bool) {
        refresh.withLock { $0 = fetch }
    }

    /// Requests newer keys of the identity provider.
    ///
    /// - Returns: whether they are being fetched.
    func requestKeys() -> Bool { refresh.withLock { $0 }?() ?? false }

    private func changed() {
        generation.add(1, ordering: .releasing)
        for replaced in observers.withLock({ $0 }) { replaced() }
    }

    /// Replaces the tokens, for every request from now on.
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

    /// Returns a caller's text for the log, or a placeholder if it contains the secret of a token. Callers sometimes
    /// send the secret in the wrong place, such as the URL.
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

    /// Whether there are neither tokens nor an identity provider, so that every caller has every scope.
    public var isOpen: Bool { tokens.isEmpty && identity == nil }

    var identity: IdentityProvider? { provider.withLock { $0 } }

    var tokens: [Token] { current.withLock { $0 } }
    var currentGeneration: UInt64 { generation.load(ordering: .acquiring) }
}

/// The state of an identity provider's keys.
public struct IdentityKeys: Sendable {
    /// Whether the keys are fetched from an address instead of read from a file.
    public var areFetched = false
    /// When the keys were last read; initially when the server started.
    public var readAt: Instant
    /// The number of failed reads.
    public var failures = 0
    /// Why the last read has failed, without details; `nil` if it has succeeded.
    public var failure: String?

    public init(readAt: Instant) {
        self.readAt = readAt
    }
}

/// The sign-in of the console: as a public client of an identity provider, by authorization code with PKCE (RFC 7636).
public struct SignIn: Sendable, Equatable {
    public var issuer: String
    public var authorizationEndpoint: String
    public var tokenEndpoint: String
    public var clientID: String
    /// The scopes to request, separated by spaces.
    public var scopes: String
    /// The audience that tokens must have.
    public var audience: String
    /// The origins to which the page sends requests.
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
    /// The token; `nil` if the route or the server requires none.
    let token: Token?
    let scope: APIRoute.Scope
    let control: AccessControl
    /// The generation of the tokens that were searched.
    let generation: UInt64
    /// The approval by which the request makes a proposed change; `nil` for other requests.
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
