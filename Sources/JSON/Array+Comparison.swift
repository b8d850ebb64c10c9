extension Array {
    /// Returns the indices at which another list has other bits, or no element, in ascending order.
    ///
    /// A value that was copied and not changed since has the same bits, whatever it refers to. So the result has all places
    /// that differ, and two lists of which an edit has changed a few elements are compared as fast as memory is read. The
    /// result may also have places with equal values, for example a text that was made twice.
    package func unsharedPlaces(with other: [Element]) -> [Int] {
        let stride = MemoryLayout<Element>.stride
        return withUnsafeBytes { bytes in
            other.withUnsafeBytes { others in
                indices.filter { index in
                    index >= other.count
                        || !bytes.hasSameBits(as: others, in: index * stride..<(index + 1) * stride)
                }
            }
        }
    }
}

extension UnsafeRawBufferPointer {
    private static var wordSize: Int { MemoryLayout<UInt64>.size }

    /// Whether another buffer has the same bytes in a range that both have.
    fileprivate func hasSameBits(as other: UnsafeRawBufferPointer, in range: Range<Int>) -> Bool {
        let wordsEnd = range.upperBound - range.count % Self.wordSize
        for offset in Swift.stride(from: range.lowerBound, to: wordsEnd, by: Self.wordSize)
        where loadUnaligned(fromByteOffset: offset, as: UInt64.self)
            != other.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
        {
            return false
        }
        return self[wordsEnd..<range.upperBound].elementsEqual(other[wordsEnd..<range.upperBound])
    }
}
