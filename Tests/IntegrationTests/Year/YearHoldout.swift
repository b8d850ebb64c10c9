/// The holdout of the year, whose users the hash of their ids decides, computed without the server's code.
struct YearHoldout {
    static let key = "everyone"
    /// A percentage.
    static let share = 20
    /// The flag whose decision counts a user.
    static let flag = "home"

    let id: String

    func keepsOut(_ userID: String) -> Bool {
        (UInt64(Self.hash(Array((userID + id).utf8))) * 10_000) >> 32 < UInt64(Self.share * 100)
    }

    /// MurmurHash3, x86, 32 bits, with seed 1, after the description of its author, Austin Appleby.
    private static func hash(_ bytes: [UInt8]) -> UInt32 {
        func turned(_ word: UInt32, _ bits: UInt32) -> UInt32 { word << bits | word >> (32 - bits) }
        var hash: UInt32 = 1
        for start in stride(from: 0, to: bytes.count, by: 4) {
            let block = bytes[start..<min(start + 4, bytes.count)]
            var word = block.reversed().reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
            word = turned(word &* 0xCC9E_2D51, 15) &* 0x1B87_3593
            hash ^= word
            if block.count == 4 { hash = turned(hash, 13) &* 5 &+ 0xE654_6B64 }
        }
        hash ^= UInt32(bytes.count)
        hash = (hash ^ hash >> 16) &* 0x85EB_CA6B
        hash = (hash ^ hash >> 13) &* 0xC2B2_AE35
        return hash ^ hash >> 16
    }
}
