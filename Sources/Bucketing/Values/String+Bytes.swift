internal import Glibc

extension UnsafeRawBufferPointer {
    /// Whether both hold the same bytes. A comparison of sequences would take them one by one.
    package func hasSameBytes(as other: UnsafeRawBufferPointer) -> Bool {
        guard count == other.count, let left = baseAddress, let right = other.baseAddress else {
            return count == other.count
        }
        return memcmp(left, right, count) == 0
    }

    package func hasSameBytes(as text: StaticString) -> Bool {
        hasSameBytes(as: UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    }
}

extension String {
    /// Whether both texts have the same UTF-8 bytes; `==` asks for canonical equivalence only.
    @usableFromInline
    func hasSameBytes(as other: String) -> Bool {
        guard utf8.count == other.utf8.count else { return false }
        let answer = utf8.withContiguousStorageIfAvailable { left in
            other.utf8.withContiguousStorageIfAvailable { right in
                UnsafeRawBufferPointer(left).hasSameBytes(as: UnsafeRawBufferPointer(right))
            }
        }
        return (answer ?? nil) ?? utf8.elementsEqual(other.utf8)
    }

    /// Whether the UTF-8 bytes of another text occur in this one.
    func containsBytes(of other: String) -> Bool {
        var haystack = self
        var needle = other
        return haystack.withUTF8 { haystack in
            needle.withUTF8 { needle in
                guard needle.count <= haystack.count else { return false }
                return (0...haystack.count - needle.count).contains { start in
                    haystack[start..<start + needle.count].elementsEqual(needle)
                }
            }
        }
    }
}
