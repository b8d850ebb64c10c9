public import Chronology
import Dispatch
public import Storage
import Synchronization

/// Reads the feed of changes for all its followers: edges, and clients of `GET /v1/feed`.
///
/// The feed consists of numbered rows, one for each transaction. A row has a line for each change of its transaction. A
/// ``Storage/FeedCursor`` is a position between two lines.
///
/// A transaction with a smaller number may be committed after one with a greater number. Its row must not be skipped,
/// so a read waits until transactions with smaller numbers have ended. The reader therefore has a session of its own,
/// in which nothing else waits.
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
        /// The lines. `entry` is the change, `at` is the time when it was recorded, and `cursor` is after the line.
        public var lines: [(entry: FeedEntry, at: Instant, cursor: FeedCursor)] = []
        /// The cursor at which the next read continues. Lines of kinds that were not requested are before it, too.
        public var next: FeedCursor
        /// Whether no change was committed after ``next`` when the batch was read.
        public var isAtEnd = false
    }

    private let store: any Store
    private let session = Mutex<BackgroundSession?>(nil)
    private let isEnding: @Sendable () -> Bool
    private let lastCheck = Mutex(RowCheck())
    /// The last row up to which all transactions are known to have ended (``Storage/FeedPage/settledTo``). Reads need
    /// not wait for these transactions.
    private let settled = Mutex(RowNumber())

    /// Identifies a row. A database that replaces another one has another epoch, and its rows have other numbers.
    private struct RowNumber {
        var epoch: Int64 = 0
        var number: Int64 = 0
    }

    /// A check for new rows, whose result all waiting readers share.
    private struct RowCheck {
        /// The newest row.
        var row = RowNumber()
        /// When the check began, in monotonic nanoseconds.
        var beganAt: UInt64 = 0
    }

    /// The interval at which waiting readers check for new rows. One reader checks for all of them.
    private static let pollInterval = Duration.milliseconds(50)
    /// The time for which readers share the result of a check, in nanoseconds. It is shorter than ``pollInterval``, so
    /// that each reader's next check is a new one.
    private static let freshness: UInt64 = 45_000_000
    /// The maximum number of rows in a page, which is read at once.
    private static let rowsPerPage = 16
    /// A read of fewer lines begins with a page of one row, because a row may have a thousand lines.
    private static let fewLines = 256
    /// A batch that has this size in bytes gets no further page.
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

    // MARK: Pages

    /// Reads a page of rows.
    ///
    /// - Parameters:
    ///   - number: the number of the first row; `.max` to read only the ends of the feed without waiting for open
    ///     transactions.
    ///   - limit: the maximum number of rows; 0 to read only the ends of the feed.
    /// - Throws: ``Failure/off`` if the database has no feed; ``Failure/store(_:)`` if the store cannot be read.
    private func page(from number: Int64, limit: Int) async throws(Failure) -> FeedPage {
        let formerlySettled = settled.withLock { $0 }
        var page = try await readPage(from: number, limit: limit, settledTo: formerlySettled.number)
        if page.epoch != formerlySettled.epoch, formerlySettled.number > 0 {
            // The database was replaced by another one, so the number means nothing.
            page = try await readPage(from: number, limit: limit, settledTo: 0)
        }
        guard page.epoch != 0 else { throw .off }
        settled.withLock { [page] settled in
            let former = settled.epoch == page.epoch ? settled.number : 0
            settled = RowNumber(epoch: page.epoch, number: max(former, page.settledTo))
        }
        return page
    }

    /// - Parameter settled: the number of a row up to which all transactions are known to have ended.
    private func readPage(
        from number: Int64, limit: Int, settledTo settled: Int64
    ) async throws(Failure) -> FeedPage {
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
    /// - Throws: ``Failure/store(_:)`` if a transaction stays open for so long that the newest line is unknown.
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

    /// Whether a cursor belongs to the current feed, but is ahead of its newest row.
    public func isAhead(_ cursor: FeedCursor) async throws(Failure) -> Bool {
        let page = try await page(from: .max, limit: 1)
        // In an empty feed, the newest row is the one before the oldest row that could be kept.
        let newest = max(page.end, page.start - 1)
        // The cursor after the newest row has the number of the next row.
        return cursor.epoch == page.epoch && cursor.number > newest + 1
    }

    // MARK: Reading

    /// Reads lines in order.
    ///
    /// - Parameters:
    ///   - cursor: the cursor after which to begin.
    ///   - kinds: the kinds of lines to return.
    ///   - limit: the maximum number of lines. The batch may have fewer lines although more follow.
    /// - Throws: ``Failure/gone`` if changes after the cursor have been deleted.
    public func read(
        after cursor: FeedCursor, kinds: Set<FeedKind>, limit: Int
    ) async throws(Failure) -> Batch {
        var batch = Batch(next: cursor)
        var bytes = 0
        var pageLimit = limit < Self.fewLines ? 1 : Self.rowsPerPage
        while batch.lines.count < limit, bytes < Self.batchBytes {
            let page = try await page(from: batch.next.number, limit: pageLimit)
            guard page.has(batch.next) else { throw .gone }
            for row in page.rows where batch.lines.count < limit {
                bytes += row.entries.count
                do throws(StorageError) {
                    batch.append(try row.lines(), of: row, kinds, limit)
                } catch {
                    throw .store(error)
                }
            }
            let isLastPage = page.rows.count < pageLimit
            if isLastPage {
                if batch.lines.count < limit { batch.moveToEnd(of: page) }
                break
            }
            pageLimit = min(2 * pageLimit, Self.rowsPerPage)
        }
        return batch
    }

    /// Reads lines in order, at least up to a cursor. There may be a few more lines, because rows are read in pages.
    ///
    /// - Parameter end: a cursor that is not after ``end()``.
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
    /// - Parameter isWanted: returns whether the caller still waits; called before each check.
    /// - Returns: `true` if there may be a line; `false` after the deadline, if the caller no longer waits, or if the
    ///   server is shutting down.
    public func wait(
        after cursor: FeedCursor, until deadline: ContinuousClock.Instant, while isWanted: () -> Bool
    ) async throws -> Bool {
        while !isEnding(), isWanted(), ContinuousClock.now < deadline {
            let newest = try await checkNewestRow()
            // In another epoch, the cursor is refused by the next read.
            if newest.number >= cursor.number || newest.epoch != cursor.epoch { return true }
            try await Task.sleep(for: Self.pollInterval)
        }
        return false
    }

    /// Returns the newest row, as of a moment ago. All waiting readers share one check of the store.
    private func checkNewestRow() async throws(Failure) -> RowNumber {
        let now = DispatchTime.now().uptimeNanoseconds
        let shared: RowNumber? = lastCheck.withLock { check in
            guard now &- check.beganAt >= Self.freshness else { return check.row }
            // This reader begins a check. Until it has the result, other readers use the former result.
            check.beganAt = now
            return nil
        }
        if let shared { return shared }
        let page = try await page(from: .max, limit: 1)
        let row = RowNumber(epoch: page.epoch, number: page.end)
        lastCheck.withLock { $0.row = row }
        return row
    }
}

extension FeedReader.Batch {
    /// Whether all lines before a cursor have been read.
    public func isUpTo(_ end: FeedCursor?) -> Bool {
        guard let end else { return false }
        return (next.number, next.lines) >= (end.number, end.lines)
    }

    /// Moves the cursor to the end of the feed after its last page, unless an open transaction may still add a row
    /// before the end.
    fileprivate mutating func moveToEnd(of page: FeedPage) {
        // The cursor never moves back.
        guard page.isSettled, page.end >= next.number - 1 else { return }
        next = page.next
        isAtEnd = true
    }

    /// Appends the lines of a row that are after ``next``, and moves the cursor past each of them.
    ///
    /// - Parameters:
    ///   - entries: all lines of the row; `nil` for a line whose user has been erased.
    ///   - kinds: the requested kinds. The cursor also moves past lines of other kinds.
    ///   - limit: the maximum number of lines in the batch.
    fileprivate mutating func append(
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
        // The row has no lines after the cursor, so the cursor moves to the next row.
        if first >= entries.count {
            next.number = row.number + 1
            next.lines = 0
        }
    }
}
