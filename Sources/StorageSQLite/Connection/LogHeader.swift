import CSQLite

/// The header of the write-ahead log's index at a moment. It holds a count of the commits and the log's checksums, so
/// that two that are equal mean that nothing was committed between them.
struct LogHeader: Equatable {
    private typealias Words = (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64)
    private var words: Words = (0, 0, 0, 0, 0, 0)

    /// - Parameter index: the beginning of the log's index in shared memory.
    init(at index: UnsafeRawPointer) {
        withUnsafeMutableBytes(of: &words) { words in
            if let first = words.assumingMemoryBound(to: UInt64.self).baseAddress {
                csqlite_copy_log_header(index, first)
            }
        }
    }

    static func == (one: LogHeader, other: LogHeader) -> Bool {
        one.words == other.words
    }
}
