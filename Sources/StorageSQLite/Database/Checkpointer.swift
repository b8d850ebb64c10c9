import Dispatch
import Synchronization

/// Moves what the write-ahead log has gathered into the database, without making commits wait for it.
///
/// The bulk is moved on a queue of its own, while the writer goes on committing behind it. Only the few pages that were
/// added meanwhile are moved between two transactions of the writer; then the log is used from its beginning again, and
/// so does not grow.
final class Checkpointer: Sendable {
    private enum Step {
        case idle
        case movingBulk
        case movingRest
    }

    /// Pages in the log at which moving begins.
    private static let threshold = 8_192

    private let file: DatabaseFile
    private let lockTimeout: Double
    private let queue = DispatchQueue(label: "sqlite-checkpointer", qos: .utility)
    private let step = Mutex(Step.idle)

    init(file: DatabaseFile, lockTimeout: Double) {
        self.file = file
        self.lockTimeout = lockTimeout
    }

    /// Called by the writer after each commit, on its queue and outside of a transaction.
    func committed(on connection: Connection) {
        switch step.withLock({ $0 }) {
        case .idle:
            guard connection.logPages >= Self.threshold else { return }
            step.withLock { $0 = .movingBulk }
            queue.async { [self] in moveBulk() }
        case .movingBulk:
            break
        case .movingRest:
            // A failure here or there loses nothing: the log keeps what was not moved, and the next turn tries again.
            try? connection.moveLog()
            step.withLock { $0 = .idle }
        }
    }

    private func moveBulk() {
        do throws(SQLiteError) {
            try file.writer(lockTimeout: lockTimeout).moveLog()
            step.withLock { $0 = .movingRest }
        } catch {
            step.withLock { $0 = .idle }
        }
    }

    /// Blocks until nothing is being moved in the background.
    func wait() {
        queue.sync {}
    }
}
