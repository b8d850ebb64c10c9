package import Bucketing
import Dispatch
import Glibc
package import Storage
import Synchronization

/// A durable queue of what an edge sends to its upstream: events, and the last uses of flags.
///
/// The queue is a database file beside the edge's copy, and survives when the copy is replaced. Only one process may
/// use it. An entry is acknowledged to its client once it is durable. Entries are sent in order, and removed after the
/// upstream has acknowledged them. After a crash an entry may be sent twice, which must do no harm.
package final class EventOutbox: @unchecked Sendable {
    // Safe: the connection is used on the queue only.

    /// An entry that waits. The outbox does not interpret its content.
    package struct Entry: Sendable {
        package let number: Int64
        /// The user whom the entry concerns; `nil` if it concerns none.
        package let userID: Identifier?
        package let content: [UInt8]

        package init(number: Int64, userID: Identifier?, content: [UInt8]) {
            self.number = number
            self.userID = userID
            self.content = content
        }
    }

    /// A number of entries and their bytes.
    package struct Size: Sendable {
        package var entries = 0
        package var bytes = 0
    }

    private let path: String
    private let queue = DispatchQueue(label: "outbox", qos: .userInitiated)
    private var connection: Connection?
    /// The file as it was opened. It stays open as long as the connection: closing it would release SQLite's locks.
    private var file: OpenedFile?
    /// The maximum size.
    private let limits: Size
    /// The present size, with entries that are being appended.
    private let size = Mutex(Size())
    /// Called on any thread when there is something to send.
    private let didAppend: @Sendable () -> Void
    /// The approximate number of bytes that an entry takes beside its content.
    private static let overhead = 64

    /// - Parameter lockTimeout: how long to wait for another process to close the file, in seconds.
    package init(
        path: String, entries: Int, bytes: Int, lockTimeout: Double = 5, didAppend: @escaping @Sendable () -> Void
    ) throws(DatabaseError) {
        self.path = path
        limits = Size(entries: entries, bytes: bytes)
        self.didAppend = didAppend
        // Readable by its owner only, like a database: it contains what users did.
        for name in [path, path + "-wal"] { chmod(name, 0o600) }
        file = OpenedFile(creating: path)
        do throws(SQLiteError) {
            let connection = try Connection(path: path, access: .create, lockTimeout: lockTimeout)
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

    /// The entries that wait.
    package var waiting: Size { size.withLock { $0 } }

    /// Appends entries in one transaction, in order.
    ///
    /// - Parameter completion: called on the outbox's queue once they are durable, or with ``StorageError/overloaded``
    ///   if the outbox is full.
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
            size.entries += added.entries
            size.bytes += added.bytes
            return true
        }
        guard hasRoom else { return completion(.failure(.overloaded)) }
        queue.async { [self] in
            let result = write { connection throws(SQLiteError) in
                for entry in entries {
                    try connection.change(
                        "INSERT INTO outbox (user_id, content) VALUES (?1, ?2)", .text(entry.userID),
                        .bytes(entry.content))
                }
            }
            if case .failure = result {
                size.withLock { size in
                    size.entries -= added.entries
                    size.bytes -= added.bytes
                }
            }
            completion(result)
            if case .success = result { didAppend() }
        }
    }

    /// Reads the oldest entries.
    ///
    /// - Parameters:
    ///   - limit: the maximum number of entries.
    ///   - bytes: the number of bytes at which reading ends; at least one entry is read.
    package func first(_ limit: Int, bytes: Int) throws(StorageError) -> [Entry] {
        try result { connection throws(SQLiteError) in
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
        let deleted = result { connection throws(SQLiteError) in
            let deleted = try Self.size(where: condition, [parameter], on: connection)
            guard deleted.entries > 0 else { return deleted }
            try connection.run(SQLQuery("delete \(condition)", "DELETE FROM outbox WHERE \(condition)", parameter))
            return deleted
        }
        return deleted.map { deleted in
            size.withLock { size in
                size.entries -= deleted.entries
                size.bytes -= deleted.bytes
            }
        }
    }

    /// Runs a transaction, and blocks until it is done.
    private func result<Value: Sendable>(
        _ body: (Connection) throws(SQLiteError) -> Value
    ) -> Result<Value, StorageError> {
        queue.sync { write(body) }
    }

    /// Runs a transaction. Call it on the queue.
    private func write<Value>(_ body: (Connection) throws(SQLiteError) -> Value) -> Result<Value, StorageError> {
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

    /// Whether entries can be appended at present.
    package func probe() async throws(StorageError) {
        let waiting = waiting
        guard waiting.entries < limits.entries, waiting.bytes < limits.bytes else {
            throw .unavailable(reason: "the outbox is full")
        }
        try await completed { completion in
            queue.async { [self] in
                completion(
                    write { connection throws(SQLiteError) in
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

/// A database file that only this process uses. Notices when somebody deletes, replaces or overwrites the file.
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

    /// What happened to the file; `nil` if it is as SQLite left it.
    var damage: String? {
        var opened = stat()
        var present = stat()
        guard fstat(descriptor, &opened) == 0, stat(path, &present) == 0, opened.st_dev == present.st_dev,
            opened.st_ino == present.st_ino
        else { return "the outbox \(path) was deleted or replaced; events that waited in it may be lost: restart" }
        var header = [UInt8](repeating: 0, count: Self.magic.count)
        let count = pread(descriptor, &header, header.count, 0)
        // The file grows only, and is empty before the first transaction.
        guard opened.st_size >= size, count == 0 && size == 0 || header == Self.magic else {
            return "the outbox \(path) was overwritten; events that waited in it may be lost: restart"
        }
        size = opened.st_size
        return nil
    }
}
