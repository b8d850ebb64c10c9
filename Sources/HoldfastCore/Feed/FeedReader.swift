public import Chronology
import Dispatch
public import Storage
import Synchronization

/// Reads the feed of changes for all its followers: edges, and clients of `GET /v1/feed`.
///
/// The feed consists of rows, one for each transaction. A row has a line for each change. A ``Storage/FeedCursor`` is a
/// position between two lines. Rows are numbered, but a transaction with a smaller number may be committed later. Such
/// rows must not be skipped, so a read waits for open transactions. It therefore uses a session of its own.
public final class FeedReader: Sendable {
    /// Why the feed cannot be read from a cursor.
    public enum Failure: Error, Sendable {
        /// The database has no feed.
        case off
        /// The changes after the cursor have been deleted, or the cursor belongs to another database.
        case gone
        /// The text is not a cursor.
        case malformed(String)
        case store(StorageError)
    }

    /// Lines that were read.
    public struct Batch: Sendable {
        /// The lines, each with the time at which the change was recorded and the cursor after the line.
        public var lines: [(entry: FeedEntry, at: Instant, cursor: FeedCursor)] = []
        /// The cursor after everything that was read, including lines of other kinds than the requested ones.
        public var next: FeedCursor
        /// Whether no change was committed after ``next`` when the batch was read.
        public var isAtEnd = false
    }

    private let store: any Store
    private let session = Mutex<BackgroundSession?>(nil)
    private let isEnding: @Sendable () -> Bool
    /// The newest row when it was last read.
    private struct NewestRow {
        var epoch: Int64 = 0
        var number: Int64 = 0
        /// When the last read began, in monotonic nanoseconds.
        var seenAt: UInt64 = 0
    }

    private let newest = Mutex(NewestRow())
    /// The number up to which all transactions are known to have ended (``Storage/FeedPage/settledTo``), so that reads
    /// need not wait for them.
    private let settled = Mutex((epoch: Int64(0), number: Int64(0)))

    /// The interval at which waiting readers check for new rows. One reader checks for all of them.
    private static let pollInterval = Duration.milliseconds(50)
    /// How long the result of a check is shared. It is shorter than ``pollInterval``, so that the next check is not
    /// skipped.
    private static let freshNanoseconds: UInt64 = 45_000_000
    /// The maximum number of rows that are read at once.
    private static let pageRows = 16
    /// A reader that requests fewer lines begins with one row instead, because a row may have a thousand lines.
    private static let fewLines = 256
    /// The approximate maximum size of a batch in bytes.
    private static let batchBytes = 4 << 20

    /// - Parameter isEnding: returns whether waiting readers must return, because the server shuts down.
    public init(_ store: any Store, isEnding: @escaping @Sendable () -> Bool = { false }) {
        self.store = store
        self.isEnding = isEnding
    }

    /// Releases the session. Blocks until done.
    public func close() {
        session.withLock { session in
            session?.close()
            session = nil
        }
    }

    /// Reads a page of rows.
    ///
    /// - Parameters:
    ///   - number: the number of the first row.
    ///   - limit: the maximum number of rows; 0 to read only the end of the feed.
    private func page(from number: Int64, limit: Int) async throws(Failure) -> FeedPage {
        let known = settled.withLock { $0 }
        var page = try await page(from: number, limit: limit, settledTo: known.number)
        // The database was replaced by another one, whose rows have other numbers.
        if page.epoch != known.epoch, known.number > 0 {
            page = try await self.page(from: number, limit: limit, settledTo: 0)
        }
        guard page.epoch != 0 else { throw .off }
        settled.withLock { [page] settled in
            let former = settled.epoch == page.epoch ? settled.number : 0
            settled = (page.epoch, max(former, page.settledTo))
        }
        return page
    }

    private func page(from number: Int64, limit: Int, settledTo settled: Int64) async throws(Failure) -> FeedPage {
        do throws(StorageError) {
            return try await openSession().run { stored async throws(StorageError) -> FeedPage in
                try await stored.read(.feed(from: number, limit: limit, settledTo: settled))
            }
        } catch {
            throw .store(error)
        }
    }

    /// Opens the session at the first read, so that a server without readers has none.
    private func openSession() throws(StorageError) -> BackgroundSession {
        try session.withLock { open -> Result<BackgroundSession, StorageError> in
            if let open { return .success(open) }
            return Result { () throws(StorageError) in
                let fresh = try BackgroundSession(store, label: "feed")
                open = fresh
                return fresh
            }
        }.get()
    }

    // MARK: Cursors

    /// Returns the cursor after the newest line.
    ///
    /// - Throws: ``Failure/store(_:)`` if a transaction stays open for too long, so that the end cannot be determined.
    public func end() async throws(Failure) -> FeedCursor {
        let page = try await page(from: 1, limit: 0)
        guard page.isSettled else {
            throw .store(.unavailable(reason: "a transaction of the database has been open for too long"))
        }
        return page.next
    }

    /// Returns the cursor before the oldest line that is kept.
    public func start() async throws(Failure) -> FeedCursor {
        let page = try await page(from: .max, limit: 1)
        return FeedCursor(epoch: page.epoch, number: page.start, lines: 0)
    }

    /// Whether a cursor of the current feed is ahead of everything that was ever written.
    public func isAhead(_ cursor: FeedCursor) async throws(Failure) -> Bool {
        let page = try await page(from: .max, limit: 1)
        return cursor.epoch == page.epoch && cursor.number > max(page.end, page.start - 1) + 1
    }

    // MARK: Reading

    /// Reads lines in order.
    ///
    /// - Parameters:
    ///   - cursor: the cursor after which to begin.
    ///   - kinds: the kinds of lines to return.
    ///   - limit: the maximum number of lines. There may be fewer, although more follow.
    /// - Throws: ``Failure/gone`` if changes after the cursor have been deleted.
    public func read(
        after cursor: FeedCursor, kinds: Set<FeedKind>, limit: Int
    ) async throws(Failure) -> Batch {
        var batch = Batch(next: cursor)
        var bytes = 0
        var rows = limit < Self.fewLines ? 1 : Self.pageRows
        while batch.lines.count < limit, bytes < Self.batchBytes {
            let page = try await page(from: batch.next.number, limit: rows)
            guard page.has(batch.next) else { throw .gone }
            for row in page.rows where batch.lines.count < limit {
                bytes += row.entries.count
                do throws(StorageError) {
                    batch.take(try row.lines(), of: row, kinds, limit)
                } catch {
                    throw .store(error)
                }
            }
            if page.rows.count < rows {
                // There are no further rows. The cursor moves to the end only if no open transaction may add an earlier
                // row.
                if batch.lines.count < limit, page.isSettled, page.end >= batch.next.number - 1 {
                    batch.next = page.next
                    batch.isAtEnd = true
                }
                break
            }
            rows = min(2 * rows, Self.pageRows)
        }
        return batch
    }

    /// Reads lines in order up to a cursor. There may be a few more, because rows are read in pages.
    ///
    /// - Parameter end: at most ``end()``.
    public func read(
        after cursor: FeedCursor, upTo end: FeedCursor, kinds: Set<FeedKind>, limit: Int
    ) async throws(Failure) -> Batch {
        var batch = try await read(after: cursor, kinds: kinds, limit: limit)
        while !batch.isUpTo(end), batch.lines.count < limit {
            let next = try await read(after: batch.next, kinds: kinds, limit: limit - batch.lines.count)
            guard next.next != batch.next else { break }
            batch.lines += next.lines
            batch.next = next.next
            batch.isAtEnd = next.isAtEnd
        }
        return batch
    }

    /// Waits until there may be a line after a cursor.
    ///
    /// - Parameter isWanted: returns whether to go on waiting; called at each check.
    /// - Returns: `false` if there is none by the deadline, if it is no longer wanted, or if the server is shutting
    ///   down.
    public func wait(
        after cursor: FeedCursor, until deadline: ContinuousClock.Instant, while isWanted: () -> Bool
    ) async throws -> Bool {
        while !isEnding(), isWanted(), ContinuousClock.now < deadline {
            let newest = try await newestPlace()
            if newest.number >= cursor.number || newest.epoch != cursor.epoch { return true }
            try await Task.sleep(for: Self.pollInterval)
        }
        return false
    }

    /// Returns the number of the newest row, as of a moment ago. All waiting readers share one check of the store.
    private func newestPlace() async throws(Failure) -> (epoch: Int64, number: Int64) {
        let now = DispatchTime.now().uptimeNanoseconds
        let known: (epoch: Int64, number: Int64)? = newest.withLock { newest in
            guard now &- newest.seenAt >= Self.freshNanoseconds else { return (newest.epoch, newest.number) }
            // Other waiting readers use the result of this check.
            newest.seenAt = now
            return nil
        }
        if let known { return known }
        let page = try await page(from: .max, limit: 1)
        newest.withLock { newest in
            newest.epoch = page.epoch
            newest.number = page.end
        }
        return (page.epoch, page.end)
    }
}

extension FeedReader.Batch {
    /// Whether everything up to a cursor has been read.
    public func isUpTo(_ end: FeedCursor?) -> Bool {
        guard let end else { return false }
        return (next.number, next.lines) >= (end.number, end.lines)
    }

    /// Appends the lines of a row after ``next``, and moves the cursor.
    ///
    /// - Parameter entries: all lines of the row; `nil` for a line whose user has been erased.
    fileprivate mutating func take(
        _ entries: [FeedEntry?], of row: FeedRow, _ kinds: Set<FeedKind>, _ limit: Int
    ) {
        let first = row.number == next.number ? next.lines : 0
        for (index, entry) in entries.enumerated() where index >= first && lines.count < limit {
            let isLast = index == entries.count - 1
            next.number = isLast ? row.number + 1 : row.number
            next.lines = isLast ? 0 : index + 1
            guard let entry, kinds.contains(FeedKind(entry.change)) else { continue }
            lines.append((entry, row.recordedAt, next))
        }
        // If the row has no lines after the cursor, the next row follows.
        if first >= entries.count {
            next.number = row.number + 1
            next.lines = 0
        }
    }
}
