import Bucketing
import Dispatch
import Storage
import Synchronization

/// Which users may have a profile. Whoever is not among them has none and need not be looked for in the database, which
/// for a new user would cost more than all else about a decision.
///
/// A filter of them is filled in the background, from the database, when it is first missed. Why it is never behind:
///
/// - From before the scan reads anything, the writer adds every new user before the commit.
/// - The scan begins by asking for the number of the last commit. It meets all users of the commits up to this one, if
///   they are still there, and the writer adds those of its own commits from then on.
/// - A commit of another process or program may add anybody. The filter is complete as of the last in the unbroken line
///   of this process's commits, and answers only readers that know of this one as the last. The writer's next commit
///   shows the gap in the line, by its number or the log's header before it, and the filter is dropped, to be filled anew
///   after a while; a process that never writes is left without.
///
/// When more users were added than it has room for it is filled anew as well, and used until then.
final class KnownUsers: Sendable {
    private struct State {
        /// The last commit in the line of this process's own.
        var last = Commit(number: -1)
        /// The hashes of whom the commit under way adds, or else of whom the last one has added.
        var newUsers: [UInt64] = []
        /// Has all users as of `last`.
        var complete: BloomFilter?
        /// Has those whom the scan has met, and all that were added since it began.
        var growing: BloomFilter?
        var isScanning = false
        var nextScan = DispatchTime(uptimeNanoseconds: 0)
        var isClosed = false
    }

    /// Users that a scan reads in one go: few, as it holds on to the write-ahead log meanwhile.
    private static let scanStep = 250
    /// A scan rests for so many times as long as it has read, so that the disk and the processor are left to others.
    private static let rest = 3.0
    /// There is no other scan for so many times as long as the last one took.
    private static let pauseFactor = 10.0
    /// Bytes that a profile takes in the file, at least.
    private static let leastProfileSize = 8

    private let state = Mutex(State())
    private let file: DatabaseFile
    private let reader: QueuedReader
    private let pause: Double
    private let leastCapacity: Int

    init(file: DatabaseFile, configuration: SQLiteConfiguration) {
        self.file = file
        reader = QueuedReader(
            file: file, lockTimeout: configuration.lockTimeout, label: "known-users", qos: .utility)
        pause = configuration.userScanPause
        leastCapacity = configuration.leastUserCapacity
    }

    func close() {
        state.withLock { state in
            state.isClosed = true
            (state.complete, state.growing) = (nil, nil)
        }
        reader.close()
    }

    /// Bytes in use.
    var bytes: Int {
        state.withLock { ($0.complete?.bytes ?? 0) + ($0.growing?.bytes ?? 0) }
    }

    var isScanning: Bool { state.withLock(\.isScanning) }

    // MARK: Readers

    /// What answers a reader that knows of this commit as the last.
    func filter(asOf commit: Commit) -> BloomFilter? {
        state.withLock { commit == $0.last ? $0.complete : nil }
    }

    // MARK: The writer

    /// The last commit in the line of this process's own.
    var last: Commit { state.withLock(\.last) }

    /// The filter as a hint: another process may have added users who are not in it.
    var latestFilter: BloomFilter? { state.withLock { $0.complete } }

    /// Called before the commit that adds the users of these hashes.
    func add(_ users: [UInt64]) {
        state.withLock { state in
            state.newUsers = users
            for filter in [state.complete, state.growing] {
                for user in users { filter?.add(user) }
            }
        }
    }

    /// Called after each commit of this process, and with the last one that there is when the store is opened.
    ///
    /// - Parameter former: the header of the log before the commit.
    func hasCommitted(_ commit: Commit, after former: LogHeader?) {
        let hasNewUsers = state.withLock { state in
            // A scan may have seen the commit before it is told of here.
            if commit != state.last {
                let isNext = commit.number &- 1 == state.last.number && former == state.last.header
                // What a scan has asked for may be from before the gap.
                if !isNext { (state.complete, state.growing) = (nil, nil) }
                state.last = commit
            }
            return !state.newUsers.isEmpty
        }
        if hasNewUsers { scanIfNeeded() }
    }

    // MARK: The scan

    /// Called by those who miss the filter, too.
    func scanIfNeeded() {
        let isNeeded = state.withLock { state in
            guard !state.isScanning, !state.isClosed, state.complete?.isFull ?? true, state.nextScan <= .now() else {
                return false
            }
            state.isScanning = true
            return true
        }
        guard isNeeded else { return }
        let start = DispatchTime.now()
        reader.read { [self] connection throws(SQLiteError) in
            try beginScan(connection)
        } _: { [self] begun in
            guard case .success(let filter?) = begun else { return endScan(since: start) }
            scan(into: filter, after: nil, since: start)
        }
    }

    /// - Returns: `nil` when others write too fast to tell which users were there before.
    private func beginScan(_ connection: Connection) throws(SQLiteError) -> BloomFilter? {
        let users = try connection.integer("SELECT profiles FROM counters")
        let sizes = file.sizes
        let mostUsers = (sizes.database + sizes.log) / Self.leastProfileSize
        let filter = BloomFilter(capacity: max(leastCapacity, 2 * min(Int(max(0, users)), mostUsers)))
        let last = state.withLock { state in
            for user in state.newUsers { filter.add(user) }
            state.growing = filter
            return state.last
        }
        guard let commit = try connection.lastCommit() else { return nil }
        state.withLock { state in
            // A former filter may lack whom another process has added by then. What this process has committed
            // meanwhile has shown whether there is a gap before it.
            if state.complete == nil, state.last == last { state.last = commit }
        }
        return filter
    }

    private func scan(into filter: BloomFilter, after last: Identifier?, since start: DispatchTime) {
        guard state.withLock({ $0.growing === filter }) else { return endScan(since: start) }
        let stepStart = DispatchTime.now()
        reader.read { connection throws(SQLiteError) in
            let users = try ProfileRows.userIDs(after: last, limit: Self.scanStep, on: connection)
            for user in users { filter.add(user.withKey(\.hash)) }
            return users.count == Self.scanStep ? users.last : nil
        } _: { [self] step in
            switch step {
            case .success(let last?):
                let rest = stepStart.seconds(to: .now()) * Self.rest
                DispatchQueue.global(qos: .utility).asyncAfter(deadline: .now() + rest) { [self] in
                    scan(into: filter, after: last, since: start)
                }
            case .success(nil): endScan(since: start, filter)
            case .failure: endScan(since: start)
            }
        }
    }

    /// - Parameter filter: has met all users.
    private func endScan(since start: DispatchTime, _ filter: BloomFilter? = nil) {
        let end = DispatchTime.now()
        state.withLock { state in
            if let filter, filter === state.growing { state.complete = filter }
            state.growing = nil
            state.isScanning = false
            state.nextScan = end + max(pause, start.seconds(to: end) * Self.pauseFactor)
        }
    }
}
