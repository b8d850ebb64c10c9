import Bucketing
import CCrypto
import Glibc
import HoldfastCore
public import JSON
import Storage
internal import Synchronization

/// A bearer token: a secret with a name and a scope, and perhaps the projects to which it is bound. A class, because
/// requests pass it on, and event loops share the time of its last use.
public final class Token: Sendable {
    /// What a token allows. `client` is fit to ship inside an app or page: evaluate, report exposures and goals, set
    /// attributes, and nothing else. `write` includes `client` and `read`. `attributes` includes `read` but not
    /// `write`, nor the other way round, so that an app cannot read back the attributes that it sets. `edge` is for
    /// other servers that follow this one, and allows only what those need. `definitions`, `export` and `metrics` are for
    /// robots, and allow to read these, and no single user. `admin` includes all.
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
    /// Names the holder in logs, where the secret never appears.
    public let name: String
    private let secret: [UInt8]
    /// From when on the secret is refused; `nil` if it does not expire.
    let expiresAt: Timestamp?
    let projects: ProjectAccess
    /// The person whom an identity provider has signed in; `nil` for a token of the token file.
    let person: Person?
    /// The token of the edge that forwards requests of this one, which it has checked; `nil` for a token of this server.
    let edge: Token?
    /// Seconds since 1970; 0 before the first use.
    private let lastUse = Atomic<Int64>(0)

    /// The minimum length of a secret, in bytes.
    static let minimumSecretLength = 16

    init(
        scope: Scope, name: String, secret: [UInt8], expiresAt: Timestamp? = nil, projects: ProjectAccess = .all
    ) {
        self.scope = scope
        self.projects = projects
        person = nil
        edge = nil
        self.name = name
        self.secret = secret
        self.expiresAt = expiresAt
    }

    /// What admits a person, so that a change of the keys or of the map of scopes ends it.
    struct Person: Sendable {
        let publicKey: [UInt8]
        let rule: IdentityProvider.ScopeRule
        /// The claim `sub`.
        let subject: String?
    }

    /// The token of a person. It has no secret that a request could send.
    init(name: String, expiresAt: Timestamp, person: Person) {
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
        // Two words or more, which no other token's name has.
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

    /// Notes that a request was admitted.
    func noteUse() {
        let now = Int64(time(nil))
        // Event loops share the value, so it is written once a second at most.
        if lastUse.load(ordering: .relaxed) != now { lastUse.store(now, ordering: .relaxed) }
    }

    /// Takes over the last use of the same token as it was read before.
    func inheritUse(of former: Token) {
        lastUse.store(former.lastUse.load(ordering: .relaxed), ordering: .relaxed)
    }

    /// When a request was admitted last, to the second; `nil` if none was since the start of the process.
    var lastUsedAt: Timestamp? {
        let seconds = lastUse.load(ordering: .relaxed)
        return seconds == 0 ? nil : seconds * 1_000
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
            // The library may be missing, or a policy of the system may refuse the key. A random code equals no other.
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

    /// Parses lines of `scope name secret`, with `expires=DATE` behind those that expire, and `projects=KEY,KEY` behind
    /// those that are bound to projects; empty lines and lines that begin with `#` are skipped.
    ///
    /// - Throws: ``TokenFileError``, which quotes nothing of the line: if name and secret are swapped, the secret must
    ///   not reach a log.
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

    /// Parses lines of `scope value`, with `projects=KEY,KEY` behind those that are bound to projects.
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

    /// The words behind the secret, each of which may occur once.
    private struct Properties {
        private var expires: Substring?
        private var bound: Substring?

        /// - Returns: `nil` if a word is not known, or occurs twice.
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

        /// Reads a time of RFC 3339, or a date, which means its first moment in UTC.
        func expiry(_ wrong: (String) -> TokenFileError) throws(TokenFileError) -> Timestamp? {
            guard let text = expires else { return nil }
            guard let time = Timestamp(rfc3339: text.contains("T") ? String(text) : text + "T00:00:00Z") else {
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
