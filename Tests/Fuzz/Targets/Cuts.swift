import TestSupport

/// Ways to cut an input into pieces: a few, many, and single bytes. The positions are derived from the bytes, so a finding
/// is reproducible from its input alone.
enum Cuts {
    /// Returns the ends of the pieces, ascending; the last one is the end of the input.
    static func all(of bytes: [UInt8]) -> [[Int]] {
        var random = generator(for: bytes)
        let few = (0..<Int.random(in: 1...3, using: &random)).map { _ in Int.random(in: 0...bytes.count, using: &random)
        }
        var many: [Int] = []
        var place = 0
        while place < bytes.count {
            place += Int.random(in: 1...16, using: &random)
            many.append(min(place, bytes.count))
        }
        return [few.sorted() + [bytes.count], many, Array(1..<bytes.count + 1)]
    }

    /// Returns random numbers seeded by the input (FNV-1a).
    static func generator(for bytes: [UInt8]) -> SeededGenerator {
        SeededGenerator(seed: bytes.reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 })
    }
}
