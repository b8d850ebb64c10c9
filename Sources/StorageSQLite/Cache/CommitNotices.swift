import Bucketing
import CSQLite
import Synchronization

/// Notifies each reader of this process of what commits changed, so that its cache stays current.
final class CommitNotices: Sendable {
    /// The notices that one reader has not processed yet.
    final class Inbox: Sendable {
        private struct Contents {
            var notices: [Notice] = []
            var bytes = 0
        }

        /// The approximate capacity in bytes. If the inbox of an idle reader overflows, the reader clears its cache
        /// instead.
        private static let capacity = 2 << 20
        private let contents = Mutex(Contents())
        private let isFilled = Atomic<Bool>(false)

        fileprivate func put(_ notice: Notice) {
            contents.withLock { contents in
                contents.bytes += notice.bytes
                if contents.bytes > Self.capacity {
                    contents = Contents(notices: [
                        Notice(number: notice.commit.number, changes: nil, header: notice.commit.header)
                    ])
                } else {
                    contents.notices.append(notice)
                }
            }
            isFilled.store(true, ordering: .releasing)
        }

        /// Removes and returns all notices, oldest first.
        func take() -> [Notice] {
            guard isFilled.exchange(false, ordering: .acquiring) else { return [] }
            return contents.withLock { contents in
                defer { contents = Contents() }
                return contents.notices
            }
        }
    }

    struct Notice: Sendable {
        let commit: Commit
        /// The log's header before the commit.
        let former: LogHeader?
        /// What changed; `nil` if anything may have.
        let changes: UserChanges?
        /// The approximate size of the notice.
        let bytes: Int

        init(number: Int64, changes: UserChanges?, header: LogHeader? = nil, after former: LogHeader? = nil) {
            commit = Commit(number: number, header: header)
            self.former = former
            self.changes = changes
            bytes = 192 + (changes?.size ?? 0)
        }
    }

    private let inboxes = Mutex<[Inbox]>([])
    /// The number of the commit that this process is about to make or has just made; 0 if there is none.
    private let announced = Atomic<Int64>(0)
    private let closed = Atomic<Bool>(false)

    /// Whether the store has been closed; readers then refuse to read.
    var isClosed: Bool { closed.load(ordering: .acquiring) }

    func close() {
        closed.store(true, ordering: .releasing)
    }

    func makeInbox() -> Inbox {
        let inbox = Inbox()
        inboxes.withLock { $0.append(inbox) }
        return inbox
    }

    func remove(_ inbox: Inbox) {
        inboxes.withLock { $0.removeAll { $0 === inbox } }
    }

    func announce(_ number: Int64) {
        announced.store(number, ordering: .sequentiallyConsistent)
    }

    /// Whether this process makes the commit with this number.
    func isAnnounced(_ number: Int64) -> Bool {
        number > 0 && announced.load(ordering: .sequentiallyConsistent) == number
    }

    func deliver(_ notice: Notice) {
        for inbox in inboxes.withLock({ $0 }) { inbox.put(notice) }
    }
}

/// The changes of users in a commit, in order. All readers share them across threads, so that they are one flat buffer
/// without reference counts to contend for.
///
/// ```
/// change  hash 8 | key length 4 | record length 4 | key | record | padding to 8
/// ```
struct UserChanges: Sendable {
    struct Change {
        let key: UserKey
        let content: Content
    }

    enum Content {
        /// The new record; `nil` if the profile was deleted.
        case profile(record: UnsafeRawBufferPointer?)
        case attributes
    }

    private static let headerSize = 16
    private static let noRecord = UInt32.max
    private static let attributes = UInt32.max - 1

    private var bytes: [UInt8] = []

    /// The size in bytes.
    var size: Int { bytes.count }

    /// - Parameter record: the new record; `nil` if the profile was deleted.
    mutating func appendProfile(_ record: [UInt8]?, of key: UserKey) {
        append(key, recordLength: record.map { UInt32(truncatingIfNeeded: $0.count) } ?? Self.noRecord, record ?? [])
    }

    mutating func appendAttributes(of key: UserKey) {
        append(key, recordLength: Self.attributes, [])
    }

    private mutating func append(_ key: UserKey, recordLength: UInt32, _ record: [UInt8]) {
        let lengths = (UInt32(truncatingIfNeeded: key.bytes.count), recordLength)
        withUnsafeBytes(of: key.hash) { bytes.append(contentsOf: $0) }
        withUnsafeBytes(of: lengths) { bytes.append(contentsOf: $0) }
        bytes.append(contentsOf: key.bytes)
        bytes.append(contentsOf: record)
        while bytes.count % 8 != 0 { bytes.append(0) }
    }

    func forEach(_ body: (Change) -> Void) {
        bytes.withUnsafeBytes { all in
            var rest = all[...]
            while rest.count >= Self.headerSize {
                let start = UnsafeRawBufferPointer(rebasing: rest)
                let keyLength = Int(start.load(fromByteOffset: 8, as: UInt32.self))
                let recordLength = start.load(fromByteOffset: 12, as: UInt32.self)
                let hasRecord = recordLength < Self.attributes
                let recordStart = Self.headerSize + keyLength
                let end = recordStart + (hasRecord ? Int(recordLength) : 0)
                let key = UserKey(
                    bytes: UnsafeRawBufferPointer(rebasing: start[Self.headerSize..<recordStart]),
                    hash: start.load(as: UInt64.self))
                let record = hasRecord ? UnsafeRawBufferPointer(rebasing: start[recordStart..<end]) : nil
                body(
                    Change(key: key, content: recordLength == Self.attributes ? .attributes : .profile(record: record)))
                rest = rest.dropFirst((end + 7) & ~7)
            }
        }
    }
}

/// Identifies a commit. Commits of Holdfast raise the number; those of other programs change only the header.
struct Commit: Equatable, Sendable {
    /// The counter in the database.
    var number: Int64
    /// The log's header after the commit; `nil` if unknown.
    var header: LogHeader?
}

/// A copy of the header of the write-ahead log's index. It contains a count of commits and the log's checksums: if two
/// copies are equal, nothing was committed between them.
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

    /// Whether this is the header after the next commit.
    func isNext(after former: LogHeader) -> Bool {
        commits == former.commits &+ 1
    }

    /// The offset of the log's end, and the size of a page in it, in bytes: https://sqlite.org/walformat.html, section
    /// 1.
    var end: (offset: Int64, frameSize: Int64) {
        withUnsafeBytes(of: words) { words in
            // 65,536 is encoded as 1.
            let pageSize = Int64(words.load(fromByteOffset: 14, as: UInt16.self))
            let frameSize = 24 + (pageSize == 1 ? 65_536 : pageSize)
            return (32 + Int64(words.load(fromByteOffset: 16, as: UInt32.self)) * frameSize, frameSize)
        }
    }

    /// The number of frames in the log.
    var frames: UInt32 { withUnsafeBytes(of: words) { $0.load(fromByteOffset: 16, as: UInt32.self) } }

    /// The checksum of all frames.
    var checksum: (UInt32, UInt32) {
        withUnsafeBytes(of: words) {
            ($0.load(fromByteOffset: 24, as: UInt32.self), $0.load(fromByteOffset: 28, as: UInt32.self))
        }
    }

    /// The salts, which change whenever the log restarts, as they are in the log's header.
    var salts: [UInt8] { withUnsafeBytes(of: words) { Array($0[32..<40]) } }

    /// `iChange` in SQLite's wal.c: raised by every commit, and by nothing else.
    private var commits: UInt32 {
        withUnsafeBytes(of: words) { $0.load(fromByteOffset: 8, as: UInt32.self) }
    }

    static func == (one: LogHeader, other: LogHeader) -> Bool {
        one.words == other.words
    }
}

/// How much of the write-ahead log is in the database, as the log's index says.
struct LogCopying: Equatable, Sendable {
    let salts: [UInt8]
    /// `nBackfill` (https://sqlite.org/walformat.html, section 2.1): how many frames are in the database.
    let copied: UInt32
    /// `nBackfillAttempted`: how many frames a checkpoint has begun to copy.
    let attempted: UInt32

    init(salts: [UInt8], at index: UnsafeRawPointer) {
        self.salts = salts
        copied = csqlite_index_word(index, 24)
        attempted = csqlite_index_word(index, 32)
    }

    /// Whether the database changes only after another checkpoint has announced itself.
    var isComplete: Bool { copied == attempted }
}
