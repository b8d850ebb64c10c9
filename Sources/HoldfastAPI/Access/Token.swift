import Bucketing
public import JSON
import Storage

/// A bearer token: a secret with a name and a scope.
public struct Token: Sendable {
    /// What a token allows. `client` is fit to ship inside an app or page: evaluate, report exposures and goals, set
    /// attributes, and nothing else. `write` includes `client` and `read`. `attributes` includes `read` but not
    /// `write`, nor the other way round, so that an app cannot read back the attributes that it sets; `admin` includes
    /// all.
    public enum Scope: Sendable, CaseIterable {
        case client, read, write, attributes, admin

        func allows(_ needed: Scope) -> Bool {
            switch self {
            case .admin: true
            case .write: needed == .write || needed == .client || needed == .read
            case .attributes: needed == .attributes || needed == .read
            case .client, .read: needed == self
            }
        }

        init?(name: Substring) {
            switch name {
            case "client": self = .client
            case "read": self = .read
            case "write": self = .write
            case "attributes": self = .attributes
            case "admin": self = .admin
            default: return nil
            }
        }
    }

    public let scope: Scope
    /// Names the holder in logs, where the secret never appears.
    public let name: String
    private let secret: [UInt8]

    /// The minimum length of a secret, in bytes.
    static let minimumSecretLength = 16

    init(scope: Scope, name: String, secret: [UInt8]) {
        self.scope = scope
        self.name = name
        self.secret = secret
    }

    /// Compares in constant time for secrets of equal length.
    func hasSecret(_ candidate: some Collection<UInt8>) -> Bool {
        guard candidate.count == secret.count else { return false }
        var difference: UInt8 = 0
        for (left, right) in zip(secret, candidate) { difference |= left ^ right }
        return difference == 0
    }

    func hasSecret(of other: Token) -> Bool { hasSecret(other.secret) }

    /// Returns the HMAC-SHA-256 of a message with the secret as key.
    func authenticationCode(for message: [UInt8]) -> [UInt8] {
        SHA256.authenticationCode(for: message, key: secret)
    }

    /// The secret, as a request would carry it.
    var credential: Substring { String(decoding: secret, as: UTF8.self)[...] }

    /// Whether a text contains the secret.
    func isContained(in text: String) -> Bool {
        text.utf8.firstRange(of: secret) != nil
    }
}

extension Token {
    /// Returns the names and scopes of tokens, for the audit log.
    public static func describe(_ tokens: [Token]) -> JSONValue {
        .array(tokens.map { ["name": .string($0.name), "scope": .string("\($0.scope)")] })
    }
}

/// A token file that cannot be used.
public struct TokenFileError: Error, CustomStringConvertible {
    public let line: Int
    public let reason: String

    public var description: String { "line \(line): \(reason)" }
}

extension Token {
    /// Parses lines of `scope name secret`; empty lines and lines that begin with `#` are skipped.
    ///
    /// - Throws: ``TokenFileError``, which quotes nothing of the line: if name and secret are swapped, the secret must
    ///   not reach a log.
    public static func parse(_ text: String) throws(TokenFileError) -> [Token] {
        var tokens: [Token] = []
        for (index, line) in text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline).enumerated() {
            let words = line.split(whereSeparator: \.isWhitespace)
            guard let first = words.first, !first.hasPrefix("#") else { continue }
            func wrong(_ reason: String) -> TokenFileError { TokenFileError(line: index + 1, reason: reason) }
            guard words.count == 3 else { throw wrong("a line must be 'scope name secret', each a single word") }
            guard let scope = Scope(name: first) else {
                throw wrong("the scope must be client, read, write, attributes or admin")
            }
            let name = String(words[1])
            let secret = Array(words[2].utf8)
            guard secret.count >= minimumSecretLength else {
                throw wrong("the secret must have at least \(minimumSecretLength) characters; got \(secret.count)")
            }
            guard name != Author.anonymousName else {
                throw wrong("the name must not be '\(name)', which stands for callers without a token")
            }
            guard !tokens.contains(where: { $0.name.utf8.elementsEqual(name.utf8) }) else {
                throw wrong("each name must be unique; this one occurs twice")
            }
            guard !tokens.contains(where: { $0.hasSecret(secret) }) else {
                throw wrong("each secret must be unique; this one occurs twice")
            }
            tokens.append(Token(scope: scope, name: name, secret: secret))
        }
        return tokens
    }
}
