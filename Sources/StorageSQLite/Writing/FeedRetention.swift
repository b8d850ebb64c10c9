import Storage
import Synchronization

/// Deletes the rows of the feed that are older than the feed is kept, and overwrites the entries of erased users in the
/// other rows. Uses small transactions, which do not delay other changes.
///
/// The rules are in ``FeedState`` (which rows to delete) and ``FeedScrubbing`` (which entries to overwrite).
final class FeedRetention: Sendable {
    private let writer: Writer
    private let reader: BackgroundReader
    private let mode: FeedMode
    /// The maximum number of rows that one transaction deletes.
    private let batch: Int
    private let deletion = BatchChain()
    private let overwriting = BatchChain()
    /// The pass over the feed that overwrites entries; `nil` between two passes.
    private let scrubbing = Mutex<FeedScrubbing?>(nil)

    init(writer: Writer, reader: BackgroundReader, configuration: SQLiteConfiguration) {
        self.writer = writer
        self.reader = reader
        mode = configuration.settings.feed
        batch = configuration.settings.retentionBatch
    }

    /// Starts to delete and to overwrite, in the background.
    func sweep() {
        deletion.start { await self.deleteOldest() }
        overwriting.start { await self.overwrite() }
    }

    /// Deletes the oldest rows, and counts the new ones.
    ///
    /// - Returns: whether there is more to do.
    private func deleteOldest() async -> Bool {
        let deleted = try? await writer.perform { [mode, batch] transaction in
            try Self.deleteOldest(mode, limit: batch, in: transaction)
        }
        // Readiness and metrics report a failure; the next sweep tries again.
        return deleted == batch
    }

    /// - Returns: the number of deleted rows.
    private static func deleteOldest(
        _ mode: FeedMode, limit: Int, in transaction: WriteTransaction
    ) throws(SQLiteError) -> Int {
        let connection = transaction.connection
        let stored = try FeedRows.state(on: connection)
        var counted = stored
        let last = try connection.integer("SELECT feed_number FROM counters")
        try connection.run(counted.countNew(to: last)) { counted.count(to: last, $0) }
        var state = counted
        /// Chooses the rows to delete among the oldest ones, and returns their number.
        func chooseRows(among limit: Int) throws(SQLiteError) -> Int {
            let oldest = try connection.all(FeedState.oldest(to: last, limit: limit)) { FeedState.Size($0) }
            state = counted
            return state.deleteOldest(of: oldest, mode, at: transaction.now)
        }
        // Reads only the oldest row first. Mostly this row is kept. Then all newer rows are kept, too, and need not be
        // read.
        var count = try chooseRows(among: 1)
        if count > 0 { count = try chooseRows(among: limit) }
        if count > 0 { for query in state.deletions { try transaction.run(query) } }
        if state != stored { try transaction.run(state.update) }
        return count
    }

    /// Overwrites the entries of erased users in the next rows. Reads the rows before the transaction, because nobody
    /// else changes them.
    ///
    /// - Returns: whether there is more to do; `false` also after a failure.
    private func overwrite() async -> Bool {
        let former = scrubbing.withLock { $0 }
        let found = try? await reader.read { connection throws(SQLiteError) -> (FeedScrubbing, [SQLQuery])? in
            var pass = former
            if pass == nil {
                try connection.run(FeedRemoval.newestErasure) { pass = FeedScrubbing(newestErasure: $0.integer(0)) }
            }
            guard var pass else { return nil }
            let rows = try connection.all(pass.query) { FeedRow($0) }
            let queries = pass.take(rows, try connection.all(FeedScrubbing.removals) { FeedRemoval($0) })
            return (pass, queries)
        }
        guard let (pass, queries) = found else { return false }
        do throws(StorageError) {
            try await writer.perform { transaction in
                for query in queries { try transaction.run(query) }
            }
        } catch {
            return false
        }
        scrubbing.withLock { $0 = pass.isComplete ? nil : pass }
        return true
    }
}
