import CCrypto
import Chronology
import Storage

/// A cache of the signed tokens that one event loop has verified, by their hashes, so that not every request has to
/// verify a signature. Refused tokens are not kept. ``AccessGate`` clears the cache when the keys or the map of scopes
/// are replaced.
struct VerifiedTokens {
    /// The SHA-256 hash of a token.
    private struct Digest: Hashable {
        var words: (UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0)

        /// - Returns: `nil` if OpenSSL cannot hash.
        init?(of text: Substring) {
            let bytes = Array(text.utf8)
            let isHashed = bytes.withUnsafeBytes { bytes in
                withUnsafeMutableBytes(of: &words) { words in
                    EVP_Digest(
                        bytes.baseAddress, bytes.count,
                        words.baseAddress?.assumingMemoryBound(to: UInt8.self), nil, EVP_sha256(), nil) == 1
                }
            }
            if !isHashed { return nil }
        }

        static func == (left: Digest, right: Digest) -> Bool { left.words == right.words }

        // One word of a cryptographic hash is enough to distribute the tokens.
        func hash(into hasher: inout Hasher) {
            hasher.combine(words.0)
        }
    }

    private var tokens: [Digest: Token] = [:]
    /// The maximum number of tokens. At the limit, the expired tokens are removed; if there are none, all tokens.
    private static let limit = 1_024

    mutating func removeAll() {
        tokens.removeAll()
    }

    /// Returns the verified token of a signed text. Verifies the signature only the first time.
    ///
    /// - Parameter isTaken: returns whether a token of the token file has the name.
    /// - Throws: 401 with the reason.
    mutating func token(
        _ text: Substring, by provider: IdentityProvider, isTaken: (String) -> Bool
    ) throws(Problem) -> Token {
        let digest = Digest(of: text)
        if let digest, let cached = tokens[digest] {
            if !cached.hasExpired { return cached }
            tokens[digest] = nil
        }
        let token = try provider.token(text, at: systemWallClock(), isTaken: isTaken)
        if let digest {
            if tokens.count >= Self.limit { tokens = tokens.filter { !$0.value.hasExpired } }
            if tokens.count >= Self.limit { tokens.removeAll() }
            tokens[digest] = token
        }
        return token
    }
}
