// Comparisons of bytes with `memcmp`, which compares blocks; `elementsEqual` would compare byte by byte. The `==` of
// `String` compares by canonical equivalence instead: "é" as one scalar equals "é" as two.

#if canImport(Darwin)
    internal import Darwin
#elseif canImport(Musl)
    internal import Musl
#else
    internal import Glibc
#endif

extension UnsafeRawBufferPointer {
    /// Whether both buffers hold the same bytes.
    package func hasSameBytes(as other: UnsafeRawBufferPointer) -> Bool {
        guard count == other.count, let left = baseAddress, let right = other.baseAddress else {
            return count == other.count
        }
        return memcmp(left, right, count) == 0
    }

    /// Whether these bytes sort before others.
    package func precedes(_ other: UnsafeRawBufferPointer) -> Bool {
        guard let left = baseAddress, let right = other.baseAddress else { return count < other.count }
        let order = memcmp(left, right, Swift.min(count, other.count))
        return order == 0 ? count < other.count : order < 0
    }

    package func hasSameBytes(as text: StaticString) -> Bool {
        hasSameBytes(as: UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    }

    /// Whether the bytes of another buffer occur in this one.
    ///
    /// The algorithm of Rabin and Karp: a hash of the bytes at each position is computed from that of the position
    /// before, and bytes are compared only where the hashes agree. The time is linear in the length of this buffer.
    package func containsBytes(of other: UnsafeRawBufferPointer) -> Bool {
        guard count >= other.count else { return false }
        // An odd number with well-mixed bits: 2^64 divided by the golden ratio.
        let base: UInt64 = 0x9E37_79B9_7F4A_7C15
        var soughtHash: UInt64 = 0
        var hash: UInt64 = 0
        // The factor of the first byte, which is subtracted when the position moves on.
        var power: UInt64 = 1
        for index in other.indices {
            soughtHash = soughtHash &* base &+ UInt64(other[index])
            hash = hash &* base &+ UInt64(self[index])
            power = power &* base
        }
        var start = 0
        while true {
            if hash == soughtHash,
                UnsafeRawBufferPointer(rebasing: self[start..<start + other.count]).hasSameBytes(as: other)
            {
                return true
            }
            guard start + other.count < count else { return false }
            hash = hash &* base &+ UInt64(self[start + other.count]) &- power &* UInt64(self[start])
            start += 1
        }
    }
}

extension String {
    /// Whether both strings have the same UTF-8 bytes.
    public func hasSameBytes(as other: String) -> Bool {
        guard utf8.count == other.utf8.count else { return false }
        let isSame = utf8.withContiguousStorageIfAvailable { left in
            other.utf8.withContiguousStorageIfAvailable { right in
                UnsafeRawBufferPointer(left).hasSameBytes(as: UnsafeRawBufferPointer(right))
            }
        }
        // Only strings bridged from Objective-C have no contiguous storage.
        return (isSame ?? nil) ?? utf8.elementsEqual(other.utf8)
    }

    /// Whether the UTF-8 bytes of another string occur in this one.
    package func containsBytes(of other: String) -> Bool {
        var haystack = self
        var needle = other
        return haystack.withUTF8 { haystack in
            needle.withUTF8 { UnsafeRawBufferPointer(haystack).containsBytes(of: UnsafeRawBufferPointer($0)) }
        }
    }

    /// Whether this string sorts before another by its UTF-8 bytes.
    package func precedesByBytes(_ other: String) -> Bool {
        var (left, right) = (self, other)
        return left.withUTF8 { left in
            right.withUTF8 { right in UnsafeRawBufferPointer(left).precedes(UnsafeRawBufferPointer(right)) }
        }
    }
}

extension String {
    /// The text as a component of a URL: all bytes but those of unreserved characters are percent-encoded (RFC 3986
    /// §2).
    package var percentEncoded: String {
        var text = ""
        for byte in utf8 {
            let isUnreserved =
                (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte) || (0x61...0x7A).contains(byte)
                || "-_.~".utf8.contains(byte)
            if isUnreserved {
                text.unicodeScalars.append(Unicode.Scalar(byte))
            } else {
                let digits = String(byte, radix: 16, uppercase: true)
                text += "%" + (digits.count == 1 ? "0" : "") + digits
            }
        }
        return text
    }
}
