import Chronology
import Glibc
import HoldfastCore
public import JSON
import Storage
internal import Synchronization

/// The identity of a caller: a name, a scope, and optionally the projects to which it is bound. There are three kinds:
///
/// - A token of the token file, which has a secret that requests send.
/// - The token of a ``person`` whom an identity provider has signed in.
/// - The token of a caller of an ``edge``, which forwards the caller's requests.
///
/// It is a class, because event loops share the time of the last use.
public final class Token: Sendable {
    /// The permissions of a token:
    ///
    /// - `client` may be shipped in an app or page. It only allows to evaluate, to report exposures and goals, and to
    ///   set attributes.
    /// - `write` includes `client` and `read`.
    /// - `attributes` includes `read`, but not `write`. `write` does not include `attributes` either, so that an app
    ///   cannot read the attributes that it sets.
    /// - `edge` is for an edge: a server that keeps a copy of this server's data.
    /// - `definitions`, `export` and `metrics` are for programs that read only definitions, exports or metrics. They do
    ///   not allow to read a single user.
    /// - `admin` includes all other scopes.
    public enum Scope: String, Sendable, CaseIterable {
        case client, read, write, attributes, definitions, export, metrics, edge, admin

        /// Whether a token of this scope may call a route that requires the other scope.
        func allows(_ needed: Scope) -> Bool {
            switch self {
            case .admin: true
            case .write: needed == .write || needed == .client || needed == .read
            case .attributes: needed == .attributes || needed == .read
            case .client, .read, .definitions, .export, .metrics, .edge: needed == self
            }
        }

        init?(name: Substring) { self.init(rawValue: String(name)) }
    }

    /// The reasons for which a person was admitted. ``IdentityProvider/admits(_:)`` checks them again after a change of
    /// the keys or of the map of scopes.
    struct Person: Sendable {
        /// The key that verified the signature.
        let publicKey: [UInt8]
        /// The rule that maps a claim of the person to the scope.
        let rule: IdentityProvider.ScopeRule
        /// The claim `sub`.
        let subject: String?
    }

    public let scope: Scope
    /// The name of the holder in logs, which never show the secret.
    public let name: String
    /// The secret; empty for a person and for a caller of an edge.
    private let secret: [UInt8]
    /// When the secret expires; `nil` for never.
    let expiresAt: Instant?
    let projects: ProjectAccess
    /// The person whom an identity provider has signed in; `nil` for a token of the token file.
    let person: Person?
    /// The token of the edge that has checked this token and forwards its requests; `nil` for a token of this server.
    let edge: Token?
    /// The time of the last use in seconds since 1970; 0 before the first use.
    private let lastUse = Atomic<Int64>(0)

    /// The minimum length of a secret, in bytes.
    static let minimumSecretLength = 16

    /// Creates a token of the token file.
    init(
        scope: Scope, name: String, secret: [UInt8], expiresAt: Instant? = nil, projects: ProjectAccess = .all
    ) {
        self.scope = scope
        self.projects = projects
        person = nil
        edge = nil
        self.name = name
        self.secret = secret
        self.expiresAt = expiresAt
    }

    /// Creates the token of a person. It has no secret that a request could send.
    init(name: String, expiresAt: Instant, person: Person) {
        scope = person.rule.scope
        projects = person.rule.projects
        self.name = name
        self.person = person
        edge = nil
        self.expiresAt = expiresAt
        secret = []
    }

    /// Creates the token of a caller of an edge. It has no secret that a request could send.
    init(_ caller: OnBehalfOf, of edge: Token) {
        scope = caller.scope
        projects = caller.projects
        person = nil
        // The name has spaces, so it differs from all names of the token file, which are single words.
        name = "\(caller.name) via \(edge.name)"
        secret = []
        expiresAt = edge.expiresAt
        self.edge = edge
    }

    /// Whether the secret has expired by now.
    var hasExpired: Bool { expiresAt.map { $0 <= systemWallClock() } ?? false }

    // MARK: The secret

    /// Whether a candidate equals the secret of this token.
    func hasSecret(_ candidate: some Collection<UInt8>) -> Bool { ConstantTime.areEqual(secret, candidate) }

    /// Whether another token has the same secret.
    func hasSecret(of other: Token) -> Bool { hasSecret(other.secret) }

    /// Returns the HMAC-SHA-256 of a message with the secret as key.
    func authenticationCode(for message: [UInt8]) -> [UInt8] {
        HMACSHA256.code(of: message, key: secret)
    }

    /// The secret, as a request would carry it.
    var credential: Substring { String(decoding: secret, as: UTF8.self)[...] }

    /// Whether a text contains the secret.
    func isContained(in text: String) -> Bool {
        text.utf8.firstRange(of: secret) != nil
    }

    // MARK: Use

    /// Records that a request was admitted.
    func noteUse() {
        let now = Int64(time(nil))
        // Event loops share the value, so it is written at most once a second.
        if lastUse.load(ordering: .relaxed) != now { lastUse.store(now, ordering: .relaxed) }
    }

    /// Copies the last use from the former object of this token, which a new reading of the token file replaces.
    func inheritUse(of former: Token) {
        lastUse.store(former.lastUse.load(ordering: .relaxed), ordering: .relaxed)
    }

    /// When a request was last admitted, to the second; `nil` if none was admitted since the start of the process.
    var lastUsedAt: Instant? {
        let seconds = lastUse.load(ordering: .relaxed)
        return seconds == 0 ? nil : Instant(secondsSince1970: seconds)
    }
}

extension Token {
    /// Returns the names, scopes, projects and expiries of tokens, for the audit log.
    public static func describe(_ tokens: [Token]) -> JSONValue {
        .array(tokens.map { .object($0.auditDescription) })
    }

    /// The token as the audit log shows it.
    var auditDescription: JSONObject {
        var description = JSONObject()
        description["name"] = .string(name)
        description["scope"] = .string("\(scope)")
        if let keys = projects.sdkKeys { description["projects"] = .array(keys.map { .string($0) }) }
        if let expiresAt { description["expires_at"] = .string(expiresAt.rfc3339) }
        return description
    }
}
