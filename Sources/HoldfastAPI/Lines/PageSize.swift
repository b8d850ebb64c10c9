/// How many rows an export reads at once: as many as make a piece of about 128 KiB, however long rows are.
struct PageSize {
    private(set) var rows: Int
    private let most: Int
    private static let pieceLength = 128 * 1024

    /// - Parameter most: rows of a page at the most.
    init(atMost most: Int) {
        self.most = most
        rows = min(most, 4)
    }

    /// - Parameter length: bytes that the last page made.
    mutating func adjust(to length: Int) {
        if length > Self.pieceLength { rows = max(1, rows / 2) }
        if length < Self.pieceLength / 2 { rows = min(most, rows * 2) }
    }
}
