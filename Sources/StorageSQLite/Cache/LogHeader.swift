import CSQLite

/// Identifies a commit. A commit of Holdfast raises the number; a commit of another program changes only the header.
struct Commit: Equatable, Sendable {
    /// The value of `commits` in the table `counters`.
    var number: Int64
    /// The log's header after the commit; `nil` if unknown.
    var header: LogHeader?
}

/// A copy of the header of the write-ahead log's index. The header contains a count of commits and the log's checksums,
/// so if two copies are equal, nothing was committed between them.
///
/// The offsets of the fields are in https://sqlite.org/walformat.html, section 2.1.
struct LogHeader: Equatable, Sendable {
    private typealias Words = (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64)
    private var words: Words = (0, 0, 0, 0, 0, 0)

    /// - Parameter index: the start of the log's index in shared memory.
    init(at index: UnsafeRawPointer) {
        withUnsafeMutableBytes(of: &words) { words in
            if let first = words.assumingMemoryBound(to: UInt64.self).baseAddress {
                csqlite_copy_log_header(index, first)
            }
        }
    }

    /// Whether exactly one commit lies between another header and this one.
    func isNext(after former: LogHeader) -> Bool {
        commits == former.commits &+ 1
    }

    /// The offset of the log's end, and the size of a frame of the log (a page with its header), in bytes; see
    /// https://sqlite.org/walformat.html, section 1.
    var end: (offset: Int64, frameSize: Int64) {
        withUnsafeBytes(of: words) { words in
            // The header of the log has 32 bytes, and the header of a frame has 24. A page size of 65,536 is encoded as
            // 1, because it does not fit into two bytes.
            let pageSize = Int64(words.load(fromByteOffset: 14, as: UInt16.self))
            let frameSize = 24 + (pageSize == 1 ? 65_536 : pageSize)
            return (32 + Int64(words.load(fromByteOffset: 16, as: UInt32.self)) * frameSize, frameSize)
        }
    }

    /// The number of frames in the log.
    var frames: UInt32 { withUnsafeBytes(of: words) { $0.load(fromByteOffset: 16, as: UInt32.self) } }

    /// The two halves of the checksum over all frames.
    var checksum: (UInt32, UInt32) {
        withUnsafeBytes(of: words) {
            ($0.load(fromByteOffset: 24, as: UInt32.self), $0.load(fromByteOffset: 28, as: UInt32.self))
        }
    }

    /// The salts in the log's header, which change whenever the log restarts.
    var salts: [UInt8] { withUnsafeBytes(of: words) { Array($0[32..<40]) } }

    /// `iChange` in SQLite's wal.c. Every commit raises it by one, and nothing else does.
    private var commits: UInt32 {
        withUnsafeBytes(of: words) { $0.load(fromByteOffset: 8, as: UInt32.self) }
    }

    static func == (one: LogHeader, other: LogHeader) -> Bool {
        one.words == other.words
    }
}

/// How much of the write-ahead log is copied into the database, according to the log's index.
struct LogCopying: Equatable, Sendable {
    /// The ``LogHeader/salts`` of the log, which distinguish it from the log before its restart.
    let salts: [UInt8]
    /// `nBackfill` (https://sqlite.org/walformat.html, section 2.1): the number of frames that are copied.
    let copied: UInt32
    /// `nBackfillAttempted`: the number of frames that a checkpoint has begun to copy.
    let attempted: UInt32

    /// - Parameter index: the start of the log's index in shared memory.
    init(salts: [UInt8], at index: UnsafeRawPointer) {
        self.salts = salts
        // The index is read in words of four bytes: `nBackfill` is at byte 96, and `nBackfillAttempted` at byte 128.
        copied = csqlite_index_word(index, 24)
        attempted = csqlite_index_word(index, 32)
    }

    /// Whether no checkpoint is copying. The database file changes only after a checkpoint has raised ``attempted``.
    var isComplete: Bool { copied == attempted }
}
