// For `memcmp`.
#if canImport(Darwin)
    internal import Darwin
#elseif canImport(Musl)
    internal import Musl
#else
    internal import Glibc
#endif

extension UnsafeRawBufferPointer {
    /// Whether both buffers hold the same bytes. `elementsEqual` would compare them one by one.
    package func hasSameBytes(as other: UnsafeRawBufferPointer) -> Bool {
        guard count == other.count, let left = baseAddress, let right = other.baseAddress else {
            return count == other.count
        }
        return memcmp(left, right, count) == 0
    }

    /// Whether these bytes sort before others. `lexicographicallyPrecedes` would compare them one by one.
    package func precedes(_ other: UnsafeRawBufferPointer) -> Bool {
        guard let left = baseAddress, let right = other.baseAddress else { return count < other.count }
        let order = memcmp(left, right, Swift.min(count, other.count))
        return order == 0 ? count < other.count : order < 0
    }

    package func hasSameBytes(as text: StaticString) -> Bool {
        hasSameBytes(as: UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    }

    /// Whether the bytes of another buffer occur in this one. Takes time linear to the length of this buffer
    /// (Rabin-Karp): compares bytes only where a rolling hash agrees.
    package func containsBytes(of other: UnsafeRawBufferPointer) -> Bool {
        guard count >= other.count else { return false }
        let base: UInt64 = 0x9E37_79B9_7F4A_7C15
        var (sought, hash, power): (UInt64, UInt64, UInt64) = (0, 0, 1)
        for index in other.indices {
            sought = sought &* base &+ UInt64(other[index])
            hash = hash &* base &+ UInt64(self[index])
            power = power &* base
        }
        var start = 0
        while true {
            if hash == sought,
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
    /// Whether both strings have the same UTF-8 bytes. `==` compares by canonical equivalence.
    public func hasSameBytes(as other: String) -> Bool {
        guard utf8.count == other.utf8.count else { return false }
        let isSame = utf8.withContiguousStorageIfAvailable { left in
            other.utf8.withContiguousStorageIfAvailable { right in
                UnsafeRawBufferPointer(left).hasSameBytes(as: UnsafeRawBufferPointer(right))
            }
        }
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
    /// The text as a part of a URL: only unreserved characters (RFC 3986 §2.3) stay as they are.
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
