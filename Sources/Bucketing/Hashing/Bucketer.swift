/// Maps a user to a bucket value from 0 to 9,999 that depends only on the bucketing id and the id of the experiment. A
/// ``TrafficAllocation`` maps the bucket value to a variation. So a user gets the same variation each time, without any
/// stored data, and users are spread independently in different experiments.
///
/// Bit-exact with the `bucketer` of Optimizely's Python SDK, so that this server and SDKs decide alike.
public enum Bucketer {
    /// The number of bucket values, which are `0..<10_000`.
    public static let bucketCount = 10_000

    /// Returns the MurmurHash3 of both texts concatenated, with seed 1.
    public static func hash(bucketingID: Identifier, parentID: Identifier) -> UInt32 {
        var first = bucketingID.string
        var second = parentID.string
        return first.withUTF8 { first in
            second.withUTF8 { second in
                withUnsafeTemporaryAllocation(byteCount: first.count + second.count, alignment: 4) { joined in
                    joined.copyBytes(from: first)
                    UnsafeMutableRawBufferPointer(rebasing: joined[first.count...]).copyBytes(from: second)
                    return MurmurHash3.hash(UnsafeRawBufferPointer(joined), seed: 1)
                }
            }
        }
    }

    /// Returns the bucket value of a hash, computed in double precision like Optimizely's Python SDK.
    public static func bucketValue(ofHash hash: UInt32) -> Int {
        Int(Double(hash) / hashCount * Double(bucketCount))
    }

    /// The number of 32-bit hashes.
    private static let hashCount = 4_294_967_296.0

    /// Returns the bucket value of a user, and the entity that owns it in the traffic allocation.
    ///
    /// - Parameter parentID: the id of the experiment whose variation is wanted, or of the group whose experiment is
    ///   wanted.
    public static func bucket(
        bucketingID: Identifier, parentID: Identifier, trafficAllocation: TrafficAllocation
    ) -> BucketingResult {
        let hash = hash(bucketingID: bucketingID, parentID: parentID)
        let value = bucketValue(ofHash: hash)
        return BucketingResult(hash: hash, bucketValue: value, entityID: trafficAllocation.entity(at: value))
    }
}

/// Where a user is bucketed.
public struct BucketingResult: Sendable, Equatable {
    public var hash: UInt32
    /// 0..<10000.
    public var bucketValue: Int
    /// The variation, or the experiment of a group, that owns the bucket value; `nil` if none does.
    public var entityID: Identifier?
}

/// MurmurHash3, the x86 32-bit variant, by Austin Appleby (public domain). All constants are those of the algorithm.
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
