import Bucketing
import Dispatch
import Storage
import Synchronization

/// Filters out users without a profile. Without it, looking up a new user in the database would be the most expensive
/// part of a decision.
///
/// A background scan of the database fills a Bloom filter when it is first missed. Why the filter is never stale:
///
/// - Before the scan reads anything, the writer starts to add every new user before the commit.
/// - The scan first reads the number of the last commit. It sees all users of the commits up to this one, unless they
///   were deleted since, and the writer adds the users of its own later commits.
/// - A commit of another process or program may add any user. The filter is complete as of the last in an unbroken
///   sequence of this process's commits, and serves only readers that know this commit as the last one. The writer's
///   next commit detects a gap in the sequence, by its number or by the log's header before it, and drops the filter. A
///   scan fills a new one after a pause; a process that never writes has none.
///
/// A filter that exceeds its capacity is used until a scan has filled a new one.
final class UserFilter: Sendable {
    private struct State {
        /// The last in the unbroken sequence of this process's commits.
        var last = Commit(number: -1)
        /// The hashes of the users added by the commit in progress, or by the last commit.
        var newUsers: [UInt64] = []
        /// Contains all users as of `last`.
        var complete: BloomFilter?
        /// Contains the users scanned so far, and all that were added since the scan began.
        var growing: BloomFilter?
        var isScanning = false
        var nextScan = DispatchTime(uptimeNanoseconds: 0)
        var isClosed = false
    }

    /// The number of users that a scan reads in one step: few, because a step pins the write-ahead log.
    private static let scanStep = 250
    /// After each step a scan pauses for this multiple of the step's time, to leave disk and processor to others.
    private static let stepPauseFactor = 3.0
    /// After a scan there is none for this multiple of its time.
    private static let pauseFactor = 10.0
    /// The minimum size of a profile in the file, in bytes.
    private static let minimumProfileSize = 8

    private static let executor = DispatchExecutor(label: "user-scan", qos: .utility)
    private let state = Mutex(State())
    private let file: DatabaseFile
    private let reader: BackgroundReader
    private let pause: Double
    private let minimumCapacity: Int

    init(file: DatabaseFile, configuration: SQLiteConfiguration) {
        self.file = file
        reader = BackgroundReader(file: file, lockTimeout: configuration.lockTimeout, name: "sqlite-filter")
        pause = configuration.userScanPause
        minimumCapacity = configuration.minimumUserCapacity
    }

    func close() {
        state.withLock { state in
            state.isClosed = true
            (state.complete, state.growing) = (nil, nil)
        }
        reader.close()
    }

    /// Memory in use, in bytes.
    var bytes: Int {
        state.withLock { ($0.complete?.bytes ?? 0) + ($0.growing?.bytes ?? 0) }
    }

    var isScanning: Bool { state.withLock(\.isScanning) }

    // MARK: Readers

    /// Returns the filter for a reader that knows this commit as the last one.
    func filter(asOf commit: Commit) -> BloomFilter? {
        state.withLock { commit == $0.last ? $0.complete : nil }
    }

    // MARK: The writer

    /// The last in the unbroken sequence of this process's commits.
    var last: Commit { state.withLock(\.last) }

    /// The filter as a hint: it may lack users that another process has added.
    var latestFilter: BloomFilter? { state.withLock { $0.complete } }

    /// Adds the users of a commit. Call it before the commit.
    ///
    /// - Parameter users: the hashes of the users.
    func add(_ users: [UInt64]) {
        state.withLock { state in
            state.newUsers = users
            for filter in [state.complete, state.growing] {
                for user in users { filter?.add(user) }
            }
        }
    }

    /// Records a commit of this process, or the last commit when the store is opened.
    ///
    /// - Parameter former: the header of the log before the commit.
    func didCommit(_ commit: Commit, after former: LogHeader?) {
        let hasNewUsers = state.withLock { state in
            // A scan may have seen the commit before this call.
            if commit != state.last {
                let isNext = commit.number &- 1 == state.last.number && former == state.last.header
                // The scan's last commit may be from before the gap.
                if !isNext { (state.complete, state.growing) = (nil, nil) }
                state.last = commit
            }
            return !state.newUsers.isEmpty
        }
        if hasNewUsers { scanIfNeeded() }
    }

    // MARK: The scan

    /// Starts a scan if there is no usable filter and the pause since the last scan is over. Also called by readers
    /// that miss the filter.
    func scanIfNeeded() {
        let isNeeded = state.withLock { state in
            guard !state.isScanning, !state.isClosed, state.complete?.isFull ?? true, state.nextScan <= .now() else {
                return false
            }
            state.isScanning = true
            return true
        }
        guard isNeeded else { return }
        Task(executorPreference: Self.executor) { await self.scan() }
    }

    private func scan() async {
        let start = DispatchTime.now()
        let filter = await filled()
        let end = DispatchTime.now()
        state.withLock { state in
            if let filter, filter === state.growing { state.complete = filter }
            state.growing = nil
            state.isScanning = false
            state.nextScan = end + max(pause, start.seconds(to: end) * Self.pauseFactor)
        }
    }

    /// Returns a filter that contains all users; `nil` if the scan failed.
    private func filled() async -> BloomFilter? {
        let begun = try? await reader.read { [self] connection throws(SQLiteError) in try beginScan(connection) }
        guard let filter = begun else { return nil }
        var last: Identifier?
        while state.withLock({ $0.growing === filter }) {
            let (start, after) = (DispatchTime.now(), last)
            let step = await Result.of { () throws(StorageError) in
                try await reader.read { connection throws(SQLiteError) -> Identifier? in
                    let users = try ProfileRows.userIDs(after: after, limit: Self.scanStep, on: connection)
                    for user in users { filter.add(user.withKey(\.hash)) }
                    return users.count == Self.scanStep ? users.last : nil
                }
            }
            guard case .success(let reached) = step else { return nil }
            guard let reached else { return filter }
            last = reached
            try? await Task.sleep(for: .seconds(start.seconds(to: .now()) * Self.stepPauseFactor))
        }
        return nil
    }

    /// - Returns: `nil` if other processes write too fast to determine the last commit.
    private func beginScan(_ connection: Connection) throws(SQLiteError) -> BloomFilter? {
        let users = try connection.integer("SELECT profiles FROM counters")
        let sizes = file.sizes
        let mostUsers = (sizes.database + sizes.log) / Self.minimumProfileSize
        let filter = BloomFilter(capacity: max(minimumCapacity, 2 * min(Int(max(0, users)), mostUsers)))
        let last = state.withLock { state in
            for user in state.newUsers { filter.add(user) }
            state.growing = filter
            return state.last
        }
        guard let commit = try connection.lastCommit().commit else { return nil }
        state.withLock { state in
            // A former filter may lack users that another process has added by then. A commit of this process in the
            // meantime has shown whether there is a gap before it.
            if state.complete == nil, state.last == last { state.last = commit }
        }
        return filter
    }
}

/// A Bloom filter of users: it has no false negatives and few false positives (Bloom, "Space/Time Trade-offs in Hash
/// Coding with Allowable Errors", 1970). Users cannot be removed. Any thread may add and query.
///
/// The bits of a user are in one block of eight words, one bit in each, so that a query touches one cache line (Putze,
/// Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007). The false positive rate is one in 30
/// when the filter is full, and one in a thousand when it is half full.
final class BloomFilter: Sendable {
    /// In words.
    private static let blockSize = 8
    private static let bitsPerUser = 8

    /// The number of users that the filter is sized for.
    let capacity: Int
    // Safe: the words are atomic, and the pointer is constant.
    private nonisolated(unsafe) let words: UnsafeMutableBufferPointer<Atomic<UInt64>>
    private let added = Atomic(0)

    /// - Parameter capacity: clamped to 1...2^31.
    init(capacity: Int) {
        self.capacity = max(1, min(capacity, 1 << 31))
        let blockBytes = Self.blockSize * MemoryLayout<UInt64>.size
        let blocks = (self.capacity * Self.bitsPerUser - 1) / (blockBytes * 8) + 1
        let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: blocks * blockBytes, alignment: blockBytes)
        words = memory.bindMemory(to: Atomic<UInt64>.self)
        for index in words.indices { words.initializeElement(at: index, to: Atomic(0)) }
    }

    deinit {
        words.deallocate()
    }

    /// Memory in use, in bytes.
    var bytes: Int { words.count * MemoryLayout<UInt64>.size }

    /// Whether more users were added than the filter is sized for.
    var isFull: Bool { added.load(ordering: .relaxed) > capacity }

    func add(_ hash: UInt64) {
        let block = block(hash)
        var isNew = false
        for index in 0..<Self.blockSize {
            let bit = Self.bit(hash, index)
            let word = block + index
            guard words[word].load(ordering: .relaxed) & bit == 0 else { continue }
            words[word].bitwiseOr(bit, ordering: .relaxed)
            isNew = true
        }
        if isNew { added.add(1, ordering: .relaxed) }
    }

    func mayContain(_ hash: UInt64) -> Bool {
        let block = block(hash)
        for index in 0..<Self.blockSize
        where words[block + index].load(ordering: .relaxed) & Self.bit(hash, index) == 0 {
            return false
        }
        return true
    }

    /// Returns the first word of the user's block. All 64 bits of the hash select the block, 48 of them the bits in it.
    private func block(_ hash: UInt64) -> Int {
        let blocks = UInt64(words.count / Self.blockSize)
        return Int(((hash &* 0x9E37_79B9_7F4A_7C15) >> 32 &* blocks) >> 32) * Self.blockSize
    }

    private static func bit(_ hash: UInt64, _ index: Int) -> UInt64 {
        1 << (hash >> UInt64(index * 6) & 63)
    }
}
