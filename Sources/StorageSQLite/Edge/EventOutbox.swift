package import Bucketing
import Dispatch
import Glibc
package import Storage
import Synchronization

/// A durable queue of the events and last uses of flags that an edge sends to its upstream.
///
/// The queue is a database file of its own, so it survives when the edge's copy is replaced. Only one process may use
/// it. The edge acknowledges an entry to its client once the entry is durable. `OutboxSender` in `StorageEdge` sends
/// the entries in order, and removes them after the upstream has acknowledged them. After a crash an entry may be sent
/// twice.
///
/// ```
/// append → outbox (file) → first → upstream → remove
/// ```
package final class EventOutbox: @unchecked Sendable {
    // Safe: the connection is used on the queue only.

    /// A stored entry.
    package struct Entry: Sendable {
        /// Entries are numbered in the order in which they were appended.
        package let number: Int64
        /// The user whom the entry concerns; `nil` if it concerns none.
        package let userID: Identifier?
        /// The encoded event or last use, which the outbox does not interpret.
        package let content: [UInt8]

        package init(number: Int64, userID: Identifier?, content: [UInt8]) {
            self.number = number
            self.userID = userID
            self.content = content
        }
    }

    /// A number of entries, and their size in bytes.
    package struct Size: Sendable {
        package var entries = 0
        package var bytes = 0

        fileprivate static func += (total: inout Size, added: Size) {
            total.entries += added.entries
            total.bytes += added.bytes
        }

        fileprivate static func -= (total: inout Size, removed: Size) {
            total.entries -= removed.entries
            total.bytes -= removed.bytes
        }
    }

    private let path: String
    private let queue = DispatchQueue(label: "outbox", qos: .userInitiated)
    private var connection: Connection?
    /// The file as it was opened. Closed only after the connection, because closing it releases SQLite's locks.
    private var file: OpenedFile?
    /// The maximum size.
    private let limits: Size
    /// The present size, including entries that are being appended.
    private let size = Mutex(Size())
    /// Called on the outbox's queue after entries were appended.
    private let didAppend: @Sendable () -> Void
    /// The approximate number of bytes that an entry takes beside its content.
    private static let overhead = 64

    /// Opens the file; creates it if it does not exist.
    ///
    /// - Parameters:
    ///   - entries: the maximum number of entries.
    ///   - bytes: the maximum size of the entries in bytes.
    ///   - lockTimeout: how long to wait for another process to close the file, in seconds.
    ///   - didAppend: called on the outbox's queue after entries were appended.
    /// - Throws: ``DatabaseError`` if another process uses the file, or if it cannot be opened.
    package init(
        path: String, entries: Int, bytes: Int, lockTimeout: Double = 5, didAppend: @escaping @Sendable () -> Void
    ) throws(DatabaseError) {
        self.path = path
        limits = Size(entries: entries, bytes: bytes)
        self.didAppend = didAppend
        // Readable by its owner only, because it contains the events of users.
        for name in [path, path + "-wal"] { chmod(name, 0o600) }
        file = OpenedFile(creating: path)
        do throws(SQLiteError) {
            let connection = try Connection(path: path, access: .create, lockTimeout: lockTimeout)
            // In the exclusive mode a connection keeps the locks of its first transaction. The empty transaction at the
            // end takes them now, so that a second edge fails when it opens the file. The log shrinks to 64 MiB when it
            // restarts.
            try connection.execute(
                """
                PRAGMA locking_mode = EXCLUSIVE;
                PRAGMA journal_mode = WAL;
                PRAGMA synchronous = FULL;
                PRAGMA journal_size_limit = 67108864;
                CREATE TABLE IF NOT EXISTS outbox (
                    number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, user_id TEXT, content BLOB NOT NULL
                ) STRICT;
                CREATE INDEX IF NOT EXISTS outbox_by_user ON outbox (user_id) WHERE user_id IS NOT NULL;
                BEGIN IMMEDIATE;
                COMMIT;
                """)
            self.connection = connection
            let found = try Self.size(where: "true", [], on: connection)
            size.withLock { $0 = found }
        } catch {
            throw error.isBusy
                ? DatabaseError(path, "it must be used by one edge alone; another process uses it")
                : DatabaseError(path, error)
        }
    }

    /// The number and size of the entries that wait.
    package var waiting: Size { size.withLock { $0 } }

    /// Appends entries in one transaction, in order.
    ///
    /// - Parameter completion: called on the outbox's queue once all entries are durable. Called with
    ///   ``StorageError/overloaded`` if the outbox is full, with ``StorageError/damaged(reason:)`` if another program
    ///   has changed the file, and with ``StorageError/unavailable(reason:)`` if the file cannot be written.
    package func append(
        _ entries: [(userID: Identifier?, content: [UInt8])],
        _ completion: @escaping @Sendable (Result<Void, StorageError>) -> Void
    ) {
        let added = Size(
            entries: entries.count, bytes: entries.reduce(0) { $0 + $1.content.count + Self.overhead })
        let hasRoom = size.withLock { size in
            guard size.entries + added.entries <= limits.entries, size.bytes + added.bytes <= limits.bytes else {
                return false
            }
            size += added
            return true
        }
        guard hasRoom else { return completion(.failure(.overloaded)) }
        queue.async { [self] in
            let result = transact { connection throws(SQLiteError) in
                for entry in entries {
                    try connection.change(
                        "INSERT INTO outbox (user_id, content) VALUES (?1, ?2)", .text(entry.userID),
                        .bytes(entry.content))
                }
            }
            if case .failure = result { size.withLock { $0 -= added } }
            completion(result)
            if case .success = result { didAppend() }
        }
    }

    /// Reads the oldest entries.
    ///
    /// - Parameters:
    ///   - limit: the maximum number of entries.
    ///   - bytes: the total size at which reading ends, in bytes. At least one entry is read.
    package func first(_ limit: Int, bytes: Int) throws(StorageError) -> [Entry] {
        try transactNow { connection throws(SQLiteError) in
            var entries: [Entry] = []
            var size = 0
            let query = SQLQuery(
                "outbox_first", "SELECT number, user_id, content FROM outbox ORDER BY number LIMIT $1",
                .integer(limit))
            try connection.run(query) { row in
                guard size < bytes else { return }
                let entry = Entry(number: row.integer(0), userID: row.optionalIdentifier(1), content: row.bytes(2))
                size += entry.content.count
                entries.append(entry)
            }
            return entries
        }.get()
    }

    /// Deletes entries that were sent, by their numbers.
    package func remove(_ numbers: [Int64]) throws(StorageError) {
        let list = "[\(numbers.map(String.init).joined(separator: ","))]"
        try delete("number IN (SELECT value FROM json_each($1))", .text(list)).get()
    }

    /// Measures the entries that meet a condition.
    private static func size(
        where condition: String, _ parameters: [SQLValue], on connection: Connection
    ) throws(SQLiteError) -> Size {
        let columns = "count(*), coalesce(sum(length(content) + \(overhead)), 0)"
        let query = SQLQuery("size \(condition)", "SELECT \(columns) FROM outbox WHERE \(condition)", parameters)
        return try connection.all(query) { Size(entries: Int($0.integer(0)), bytes: Int($0.integer(1))) }.first
            ?? Size()
    }

    /// Deletes the entries that meet a condition, and updates the size.
    private func delete(_ condition: String, _ parameter: SQLValue) -> Result<Void, StorageError> {
        let deleted = transactNow { connection throws(SQLiteError) in
            let deleted = try Self.size(where: condition, [parameter], on: connection)
            guard deleted.entries > 0 else { return deleted }
            try connection.run(SQLQuery("delete \(condition)", "DELETE FROM outbox WHERE \(condition)", parameter))
            return deleted
        }
        return deleted.map { deleted in size.withLock { $0 -= deleted } }
    }

    /// Runs a transaction on the queue, and blocks until it is done.
    private func transactNow<Value: Sendable>(
        _ body: (Connection) throws(SQLiteError) -> Value
    ) -> Result<Value, StorageError> {
        queue.sync { transact(body) }
    }

    /// Runs a transaction. Call it on the queue.
    private func transact<Value>(_ body: (Connection) throws(SQLiteError) -> Value) -> Result<Value, StorageError> {
        guard let connection else { return .failure(.closed) }
        if let reason = file?.damage { return .failure(.damaged(reason: reason)) }
        do throws(SQLiteError) {
            try connection.statement("BEGIN IMMEDIATE").run()
            let value = try body(connection)
            try connection.statement("COMMIT").run()
            return .success(value)
        } catch {
            if connection.isInTransaction { try? connection.execute("ROLLBACK") }
            let reason = "the outbox \(path) cannot be used: \(error.asStorageError)"
            return .failure(error.isDamage ? .damaged(reason: reason) : .unavailable(reason: reason))
        }
    }

    /// Checks that entries can be appended at present, with a transaction that changes no entry.
    ///
    /// - Throws: ``StorageError/unavailable(reason:)`` if the outbox is full or cannot be written;
    ///   ``StorageError/damaged(reason:)`` if another program has changed the file.
    package func probe() async throws(StorageError) {
        let waiting = waiting
        guard waiting.entries < limits.entries, waiting.bytes < limits.bytes else {
            throw .unavailable(reason: "the outbox is full")
        }
        try await completed { completion in
            queue.async { [self] in
                completion(
                    transact { connection throws(SQLiteError) in
                        try connection.statement("UPDATE outbox SET number = number WHERE number = -1").run()
                    })
            }
        }
    }

    /// Closes the file after the entries appended so far are durable. Blocks until done.
    package func close() {
        queue.sync {
            connection = nil
            file = nil
        }
    }
}

/// A database file that only this process uses. Detects that another program has deleted, replaced or overwritten it.
private final class OpenedFile {
    private let path: String
    private let descriptor: Int32
    /// The size at the last check.
    private var size: off_t = 0
    /// The first bytes of every SQLite database.
    private static let magic = Array("SQLite format 3\0".utf8)

    /// Opens the file; creates it readable by its owner only.
    init?(creating path: String) {
        self.path = path
        descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { return nil }
    }

    deinit {
        close(descriptor)
    }

    /// Describes what another program did to the file; `nil` if the file is as SQLite left it.
    var damage: String? {
        var opened = stat()
        var present = stat()
        let bothExist = fstat(descriptor, &opened) == 0 && stat(path, &present) == 0
        guard bothExist, opened.st_dev == present.st_dev, opened.st_ino == present.st_ino else {
            return "the outbox \(path) was deleted or replaced; events that waited in it may be lost: restart"
        }
        var header = [UInt8](repeating: 0, count: Self.magic.count)
        let count = pread(descriptor, &header, header.count, 0)
        // The file is empty before the first transaction, and never shrinks.
        let isNew = count == 0 && size == 0
        guard opened.st_size >= size, isNew || header == Self.magic else {
            return "the outbox \(path) was overwritten; events that waited in it may be lost: restart"
        }
        size = opened.st_size
        return nil
    }
}
