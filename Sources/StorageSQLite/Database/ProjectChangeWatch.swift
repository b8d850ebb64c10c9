import Dispatch
import Storage
import Synchronization

/// Detects changes of projects by any process, with a connection of its own.
///
/// Checks every 20 milliseconds. Mostly a check only compares the header of the log's index, which is in shared memory.
/// If the header shows a commit, the check reads the counter of project changes from the database.
final class ProjectChangeWatch: ProjectWatch, @unchecked Sendable {
    // Safe: mutable state is used on the queue only.
    private let file: DatabaseFile
    private let lockTimeout: Double
    /// Called after a change, and once after the first check.
    private let changed: @Sendable () -> Void
    private let queue = DispatchQueue(label: "sqlite-project-watch", qos: .userInitiated)
    private let timer: any DispatchSourceTimer
    /// Whether the last check succeeded.
    private let works = Atomic<Bool>(false)
    private var isCancelled = false
    private var connection: Connection?
    /// The log's header when the counter was last read.
    private var header: LogHeader?
    /// The counter of project changes; `nil` before the first check.
    private var changes: Int64?

    /// The time between two checks.
    private static let interval = DispatchTimeInterval.milliseconds(20)

    init(_ file: DatabaseFile, lockTimeout: Double, _ changed: @escaping @Sendable () -> Void) {
        self.file = file
        self.lockTimeout = lockTimeout
        self.changed = changed
        timer = DispatchSource.makeTimerSource(queue: queue)
        timer.schedule(deadline: .now(), repeating: Self.interval, leeway: .milliseconds(5))
        timer.setEventHandler { [weak self] in self?.check() }
        timer.resume()
    }

    deinit {
        timer.cancel()
    }

    var isActive: Bool { works.load(ordering: .relaxed) }

    func cancel() {
        timer.cancel()
        queue.sync {
            isCancelled = true
            connection = nil
        }
    }

    private func openConnection() throws(SQLiteError) -> Connection {
        if let connection { return connection }
        let fresh = try file.reader(lockTimeout: lockTimeout)
        connection = fresh
        return fresh
    }

    /// Compares the header of the log's index, and the counter if the header has changed.
    private func check() {
        guard !isCancelled else { return }
        do throws(SQLiteError) {
            let connection = try openConnection()
            let now = connection.logHeader
            guard now == nil || now != header else { return }
            let found = try connection.integer("SELECT project_changes FROM counters")
            // `now` was read before the query. A commit during the query changes the header, so the next check detects
            // it.
            header = now
            works.store(true, ordering: .relaxed)
            guard found != changes else { return }
            changes = found
            // Not on this queue, because `cancel` waits for it and would deadlock if called by `changed`.
            DispatchQueue.global(qos: .userInitiated).async(execute: changed)
        } catch {
            works.store(false, ordering: .relaxed)
            connection = nil
            header = nil
        }
    }
}
