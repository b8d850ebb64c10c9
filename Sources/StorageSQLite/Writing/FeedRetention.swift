import Storage
import Synchronization

/// Deletes the feed's rows whose time is over, and overwrites the entries of erased users in the other rows. Small
/// transactions do not delay other changes. Readers do not depend on it. The rules are in ``FeedState`` and
/// ``FeedScrubbing``.
final class FeedRetention: Sendable {
    private let writer: Writer
    private let reader: BackgroundReader
    private let mode: FeedMode
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

    /// - Returns: whether there is more to do.
    private func deleteOldest() async -> Bool {
        let deleted = try? await writer.perform { [mode, batch] transaction in
            let connection = transaction.connection
            let stored = try FeedRows.state(on: connection)
            var state = stored
            let last = try connection.integer("SELECT feed_number FROM counters")
            try connection.run(state.countNew(to: last)) { state.count(to: last, $0) }
            // Looks at one row first: mostly it is kept, and then no other needs to be read.
            let kept = state
            var count = 0
            for limit in [1, batch] {
                let oldest = try connection.all(FeedState.oldest(to: last, limit: limit)) { FeedState.Size($0) }
                state = kept
                count = state.deleteOldest(of: oldest, mode, at: transaction.now)
                if count == 0 { break }
            }
            if count > 0 { for query in state.deletions { try transaction.run(query) } }
            if state != stored { try transaction.run(state.update) }
            return count
        }
        // Readiness and metrics report a failure; the next sweep tries again.
        return deleted == batch
    }

    /// Overwrites the next rows. Nobody else changes rows, so they may be read before the transaction.
    ///
    /// - Returns: `false` if no erasure is left, or if something failed.
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
        let written: Void? = try? await writer.perform { transaction in
            for query in queries { try transaction.run(query) }
        }
        guard written != nil else { return false }
        scrubbing.withLock { $0 = pass.isComplete ? nil : pass }
        return true
    }
}
