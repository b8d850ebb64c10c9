/// Where the parts of a path stand that a pattern names.
struct PathParameters {
    static let maximum = 4

    private(set) var count = 0
    private var ranges = InlineArray<4, Range<Int>>(repeating: 0..<0)

    subscript(index: Int) -> Range<Int> { ranges[index] }

    mutating func append(_ range: Range<Int>) {
        ranges[count] = range
        count += 1
    }

    mutating func removeLast() {
        count -= 1
    }
}
