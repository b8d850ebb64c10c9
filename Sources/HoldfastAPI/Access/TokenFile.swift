import Chronology
import HoldfastCore
import Storage

/// Parses the token file, and the map of scopes of an identity provider.
///
/// Both have one entry a line, whose words are separated by white space. Empty lines and lines that begin with `#` are
/// skipped:
///
///     # SCOPE NAME SECRET [expires=DATE] [projects=KEY,KEY]
///     client shop-app 0123456789abcdef projects=shop
///
///     # SCOPE VALUE [projects=KEY,KEY]
///     admin experimenters
extension Token {
    /// The number of secrets that a name may have at once: the one in use and the one that replaces it.
    private static let maximumSecretsPerName = 2

    private static let scopeRule =
        "the scope must be client, read, write, attributes, definitions, export, metrics, edge or admin"

    /// Parses the lines of a token file: `scope name secret`, optionally followed by `expires=DATE` and
    /// `projects=KEY,KEY`.
    ///
    /// - Throws: ``TokenFileError``, which does not quote the line: if name and secret are swapped, the secret must not
    ///   reach a log.
    public static func parse(_ text: String) throws(TokenFileError) -> [Token] {
        var tokens: [Token] = []
        for line in lines(of: text) {
            let token = try token(of: line, after: tokens)
            let others = tokens.filter { $0.name.utf8.elementsEqual(token.name.utf8) }
            guard others.count < maximumSecretsPerName else {
                throw line.fault("a name must have at most \(maximumSecretsPerName) secrets; this one has more")
            }
            guard others.allSatisfy({ $0.scope == token.scope }) else {
                throw line.fault("both secrets of a name must have the same scope; this one has two scopes")
            }
            guard others.allSatisfy({ $0.projects == token.projects }) else {
                throw line.fault("both secrets of a name must be bound to the same projects; these are not")
            }
            tokens.append(token)
        }
        return tokens
    }

    /// Parses a line of a token file.
    ///
    /// - Parameter tokens: the tokens of the lines above it.
    private static func token(of line: Line, after tokens: [Token]) throws(TokenFileError) -> Token {
        guard line.words.count >= 3, let properties = Properties(line.words.dropFirst(3)) else {
            throw line.fault(
                "a line must be 'scope name secret', each a single word; behind it may be 'expires=DATE' and 'projects=KEY,KEY'"
            )
        }
        guard let scope = Scope(name: line.words[0]) else { throw line.fault(scopeRule) }
        let name = String(line.words[1])
        let secret = Array(line.words[2].utf8)
        guard secret.count >= minimumSecretLength else {
            throw line.fault("the secret must have at least \(minimumSecretLength) characters; got \(secret.count)")
        }
        guard name != Author.anonymousName else {
            throw line.fault("the name must not be '\(name)', which stands for callers without a token")
        }
        guard !tokens.contains(where: { $0.hasSecret(secret) }) else {
            throw line.fault("each secret must be unique; this one occurs twice")
        }
        return Token(
            scope: scope, name: name, secret: secret, expiresAt: try properties.expiry(on: line),
            projects: try properties.projects(on: line))
    }

    /// Parses the lines of a map of scopes: `scope value`, optionally followed by `projects=KEY,KEY`.
    static func parseRules(_ text: String) throws(TokenFileError) -> [IdentityProvider.ScopeRule] {
        var rules: [IdentityProvider.ScopeRule] = []
        for line in lines(of: text) {
            guard line.words.count >= 2, let properties = Properties(line.words.dropFirst(2)),
                try properties.expiry(on: line) == nil
            else {
                throw line.fault(
                    "a line must be 'scope value', each a single word; behind it may be 'projects=KEY,KEY'")
            }
            guard let scope = Scope(name: line.words[0]) else { throw line.fault(scopeRule) }
            rules.append(
                IdentityProvider.ScopeRule(
                    scope: scope, value: String(line.words[1]), projects: try properties.projects(on: line)))
        }
        return rules
    }

    /// A line that is neither empty nor a comment.
    private struct Line {
        /// The number of the line in the file, from 1.
        let number: Int
        /// The words of the line, at least one.
        let words: [Substring]

        func fault(_ reason: String) -> TokenFileError { TokenFileError(line: number, reason: reason) }
    }

    private static func lines(of text: String) -> [Line] {
        var lines: [Line] = []
        for (index, line) in text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline).enumerated() {
            let words = line.split(whereSeparator: \.isWhitespace)
            guard let first = words.first, !first.hasPrefix("#") else { continue }
            lines.append(Line(number: index + 1, words: words))
        }
        return lines
    }

    /// The optional words at the end of a line, each of which may occur once.
    private struct Properties {
        /// The value of `expires`.
        private var expiryText: Substring?
        /// The value of `projects`.
        private var projectList: Substring?

        /// - Returns: `nil` if a property is unknown, or occurs twice.
        init?(_ words: ArraySlice<Substring>) {
            for word in words {
                if expiryText == nil, word.hasPrefix("expires=") {
                    expiryText = word.dropFirst("expires=".count)
                } else if projectList == nil, word.hasPrefix("projects=") {
                    projectList = word.dropFirst("projects=".count)
                } else {
                    return nil
                }
            }
        }

        /// Returns the time of `expires`; `nil` if the line has no `expires`. A date stands for its first moment in
        /// UTC.
        func expiry(on line: Line) throws(TokenFileError) -> Instant? {
            guard let text = expiryText else { return nil }
            guard let time = Instant(rfc3339: text.contains("T") ? String(text) : text + "T00:00:00Z") else {
                throw line.fault("DATE in expires=DATE must be like 2026-12-31 or 2026-12-31T18:00:00Z")
            }
            return time
        }

        /// Returns the projects that `projects` lists; all projects if the line has no `projects`.
        func projects(on line: Line) throws(TokenFileError) -> ProjectAccess {
            guard let projectList else { return .all }
            let keys = projectList.split(separator: ",", omittingEmptySubsequences: false).map(String.init)
            guard keys.allSatisfy({ (try? SDKKey.check($0)) != nil }) else {
                throw line.fault("projects=KEY,KEY must have SDK keys, separated by commas")
            }
            return ProjectAccess(only: keys)
        }
    }
}

/// A line of a token file or of a map of scopes that cannot be used.
public struct TokenFileError: Error, CustomStringConvertible {
    public let line: Int
    public let reason: String

    public var description: String { "line \(line): \(reason)" }
}
