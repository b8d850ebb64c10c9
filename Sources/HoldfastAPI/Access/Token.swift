import Bucketing
import CCrypto
import Chronology
import Glibc
import HoldfastCore
public import JSON
import Storage
internal import Synchronization

/// A bearer token: a secret with a name, a scope, and optionally the projects to which it is bound. A class, because
/// event loops share the time of the last use.
public final class Token: Sendable {
    /// The permissions of a token:
    ///
    /// - `client` may be shipped in an app or page. It only allows to evaluate, to report exposures and goals, and to
    ///   set attributes.
    /// - `write` includes `client` and `read`.
    /// - `attributes` includes `read`, but neither of `attributes` and `write` includes the other, so that an app
    ///   cannot read the attributes that it sets.
    /// - `edge` allows what other servers need that follow this one.
    /// - `definitions`, `export` and `metrics` are for programs that read these. They do not allow to read a single
    ///   user.
    /// - `admin` includes all.
    public enum Scope: String, Sendable, CaseIterable {
        case client, read, write, attributes, definitions, export, metrics, edge, admin

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

    public let scope: Scope
    /// The name of the holder in logs, which never show the secret.
    public let name: String
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

    /// The claims that have admitted a person. They are checked again after a change of the keys or of the map of
    /// scopes.
    struct Person: Sendable {
        let publicKey: [UInt8]
        let rule: IdentityProvider.ScopeRule
        /// The claim `sub`.
        let subject: String?
    }

    /// The token of a person. It has no secret that a request could send.
    init(name: String, expiresAt: Instant, person: Person) {
        scope = person.rule.scope
        projects = person.rule.projects
        self.name = name
        self.person = person
        edge = nil
        self.expiresAt = expiresAt
        secret = []
    }

    /// The token of a caller of an edge. It has no secret that a request could send.
    init(_ caller: OnBehalfOf, of edge: Token) {
        scope = caller.scope
        projects = caller.projects
        person = nil
        // Two words or more, which names in the token file cannot have.
        name = "\(caller.name) via \(edge.name)"
        secret = []
        expiresAt = edge.expiresAt
        self.edge = edge
    }

    /// Whether the secret has expired by now.
    var hasExpired: Bool { expiresAt.map { $0 <= systemWallClock() } ?? false }

    /// Compares in constant time for secrets of equal length.
    func hasSecret(_ candidate: some Collection<UInt8>) -> Bool {
        guard candidate.count == secret.count else { return false }
        var difference: UInt8 = 0
        for (left, right) in zip(secret, candidate) { difference |= left ^ right }
        return difference == 0
    }

    func hasSecret(of other: Token) -> Bool { hasSecret(other.secret) }

    /// Records that a request was admitted.
    func noteUse() {
        let now = Int64(time(nil))
        // Event loops share the value, so it is written at most once a second.
        if lastUse.load(ordering: .relaxed) != now { lastUse.store(now, ordering: .relaxed) }
    }

    /// Copies the last use from the same token before the token file was read again.
    func inheritUse(of former: Token) {
        lastUse.store(former.lastUse.load(ordering: .relaxed), ordering: .relaxed)
    }

    /// When a request was admitted last, to the second; `nil` if none was since the start of the process.
    var lastUsedAt: Instant? {
        let seconds = lastUse.load(ordering: .relaxed)
        return seconds == 0 ? nil : Instant(secondsSince1970: seconds)
    }

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
}

/// OpenSSL's library, which tokens and signatures need.
public enum CryptographyLibrary {
    public static var isInstalled: Bool { crypto_is_available() == 1 }
}

enum HMACSHA256 {
    static func code(of message: [UInt8], key: [UInt8]) -> [UInt8] {
        var code = [UInt8](repeating: 0, count: 32)
        if crypto_is_available() == 0
            || HMAC(EVP_sha256(), key, Int32(clamping: key.count), message, message.count, &code, nil) == nil
        {
            // The library may be missing, or a system policy may refuse the key. A random code never matches.
            for index in code.indices { code[index] = .random(in: 0...255) }
        }
        return code
    }
}

extension Token {
    /// Returns the names, scopes, projects and expiries of tokens, for the audit log.
    public static func describe(_ tokens: [Token]) -> JSONValue {
        .array(tokens.map { .object($0.auditDescription) })
    }

    var auditDescription: JSONObject {
        var description = JSONObject()
        description["name"] = .string(name)
        description["scope"] = .string("\(scope)")
        if let keys = projects.sdkKeys { description["projects"] = .array(keys.map { .string($0) }) }
        if let expiresAt { description["expires_at"] = .string(expiresAt.rfc3339) }
        return description
    }
}

/// A token file that cannot be used.
public struct TokenFileError: Error, CustomStringConvertible {
    public let line: Int
    public let reason: String

    public var description: String { "line \(line): \(reason)" }
}

extension Token {
    /// The number of secrets that a name may have at once: the one in use and the one that replaces it.
    private static let secretLimit = 2

    /// Parses lines of `scope name secret`, optionally followed by `expires=DATE` and `projects=KEY,KEY`. Empty lines
    /// and lines that begin with `#` are skipped.
    ///
    /// - Throws: ``TokenFileError``, which does not quote the line: if name and secret are swapped, the secret must not
    ///   reach a log.
    public static func parse(_ text: String) throws(TokenFileError) -> [Token] {
        var tokens: [Token] = []
        for (index, line) in text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline).enumerated() {
            let words = line.split(whereSeparator: \.isWhitespace)
            guard let first = words.first, !first.hasPrefix("#") else { continue }
            func wrong(_ reason: String) -> TokenFileError { TokenFileError(line: index + 1, reason: reason) }
            guard words.count >= 3, let properties = Properties(words.dropFirst(3)) else {
                throw wrong(
                    "a line must be 'scope name secret', each a single word; behind it may be 'expires=DATE' and 'projects=KEY,KEY'"
                )
            }
            guard let scope = Scope(name: first) else {
                throw wrong(scopeRule)
            }
            let name = String(words[1])
            let secret = Array(words[2].utf8)
            guard secret.count >= minimumSecretLength else {
                throw wrong("the secret must have at least \(minimumSecretLength) characters; got \(secret.count)")
            }
            guard name != Author.anonymousName else {
                throw wrong("the name must not be '\(name)', which stands for callers without a token")
            }
            guard !tokens.contains(where: { $0.hasSecret(secret) }) else {
                throw wrong("each secret must be unique; this one occurs twice")
            }
            let token = Token(
                scope: scope, name: name, secret: secret, expiresAt: try properties.expiry(wrong),
                projects: try properties.projects(wrong))
            let others = tokens.filter { $0.name.utf8.elementsEqual(name.utf8) }
            guard others.count < secretLimit else {
                throw wrong("a name must have at most \(secretLimit) secrets; this one has more")
            }
            guard others.allSatisfy({ $0.scope == scope }) else {
                throw wrong("both secrets of a name must have the same scope; this one has two scopes")
            }
            guard others.allSatisfy({ $0.projects == token.projects }) else {
                throw wrong("both secrets of a name must be bound to the same projects; these are not")
            }
            tokens.append(token)
        }
        return tokens
    }

    /// Parses lines of `scope value`, optionally followed by `projects=KEY,KEY`.
    static func parseRules(_ text: String) throws(TokenFileError) -> [IdentityProvider.ScopeRule] {
        var rules: [IdentityProvider.ScopeRule] = []
        for (index, line) in text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline).enumerated() {
            let words = line.split(whereSeparator: \.isWhitespace)
            guard let first = words.first, !first.hasPrefix("#") else { continue }
            func wrong(_ reason: String) -> TokenFileError { TokenFileError(line: index + 1, reason: reason) }
            guard words.count >= 2, let properties = Properties(words.dropFirst(2)), try properties.expiry(wrong) == nil
            else {
                throw wrong("a line must be 'scope value', each a single word; behind it may be 'projects=KEY,KEY'")
            }
            guard let scope = Scope(name: first) else { throw wrong(scopeRule) }
            rules.append(
                IdentityProvider.ScopeRule(
                    scope: scope, value: String(words[1]), projects: try properties.projects(wrong)))
        }
        return rules
    }

    private static let scopeRule =
        "the scope must be client, read, write, attributes, definitions, export, metrics, edge or admin"

    /// The properties after the secret, each of which may occur once.
    private struct Properties {
        private var expires: Substring?
        private var bound: Substring?

        /// - Returns: `nil` if a property is unknown, or occurs twice.
        init?(_ words: ArraySlice<Substring>) {
            for word in words {
                if expires == nil, word.hasPrefix("expires=") {
                    expires = word.dropFirst("expires=".count)
                } else if bound == nil, word.hasPrefix("projects=") {
                    bound = word.dropFirst("projects=".count)
                } else {
                    return nil
                }
            }
        }

        /// Parses an RFC 3339 time, or a date, which stands for its first moment in UTC.
        func expiry(_ wrong: (String) -> TokenFileError) throws(TokenFileError) -> Instant? {
            guard let text = expires else { return nil }
            guard let time = Instant(rfc3339: text.contains("T") ? String(text) : text + "T00:00:00Z") else {
                throw wrong("DATE in expires=DATE must be like 2026-12-31 or 2026-12-31T18:00:00Z")
            }
            return time
        }

        func projects(_ wrong: (String) -> TokenFileError) throws(TokenFileError) -> ProjectAccess {
            guard let bound else { return .all }
            let keys = bound.split(separator: ",", omittingEmptySubsequences: false).map(String.init)
            guard keys.allSatisfy({ (try? SDKKey.check($0)) != nil }) else {
                throw wrong("projects=KEY,KEY must have SDK keys, separated by commas")
            }
            return ProjectAccess(only: keys)
        }
    }
}
