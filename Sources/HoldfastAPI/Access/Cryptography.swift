import CCrypto

/// OpenSSL's `libcrypto`, which is loaded when it is first needed. Signed tokens, tickets, change tokens and the
/// signatures of webhooks need it.
public enum CryptographyLibrary {
    /// Whether the library can be loaded.
    public static var isInstalled: Bool { crypto_is_available() == 1 }
}

/// Message authentication by HMAC with SHA-256 (RFC 2104).
enum HMACSHA256 {
    /// Returns the 32 bytes of the code, or random bytes if the code cannot be computed.
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

/// Comparison of secrets and authentication codes.
enum ConstantTime {
    /// Whether two byte sequences are equal. The time depends only on their lengths, so that a caller cannot find a
    /// secret byte by byte.
    static func areEqual(_ first: some Collection<UInt8>, _ second: some Collection<UInt8>) -> Bool {
        guard first.count == second.count else { return false }
        var difference: UInt8 = 0
        for (left, right) in zip(first, second) { difference |= left ^ right }
        return difference == 0
    }
}
