extension [UInt8] {
    /// Changes some bytes, as a fuzzer does.
    ///
    /// - Parameter others: inputs whose parts may be inserted.
    public func mutated(with others: [[UInt8]], using random: inout SeededGenerator) -> [UInt8] {
        var result = self
        for _ in 0..<Int.random(in: 1...6, using: &random) { result.mutate(with: others, using: &random) }
        return result
    }

    /// Bytes that are special to one of the parsers.
    private static let telling = Array("\r\n \t:;,%/?#*+&=0aF\"\\{}[]-.e".utf8) + [0, 0x7F, 0x80, 0xC0, 0xED, 0xFF]

    private mutating func mutate(with others: [[UInt8]], using random: inout SeededGenerator) {
        let place = Int.random(in: 0...count, using: &random)
        let end = Swift.min(count, place + Int.random(in: 1...16, using: &random))
        switch Int.random(in: 0..<7, using: &random) {
        case 0 where place < count: self[place] = Self.telling.randomElement(using: &random) ?? 0
        case 1 where place < count: self[place] ^= 1 << UInt8.random(in: 0..<8, using: &random)
        case 2: removeSubrange(place..<end)
        case 3: insert(contentsOf: self[place..<end], at: place)
        case 4:
            let other = others.randomElement(using: &random) ?? []
            let start = Int.random(in: 0...other.count, using: &random)
            insert(contentsOf: other[start...].prefix(Int.random(in: 1...32, using: &random)), at: place)
        case 5: removeSubrange(place...)
        default: insert(Self.telling.randomElement(using: &random) ?? 0, at: place)
        }
    }
}
