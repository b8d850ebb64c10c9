import CSQLite

/// What a commit left. Commits of Holdfast count up the number; those of other programs change the header alone.
struct Commit: Equatable, Sendable {
    /// In the database.
    var number: Int64
    /// Of the log; `nil` when it is not known.
    var header: LogHeader?
}

/// The header of the write-ahead log's index at a moment. It holds a count of the commits and the log's checksums, so
/// that two that are equal mean that nothing was committed between them.
struct LogHeader: Equatable, Sendable {
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

    /// Whether this is the header that the first commit after another header left.
    func isNext(after former: LogHeader) -> Bool {
        commits == former.commits &+ 1
    }

    /// Where the log ends, and what a page takes in it, in bytes: https://sqlite.org/walformat.html, section 1.
    var end: (offset: Int64, frameSize: Int64) {
        withUnsafeBytes(of: words) { words in
            // 65536 is written as 1.
            let pageSize = Int64(words.load(fromByteOffset: 14, as: UInt16.self))
            let frameSize = 24 + (pageSize == 1 ? 65_536 : pageSize)
            return (32 + Int64(words.load(fromByteOffset: 16, as: UInt32.self)) * frameSize, frameSize)
        }
    }

    /// "iChange" in SQLite's wal.c: every commit counts it up, and nothing else does.
    private var commits: UInt32 {
        withUnsafeBytes(of: words) { $0.load(fromByteOffset: 8, as: UInt32.self) }
    }

    static func == (one: LogHeader, other: LogHeader) -> Bool {
        one.words == other.words
    }
}
