import Bucketing
import Dispatch
import Storage
import Synchronization

/// Filters out lookups of users without a profile. Without the filter, looking up a new user in the database would be
/// the most expensive part of a decision.
///
/// The first lookup of a user without a profile, or the first new user, starts a background scan of the database, which
/// fills a ``BloomFilter``. Why the filter never lacks a user:
///
/// - Before the scan reads anything, the writer begins to add each new user to the filter before the commit.
/// - The scan first reads the number of the last commit. It finds all users of the commits up to this one, except users
///   deleted since. The writer adds the users of its own later commits.
/// - Other processes and programs do not add their users. So the filter is complete only as of the last commit in an
///   unbroken sequence of this process's commits. It serves only readers to whom this commit is the last one.
/// - The writer's next commit detects a gap in the sequence, by its number or by the log's header before it, and drops
///   the filter. A scan fills a new one after a pause.
///
/// A process that never writes has no filter. A filter that exceeds its capacity is used until a scan has filled a
/// larger one.
final class UserFilter: Sendable {
    private struct State {
        /// The last commit in the unbroken sequence of this process's commits; its number is -1 before the first.
        var last = Commit(number: -1)
        /// The hashes of the users added by the commit in progress, or by the last commit.
        var newUsers: [UInt64] = []
        /// Contains all users as of `last`.
        var complete: BloomFilter?
        /// Contains the users scanned so far, and the users added since the scan began.
        var growing: BloomFilter?
        var isScanning = false
        /// When the next scan may begin.
        var nextScan = DispatchTime(uptimeNanoseconds: 0)
        var isClosed = false
    }

    /// The number of users that a scan reads in one step. Few, because the log cannot restart during a step.
    private static let scanStep = 250
    /// After each step a scan pauses for this multiple of the step's time, to leave the disk and the processor to
    /// others.
    private static let stepPauseFactor = 3.0
    /// After a scan, the next one waits for at least this multiple of its time.
    private static let pauseFactor = 10.0
    /// The minimum size of a profile in the file, in bytes. Limits the capacity if the counter of profiles is wrong.
    private static let minimumProfileSize = 8

    private static let executor = DispatchExecutor(label: "user-scan", qos: .utility)
    private let state = Mutex(State())
    private let file: DatabaseFile
    private let reader: BackgroundReader
    /// The minimum pause between two scans, in seconds.
    private let pause: Double
    private let minimumCapacity: Int

    init(file: DatabaseFile, configuration: SQLiteConfiguration) {
        self.file = file
        reader = BackgroundReader(file: file, lockTimeout: configuration.lockTimeout, name: "sqlite-filter")
        pause = configuration.userScanPause
        minimumCapacity = configuration.minimumUserCapacity
    }

    /// Drops the filter, and ends a scan in progress.
    func close() {
        state.withLock { state in
            state.isClosed = true
            state.complete = nil
            state.growing = nil
        }
        reader.close()
    }

    /// Memory in use, in bytes.
    var bytes: Int {
        state.withLock { ($0.complete?.bytes ?? 0) + ($0.growing?.bytes ?? 0) }
    }

    var isScanning: Bool { state.withLock(\.isScanning) }

    // MARK: Readers

    /// Returns the filter for a reader to whom this commit is the last one; `nil` if there is none.
    func filter(asOf commit: Commit) -> BloomFilter? {
        state.withLock { commit == $0.last ? $0.complete : nil }
    }

    // MARK: The writer

    /// The last commit in the unbroken sequence of this process's commits.
    var last: Commit { state.withLock(\.last) }

    /// The filter as a hint for the writer. It may lack users whom another process has added.
    var latestFilter: BloomFilter? { state.withLock { $0.complete } }

    /// Adds the new users of a commit. Call it before the commit.
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

    /// Records a commit of this process, or the last commit of any process when the store is opened.
    ///
    /// - Parameter former: the header of the log before the commit.
    func didCommit(_ commit: Commit, after former: LogHeader?) {
        let hasNewUsers = state.withLock { state in
            // A scan may have stored this commit already.
            if commit != state.last {
                let isNext = commit.number &- 1 == state.last.number && former == state.last.header
                if !isNext {
                    state.complete = nil
                    // A scan in progress may have begun before the gap.
                    state.growing = nil
                }
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

    /// Fills a new filter, which replaces the present one unless a gap has made it useless meanwhile.
    private func scan() async {
        let start = DispatchTime.now()
        let filter = await scannedFilter()
        let end = DispatchTime.now()
        state.withLock { state in
            if let filter, filter === state.growing { state.complete = filter }
            state.growing = nil
            state.isScanning = false
            state.nextScan = end + max(pause, start.seconds(to: end) * Self.pauseFactor)
        }
    }

    /// Scans all users, and returns a filter that contains them; `nil` if the scan failed, or if a gap in the sequence
    /// of commits made the filter useless.
    private func scannedFilter() async -> BloomFilter? {
        let begun = try? await reader.read { [self] connection throws(SQLiteError) in try beginScan(connection) }
        guard let filter = begun else { return nil }
        var last: Identifier?
        while state.withLock({ $0.growing === filter }) {
            let start = DispatchTime.now()
            let after = last
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

    /// Creates an empty filter, to which the writer adds new users from now on. Then determines the last commit.
    ///
    /// - Returns: the filter; `nil` if other processes write too fast to determine the last commit.
    private func beginScan(_ connection: Connection) throws(SQLiteError) -> BloomFilter? {
        let users = try connection.integer("SELECT profiles FROM counters")
        let sizes = file.sizes
        let mostUsers = (sizes.database + sizes.log) / Self.minimumProfileSize
        // Twice the present users, so that the filter is at first at most half full and has few false positives.
        let filter = BloomFilter(capacity: max(minimumCapacity, 2 * min(Int(max(0, users)), mostUsers)))
        let last = state.withLock { state in
            // The users of a commit in progress were added before this filter existed.
            for user in state.newUsers { filter.add(user) }
            state.growing = filter
            return state.last
        }
        guard let commit = try connection.lastCommit().commit else { return nil }
        state.withLock { state in
            // If there is a complete filter, it may lack users whom other processes have added up to this commit, so it
            // must not count as current. If this process has committed meanwhile, `didCommit` has stored a later
            // commit, which must stay.
            if state.complete == nil, state.last == last { state.last = commit }
        }
        return filter
    }
}
