import Synchronization

/// A Bloom filter of users: a set with few false positives and no false negatives (Bloom, "Space/Time Trade-offs in
/// Hash Coding with Allowable Errors", 1970). Users cannot be removed. Any thread may add and query.
///
/// A user has eight bits, one in each of the eight words of a block, so that a query touches one cache line (Putze,
/// Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007). The false positive rate is one in 30
/// when the filter is full, and one in a thousand when it is half full.
final class BloomFilter: Sendable {
    /// The number of words in a block: 64 bytes, the size of a cache line.
    private static let blockSize = 8
    private static let bitsPerUser = 8

    /// The number of users that the filter is sized for.
    let capacity: Int
    // Safe: the words are atomic, and the pointer is constant.
    private nonisolated(unsafe) let words: UnsafeMutableBufferPointer<Atomic<UInt64>>
    /// The number of users added, except users whose bits were all set before.
    private let added = Atomic(0)

    /// - Parameter capacity: the number of users to size the filter for; clamped to 1...2^31.
    init(capacity: Int) {
        self.capacity = max(1, min(capacity, 1 << 31))
        let blockBytes = Self.blockSize * MemoryLayout<UInt64>.size
        let blocks = (self.capacity * Self.bitsPerUser - 1) / (blockBytes * 8) + 1
        let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: blocks * blockBytes, alignment: blockBytes)
        words = memory.bindMemory(to: Atomic<UInt64>.self)
        for index in words.indices { words.initializeElement(at: index, to: Atomic(0)) }
    }

    deinit {
        words.deallocate()
    }

    /// Memory in use, in bytes.
    var bytes: Int { words.count * MemoryLayout<UInt64>.size }

    /// Whether more users were added than the filter is sized for.
    var isFull: Bool { added.load(ordering: .relaxed) > capacity }

    func add(_ hash: UInt64) {
        let block = block(hash)
        var isNew = false
        for index in 0..<Self.blockSize {
            let bit = Self.bit(hash, index)
            let word = block + index
            guard words[word].load(ordering: .relaxed) & bit == 0 else { continue }
            words[word].bitwiseOr(bit, ordering: .relaxed)
            isNew = true
        }
        if isNew { added.add(1, ordering: .relaxed) }
    }

    /// Whether a user with this hash was added; also `true` for a few others.
    func mayContain(_ hash: UInt64) -> Bool {
        let block = block(hash)
        for index in 0..<Self.blockSize
        where words[block + index].load(ordering: .relaxed) & Self.bit(hash, index) == 0 {
            return false
        }
        return true
    }

    /// Returns the first word of the user's block. All 64 bits of the hash select the block; 48 of these bits also
    /// select the bits in the block.
    private func block(_ hash: UInt64) -> Int {
        let blocks = UInt64(words.count / Self.blockSize)
        // The constant is 2^64 divided by the golden ratio. Multiplying by it brings the lower bits of the hash into
        // the upper half of the product. The upper half, as a fraction of 2^32, is then scaled to the number of blocks.
        return Int(((hash &* 0x9E37_79B9_7F4A_7C15) >> 32 &* blocks) >> 32) * Self.blockSize
    }

    /// Returns the user's bit in one of the words of the block: six bits of the hash for each word.
    private static func bit(_ hash: UInt64, _ index: Int) -> UInt64 {
        1 << (hash >> UInt64(index * 6) & 63)
    }
}
