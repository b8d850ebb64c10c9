import CCrypto
import JSON

/// A public key of an identity provider (RFC 7517), for RS256 (RFC 7518 §3.3), ES256 (§3.4) or EdDSA with Ed25519
/// (RFC 8037 §3.1).
struct JSONWebKey: Sendable {
    enum Algorithm: String, CaseIterable {
        case rs256 = "RS256"
        case es256 = "ES256"
        case edDSA = "EdDSA"
    }

    let id: String?
    let algorithm: Algorithm
    /// The key as SubjectPublicKeyInfo (RFC 5280 §4.1.2.7).
    let publicKey: [UInt8]

    /// Returns the keys of a set that can verify tokens. Keys for another purpose or algorithm and invalid keys are
    /// ignored, as RFC 7517 §5 requires.
    ///
    /// - Throws: ``IdentityFileError`` if the set is malformed, or if it has no usable key; then with the fault of the
    ///   first invalid key.
    static func parse(set content: [UInt8]) throws(IdentityFileError) -> [JSONWebKey] {
        guard let set = try? JSONParser(maximumDepth: 8, duplicateKeys: .refused).parse(content),
            let list = set.object?["keys"]?.array
        else { throw IdentityFileError("a key set must be a JSON object with an array `keys` (RFC 7517)") }
        guard list.count <= largestSet else {
            throw IdentityFileError("a key set must have at most \(largestSet) keys; got \(list.count)")
        }
        var keys: [JSONWebKey] = []
        var fault: IdentityFileError?
        for (index, element) in list.enumerated() {
            do throws(IdentityFileError) {
                guard let object = element.object else { throw IdentityFileError("keys/\(index) must be an object") }
                if let key = try JSONWebKey(object, "keys/\(index)") { keys.append(key) }
            } catch {
                fault = fault ?? error
            }
        }
        guard !keys.isEmpty else {
            throw fault
                ?? IdentityFileError("a key set must have a key for RS256, ES256 or EdDSA (Ed25519); this has none")
        }
        return keys
    }

    private static let largestSet = 100

    /// - Returns: `nil` for a key with another purpose.
    private init?(_ object: JSONObject, _ place: String) throws(IdentityFileError) {
        func bytes(_ name: String) throws(IdentityFileError) -> [UInt8] {
            guard let text = object[name]?.string, let bytes = Base64URL.decode(text.utf8) else {
                throw IdentityFileError("\(place)/\(name) must be base64url without padding")
            }
            return bytes
        }
        if let use = object["use"], use != "sig" { return nil }
        if let operations = object["key_ops"]?.array, !operations.contains("verify") { return nil }
        switch (object["kty"]?.string, object["crv"]?.string) {
        case ("RSA", _):
            let (modulus, exponent) = (try bytes("n").drop { $0 == 0 }, try bytes("e").drop { $0 == 0 })
            guard (256...1_024).contains(modulus.count) else {
                throw IdentityFileError("\(place)/n must have 2048 to 8192 bits; got \(modulus.count * 8)")
            }
            guard (1...8).contains(exponent.count), exponent.last.map({ $0 & 1 }) == 1, Array(exponent) != [1] else {
                throw IdentityFileError("\(place)/e must be an odd number from 3 to 2^64")
            }
            algorithm = .rs256
            publicKey = DER.publicKey(
                DER.rsa, DER.sequence(DER.integer(Array(modulus)) + DER.integer(Array(exponent))))
        case ("EC", "P-256"):
            let (x, y) = (try bytes("x"), try bytes("y"))
            guard x.count == 32, y.count == 32 else {
                throw IdentityFileError("\(place)/x and y must have 32 bytes each")
            }
            algorithm = .es256
            publicKey = DER.publicKey(DER.p256, [4] + x + y)
        case ("OKP", "Ed25519"):
            let x = try bytes("x")
            guard x.count == 32 else { throw IdentityFileError("\(place)/x must have 32 bytes; got \(x.count)") }
            algorithm = .edDSA
            publicKey = DER.publicKey(DER.ed25519, x)
        default: return nil
        }
        if let named = object["alg"], named.string != algorithm.rawValue { return nil }
        id = object["kid"]?.string
        // The key is invalid, for example a point that is not on the curve.
        guard withKey({ _ in true }) == true else {
            throw IdentityFileError("\(place) must be a valid public key; it is not")
        }
    }

    /// Whether a signature in the format of JWS (RFC 7515) is a valid signature of a message by this key.
    func verifies(_ signature: [UInt8], of message: [UInt8]) -> Bool {
        var signature = signature
        if algorithm == .es256 {
            // The concatenation of two integers of 32 bytes (RFC 7518 §3.4).
            guard signature.count == 64 else { return false }
            signature = DER.sequence(
                DER.integer(Array(signature.prefix(32))) + DER.integer(Array(signature.suffix(32))))
        }
        return withKey { key in
            guard let context = EVP_MD_CTX_new() else { return false }
            defer { EVP_MD_CTX_free(context) }
            let digest = algorithm == .edDSA ? nil : EVP_sha256()
            return EVP_DigestVerifyInit(context, nil, digest, nil, key) == 1
                && EVP_DigestVerify(context, signature, signature.count, message, message.count) == 1
        } ?? false
    }

    private func withKey<Value>(_ body: (OpaquePointer) -> Value) -> Value? {
        // OpenSSL keeps errors in a queue of the thread, where other code would read them as its own.
        defer { ERR_clear_error() }
        return publicKey.withUnsafeBufferPointer { bytes in
            var position = bytes.baseAddress
            guard let key = d2i_PUBKEY(nil, &position, bytes.count) else { return nil }
            defer { EVP_PKEY_free(key) }
            return body(key)
        }
    }
}

/// An invalid file of the sign-in.
public struct IdentityFileError: Error, CustomStringConvertible {
    public let description: String

    init(_ description: String) {
        self.description = description
    }
}

/// The few forms of the Distinguished Encoding Rules (X.690) that public keys and signatures need.
private enum DER {
    static let rsa: [UInt8] = [0x06, 0x09, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x01, 0x05, 0x00]
    static let p256: [UInt8] = [
        0x06, 0x07, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01, 0x06, 0x08, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01,
        0x07,
    ]
    static let ed25519: [UInt8] = [0x06, 0x03, 0x2B, 0x65, 0x70]

    /// - Parameter algorithm: the object identifiers and parameters of the algorithm.
    static func publicKey(_ algorithm: [UInt8], _ key: [UInt8]) -> [UInt8] {
        sequence(sequence(algorithm) + value(0x03, [0] + key))
    }

    static func sequence(_ content: [UInt8]) -> [UInt8] { value(0x30, content) }

    /// Encodes a non-negative integer from its big-endian bytes.
    static func integer(_ bytes: [UInt8]) -> [UInt8] {
        let digits = bytes.drop { $0 == 0 }
        return value(0x02, (digits.first.map { $0 > 0x7F } ?? true ? [0] : []) + digits)
    }

    private static func value(_ tag: UInt8, _ content: [UInt8]) -> [UInt8] {
        let count = content.count
        switch count {
        case ..<0x80: return [tag, UInt8(count)] + content
        case ..<0x100: return [tag, 0x81, UInt8(count)] + content
        default: return [tag, 0x82, UInt8(truncatingIfNeeded: count >> 8), UInt8(truncatingIfNeeded: count)] + content
        }
    }
}
