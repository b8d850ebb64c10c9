import Bucketing
import Synchronization

/// A set of users of which it is certain who is not in it: whoever was added is found, and few others are (Bloom,
/// "Space/Time Trade-offs in Hash Coding with Allowable Errors", 1970). Nobody can be taken out. Any thread may add
/// and look.
///
/// The bits of a user lie in one block of eight words, one bit in each, so that a look costs one line of the
/// processor's cache (Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007). Of others, one
/// in 30 is found when the filter is full, and one in a thousand when it is half full.
final class BloomFilter: Sendable {
    /// Words.
    private static let blockSize = 8
    private static let bitsPerUser = 8

    /// Users for whom there is room.
    let capacity: Int
    // Safe: the words are atomic, and the pointer is constant.
    private nonisolated(unsafe) let words: UnsafeMutableBufferPointer<Atomic<UInt64>>
    private let added = Atomic(0)

    /// - Parameter capacity: at least 1; up to 2^31 are made room for.
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

    /// Bytes in use.
    var bytes: Int { words.count * MemoryLayout<UInt64>.size }

    /// Whether so many were added that too many others are found.
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

    func mayContain(_ hash: UInt64) -> Bool {
        let block = block(hash)
        for index in 0..<Self.blockSize
        where words[block + index].load(ordering: .relaxed) & Self.bit(hash, index) == 0 {
            return false
        }
        return true
    }

    /// Where the user's block begins. The bits in it are chosen by 48 bits of the hash, the block by all 64 of them.
    private func block(_ hash: UInt64) -> Int {
        let blocks = UInt64(words.count / Self.blockSize)
        return Int(((hash &* 0x9E37_79B9_7F4A_7C15) >> 32 &* blocks) >> 32) * Self.blockSize
    }

    private static func bit(_ hash: UInt64, _ index: Int) -> UInt64 {
        1 << (hash >> UInt64(index * 6) & 63)
    }
}
