public import Chronology

/// Whether the store keeps a feed, and for how long; see ``FeedEntry``.
public enum FeedMode: Sendable, Equatable {
    /// The mode that the servers of the database have set. For commands that run at the same time as a server.
    case asStored
    /// There is no feed, and changes have no additional cost.
    case off
    /// Rows are kept for a time. If they take more bytes than the limit, the oldest rows are deleted sooner.
    case kept(for: TimeSpan, bytes: Int64)

    /// Seven days, up to 1 GiB.
    public static let standard = FeedMode.kept(for: .days(7), bytes: 1 << 30)
}

/// The state of the feed as a whole: the only row of the table `feed_state`.
package struct FeedState: Sendable, Equatable {
    /// Identifies the feed. A row number is only valid within one epoch, because the feed of another database, or of a
    /// restored one, has other rows with the same numbers. 0 if there is no feed.
    package var epoch: Int64 = 0
    /// The greatest number of a row that was deleted.
    package var deletedTo: Int64 = 0
    /// The number of the last row that ``rows`` and ``bytes`` include.
    package var countedTo: Int64 = 0
    /// The number of stored rows.
    package var rows: Int64 = 0
    /// The size of the encoded entries in the stored rows.
    package var bytes: Int64 = 0

    package init() {}

    /// - Parameter row: a row with the ``columns``.
    package init(_ row: any Row) {
        epoch = row.integer(0)
        deletedTo = row.bounded(1)
        countedTo = row.bounded(2)
        rows = row.bounded(3)
        bytes = row.bounded(4)
    }

    /// The columns in the order of ``init(_:)``.
    package static let columns = "epoch, deleted_to, counted_to, row_count, byte_count"
    package static let read = SQLQuery("feed_state", "SELECT \(columns) FROM feed_state")

    /// Stores everything except the epoch, which ``setEpoch(_:replacing:presented:_:)`` stores.
    package var update: SQLQuery {
        SQLQuery(
            "feed_state_update",
            "UPDATE feed_state SET deleted_to = $1, counted_to = $2, row_count = $3, byte_count = $4",
            .integer(deletedTo), .integer(countedTo), .integer(rows), .integer(bytes))
    }

    /// Returns the epoch that a store must set when it is opened with a mode; `nil` if the stored epoch stays.
    package func newEpoch(_ mode: FeedMode) -> Int64? {
        switch mode {
        case .asStored: nil
        case .off: epoch == 0 ? nil : 0
        case .kept: epoch == 0 ? StoreGeneration.random() : nil
        }
    }

    /// The maximum size in bytes of the list of former epochs. An epoch takes at most 9 bytes, so the list holds more
    /// than 400 epochs. The oldest are dropped.
    private static let formerBytes = 4_096

    /// Begins a feed with a new epoch, or ends the feed with the epoch 0. Readers no longer get the rows of the former
    /// feed, because changes after them may be missing.
    ///
    /// - Parameters:
    ///   - former: the expected current epoch. If the store has another epoch, nothing changes.
    ///   - presented: another epoch that is known not to be current; 0 for none. `former` and `presented` are added to
    ///     the list of former epochs.
    package static func setEpoch(
        _ epoch: Int64, replacing former: Int64, presented: Int64 = 0, _ dialect: SQLDialect
    ) -> SQLQuery {
        let epochs = [former, presented].filter { $0 != 0 }.map { String($0, radix: 16) + "," }.joined()
        return SQLQuery(
            "feed_epoch",
            """
            UPDATE feed_state SET epoch = $1, deleted_to = (\(lastNumber(dialect).sql)),
                former_epochs = substr(former_epochs || $2, CASE WHEN length(former_epochs || $2) > \(formerBytes)
                    THEN length(former_epochs || $2) - \(formerBytes) + 1 ELSE 1 END)
            WHERE epoch = $3
            """, .integer(epoch), .text(epochs), .integer(former))
    }

    /// Assigns a random ``StoreGeneration/storeID`` to a store that has none.
    package static func identify() -> SQLQuery {
        SQLQuery(
            "feed_store_id", "UPDATE feed_state SET store_id = $1 WHERE store_id = 0",
            .integer(Int64.random(in: 1...Int64.max)))
    }

    /// Reads the store's generation and the list of former epochs.
    package static let generation = SQLQuery("feed_generation", "SELECT store_id, epoch, former_epochs FROM feed_state")

    /// Reads the greatest row number that a transaction has drawn. In PostgreSQL that transaction may still be open.
    package static func lastNumber(_ dialect: SQLDialect) -> SQLQuery {
        switch dialect {
        case .sqlite: SQLQuery("feed_last", "SELECT feed_number FROM counters")
        case .postgreSQL:
            SQLQuery("feed_last", "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM feed_numbers")
        }
    }

    // MARK: Retention

    /// Reads how many rows follow ``countedTo`` up to a row number, and their size; see ``count(to:_:)``.
    package func countNew(to number: Int64) -> SQLQuery {
        SQLQuery(
            "feed_count",
            "SELECT count(*), coalesce(sum(length(entries)), 0) FROM feed WHERE number > $1 AND number <= $2",
            .integer(countedTo), .integer(number))
    }

    /// Adds the result of ``countNew(to:)`` to the counts.
    package mutating func count(to number: Int64, _ row: any Row) {
        guard number > countedTo else { return }
        countedTo = number
        rows += row.bounded(0)
        bytes += row.bounded(1)
    }

    /// Reads the time and size of the oldest rows, for ``deleteOldest(of:_:at:)``.
    ///
    /// - Parameter number: the greatest row number to read.
    package static func oldest(to number: Int64, limit: Int) -> SQLQuery {
        SQLQuery(
            "feed_oldest",
            """
            SELECT number, recorded_at, length(entries) FROM feed WHERE number <= $1 ORDER BY number LIMIT $2
            """, .integer(number), .integer(limit))
    }

    /// The time and size of a row.
    package struct Size {
        let number: Int64
        let recordedAt: Instant
        let bytes: Int64

        package init(_ row: any Row) {
            number = row.integer(0)
            recordedAt = row.instant(1)
            bytes = row.bounded(2)
        }
    }

    /// Determines which of the oldest rows exceed the limits of a mode, subtracts them from ``rows`` and ``bytes``, and
    /// advances ``deletedTo``. The caller then executes the ``deletions``.
    ///
    /// - Parameter sizes: the oldest rows, from ``oldest(to:limit:)``.
    /// - Returns: the number of rows to delete.
    package mutating func deleteOldest(of sizes: [Size], _ mode: FeedMode, at now: Instant) -> Int {
        let limits: (oldest: Instant, bytes: Int64) =
            switch mode {
            case .asStored: (.distantPast, .max)
            case .off: (.distantFuture, 0)
            case .kept(let span, let bytes): (max(.epoch, now - span), bytes)
            }
        var count = 0
        for size in sizes {
            guard size.recordedAt < limits.oldest || bytes > limits.bytes else { break }
            deletedTo = max(deletedTo, size.number)
            rows = max(0, rows - 1)
            bytes = max(0, bytes - size.bytes)
            count += 1
        }
        return count
    }

    /// The statements that delete the rows up to ``deletedTo``.
    package var deletions: [SQLQuery] {
        ["feed", "feed_removals"].map { table in
            SQLQuery("delete_\(table)", "DELETE FROM \(table) WHERE number <= $1", .integer(deletedTo))
        }
    }
}

/// The metrics of a feed.
public struct FeedMetrics: Sendable {
    /// See ``FeedState/rows``.
    public var rows: Int64 = 0
    /// See ``FeedState/bytes``.
    public var bytes: Int64 = 0
    /// When the oldest row was recorded; `nil` if there is none.
    public var oldest: Instant?

    public init() {}

    package static let oldestQuery = SQLQuery(
        "feed_oldest_time", "SELECT recorded_at FROM feed ORDER BY number LIMIT 1")
}

/// A position in the feed.
public struct FeedCursor: Sendable, Hashable {
    /// The ``FeedState/epoch`` of the feed.
    public var epoch: Int64
    /// The number of the row from which to read. If no row has this number, reading begins with the next one.
    public var number: Int64
    /// How many lines of the row with this ``number`` have been read already.
    public var lines: Int

    public init(epoch: Int64, number: Int64, lines: Int) {
        self.epoch = epoch
        self.number = number
        self.lines = lines
    }

    /// The maximum length of a text in bytes, more than the longest cursor takes.
    private static let longestText = 64

    /// Parses a text.
    ///
    /// - Returns: `nil` unless the text has the form of ``text``.
    public init?(_ text: String) {
        let parts = text.split(separator: "-", omittingEmptySubsequences: false)
        guard text.utf8.count <= Self.longestText, parts.count == 3 else { return nil }
        guard let epoch = Int64(parts[0], radix: 16), let number = Int64(parts[1]), let lines = Int(parts[2]) else {
            return nil
        }
        guard epoch > 0, number > 0, lines >= 0 else { return nil }
        self.init(epoch: epoch, number: number, lines: lines)
    }

    /// The epoch in hexadecimal digits, the row number and the number of lines, for example `8c21-1042-0`.
    public var text: String { "\(String(epoch, radix: 16))-\(number)-\(lines)" }
}
