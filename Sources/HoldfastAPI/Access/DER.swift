/// The few forms of the Distinguished Encoding Rules (X.690) that public keys and signatures need.
enum DER {
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
