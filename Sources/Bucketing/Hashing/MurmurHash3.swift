/// MurmurHash3 in its x86 32-bit form, by Austin Appleby (public domain).
public enum MurmurHash3 {
    public static func hash(_ bytes: UnsafeRawBufferPointer, seed: UInt32) -> UInt32 {
        var hash = seed
        let blockEnd = bytes.count & ~3
        for offset in stride(from: 0, to: blockEnd, by: 4) {
            let block = UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self))
            hash = rotate(hash ^ scramble(block), by: 13) &* 5 &+ 0xE654_6B64
        }
        var tail: UInt32 = 0
        for offset in (blockEnd..<bytes.count).reversed() {
            tail = tail << 8 | UInt32(bytes[offset])
        }
        hash ^= scramble(tail)
        return finalize(hash ^ UInt32(truncatingIfNeeded: bytes.count))
    }

    private static func scramble(_ block: UInt32) -> UInt32 {
        rotate(block &* 0xCC9E_2D51, by: 15) &* 0x1B87_3593
    }

    private static func finalize(_ hash: UInt32) -> UInt32 {
        var mixed = hash
        mixed = (mixed ^ mixed >> 16) &* 0x85EB_CA6B
        mixed = (mixed ^ mixed >> 13) &* 0xC2B2_AE35
        return mixed ^ mixed >> 16
    }

    private static func rotate(_ value: UInt32, by count: UInt32) -> UInt32 {
        value << count | value >> (32 - count)
    }
}
