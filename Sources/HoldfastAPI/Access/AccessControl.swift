public import Chronology
internal import Synchronization

/// The credentials that this server accepts: the tokens of the token file, and the identity provider that signs people
/// in. Without either, every caller has every scope, and the server listens on loopback only.
///
/// All event loops share this object. Each loop reads it through its own ``AccessGate``, which keeps copies and takes
/// the locks of this object only after ``currentGeneration`` has changed. Tokens are replaced when the token file is
/// read again; the identity provider is replaced when its keys or the map of scopes change.
public final class AccessControl: Sendable {
    private let activeTokens: Mutex<[Token]>
    private let activeIdentity: Mutex<IdentityProvider?>
    /// Incremented by each replacement of the tokens or of the identity provider.
    private let generation = Atomic<UInt64>(1)
    private let observers = Mutex<[@Sendable () -> Void]>([])
    private let tokenFileFailure = Mutex<String?>(nil)
    private let keysState = Mutex<IdentityKeys?>(nil)
    private let fetchKeys = Mutex<(@Sendable () -> Bool)?>(nil)
    private let consoleSignIn = Mutex<SignIn?>(nil)
    /// Whether a change of running experiments requires the approval of a second person.
    let needsApproval: Bool
    /// The number of people that a change of running experiments requires.
    var approvals: Int64 { needsApproval ? 2 : 1 }

    /// - Parameter approvals: the number of people that a change of running experiments requires: 1 or 2.
    public init(tokens: [Token] = [], identity: IdentityProvider? = nil, approvals: Int = 1) {
        needsApproval = approvals > 1
        activeTokens = Mutex(tokens)
        activeIdentity = Mutex(identity)
    }

    /// Whether there are neither tokens nor an identity provider, so that every caller has every scope.
    public var isOpen: Bool { tokens.isEmpty && identity == nil }

    // MARK: Tokens

    var tokens: [Token] { activeTokens.withLock { $0 } }

    /// Replaces the tokens, for every request from now on. A token whose secret stays keeps the time of its last use.
    ///
    /// - Returns: the previous tokens.
    @discardableResult
    public func replaceTokens(_ tokens: [Token]) -> [Token] {
        let former = activeTokens.withLock { active in
            defer { active = tokens }
            return active
        }
        for token in tokens {
            if let same = former.first(where: token.hasSecret) { token.inheritUse(of: same) }
        }
        reloadFailure = nil
        noteReplacement()
        return former
    }

    /// Why the last reading of the token file failed, without details; `nil` if it succeeded. After a failure the
    /// former tokens stay active.
    public var reloadFailure: String? {
        get { tokenFileFailure.withLock { $0 } }
        set { tokenFileFailure.withLock { $0 = newValue } }
    }

    // MARK: The identity provider

    var identity: IdentityProvider? { activeIdentity.withLock { $0 } }

    /// Replaces the keys and the map of scopes, for every request from now on.
    public func replaceIdentity(_ identity: IdentityProvider) {
        activeIdentity.withLock { $0 = identity }
        noteReplacement()
    }

    /// The state of the identity provider's keys; `nil` if there is no identity provider.
    public var identityKeys: IdentityKeys? {
        get { keysState.withLock { $0 } }
        set { keysState.withLock { $0 = newValue } }
    }

    /// Sets the function that is called when a token names an unknown key.
    ///
    /// - Parameter fetch: starts to fetch the keys of the identity provider. It returns `false` if they have just been
    ///   fetched.
    public func onUnknownKey(_ fetch: @escaping @Sendable () -> Bool) {
        fetchKeys.withLock { $0 = fetch }
    }

    /// Requests newer keys of the identity provider.
    ///
    /// - Returns: whether they are being fetched.
    func requestKeys() -> Bool { fetchKeys.withLock { $0 }?() ?? false }

    /// The sign-in of the console; `nil` if people can only enter a token.
    public var signIn: SignIn? {
        get { consoleSignIn.withLock { $0 } }
        set { consoleSignIn.withLock { $0 = newValue } }
    }

    // MARK: Replacements

    /// The number of replacements of the tokens or the identity provider. A reader whose copies have another generation
    /// must copy them again.
    var currentGeneration: UInt64 { generation.load(ordering: .acquiring) }

    /// Calls `replaced` after each replacement of the tokens or the identity provider.
    func observe(_ replaced: @escaping @Sendable () -> Void) {
        observers.withLock { $0.append(replaced) }
    }

    private func noteReplacement() {
        generation.add(1, ordering: .releasing)
        for replaced in observers.withLock({ $0 }) { replaced() }
    }
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
