import Chronology
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// An identity provider whose JSON Web Tokens (RFC 7519) this server accepts, so that people can sign in with their own
/// accounts. The claims of a token determine the name of the person, the scope and the projects.
///
/// ``AccessGate`` passes each secret that has the form of a signed token to ``token(_:at:isTaken:)``. If that fails
/// because the provider may have published newer keys (``mayNeedNewerKeys(_:)``), the server fetches them.
public struct IdentityProvider: Sendable {
    /// The claims that a token must have.
    public struct Settings: Sendable {
        /// The required `iss`.
        public var issuer = ""
        /// The audience that `aud` must contain.
        public var audience = ""
        /// The claim with the values that ``IdentityProvider/init(_:keys:scopes:)`` maps to scopes: an array, or a text
        /// with spaces. Dots separate the members of nested objects.
        public var scopesClaim = "scope"
        /// The claim with the name of the person, as the audit log shows it.
        public var nameClaim = "sub"

        public init() {}
    }

    /// Maps a value of ``Settings/scopesClaim`` to a scope and to projects.
    struct ScopeRule: Sendable, Equatable {
        let scope: Token.Scope
        let value: String
        let projects: ProjectAccess
    }

    private let settings: Settings
    private let keys: [JSONWebKey]
    private let rules: [ScopeRule]

    /// The maximum clock difference to the identity provider.
    private static let leeway = TimeSpan.minutes(1)
    /// The maximum length of a token in bytes.
    static let longestToken = 8 * 1_024
    /// The start of every signed token: `{"` in base64url, because the header is a JSON object.
    static let tokenPrefix = "eyJ"

    /// - Parameters:
    ///   - keys: a set of public keys (RFC 7517); `nil` if none could be fetched yet.
    ///   - scopes: lines `scope value`, optionally followed by `projects=KEY,KEY` to bind them to projects. If a token
    ///     has the values of several lines, the first of these lines applies.
    public init(_ settings: Settings, keys: [UInt8]?, scopes: String) throws(IdentityFileError) {
        self.settings = settings
        self.keys = if let keys { try JSONWebKey.parse(set: keys) } else { [] }
        do throws(TokenFileError) {
            rules = try Token.parseRules(scopes)
        } catch {
            throw IdentityFileError("\(error)")
        }
        guard !rules.isEmpty else { throw IdentityFileError("the map of scopes has no line 'scope value'") }
    }

    /// Whether a secret has the form of a token of an identity provider: three parts, the first of which is an object.
    static func isToken(_ secret: Substring) -> Bool {
        secret.hasPrefix(tokenPrefix) && secret.utf8.count { $0 == UInt8(ascii: ".") } == 2
    }

    /// Verifies a token (RFC 7515 §5.2, RFC 7519 §7.2, RFC 8725).
    ///
    /// - Parameter isTaken: returns whether a token of the token file has the name. A signed token with the same name
    ///   is refused, because the audit log could not distinguish the two.
    /// - Throws: 401 with the reason.
    func token(_ text: Substring, at now: Instant, isTaken: (String) -> Bool) throws(Problem) -> Token {
        guard text.utf8.count <= Self.longestToken else {
            throw Self.refused("a signed token must have at most \(Self.longestToken) bytes; got \(text.utf8.count)")
        }
        guard let signed = SignedToken(text) else {
            throw Self.refused("a signed token must have a header, claims and a signature in base64url (RFC 7515)")
        }
        let key = try key(namedBy: signed.header)
        guard key.verifies(signed.signature, of: signed.signedContent) else {
            throw Self.refused("the token must be signed by the key of the identity provider that it names; it is not")
        }
        let expiry = try expiry(checking: signed.claims, at: now)
        let name = try name(in: signed.claims)
        guard !isTaken(name) else {
            throw Self.refused("the claim `\(settings.nameClaim)` must not be the name of a token of the token file")
        }
        let values = Self.values(of: settings.scopesClaim, in: signed.claims)
        guard let rule = rules.first(where: { values.contains($0.value) }) else {
            throw Self.refused(
                "the claim `\(settings.scopesClaim)` must have a value that is mapped to a scope; it has none")
        }
        return Token(
            name: name, expiresAt: expiry,
            person: Token.Person(publicKey: key.publicKey, rule: rule, subject: signed.claims["sub"]?.string))
    }

    /// Whether the token of a person, which was accepted before, would also be accepted with the current keys and
    /// rules.
    func admits(_ person: Token.Person) -> Bool {
        keys.contains { $0.publicKey == person.publicKey } && rules.contains(person.rule)
    }

    // MARK: Newer keys

    /// Whether there are no keys yet.
    var lacksKeys: Bool { keys.isEmpty }

    /// Whether a refused token may be valid with keys that the provider has published since the last fetch.
    ///
    /// The token must be of this issuer. If it has a `kid`, no known key must have this `kid`. If it has none, no known
    /// key must verify the token.
    func mayNeedNewerKeys(_ text: Substring) -> Bool {
        guard text.utf8.count <= Self.longestToken, let signed = SignedToken(text),
            let algorithm = signed.header["alg"]?.string.flatMap(JSONWebKey.Algorithm.init),
            signed.claims["iss"]?.string == settings.issuer
        else { return false }
        let id = signed.header["kid"]?.string
        return !keys.contains { key in
            guard key.algorithm == algorithm else { return false }
            if let id { return key.id == id }
            return key.verifies(signed.signature, of: signed.signedContent)
        }
    }

    // MARK: Checks

    private static func refused(_ reason: String) -> Problem { Problem(.unauthorized, reason) }

    /// Returns the key that the header names by `kid`. A token without `kid` is verified by the only key for its
    /// algorithm.
    private func key(namedBy header: JSONObject) throws(Problem) -> JSONWebKey {
        guard let name = header["alg"]?.string, let algorithm = JSONWebKey.Algorithm(rawValue: name) else {
            let known = JSONWebKey.Algorithm.allCases.map(\.rawValue).joined(separator: ", ")
            throw Self.refused("`alg` of a signed token must be one of \(known)")
        }
        guard header["crit"] == nil else {
            throw Self.refused("a signed token must need no extension; this has `crit`")
        }
        if let type = header["typ"] {
            let name = type.string?.lowercased() ?? ""
            guard ["jwt", "at+jwt", "application/at+jwt"].contains(name) else {
                throw Self.refused("`typ` of a signed token must be JWT or at+jwt")
            }
        }
        let suitable = keys.filter { $0.algorithm == algorithm }
        if let id = header["kid"] {
            guard let key = suitable.first(where: { $0.id != nil && $0.id == id.string }) else {
                throw Self.refused("`kid` of a signed token must name a key of the identity provider for \(name)")
            }
            return key
        }
        guard suitable.count == 1, let key = suitable.first else {
            throw Self.refused(
                "a signed token must have a `kid`: the identity provider has several keys, or none, for \(name)")
        }
        return key
    }

    /// Checks the issuer, the audience and the times of a token.
    ///
    /// - Returns: when the token expires.
    private func expiry(checking claims: JSONObject, at now: Instant) throws(Problem) -> Instant {
        guard claims["iss"]?.string == settings.issuer else {
            throw Self.refused("`iss` of a signed token must be '\(settings.issuer)'")
        }
        let audiences = claims["aud"]?.array ?? claims["aud"].map { [$0] } ?? []
        guard audiences.contains(.string(settings.audience)) else {
            throw Self.refused("`aud` of a signed token must have '\(settings.audience)'")
        }
        guard let expiry = Self.time("exp", claims) else {
            throw Self.refused("a signed token must have `exp`, a number")
        }
        guard expiry + Self.leeway > now else {
            throw Self.refused("a signed token must not have expired; this one expired at \(expiry.rfc3339)")
        }
        if claims["nbf"] != nil {
            guard let start = Self.time("nbf", claims), start - Self.leeway <= now else {
                throw Self.refused("`nbf` of a signed token must be a time that has come")
            }
        }
        return expiry + Self.leeway
    }

    /// Returns the name of the person. It must be a single word, like the names in the token file.
    private func name(in claims: JSONObject) throws(Problem) -> String {
        guard let name = claims[settings.nameClaim]?.string, (1...255).contains(name.utf8.count),
            !name.contains(where: \.isWhitespace), name.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x7F }),
            name != Author.anonymousName
        else {
            throw Self.refused("the claim `\(settings.nameClaim)` must be a name of 1 to 255 bytes without white space")
        }
        return name
    }

    /// Returns the time of a `NumericDate` (RFC 7519 §2): seconds since 1970. The limit of 2^40 seconds, about the year
    /// 36812, keeps the conversion to milliseconds from overflowing.
    private static func time(_ name: String, _ claims: JSONObject) -> Instant? {
        guard let seconds = claims[name]?.double, (0...Double(1 << 40)).contains(seconds) else { return nil }
        return Instant(milliseconds: Int64(seconds * 1_000))
    }

    /// Returns the texts of a claim. The name of the claim may itself contain dots, as in
    /// `https://example.com/roles`; otherwise dots separate the members of nested objects.
    private static func values(of claim: String, in claims: JSONObject) -> [String] {
        var value = claims[claim]
        if value == nil {
            value = claim.split(separator: ".").reduce(.object(claims)) { value, name in
                value?.object?[String(name)]
            }
        }
        return value?.array?.compactMap(\.string) ?? value?.string?.split(separator: " ").map(String.init) ?? []
    }
}

/// The parts of a token `HEADER.CLAIMS.SIGNATURE` (RFC 7515 §7.1), before any check.
private struct SignedToken {
    let header: JSONObject
    let claims: JSONObject
    let signature: [UInt8]
    /// The bytes that the signature signs: `HEADER.CLAIMS`, as they were sent.
    let signedContent: [UInt8]

    /// - Returns: `nil` if the text does not have three parts in base64url, of which the first two are JSON objects.
    init?(_ text: Substring) {
        let parts = text.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 3, let header = Self.object(parts[0]), let claims = Self.object(parts[1]),
            let signature = Base64URL.decode(parts[2])
        else { return nil }
        self.header = header
        self.claims = claims
        self.signature = signature
        signedContent = Array(parts[0]) + [UInt8(ascii: ".")] + Array(parts[1])
    }

    private static func object(_ part: some Sequence<UInt8>) -> JSONObject? {
        guard let bytes = Base64URL.decode(part) else { return nil }
        return try? JSONParser(maximumDepth: 16, duplicateKeys: .refused).parse(bytes).object
    }
}
