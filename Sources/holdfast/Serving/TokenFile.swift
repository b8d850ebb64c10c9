import Foundation
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

    /// Reads the file. If the path is a symbolic link, as mounted secrets often are, the permissions of its target
    /// count.
    private func contents() throws -> String {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        var status = stat()
        guard descriptor >= 0, fstat(descriptor, &status) == 0 else {
            throw Failure("the token file \(path) cannot be read: \(String(cString: strerror(errno)))")
        }
        let file = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
        guard status.st_mode & S_IFMT != S_IFDIR else {
            throw Failure("the tokens must be in a file of lines 'scope name secret'; \(path) is a directory")
        }
        guard status.st_mode & 0o077 == 0 else {
            throw Failure("the token file \(path) can be read or written by others: run 'chmod 600 \(path)'")
        }
        let data: Data
        do {
            data = try file.readToEnd() ?? Data()
        } catch {
            throw Failure("the token file \(path) cannot be read: \(error.localizedDescription)")
        }
        guard let text = String(data: data, encoding: .utf8) else {
            throw Failure("the token file \(path) is not UTF-8")
        }
        return text
    }
}
