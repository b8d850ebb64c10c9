import Foundation
import HoldfastAPI

/// The file of access tokens, which only its owner may read.
struct TokenFile: Sendable {
    let path: String

    /// - Throws: ``Failure``, which names the file and the line but never quotes a secret.
    func read() throws -> [Token] {
        let attributes: [FileAttributeKey: Any]
        let text: String
        do {
            attributes = try FileManager.default.attributesOfItem(atPath: path)
            text = try String(contentsOfFile: path, encoding: .utf8)
        } catch {
            throw Failure("the token file \(path) cannot be read: \(error.localizedDescription)")
        }
        let mode = (attributes[.posixPermissions] as? NSNumber)?.intValue ?? 0
        guard mode & 0o077 == 0 else {
            throw Failure("the token file \(path) can be read or written by others: run 'chmod 600 \(path)'")
        }
        do {
            let tokens = try Token.parse(text)
            guard !tokens.isEmpty else { throw Failure("the token file \(path) has no token") }
            return tokens
        } catch let error as TokenFileError {
            throw Failure("the token file \(path), \(error)")
        }
    }
}
