import CCrypto
import JSON

/// A public key of an identity provider (RFC 7517), for RS256 (RFC 7518 §3.3), ES256 (§3.4) or EdDSA with Ed25519
/// (RFC 8037 §3.1).
///
/// A key set has the numbers of a key in JSON. OpenSSL reads keys and signatures in DER, so each key is encoded as
/// SubjectPublicKeyInfo when it is parsed.
struct JSONWebKey: Sendable {
    /// The signature algorithm, by its name in JWS.
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

    /// The maximum number of keys in a set. Identity providers publish only a few.
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
                if let key = try JSONWebKey(Members(object: object, place: "keys/\(index)")) { keys.append(key) }
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

    /// The members of a key in a key set.
    private struct Members {
        let object: JSONObject
        /// The place of the key in the set, for errors.
        let place: String

        func bytes(_ name: String) throws(IdentityFileError) -> [UInt8] {
            guard let text = object[name]?.string, let bytes = Base64URL.decode(text.utf8) else {
                throw IdentityFileError("\(place)/\(name) must be base64url without padding")
            }
            return bytes
        }
    }

    /// - Returns: `nil` for a key with another purpose or algorithm.
    private init?(_ members: Members) throws(IdentityFileError) {
        let object = members.object
        if let use = object["use"], use != "sig" { return nil }
        if let operations = object["key_ops"]?.array, !operations.contains("verify") { return nil }
        switch (object["kty"]?.string, object["crv"]?.string) {
        case ("RSA", _):
            algorithm = .rs256
            publicKey = try Self.rsaKey(members)
        case ("EC", "P-256"):
            algorithm = .es256
            publicKey = try Self.p256Key(members)
        case ("OKP", "Ed25519"):
            algorithm = .edDSA
            publicKey = try Self.ed25519Key(members)
        default: return nil
        }
        if let named = object["alg"], named.string != algorithm.rawValue { return nil }
        id = object["kid"]?.string
        // OpenSSL refuses invalid keys, for example a point that is not on the curve.
        guard withKey({ _ in true }) == true else {
            throw IdentityFileError("\(members.place) must be a valid public key; it is not")
        }
    }

    /// Encodes a key of RFC 7518 §6.3.1.
    private static func rsaKey(_ members: Members) throws(IdentityFileError) -> [UInt8] {
        let modulus = try members.bytes("n").drop { $0 == 0 }
        let exponent = try members.bytes("e").drop { $0 == 0 }
        guard modulusLengths.contains(modulus.count) else {
            throw IdentityFileError("\(members.place)/n must have 2048 to 8192 bits; got \(modulus.count * 8)")
        }
        let isOdd = exponent.last.map { $0 & 1 } == 1
        guard (1...8).contains(exponent.count), isOdd, Array(exponent) != [1] else {
            throw IdentityFileError("\(members.place)/e must be an odd number from 3 to 2^64")
        }
        return DER.publicKey(DER.rsa, DER.sequence(DER.integer(Array(modulus)) + DER.integer(Array(exponent))))
    }

    /// Encodes a key of RFC 7518 §6.2.1.
    private static func p256Key(_ members: Members) throws(IdentityFileError) -> [UInt8] {
        let x = try members.bytes("x")
        let y = try members.bytes("y")
        guard x.count == numberLength, y.count == numberLength else {
            throw IdentityFileError("\(members.place)/x and y must have 32 bytes each")
        }
        return DER.publicKey(DER.p256, DER.uncompressedPoint(x, y))
    }

    /// Encodes a key of RFC 8037 §2.
    private static func ed25519Key(_ members: Members) throws(IdentityFileError) -> [UInt8] {
        let x = try members.bytes("x")
        guard x.count == numberLength else {
            throw IdentityFileError("\(members.place)/x must have 32 bytes; got \(x.count)")
        }
        return DER.publicKey(DER.ed25519, x)
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
