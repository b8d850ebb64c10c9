import Glibc
import HoldfastAPI

/// The file of access tokens, which only its owner may read.
struct TokenFile: Sendable {
    let path: String

    /// - Throws: ``Failure``, which names the file and the line but never quotes a secret.
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

    /// Reads a file that has one secret and nothing else.
    static func secret(path: String) throws -> String {
        let text = try TokenFile(path: path).contents()
        let lines = text.split(whereSeparator: \.isNewline)
        guard let secret = lines.first, lines.count == 1 else {
            throw Failure("the token file \(path) must have one line with the secret; it has \(lines.count)")
        }
        return String(secret)
    }

    /// Reads the file. If the path is a symbolic link, as mounted secrets often are, the permissions of its target
    /// count.
    private func contents() throws -> String {
        let (file, mode): (OpenFile, mode_t)
        do throws(Failure) {
            file = try OpenFile(path: path)
            mode = try file.status().st_mode
        } catch {
            throw unreadable(error)
        }
        guard mode & S_IFMT != S_IFDIR else {
            throw Failure("the tokens must be in a file of lines 'scope name secret'; \(path) is a directory")
        }
        guard mode & 0o077 == 0 else {
            throw Failure("the token file \(path) can be read or written by others: run 'chmod 600 \(path)'")
        }
        let content: [UInt8]
        do throws(Failure) {
            content = try file.readToEnd()
        } catch {
            throw unreadable(error)
        }
        guard let text = String(validating: content, as: UTF8.self) else {
            throw Failure("the token file \(path) is not UTF-8")
        }
        return text
    }

    private func unreadable(_ reason: Failure) -> Failure {
        Failure("the token file \(path) cannot be read: \(reason)")
    }
}
