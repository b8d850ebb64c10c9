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
/// - A commit of another process may add anybody. The filter is complete as of the last in the unbroken line of this
///   process's commits, and answers only readers that know of none beyond. The writer's next commit shows the gap in the
///   line, and the filter is dropped, to be filled anew after a while.
///
/// When more users were added than it has room for it is filled anew as well, and used until then.
final class KnownUsers: Sendable {
    private struct State {
        /// The last commit in the line of this process's own.
        var commit: Int64 = -1
        /// The hashes of whom the commit under way adds, or else of whom the last one has added.
        var newUsers: [UInt64] = []
        /// Has all users as of `commit`.
        var complete: BloomFilter?
        /// Has those whom the scan has met, and all that were added since it began.
        var growing: BloomFilter?
        var isScanning = false
        var nextScan = DispatchTime(uptimeNanoseconds: 0)
        var isClosed = false
    }

    /// Users that a scan reads in one go.
    private static let scanStep = 1_000
    /// A scan rests for so many times as long as it has read, so that the disk and the processor are left to others.
    private static let rest = 3.0
    /// There is no other scan for so many times as long as the last one took.
    private static let pauseFactor = 10.0

    private let state = Mutex(State())
    private let reader: QueuedReader
    private let queue = DispatchQueue(label: "known-users", qos: .utility)
    private let pause: Double
    private let leastCapacity: Int

    init(file: DatabaseFile, configuration: SQLiteConfiguration) {
        reader = QueuedReader(
            file: file, lockTimeout: configuration.lockTimeout, label: "known-users-reader", qos: .utility)
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

    /// What answers a reader that knows of all commits up to this one, and of none beyond.
    func filter(asOf commit: Int64) -> BloomFilter? {
        state.withLock { commit <= $0.commit ? $0.complete : nil }
    }

    /// Called when a user was looked for in vain for want of a filter.
    func filterWasMissed() {
        scanIfNeeded()
    }

    // MARK: The writer

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

    /// Called after each commit of this process.
    func hasCommitted(_ commit: Int64) {
        let hasNewUsers = state.withLock { state in
            // The scan may have asked for the number already.
            if commit > state.commit + 1 { (state.complete, state.growing) = (nil, nil) }
            state.commit = max(state.commit, commit)
            return !state.newUsers.isEmpty
        }
        if hasNewUsers { scanIfNeeded() }
    }

    // MARK: The scan

    private func scanIfNeeded() {
        let isNeeded = state.withLock { state in
            guard !state.isScanning, !state.isClosed, state.complete?.isFull ?? true, state.nextScan <= .now() else {
                return false
            }
            state.isScanning = true
            return true
        }
        if isNeeded { queue.async { [self] in scan() } }
    }

    private func scan() {
        let start = DispatchTime.now()
        do throws(StorageError) {
            let users = try reader.read { connection throws(SQLiteError) in
                try connection.integer("SELECT profiles FROM counters")
            }
            let filter = BloomFilter(capacity: max(leastCapacity, Int(min(users, .max / 2)) * 2))
            state.withLock { state in
                for user in state.newUsers { filter.add(user) }
                state.growing = filter
            }
            let commit = try reader.read { connection throws(SQLiteError) in
                try connection.integer("SELECT commits FROM counters")
            }
            state.withLock { state in
                // A former filter may lack whom another process has added by then.
                if state.complete == nil { state.commit = max(state.commit, commit) }
            }
            scan(into: filter, after: nil, since: start)
        } catch {
            endScan(since: start)
        }
    }

    private func scan(into filter: BloomFilter, after last: Identifier?, since start: DispatchTime) {
        guard state.withLock({ $0.growing === filter }) else { return endScan(since: start) }
        let stepStart = DispatchTime.now()
        do throws(StorageError) {
            let users = try reader.read { connection throws(SQLiteError) in
                try ProfileRows.userIDs(after: last, limit: Self.scanStep, on: connection)
            }
            for user in users { filter.add(user.withKey(\.hash)) }
            guard users.count == Self.scanStep else { return endScan(since: start, filter) }
            queue.asyncAfter(deadline: .now() + stepStart.seconds(to: .now()) * Self.rest) { [self] in
                scan(into: filter, after: users.last, since: start)
            }
        } catch {
            endScan(since: start)
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

extension DispatchTime {
    fileprivate func seconds(to end: DispatchTime) -> Double {
        Double(end.uptimeNanoseconds &- uptimeNanoseconds) / 1e9
    }
}
