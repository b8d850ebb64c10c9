import CCrypto
import JSON

/// A public key of an identity provider (RFC 7517), for RS256 (RFC 7518 §3.3), ES256 (§3.4) or EdDSA with Ed25519
/// (RFC 8037 §3.1).
///
/// A key set has the numbers of a key in JSON. OpenSSL reads keys and signatures in DER, so each key is encoded as
/// SubjectPublicKeyInfo when it is parsed.
struct JSONWebKey: Sendable {
    enum Algorithm: String, CaseIterable {
        case rs256 = "RS256"
        case es256 = "ES256"
        case edDSA = "EdDSA"
    }

    /// The `kid`, by which a token names its key.
    let id: String?
    let algorithm: Algorithm
    /// The key as SubjectPublicKeyInfo (RFC 5280 §4.1.2.7).
    let publicKey: [UInt8]

    private static let maximumKeysInSet = 100
    /// The allowed lengths of an RSA modulus in bytes: 2048 to 8192 bits.
    private static let modulusLengths = 256...1_024
    /// The length in bytes of a coordinate of P-256, of a key of Ed25519, and of each half of a signature by ES256.
    private static let numberLength = 32

    /// Returns the keys of a set that can verify tokens. Keys for another purpose or algorithm and invalid keys are
    /// ignored, as RFC 7517 §5 requires.
    ///
    /// - Throws: ``IdentityFileError`` if the set is malformed, or if it has no usable key; then with the fault of the
    ///   first invalid key.
    static func parse(set content: [UInt8]) throws(IdentityFileError) -> [JSONWebKey] {
        guard let set = try? JSONParser(maximumDepth: 8, duplicateKeys: .refused).parse(content),
            let list = set.object?["keys"]?.array
        else { throw IdentityFileError("a key set must be a JSON object with an array `keys` (RFC 7517)") }
        guard list.count <= maximumKeysInSet else {
            throw IdentityFileError("a key set must have at most \(maximumKeysInSet) keys; got \(list.count)")
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

    /// - Parameter place: the place of the key in the set, for errors.
    /// - Returns: `nil` for a key with another purpose or algorithm.
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
            let modulus = try bytes("n").drop { $0 == 0 }
            let exponent = try bytes("e").drop { $0 == 0 }
            guard Self.modulusLengths.contains(modulus.count) else {
                throw IdentityFileError("\(place)/n must have 2048 to 8192 bits; got \(modulus.count * 8)")
            }
            guard (1...8).contains(exponent.count), exponent.last.map({ $0 & 1 }) == 1, Array(exponent) != [1] else {
                throw IdentityFileError("\(place)/e must be an odd number from 3 to 2^64")
            }
            algorithm = .rs256
            publicKey = DER.publicKey(
                DER.rsa, DER.sequence(DER.integer(Array(modulus)) + DER.integer(Array(exponent))))
        case ("EC", "P-256"):
            let x = try bytes("x")
            let y = try bytes("y")
            guard x.count == Self.numberLength, y.count == Self.numberLength else {
                throw IdentityFileError("\(place)/x and y must have 32 bytes each")
            }
            algorithm = .es256
            publicKey = DER.publicKey(DER.p256, DER.uncompressedPoint(x, y))
        case ("OKP", "Ed25519"):
            let x = try bytes("x")
            guard x.count == Self.numberLength else {
                throw IdentityFileError("\(place)/x must have 32 bytes; got \(x.count)")
            }
            algorithm = .edDSA
            publicKey = DER.publicKey(DER.ed25519, x)
        default: return nil
        }
        if let named = object["alg"], named.string != algorithm.rawValue { return nil }
        id = object["kid"]?.string
        // OpenSSL refuses invalid keys, for example a point that is not on the curve.
        guard withKey({ _ in true }) == true else {
            throw IdentityFileError("\(place) must be a valid public key; it is not")
        }
    }

    /// Whether a signature in the format of JWS (RFC 7515) is a valid signature of a message by this key.
    func verifies(_ signature: [UInt8], of message: [UInt8]) -> Bool {
        var signature = signature
        if algorithm == .es256 {
            // JWS concatenates the two integers of the signature (RFC 7518 §3.4); OpenSSL expects a DER sequence.
            guard signature.count == 2 * Self.numberLength else { return false }
            signature = DER.sequence(
                DER.integer(Array(signature.prefix(Self.numberLength)))
                    + DER.integer(Array(signature.suffix(Self.numberLength))))
        }
        return withKey { key in
            guard let context = EVP_MD_CTX_new() else { return false }
            defer { EVP_MD_CTX_free(context) }
            // Ed25519 includes its own hash function, so OpenSSL accepts no digest for it.
            let digest = algorithm == .edDSA ? nil : EVP_sha256()
            return EVP_DigestVerifyInit(context, nil, digest, nil, key) == 1
                && EVP_DigestVerify(context, signature, signature.count, message, message.count) == 1
        } ?? false
    }

    /// Passes the key to a function as an `EVP_PKEY` of OpenSSL.
    ///
    /// - Returns: `nil` if OpenSSL refuses the key.
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

/// Why a key set or a map of scopes cannot be used.
public struct IdentityFileError: Error, CustomStringConvertible {
    public let description: String

    init(_ description: String) {
        self.description = description
    }
}

/// The few forms of the Distinguished Encoding Rules (X.690) that public keys and signatures need.
private enum DER {
    /// The algorithm `rsaEncryption` (1.2.840.113549.1.1.1), with its parameter NULL (RFC 3279 §2.3.1).
    static let rsa: [UInt8] = [0x06, 0x09, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x01, 0x05, 0x00]
    /// The algorithm `id-ecPublicKey` (1.2.840.10045.2.1), with the curve P-256 (1.2.840.10045.3.1.7; RFC 5480 §2.1.1).
    static let p256: [UInt8] = [
        0x06, 0x07, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01, 0x06, 0x08, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01,
        0x07,
    ]
    /// The algorithm `id-Ed25519` (1.3.101.112), without parameters (RFC 8410 §3).
    static let ed25519: [UInt8] = [0x06, 0x03, 0x2B, 0x65, 0x70]

    private static let integerTag: UInt8 = 0x02
    private static let bitStringTag: UInt8 = 0x03
    private static let sequenceTag: UInt8 = 0x30

    /// Encodes a SubjectPublicKeyInfo.
    ///
    /// - Parameter algorithm: the object identifiers and parameters of the algorithm.
    static func publicKey(_ algorithm: [UInt8], _ key: [UInt8]) -> [UInt8] {
        // A bit string begins with the number of unused bits.
        sequence(sequence(algorithm) + value(bitStringTag, [0] + key))
    }

    /// Encodes a point of an elliptic curve, which the byte 4 marks as uncompressed (SEC 1 §2.3.3).
    static func uncompressedPoint(_ x: [UInt8], _ y: [UInt8]) -> [UInt8] { [4] + x + y }

    static func sequence(_ content: [UInt8]) -> [UInt8] { value(sequenceTag, content) }

    /// Encodes a non-negative integer from its big-endian bytes.
    static func integer(_ bytes: [UInt8]) -> [UInt8] {
        let digits = bytes.drop { $0 == 0 }
        // A first byte with the highest bit would make the integer negative. Zero is one byte.
        let needsZero = digits.first.map { $0 > 0x7F } ?? true
        return value(integerTag, (needsZero ? [0] : []) + digits)
    }

    /// Encodes a tag, the length of the content in one to three bytes, and the content.
    private static func value(_ tag: UInt8, _ content: [UInt8]) -> [UInt8] {
        let count = content.count
        switch count {
        case ..<0x80: return [tag, UInt8(count)] + content
        case ..<0x100: return [tag, 0x81, UInt8(count)] + content
        default: return [tag, 0x82, UInt8(truncatingIfNeeded: count >> 8), UInt8(truncatingIfNeeded: count)] + content
        }
    }
}
