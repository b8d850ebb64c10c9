extension Array {
    /// Returns the indices at which another list has other bits, or no element, in ascending order.
    ///
    /// An unchanged copy of a value has the same bits as the value, even if the value contains references. So the
    /// result has every place at which the values differ. Only the memory of the lists is compared, and no `==` is
    /// called. This is fast for two lists of which an edit has changed a few elements.
    ///
    /// The result may also have places with equal values, for example a text that was created twice. Do not use it for
    /// values with unused bits, such as enumerations with payloads of different sizes: the unused bits of a copy may
    /// differ.
    package func unsharedPlaces(with other: [Element]) -> [Int] {
        let size = MemoryLayout<Element>.stride
        let common = Swift.min(count, other.count)
        let places = withUnsafeBytes { bytes in
            other.withUnsafeBytes { bytes.placesOfOtherBits(than: $0, ofEach: size, upTo: common) }
        }
        return places + Array<Int>(common..<count)
    }
}

extension UnsafeRawBufferPointer {
    /// Returns the indices of the elements whose bits differ.
    ///
    /// - Parameters:
    ///   - size: of an element, in bytes.
    ///   - count: the number of elements that both buffers have.
    fileprivate func placesOfOtherBits(
        than other: UnsafeRawBufferPointer, ofEach size: Int, upTo count: Int
    ) -> [Int] {
        // In elements. Most blocks of an edited list have the same bits, and are skipped as a whole.
        let blockSize = 64
        var places: [Int] = []
        for block in stride(from: 0, to: count, by: blockSize) {
            let end = Swift.min(block + blockSize, count)
            if hasSameBits(as: other, in: block * size..<end * size) { continue }
            places += (block..<end).filter { !hasSameBits(as: other, in: $0 * size..<($0 + 1) * size) }
        }
        return places
    }

    /// Compares eight bytes at once, and the remaining bytes one by one.
    private func hasSameBits(as other: UnsafeRawBufferPointer, in range: Range<Int>) -> Bool {
        let wordSize = MemoryLayout<UInt64>.size
        let wordsEnd = range.upperBound - range.count % wordSize
        for offset in stride(from: range.lowerBound, to: wordsEnd, by: wordSize)
        where loadUnaligned(fromByteOffset: offset, as: UInt64.self)
            != other.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
        {
            return false
        }
        return self[wordsEnd..<range.upperBound].elementsEqual(other[wordsEnd..<range.upperBound])
    }
}
