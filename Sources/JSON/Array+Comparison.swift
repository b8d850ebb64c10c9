extension Array {
    /// Returns the indices at which another list has other bits, or no element, in ascending order.
    ///
    /// A value that was copied and not changed since has the same bits, whatever it refers to. So the result has all places
    /// that differ, and two lists of which an edit has changed a few elements are compared as fast as memory is read. The
    /// result may also have places with equal values, for example a text that was made twice. Do not use it for values with
    /// unused bits, such as enumerations with payloads of different sizes: copies need not have these.
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
        let blockSize = 64
        var places: [Int] = []
        for block in stride(from: 0, to: count, by: blockSize) {
            let end = Swift.min(block + blockSize, count)
            if hasSameBits(as: other, in: block * size..<end * size) { continue }
            places += (block..<end).filter { !hasSameBits(as: other, in: $0 * size..<($0 + 1) * size) }
        }
        return places
    }

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
