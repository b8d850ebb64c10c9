import Dispatch
import Storage
import Synchronization

/// Notices changes of projects by any process, over a connection of its own. It reads the counter of changes only if
/// the header of the log's index, which is in shared memory, shows that something was committed.
final class ProjectChangeWatch: ProjectWatch, @unchecked Sendable {
    // Safe: mutable state is used on the queue only.
    private let file: DatabaseFile
    private let lockTimeout: Double
    private let changed: @Sendable () -> Void
    private let queue = DispatchQueue(label: "sqlite-project-watch", qos: .userInitiated)
    private let timer: any DispatchSourceTimer
    private let works = Atomic<Bool>(false)
    private var isCancelled = false
    private var connection: Connection?
    private var header: LogHeader?
    private var changes: Int64?

    private static let interval = DispatchTimeInterval.milliseconds(20)

    init(_ file: DatabaseFile, lockTimeout: Double, _ changed: @escaping @Sendable () -> Void) {
        self.file = file
        self.lockTimeout = lockTimeout
        self.changed = changed
        timer = DispatchSource.makeTimerSource(queue: queue)
        timer.schedule(deadline: .now(), repeating: Self.interval, leeway: .milliseconds(5))
        timer.setEventHandler { [weak self] in self?.look() }
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

    private func look() {
        guard !isCancelled else { return }
        do throws(SQLiteError) {
            let connection = try openConnection()
            let now = connection.logHeader
            guard now == nil || now != header else { return }
            let found = try connection.integer("SELECT project_changes FROM counters")
            // A commit during the query changes the header again, so the next look will notice it.
            header = now
            works.store(true, ordering: .relaxed)
            guard found != changes else { return }
            changes = found
            // Not on this queue, because `cancel` waits for it and would deadlock if called by `changed`.
            DispatchQueue.global(qos: .userInitiated).async(execute: changed)
        } catch {
            works.store(false, ordering: .relaxed)
            (connection, header) = (nil, nil)
        }
    }
}
