import Bucketing
import JSON

extension FuzzTarget {
    /// A value that was written is read as the same value.
    static let json = FuzzTarget(name: "json") { bytes in
        let tolerant = JSONParser(maximumDepth: 32)
        guard let value = try? tolerant.parse(bytes) else {
            if (try? JSONParser(maximumDepth: 32, duplicateKeys: .refused).parse(bytes)) != nil {
                throw Finding("refused with duplicates allowed, and accepted with duplicates refused")
            }
            return
        }
        try expectSame(tolerant.parse(value.encoded()), value, "written and read again")
        let sorted = try tolerant.parse(value.encoded(sortingKeys: true))
        try expectSame(sorted.encoded(sortingKeys: true), value.encoded(sortingKeys: true), "sorted twice")
        if let strict = try? JSONParser(maximumDepth: 32, duplicateKeys: .refused).parse(bytes) {
            try expectSame(strict, value, "with duplicates refused")
        }
    }
}
