import Dispatch
import Synchronization

/// Copies the write-ahead log into the database, so that the log can restart.
///
/// SQLite would do this within a commit, which would then take as long as copying thousands of pages. Instead, another
/// connection copies and syncs while commits go on. It makes several passes, until a pass finds few new pages. The
/// writer then copies the last pages between two commits, when nobody adds pages.
///
/// ```
/// idle → copying: copy, on the checkpointer's queue → nearlyDone: finish, on the writer's queue → idle
/// ```
///
/// A failed checkpoint does not fail a commit, because the pages of the commit are safe in the log. The next checkpoint
/// copies the whole log again.
final class Checkpointer: Sendable {
    private enum Stage {
        case idle
        /// The copying connection is at work.
        case copying
        /// The writer copies the rest after its next commit.
        case nearlyDone
    }

    private struct State {
        var stage = Stage.idle
        /// The number of pages in the log that starts the next checkpoint.
        var threshold: Int
        /// The number of failed checkpoints.
        var failures: UInt64 = 0
    }

    /// The connection that copies; one checkpoint runs at a time.
    private struct Copier {
        /// Stays open once it was used, because the kernel reports a failed write-back only to descriptors that were
        /// open at that time.
        var connection: Connection?
        /// Whether the database file may lack pages that the log counts as copied, so that the whole log must be
        /// copied.
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

        /// Notes a failed checkpoint. After a failed sync the kernel may have lost copied pages. If another connection
        /// held a lock, nothing was copied.
        mutating func note(_ error: SQLiteError) {
            if !error.isBusy { mustCopyAll = true }
        }
    }

    /// How long commits may wait until readers have released the log, in seconds. A reader holds the log for one batch.
    private static let patience = 0.1

    /// A pass that copies at most this many pages is the last one. The writer can copy as many pages in about the time
    /// of a commit.
    private static let fewPages = 2_048
    /// The maximum number of passes, in case commits add pages as fast as they are copied.
    private static let passes = 4

    private let state: Mutex<State>
    /// Whether the last checkpoint failed, which was reported.
    private let isFailing = Atomic<Bool>(false)
    private let copier = Mutex(Copier())
    private let queue = DispatchQueue(label: "sqlite-checkpoint", qos: .utility)
    private let file: DatabaseFile
    /// The configured number of pages in the log that starts a checkpoint.
    private let pages: Int
    private let report: @Sendable (StoreEvent) -> Void

    init(file: DatabaseFile, _ configuration: SQLiteConfiguration) {
        self.file = file
        pages = configuration.checkpointPages
        report = configuration.report
        state = Mutex(State(threshold: pages))
    }

    /// Starts a checkpoint if the log has reached the threshold, or finishes one that is nearly done. Called after each
    /// commit, on the writer's queue.
    func logDidGrow(on connection: Connection) {
        let stage = state.withLock { state in
            if state.stage == .idle, connection.logPages >= state.threshold {
                state.stage = .copying
                queue.async { [self] in copy() }
            }
            return state.stage
        }
        if stage == .nearlyDone { finish(on: connection) }
    }

    /// Waits for a running checkpoint.
    ///
    /// - Parameter connection: the writer's connection, which is closed next. If it is the last connection to the
    ///   database, closing it copies the rest of the log. That is prevented if the whole log must be copied again,
    ///   because SQLite would copy only the rest, and delete the log.
    func close(before connection: Connection?) {
        queue.sync { copier.withLock { $0.connection = nil } }
        if copier.withLock({ $0.mustCopyAll }) { connection?.setCheckpointOnClose(false) }
    }

    /// Copies on the checkpointer's queue, while commits go on.
    private func copy() {
        copier.withLock { copier in
            do throws(SQLiteError) {
                try copyInPasses(copier.openConnection(file), &copier)
            } catch {
                copier.note(error)
                didFail(error, on: copier.connection)
                if error.asksForReopening { copier.connection = nil }
            }
        }
        state.withLock { $0.stage = .nearlyDone }
    }

    /// Copies and syncs until a pass finds few new pages.
    private func copyInPasses(_ connection: Connection, _ copier: inout Copier) throws(SQLiteError) {
        try copier.copyAllIfNeeded(connection)
        try file.contents?.expectUnchanged(on: connection)
        var copied = 0
        for _ in 0..<Self.passes {
            let pass = try connection.checkpoint(.passive)
            try connection.synchronizeDatabase()
            guard pass.copied - copied > Self.fewPages else { return }
            copied = pass.copied
        }
    }

    /// Copies the last pages on the writer's queue, between two commits.
    private func finish(on connection: Connection) {
        let isComplete = copier.withLock { copier in
            // After a failure the whole log must be copied, which is too much between two commits.
            guard !copier.mustCopyAll else { return false }
            do throws(SQLiteError) {
                try file.contents?.expectUnchanged(on: connection)
                let result = try connection.checkpoint(.restart, lockTimeout: Self.patience)
                return result.copied == result.pages
            } catch {
                copier.note(error)
                didFail(error, on: connection)
                return false
            }
        }
        if isComplete { isFailing.store(false, ordering: .relaxed) }
        state.withLock { state in
            state.stage = .idle
            // If the log could not be copied completely, a long-running reader holds it. Trying again soon would only
            // delay commits.
            state.threshold = isComplete ? pages : max(pages, connection.logPages * 2)
        }
    }

    /// Copies a log that was deleted while the connection has it open. Its contents would be lost once the last process
    /// closes the log.
    ///
    /// Does nothing if another log has taken the place of the deleted one: the database file then belongs to the other
    /// log.
    func copyDeletedLog(on connection: Connection) {
        guard file.lacksOnlyLog else { return }
        copier.withLock { copier in
            do throws(SQLiteError) {
                try file.contents?.expectUnchanged(on: connection)
                if copier.mustCopyAll { try connection.forgetCopiedPages() }
                _ = try connection.checkpoint(.passive)
                try connection.synchronizeDatabase()
            } catch {
                copier.note(error)
                didFail(error, on: connection)
            }
        }
    }

    /// Counts and reports a failed checkpoint, and resets the count of copied pages in the log's index.
    ///
    /// Other processes rely on this count, and the kernel does not report the failure to a process that opens the
    /// database later. So pages that may be lost must not count as copied.
    private func didFail(_ error: SQLiteError, on connection: Connection?) {
        guard !error.isBusy else { return }
        state.withLock { $0.failures += 1 }
        if !isFailing.exchange(true, ordering: .relaxed) { report(.checkpointFails(reason: "\(error)")) }
        try? connection?.forgetCopiedPages()
    }

    /// The number of failed checkpoints, except those that another connection blocked.
    var failures: UInt64 { state.withLock { $0.failures } }
}
