import Dispatch
import Synchronization

/// Copies the write-ahead log into the database from time to time, so that it can start anew.
///
/// SQLite would do all of it within a commit, which then takes as long as thousands of pages take. Here another
/// connection copies nearly everything while commits go on, and makes it durable, again and again until few pages are
/// added meanwhile; those are left to the writer.
///
/// A checkpoint that fails is no failure of a commit, whose pages are safe in the log; the next one tries again, and
/// copies all of the log.
final class Checkpointer: Sendable {
    private enum Stage {
        case idle
        case copying
        case nearlyDone
    }

    private struct State {
        var stage = Stage.idle
        /// Pages in the log at which to start.
        var threshold: Int
        var failures: UInt64 = 0
    }

    /// What copies, one at a time.
    private struct Copier {
        /// Open from the first use on: the system tells of what it could not write those who had the file open then.
        var connection: Connection?
        /// Whether something may be missing in the database that the log counts as copied.
        var mustCopyAll = false

        mutating func openConnection(_ file: DatabaseFile) throws(SQLiteError) -> Connection {
            if let connection {
                try file.expectInPlace()
                return connection
            }
            let fresh = try file.connect(.write, lockTimeout: 0)
            connection = fresh
            return fresh
        }

        mutating func copyAllIfNeeded(_ connection: Connection) throws(SQLiteError) {
            guard mustCopyAll else { return }
            try connection.forgetCopiedPages()
            mustCopyAll = false
        }

        mutating func takeNote(of error: SQLiteError) {
            if !error.isBusy { mustCopyAll = true }
        }
    }

    /// Seconds that commits may be held up until the readers have let go of the log. They hold on to it for one batch.
    private static let patience = 0.1

    /// Pages of a pass after which so few are left to the writer that they are copied in about the time of a commit.
    private static let fewPages = 2_048
    private static let passes = 4

    private let state: Mutex<State>
    private let isFailing = Atomic<Bool>(false)
    private let copier = Mutex(Copier())
    private let queue = DispatchQueue(label: "sqlite-checkpoint", qos: .utility)
    private let file: DatabaseFile
    /// How many the log may have before it is copied.
    private let pages: Int
    private let report: @Sendable (StoreEvent) -> Void

    init(file: DatabaseFile, _ configuration: SQLiteConfiguration) {
        self.file = file
        pages = configuration.checkpointPages
        report = configuration.report
        state = Mutex(State(threshold: pages))
    }

    /// Called after each commit, on the writer's queue.
    func logHasGrown(on connection: Connection) {
        let stage = state.withLock { state in
            if state.stage == .idle, connection.logPages >= state.threshold {
                state.stage = .copying
                queue.async { [self] in copy() }
            }
            return state.stage
        }
        if stage == .nearlyDone { finish(on: connection) }
    }

    /// Waits for what is under way.
    ///
    /// - Parameter connection: the writer's, which is closed next, and then copies the rest if it is the last.
    func close(before connection: Connection?) {
        queue.sync { copier.withLock { $0.connection = nil } }
        if copier.withLock({ $0.mustCopyAll }) { connection?.setCheckpointOnClose(false) }
    }

    private func copy() {
        copier.withLock { copier in
            do throws(SQLiteError) {
                try copyInPasses(copier.openConnection(file), &copier)
            } catch {
                copier.takeNote(of: error)
                hasFailed(error, on: copier.connection)
                if error.asksForReopening { copier.connection = nil }
            }
        }
        state.withLock { $0.stage = .nearlyDone }
    }

    private func copyInPasses(_ connection: Connection, _ copier: inout Copier) throws(SQLiteError) {
        try copier.copyAllIfNeeded(connection)
        var copied = 0
        for _ in 0..<Self.passes {
            let pass = try connection.checkpoint(.passive)
            try connection.synchronizeDatabase()
            guard pass.copied - copied > Self.fewPages else { return }
            copied = pass.copied
        }
    }

    private func finish(on connection: Connection) {
        let isComplete = copier.withLock { copier in
            // All of the log would be too much to be copied between two commits.
            guard !copier.mustCopyAll else { return false }
            do throws(SQLiteError) {
                let result = try connection.checkpoint(.restart, lockTimeout: Self.patience)
                return result.copied == result.pages
            } catch {
                copier.takeNote(of: error)
                hasFailed(error, on: connection)
                return false
            }
        }
        if isComplete { isFailing.store(false, ordering: .relaxed) }
        state.withLock { state in
            state.stage = .idle
            // Somebody who reads an old state for long keeps the log; to hold up commits often would be in vain.
            state.threshold = isComplete ? pages : max(pages, connection.logPages * 2)
        }
    }

    /// Copies a log that was deleted, of which the connection still has hold: it is gone for good with the last process
    /// that has. Not when another log has taken its place, as that belongs to another state of the database.
    func copyDeletedLog(on connection: Connection) {
        guard file.lacksOnlyLog else { return }
        copier.withLock { copier in
            do throws(SQLiteError) {
                if copier.mustCopyAll { try connection.forgetCopiedPages() }
                _ = try connection.checkpoint(.passive)
                try connection.synchronizeDatabase()
            } catch {
                copier.takeNote(of: error)
                hasFailed(error, on: connection)
            }
        }
    }

    /// Other processes go by what the log's index counts as copied, and one that opens the database from now on is not
    /// told of the failure: they are not to take for copied what may be lost.
    private func hasFailed(_ error: SQLiteError, on connection: Connection?) {
        guard !error.isBusy else { return }
        state.withLock { $0.failures += 1 }
        if !isFailing.exchange(true, ordering: .relaxed) { report(.checkpointFails(reason: "\(error)")) }
        try? connection?.forgetCopiedPages()
    }

    /// Checkpoints that failed, not counting those that another connection was in the way of.
    var failures: UInt64 { state.withLock { $0.failures } }
}
