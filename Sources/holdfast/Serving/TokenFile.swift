import Glibc
import HoldfastAPI

/// The file of access tokens, which only its owner may read.
struct TokenFile: Sendable {
    let path: String

    /// Reads the tokens.
    ///
    /// - Throws: ``Failure`` with the file and the line; it never quotes a secret.
    func read() throws -> [Token] {
        let text = try contents()
        do {
            let tokens = try Token.parse(text)
            guard !tokens.isEmpty else { throw Failure("the token file \(path) has no token") }
            return tokens
        } catch let error as TokenFileError {
            throw Failure("the token file \(path), \(error)")
        }
    }

    /// Reads a file that consists of one secret.
    static func secret(path: String) throws -> String {
        let text = try TokenFile(path: path).contents()
        let lines = text.split(whereSeparator: \.isNewline)
        guard let secret = lines.first, lines.count == 1 else {
            throw Failure("the token file \(path) must have one line with the secret; it has \(lines.count)")
        }
        return String(secret)
    }

    /// Returns the text of the file.
    private func contents() throws(Failure) -> String {
        try SecretFile(path: path, "the token file", of: "lines 'scope name secret'").text()
    }
}

/// The token of an edge for its upstream.
enum UpstreamToken {
    /// Reads the token from a file.
    static func read(path: String) throws -> String { try check(TokenFile.secret(path: path)) }

    /// Returns the token if it can be sent in a header field.
    ///
    /// - Throws: ``Failure`` if it cannot.
    static func check(_ token: String) throws -> String {
        guard token.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
            throw Failure("the token for the upstream must have no spaces and control characters")
        }
        return token
    }
}

/// A file that only its owner may read.
struct SecretFile {
    private let path: String
    private let name: String
    private let content: String

    /// - Parameters:
    ///   - name: the name of the file in errors, such as "the token file".
    ///   - content: the kind of content in errors.
    init(path: String, _ name: String, of content: String) {
        self.path = path
        self.name = name
        self.content = content
    }

    /// Reads the file. If the path is a symbolic link, as mounted secrets often are, the permissions of its target
    /// count.
    func text() throws(Failure) -> String {
        let file: OpenFile
        let mode: mode_t
        do throws(Failure) {
            file = try OpenFile(path: path)
            mode = try file.status().st_mode
        } catch {
            throw unreadable(error)
        }
        guard mode & S_IFMT != S_IFDIR else {
            throw Failure("\(name) must be a file of \(content); \(path) is a directory")
        }
        guard mode & 0o077 == 0 else {
            throw Failure("\(name) \(path) can be read or written by others: run 'chmod 600 \(path)'")
        }
        let content: [UInt8]
        do throws(Failure) {
            content = try file.readToEnd()
        } catch {
            throw unreadable(error)
        }
        guard let text = String(validating: content, as: UTF8.self) else {
            throw Failure("\(name) \(path) is not UTF-8")
        }
        return text
    }

    /// Describes a failure to read the file.
    private func unreadable(_ reason: Failure) -> Failure { Failure("\(name) \(path) cannot be read: \(reason)") }
}
