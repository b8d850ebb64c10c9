import HoldfastAPI
@testable import HoldfastCore

extension FuzzTarget {
    /// A token file that is refused is refused without quoting a secret.
    static let tokens = FuzzTarget(name: "tokens") { bytes in
        let text = String(decoding: bytes, as: UTF8.self)
        let outcome = Result { () throws(TokenFileError) in try Token.parse(text) }
        guard case .failure(let error) = outcome else {
            _ = try Token.parse(text + "\n# a comment\n\n")
            return
        }
        let lines = text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline)
        guard lines.indices.contains(error.line - 1) else { throw Finding("there is no line \(error.line)") }
        let words = lines[error.line - 1].split(whereSeparator: \.isWhitespace)
        // A name may be quoted; a secret that is part of it has been given away by its owner.
        for secret in words.dropFirst(2) where secret.utf8.count >= 16 && !words[1].contains(secret) {
            guard !error.reason.contains(secret) else { throw Finding("a secret is quoted: \(error)") }
        }
    }
}
